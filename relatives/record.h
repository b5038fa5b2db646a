// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The state of one stream, as it lies in the arena. Plain data without pointers, so that every
// process that holds the socket can use it: a forked one at the same address, one that came by exec
// at another.
#ifndef DDPSOCK_RELATIVES_RECORD_H_
#define DDPSOCK_RELATIVES_RECORD_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/counter.h"
#include "base/effort.h"
#include "base/lease.h"
#include "base/tcp_address.h"
#include "ddp/format.h"
#include "relatives/blocks.h"
#include "relatives/inbox.h"
#include "relatives/record_slots.h"
#include "relatives/stream_attr.h"
#include "shm/segment.h"

namespace ddpsock::engine {

// Set while the holder of a direction waits in the kernel, or may. Who wakes in one process and who
// closes, or executes a program, in another thread agree by the fences of still_named() and
// wake_fully(), who takes over from the dead by order alone: a call which did not sleep pays for
// no barrier.
class SleepMark {
 public:
  // What was done before is seen by whoever sees the mark; what is done after it, only without it.
  void operator=(bool is_asleep) {
    is_asleep_.store(is_asleep, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_release);
  }
  operator bool() const { return is_asleep_.load(std::memory_order_acquire); }
  // Wakes in the place of one that has died; false: it was not asleep.
  bool take_over() { return is_asleep_.exchange(false); }

 private:
  std::atomic<bool> is_asleep_{false};
};

// What FIONREAD has counted, less what was received since: to count anew is to copy all that lies
// unread.
struct ReceiveCount {
  bool is_known() const { return queue != kUnknown; }
  void forget() { queue = kUnknown; }
  void take_queued(size_t n) {
    if (is_known()) queue -= static_cast<uint32_t>(std::min<size_t>(queue, n));
  }
  void take_payload(size_t n) {
    payload -= static_cast<uint32_t>(std::min<size_t>(payload, n));
    may_lag = n > 0;
  }

  static constexpr uint32_t kUnknown = UINT32_MAX;
  uint32_t queue = kUnknown;  // so many unread bytes of the kernel were seen
  uint32_t payload = 0;       // with so many in them and in the inbox that can be delivered
  bool may_lag = false;       // bytes were received since FIONREAD was answered last
};

struct Rx {
  base::Lease lease;
  uint32_t msn = DDP_FIRST_MSN;  // of the Send in progress
  uint32_t mo = 0;               // how much of it has come; our own peers send it in one segment
  Inbox inbox;
  uint32_t queued = 0;  // the kernel has at least so many unread bytes
  ReceiveCount count;
  std::atomic<int32_t> error{0};         // an errno to be told once what came before is read
  std::atomic<int32_t> low_water = 1;    // SO_RCVLOWAT
  bool has_queue_hints = false;          // TCP_INQ is on
  bool was_alone = false;                // the peer's start-up frame: no FPDU came with it
  std::atomic<bool> is_started = false;  // the peer's start-up frame was read
  // The holder waits in the kernel; everything here is as it left it.
  SleepMark is_asleep;
  // Once drained (one_sided_rx.cpp): the kernel's unread bytes that are accounted for already. The
  // inbox's buffer then holds the beginning of an FPDU.
  uint32_t held = 0;
  bool is_drained = false;
  std::atomic<bool> is_wanted = false;  // the queue pair's thread found the lease taken
  std::atomic<bool> is_shut = false;    // by shutdown()
};

struct Tx {
  base::Lease lease;
  uint32_t msn = DDP_FIRST_MSN;
  uint32_t peer_window = 0;  // the largest the peer was seen to offer, bytes
  uint32_t credit = 0;       // bytes, overhead included, that the kernel is sure to take in whole
  uint32_t tail_block =
      Blocks::kNoBlock;  // the rest of an FPDU that the kernel cut in spite of that
  uint32_t tail_beg = 0, tail_end = 0;
  bool is_unsent_limited = false;  // by the program (TCP_NOTSENT_LOWAT): an FPDU was cut for it
  std::atomic<int32_t> error{0};   // an errno that waits for the next call
  std::atomic<bool> is_started = false;  // our start-up frame was sent
  std::atomic<bool> is_shut = false;     // by shutdown()
  std::atomic<bool> is_wanted = false;   // the queue pair's thread found the lease taken
  SleepMark is_asleep;                   // the holder waits in the kernel
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
  Counter bells_rung;    // by the sender
  Counter errors;  // calls that failed, those that would have had to wait or were interrupted aside
  Counter system_calls, waits, spins, vain_spins;
};

// As far as the kernel knows them by now. errno is not kept.
base::TcpAddress local_address(int fd);
base::TcpAddress remote_address(int fd);

// The way back to plain TCP (raw.cpp).
struct RawState {
  std::atomic<bool> is_tx_plain{false};  // our marker was sent; under the send lease
  std::atomic<bool> is_rx_plain{false};  // the peer's was read; under the receive lease
  // Under the receive lease: what was asked for last, and how much comes twice and is to be passed
  // over.
  bool has_asked = false;
  uint32_t asked_msn = 0, asked_bytes = 0;
  Time asked_at{};
  uint32_t skip = 0;
  // Under the send lease: from the first on, all FPDUs before the second were of this protocol.
  uint32_t control_begin = 0, control_end = 0;
};

// Why a stream is not in shared memory.
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
};

