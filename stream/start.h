// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up of a stream whose peer is proved, required or unknown (doc/decisions/0043).
#ifndef DDPSOCK_STREAM_START_H_
#define DDPSOCK_STREAM_START_H_

#include <array>

#include "mpa/format.h"
#include "stream/connection.h"
#include "stream/format.h"

namespace ddpsock::engine {

// In place of an errno value: the peer closed before it began.
inline constexpr int kEndOfStream = -1;

// 0 when FPDUs may flow in that direction, an errno value otherwise; EPROTOTYPE when the connection
// turned out to be plain, kEndOfStream as above. REQUIRES: the lease of that direction; for the
// first none.
int prepare_to_send(Connection& c, int& fd, int flags);
int start_sending(Connection& c, int fd, int flags);
// The call has room for so many bytes: a chunk that came with the frame, and nothing behind it,
// may be in the inbox afterwards.
int start_receiving(Connection& c, int fd, int flags, size_t room = 0);

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
// Ours, to be sent.
class OwnFrame {
 public:
  static constexpr size_t kMost =
      MPA_STARTUP_HEADER_SIZE + MPA_ENHANCED_SIZE + DDPSOCK_HELLO_MAX_SIZE;
  OwnFrame() = default;
  OwnFrame(Connection& c, StartFrame kind);
  Bytes bytes() const { return Bytes(bytes_).first(size_); }

 private:
  std::array<uint8_t, kMost> bytes_;
  size_t size_ = 0;
};
// The kernel has taken so many bytes of it, or of it and what follows. 0, or the errno value of the
// end that a part of it is. REQUIRES: the send lease, as does what follows.
int note_frame_sent(Connection& c, int fd, size_t frame, size_t taken);
int send_start_frame(Connection& c, int fd, int flags, StartFrame kind = StartFrame::kUsual);
// Stream::on_connected().
Io on_connected(Connection& c, int fd, bool wait);
// A receive call on a stream that has turned out to be plain, as far as it is not just libc's.
Io go_on_as_plain(Connection& c, int fd, std::span<const iovec> to, int flags);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_START_H_
