// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The state of one stream, as it lies in the arena. Plain data without pointers, so that every
// process that holds the socket can use it: a forked one at the same address, one that came by exec
// at another.
#ifndef DDPSOCK_ENGINE_USER_RECORD_H_
#define DDPSOCK_ENGINE_USER_RECORD_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/lease.h"
#include "ddp/format.h"
#include "engine/shm/segment.h"
#include "engine/stream.h"
#include "engine/user/arena.h"

namespace ddpsock::engine {

// Bytes read from the kernel and not yet delivered, in order: perhaps the rest of a verified FPDU,
// then the beginning of the next. [beg, end) of a block, or of the caller's stack while a call
// runs.
struct Rx {
  base::Lease lease;
  uint32_t msn = DDP_FIRST_MSN;  // of the Send in progress
  uint32_t mo = 0;               // how much of it has come; our own peers send it in one segment
  uint32_t block = Arena::kNoBlock;
  uint32_t beg = 0, end = 0;  // the buffered bytes
  uint32_t left = 0;          // payload of the verified FPDU in front that is not delivered yet
  uint32_t skip = 0;          // its pad and CRC bytes in the buffer after that
  uint32_t queued = 0;        // the kernel has at least so many unread bytes
  int32_t error = 0;          // an errno that waits for the next call
  std::atomic<int32_t> low_water = 1;  // SO_RCVLOWAT
  bool has_kept_byte = false;  // the last CRC byte of the FPDU in front is still in the kernel (I1)
  bool has_queue_hints = false;          // TCP_INQ is on
  std::atomic<bool> is_started = false;  // the peer's start-up frame was read
  bool is_asleep = false;  // the holder waits in the kernel; everything here is as it left it
  // Bytes that lay in the peer's lane when this process's family left it: they come first.
  // Those from residue_split on come after all FPDUs before residue_fpdu.
  std::array<uint32_t, 2> residue_blocks{};
  uint32_t residue_beg = 0, residue_end = 0, residue_split = 0, residue_fpdu = 0;
};

struct Tx {
  base::Lease lease;
  uint32_t msn = DDP_FIRST_MSN;
  uint32_t peer_window = 0;  // the largest the peer was seen to offer, bytes
  uint32_t credit = 0;       // bytes, overhead included, that the kernel is sure to take in whole
  uint32_t tail_block =
      Arena::kNoBlock;  // the rest of an FPDU that the kernel cut in spite of that
  uint32_t tail_beg = 0, tail_end = 0;
  std::atomic<bool> is_started = false;  // our start-up frame was sent
  std::atomic<bool> is_shut = false;     // by shutdown()
};

// Written under the lease of its direction, read at any time.
class Counter {
 public:
  void add(uint64_t n) { value_.store(value() + n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Counters {
  Counter bytes_sent, bytes_received, fpdus_sent, fpdus_received, crcs_checked;
};

// Why a stream is not in shared memory. The texts are in memory.cpp.
enum class MemoryState : uint8_t {
  kUnasked,     // nobody has offered any
  kOffered,     // by us; the peer has not joined
  kInvited,     // by the peer; we have not joined
  kJoined,      // both use it
  kNotWanted,   // --engine user, or the peer is not proved to be on this host
  kNoMemory,    // the kernel refused us some
  kNotAllowed,  // the peer's process is another user's, hides, or lives in another pid namespace
  kBadOffer,    // what the peer offered is not what it said
  kShared,      // several processes held the stream before it began
  kLeft,        // a program was executed that has no part in it
  kBroken,      // the connection has ended
};

// The part of a stream that lies in memory shared with the peer (engine/shm). The mapping itself is
// each process's own (UserStream).
struct Memory {
  std::atomic<MemoryState> state{MemoryState::kUnasked};
  std::atomic<bool> has_left{false};  // no more through our lane, also while `state` says joined
  shm::End end = shm::End::kConnected;
  shm::Offer offer;
  shm::LaneTx tx;
  shm::LaneRx rx;
  uint8_t attempts = 0;  // to join
  bool had_nodelay = false,
       had_cork = false;   // what the program had set, which bells must get past
  uint32_t unnoticed = 0;  // publications since the kernel was last asked whether the peer lives
};

const char* memory_text(MemoryState state);

struct Record {
  explicit Record(const StreamAttr& attr);

  // The first reason stays. Text beyond the field is cut.
  void note_failure(const char* why);

  uint64_t cookie =
      0;  // SO_COOKIE of the socket: how a process that came by exec finds its streams
  std::atomic<StreamState> state{StreamState::kStarting};
  std::atomic<bool> is_dying{false};  // the last holder has released it
  std::atomic<bool> has_crc{true};    // until the start-up frames agree otherwise
  std::atomic<bool> has_failure{false};
  Role role;
  std::atomic<Peer> peer;
  bool is_strict;
  bool wants_crc;
  bool wants_memory;
  std::atomic<bool> has_peer_revision{false};  // after the two below
  bool is_peer_enhanced = false;
  uint8_t peer_revision = 0;
  bool is_peer_ddpsock = false;
  uint16_t peer_features = 0;
  std::atomic<uint32_t> max_payload;
  Duration start_timeout;
  Time opened_at;
  Time sniff_until{};
  Rx rx;
  Tx tx;
  Memory memory;
  Counters counters;
  std::array<char, 96> failure{};
};
static_assert(sizeof(Record) <= Arena::kRecordSize);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_RECORD_H_