// Where the bytes of one direction travel. They move once, and leave once at most.
enum class Way : uint8_t { kWire, kMemory, kWireAgain };

// After its end was told, so many bells find out whether the peer still reads.
inline constexpr uint8_t kBellsToNotice = 2;

// The part of a stream that lies in memory shared with the peer (shm). The mapping itself is
// each process's own (Connection).
struct Memory {
  std::atomic<MemoryState> state{MemoryState::kUnasked};
  // What is sent, under the send lease; what comes, under the receive lease.
  std::atomic<Way> sending{Way::kWire}, receiving{Way::kWire};
  std::atomic<bool> has_left{false};  // no more FPDUs before memory: it will not be moved into
  shm::End end = shm::End::kConnected;
  shm::Offer offer;
  shm::LaneTx tx;
  shm::LaneRx rx;
  // Of the peer's lane, where a thread slept in front of it when its family left: how many octets
  // there are in all, plus 1 (0: not known), and the FPDU that they precede.
  std::atomic<uint64_t> octets_beyond{0};
  std::atomic<uint32_t> fpdu_beyond{0};
  uint8_t attempts = 0;  // to join
  bool had_nodelay = true,
       had_cork = false;  // what the program had set, which bells must get past
  // The kernel has what bells need, whatever `state` says by now: it is to be given back.
  std::atomic<bool> has_set_options{false};
  std::atomic<int> unsent_limit{0};  // TCP_NOTSENT_LOWAT as the program has set it; 0: the host's
  // Since the kernel was last asked whether the peer lives: publications, and base::ticks() then.
  uint32_t unnoticed = 0;
  uint64_t noticed_at = 0;
  Time needed_spill_at{};             // coarse: what was sent last had no place in the small ring
  bool is_filled = false;             // filler may be unsent, and TCP_NOTSENT_LOWAT is 1
  bool is_window_locked = false;      // the socket's receive buffer grows no more
  bool has_sent_in_vain = false;      // after a reset that destroyed nothing
  std::atomic<uint8_t> ends_told{0};  // the program knows of the peer's end, so many bells ago
};

const char* memory_text(MemoryState state);

struct Record {
  // `payload`: of a chunk at most, bytes.
  Record(const StreamAttr& attr, uint32_t payload);

  // As far as the kernel knows them by now.
  void note_addresses(int fd);
  void note_addresses(const sockaddr_in6& local, const sockaddr_in6& remote);
  // The first reason stays. Text beyond the field is cut.
  void note_failure(const char* why);

  uint64_t cookie =
      0;  // SO_COOKIE of the socket: how a process that came by exec finds its streams
  std::atomic<StreamState> state{StreamState::kStarting};
  std::atomic<bool> is_dying{false};  // the last holder has released it
  // One-sided operations have been used; for good. The process whose queue pair it is, 0: none.
  std::atomic<bool> is_one_sided{false};
  std::atomic<uint32_t> one_sided_owner{0};
  std::atomic<int32_t> fault{0};    // an errno that recv() has to tell: its stream was ended by us
  std::atomic<bool> has_crc{true};  // until the start-up frames agree otherwise
  std::atomic<bool> has_failure{false};
  std::atomic<bool> is_loss_told{false};  // a call has returned what the kernel says once
  Role role;
  std::atomic<Peer> peer;
  bool is_strict;
  bool wants_crc;
  bool wants_memory;
  std::atomic<bool> offers_later;              // memory; under the send lease
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
  RawState raw;
  alignas(64) Counters sent;
  alignas(64) Counters received;
  // For who asks what this is (ddpstat); nothing here depends on it.
  base::TcpAddress local{}, remote{};
  int32_t opened_as = -1;          // the descriptor
  std::array<char, 64> verdict{};  // why it is in DDPMODE
  std::array<char, 96> failure{};
};
static_assert(sizeof(Record) <= RecordSlots::kRecordSize);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_RECORD_H_
