// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up of a stream whose peer is proved, required or unknown (doc/decisions/0043).
#ifndef DDPSOCK_ENGINE_USER_START_H_
#define DDPSOCK_ENGINE_USER_START_H_

#include "engine/user/connection.h"

namespace ddpsock::engine {

// In place of an errno value: the peer closed before it began.
inline constexpr int kEndOfStream = -1;

// 0 when FPDUs may flow in that direction, an errno value otherwise; EPROTOTYPE when the connection
// turned out to be plain, kEndOfStream as above. REQUIRES: the lease of that direction; for the
// first none.
int prepare_to_send(Connection& c, int fd, int flags);
int start_sending(Connection& c, int fd, int flags);
int start_receiving(Connection& c, int fd, int flags);

// Before anything is written: is the peer's word needed, or was it said? As above.
int decide_before_writing(Connection& c, int fd);
// A whole one, good or bad, is the first that lies unread. Only looks.
bool has_whole_request(int fd);
// Takes in what the peer has said, or waits for it until `patience` is over.
int await_start_frame(Connection& c, int fd, bool may_wait, Time patience);
// What an unknown peer has said. 0: that of a DDP peer; EPROTOTYPE; or it has said nothing.
int sniff(Connection& c, int fd, int flags);
int decide(Connection& c, int fd, Peer verdict);

enum class StartFrame : uint8_t {
  kUsual,
  kRejected,
  kHurried,  // nothing can go on before the peer's
};
// REQUIRES: the send lease.
int send_start_frame(Connection& c, int fd, int flags, StartFrame kind = StartFrame::kUsual);
// Stream::on_connected().
Io on_connected(Connection& c, int fd, bool wait);
// A receive call on a stream that has turned out to be plain, as far as it is not just libc's.
Io go_on_as_plain(Connection& c, int fd, std::span<const iovec> to, int flags);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_START_H_
