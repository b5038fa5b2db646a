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
#include "base/counter.h"
#include "base/effort.h"
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
  // Once drained (one_sided_rx.cpp): stream bytes that come before all others, and the kernel's
  // unread bytes that are accounted for already. `block` then holds the beginning of an FPDU.
  static constexpr size_t kPoolBlocks = 8;
  std::array<uint32_t, kPoolBlocks> pool_blocks{};
  uint32_t pool_beg = 0, pool_end = 0;
  uint32_t held = 0;
  bool is_drained = false;
  std::atomic<bool> is_wanted = false;  // the queue pair's thread found the lease taken
  uint32_t pool_size() const { return pool_end - pool_beg; }
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
  std::atomic<bool> is_wanted = false;   // the queue pair's thread found the lease taken
};

// Of one direction, under its lease, so that two threads share no line. `effort` is as
// base/effort.h has it: waits and spins of a poller count where its thread goes on.
struct Counters {
  void add(const base::Effort& spent) {
    system_calls.add(spent.system_calls);
    if ((spent.waits | spent.spins) == 0) return;
    waits.add(spent.waits);
    spins.add(spent.spins);
    vain_spins.add(spent.vain_spins);
  }

  using Counter = base::Counter;
  Counter bytes, fpdus;
  Counter bytes_copied;  // payload, in user space
  Counter crcs_checked;  // of FPDUs received
  Counter bells_rung;    // by the sender; those taken are in LaneRx
  Counter errors;  // calls that failed, those that would have had to wait or were interrupted aside
  Counter system_calls, waits, spins, vain_spins;
};

struct TcpAddress {
  uint8_t family;  // 4, 6, or 0: not known
  uint16_t port;
  std::array<uint8_t, 16> host;
};
// As far as the kernel knows them by now. errno is not kept.
TcpAddress local_address(int fd);
TcpAddress remote_address(int fd);

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
  kYielded,     // one-sided operations have begun
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

  // As far as the kernel knows them by now.
  void note_addresses(int fd);
  // The first reason stays. Text beyond the field is cut.
  void note_failure(const char* why);

  uint64_t cookie =
      0;  // SO_COOKIE of the socket: how a process that came by exec finds its streams
  std::atomic<StreamState> state{StreamState::kStarting};
  std::atomic<bool> is_dying{false};  // the last holder has released it
  // One-sided operations have been used; for good. The process whose queue pair it is, 0: none.
  std::atomic<bool> is_one_sided{false};
  std::atomic<int32_t> one_sided_owner{0};
  std::atomic<int32_t> fault{0};    // an errno that recv() has to tell: its stream was ended by us
  std::atomic<bool> has_crc{true};  // until the start-up frames agree otherwise
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
  alignas(64) Counters sent;
  alignas(64) Counters received;
  // For who asks what this is (ddpstat); nothing here depends on it.
  TcpAddress local{}, remote{};
  int32_t opened_as = -1;          // the descriptor
  std::array<char, 64> verdict{};  // why it is in DDPMODE
  std::array<char, 96> failure{};
};
static_assert(sizeof(Record) <= Arena::kRecordSize);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_RECORD_H_
