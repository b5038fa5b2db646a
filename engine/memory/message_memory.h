// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The memory that the two ends of one connection in message mode share: a sealed memfd with a lane
// a direction. The end that connects makes it before it connects, and publishes its process and
// descriptor beside the proof that it is ours; the end that accepts takes it from there, checks
// that it was made for this very socket, and joins before it answers MPA start-up. So both know
// before the first FPDU, and nothing about it is on the wire.
//
// After start-up nobody needs the descriptor. The memory goes with the last process that maps it; a
// forked child does not.
#ifndef DDPSOCK_ENGINE_MEMORY_MESSAGE_MEMORY_H_
#define DDPSOCK_ENGINE_MEMORY_MESSAGE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/result.h"
#include "engine/memory/message_lane.h"
#include "engine/memory/region_table.h"
#include "shm/peer_process.h"

namespace ddpsock::engine::shm {

class MessageMemory {
 public:
  // For the end that connects. ENOSYS, EMFILE, ENFILE, ENOMEM, EFBIG: it does without.
  static Result<std::unique_ptr<MessageMemory>> make(const SocketName& socket);
  // For the end that accepts: what process `pid` offers as its descriptor `fd`, for a connection
  // from `socket`. From success on the peer uses the memory, too, once start-up has ended. EACCES,
  // ENOENT, EPROTO as open_sealed_file(), or EPROTO (another connection's, or withdrawn), ENOMEM.
  static Result<std::unique_ptr<MessageMemory>> join(uint32_t pid, uint32_t fd,
                                                     const SocketName& socket);
  ~MessageMemory();
  MessageMemory(const MessageMemory&) = delete;
  MessageMemory& operator=(const MessageMemory&) = delete;

  // What to publish; -1 once settled.
  int descriptor() const { return file_.get(); }
  // At the end of start-up: whether both ends have it. Nobody can join any more afterwards.
  [[nodiscard]] bool settle();

  MessageLane& outgoing() { return lane(is_connected_end_ ? 0 : 1); }
  MessageLane& incoming() { return lane(is_connected_end_ ? 1 : 0); }
  uint64_t secret() const { return secret_; }

  // Whether the peer can read our memory, so that a record may name it. Its word: input.
  bool may_name() const;
  // Whether we can read the peer's.
  bool can_read_peer() const { return peer_.is_somebody(); }
  // Its memory as a record of its names it. False: it is not there, or not the peer's.
  [[nodiscard]] bool read_peer(std::span<const RemoteRange> from,
                               std::span<const MutBytes> to) const {
    return peer_.read(from, to);
  }

  // Where an end tells of memory that the other may reach by itself (region_table.h).
  struct PeerTable {
    uint32_t pid = 0;
    RegionTablePlace place;
  };
  void tell_table(const RegionTablePlace& own);
  // As the peer says: input.
  bool has_peer_table() const;
  PeerTable peer_table() const;
  // By what we know of ourselves.
  ConnectionEnd own_end() const { return {socket_, is_connected_end_}; }
  ConnectionEnd peer_end() const { return {socket_, !is_connected_end_}; }
  // From now on the peer is to reach nothing by itself: its stream has failed, or ended, here.
  void end_reaching();
  // Whether the peer has said that to us.
  bool has_reaching_ended() const;

  // Provides memory for bytes [0, end) of the outgoing ring. False: there is none.
  [[nodiscard]] bool provide(uint32_t end) { return end <= provided_ || provide_more(end); }

 private:
  struct Head;
  MessageMemory(uint8_t* mapped, const SocketName& socket, bool is_connected_end);
  Head& head() const { return *reinterpret_cast<Head*>(mapped_); }
  MessageLane& lane(unsigned which) const;
  void introduce();
  void meet();
  bool provide_more(uint32_t end);

  uint8_t* const mapped_;
  const SocketName socket_;
  const bool is_connected_end_;
  uint64_t secret_ = 0;
  uint64_t mark_ = 0;  // ours
  base::UniqueFd file_;
  uint32_t provided_ = 0;
  PeerProcess peer_;
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_ENGINE_MEMORY_MESSAGE_MEMORY_H_
