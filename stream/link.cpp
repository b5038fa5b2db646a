// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/link.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "ddp/segment.h"
#include "engine/memory/message_lane.h"
#include "mpa/fpdu.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/lanes.h"
#include "stream/leaving.h"
#include "stream/looks.h"
#include "stream/memory_receiver.h"
#include "stream/memory_rx.h"
#include "stream/memory_start.h"
#include "stream/memory_tx.h"
#include "stream/one_sided.h"
#include "stream/rx.h"
#include "stream/sender.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

using Outcome = base::Lease::Outcome;
using shm::QueuePairWay;

// What another process has to take in, which may be stopped.
constexpr Duration kForAnother = Duration::from_ms(100);
// A peer that does not take what was posted is looked at for so long before anybody sleeps.
constexpr Duration kYielding = Duration::from_us(300);
constexpr int kMostVain = 4;
// A call that must not wait gives the peer so long.
constexpr Duration kMostHurry = Duration::from_ms(1);

uint64_t half_of(const shm::Secret& secret, size_t from) {
  uint64_t half = 0;
  std::memcpy(&half, secret.data() + from, sizeof half);
  return half;
}

shm::MessageLane& incoming(const Connection& c, shm::Segment& segment) {
  return shm::message_lane(segment.queue_pairs(), c.r.memory.end == shm::End::kConnected ? 1 : 0);
}

uint64_t record_secret(const Connection& c) {
  return shm::usable_secret(half_of(c.r.memory.offer.secret, 0));
}

bool are_lanes_open(shm::Segment& segment) {
  for (const shm::End end : {shm::End::kConnected, shm::End::kAccepted})
    if ((segment.lane_from(end).writer.tail.load() & shm::kClosedBit) != 0) return false;
  return true;
}

}  // namespace

bool may_begin_link(const Connection& c) {
  const bool is_mapped = c.segment.load(std::memory_order_acquire) != nullptr;
  return !c.r.has_linked.load() && (is_mapped || !c.is_linked());
}

// Whether the stream may still come to be in memory.
static bool is_memory_to_come(const Connection& c) {
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment != nullptr && segment->stays_on_wire()) return false;
  const MemoryState state = c.r.memory.state.load(std::memory_order_acquire);
  const bool is_under_way = state == MemoryState::kOffered || state == MemoryState::kInvited ||
                            state == MemoryState::kJoined;
  return is_under_way || (state == MemoryState::kUnasked && c.r.wants_memory);
}

// As the program's own calls do, which may be rare.
static void bring_into_memory(Connection& c, int fd, bool may_announce) {
  if (c.r.memory.state == MemoryState::kInvited) {
    Hold hold(c, c.rx.lease);
    if (hold.try_take()) keep_error(c, try_to_join(c, fd));
  }
  if (may_announce) (void)announce(c, fd);
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || segment->has_moved() || !segment->joining().is_joined()) return;
  Hold hold(c, c.tx.lease);
  if (hold.try_take()) move_now(c, fd);
}

Decision decide_way(Connection& c, int fd, Haste haste) {
  if (c.r.is_one_sided.load() || c.is_linked()) return Decision::kMade;
  // Who watches sees FPDUs between chunks, and no memory of ours.
  const bool may_be_in_memory = !is_watched();
  if (may_be_in_memory && is_memory_to_come(c)) bring_into_memory(c, fd, haste == Haste::kMust);
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  const bool has_moved = segment != nullptr && segment->has_moved();
  const bool is_decided =
      segment != nullptr && segment->queue_pair_way() != QueuePairWay::kUndecided;
  if (may_be_in_memory && !has_moved && !is_decided && is_memory_to_come(c) &&
      haste != Haste::kMust) {
    const bool has_time = !c.tx.is_started || !c.rx.is_started;
    if (haste == Haste::kNone || has_time) return has_time ? Decision::kLater : Decision::kSoon;
  }
  const bool is_wanted = may_be_in_memory && has_moved && are_lanes_open(*segment);
  const auto wish = is_wanted ? QueuePairWay::kMemory : QueuePairWay::kWire;
  const auto way = segment != nullptr ? segment->decide_queue_pairs(wish) : QueuePairWay::kWire;
  if (way == QueuePairWay::kMemory && segment->has_moved()) {
    c.r.has_linked.store(true);
    c.r.link.store(Link::kMemory);
    return Decision::kMade;
  }
  leave_memory(c, fd);
  c.r.is_one_sided.store(true);
  c.r.link.store(Link::kNone);
  return Decision::kMade;
}

void note_decided_by_wire(Connection& c) {
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (c.queue_pair() == nullptr || c.r.link.load() != Link::kUndecided) return;
  if (segment != nullptr && segment->has_moved()) return;
  c.r.is_one_sided.store(true);
}

// Another program that goes on with the stream cannot see how it was decided.
void keep_queue_pairs_out(Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return;
  if (segment->decide_queue_pairs(QueuePairWay::kWire) == QueuePairWay::kMemory)
    c.r.link.store(Link::kMemory);
}

std::optional<QueuePairMemory> memory_of_link(const Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (!c.is_linked() || segment == nullptr) return {};
  const shm::Secret& secret = c.r.memory.offer.secret;
  return QueuePairMemory{.at = segment->queue_pairs(),
                         .secret = half_of(secret, 0),
                         .name = (half_of(secret, 0) ^ half_of(secret, 8)) | 1,
                         .is_connected_end = c.r.memory.end == shm::End::kConnected};
}

// The stream has left the memory, or is about to: a Write of nothing is a bell there. REQUIRES: the
// send lease.
static Status<> ring_on_wire(Connection& c, int fd) {
  std::array<uint8_t, mpa::fpdu_size(DDP_TAGGED_HEADER_SIZE)> bell{};
  uint8_t* ulpdu = mpa::write_header(bell.data(), DDP_TAGGED_HEADER_SIZE);
  ddp::write_header(ulpdu, ddp::TaggedHeader{true, RDMAP_CTRL_IETF | RDMAP_OP_WRITE, 1, 0});
  mpa::finish_fpdu(bell, DDP_TAGGED_HEADER_SIZE, c.r.has_crc);
  const Bytes one(bell);
  const auto sent = send_fpdus(c, fd, {&one, 1});
  return sent || to_int(sent.error()) == EAGAIN ? Status<>{} : Status<>(fail(sent.error()));
}

Status<> ring_link(Connection& c, int fd) {
  const base::KeepErrno keep;
  // A FIN rings.
  if (c.is_state(StreamState::kFailed) || c.tx.is_shut) return {};
  Hold hold(c, c.tx.lease);
  c.tx.is_wanted.store(true);
  switch (hold.attempt()) {
    case Outcome::kAcquired:
      break;
    case Outcome::kInherited:
      if (const int e = hold.inherit(fd); e != 0) return fail_errno(e);
      break;
    default:
      return fail_errno(EBUSY);
  }
  c.tx.is_wanted.store(false);
  if (!move_now(c, fd)) return ring_on_wire(c, fd);
  const int e = ring_alone(c, fd);
  if (e == 0) return {};
  return e == EPIPE ? ring_on_wire(c, fd) : fail_errno(e);
}

Result<bool> heed_link(Connection& c, int fd) {
  const base::KeepErrno keep;
  if (c.is_state(StreamState::kFailed)) return fail_errno(ECONNRESET);
  pollfd p{fd, POLLIN | POLLRDHUP, 0};
  if (base::sys.poll(&p, 1, 0) <= 0) return false;
  if ((p.revents & POLLERR) != 0) return fail_errno(ECONNRESET);
  if ((p.revents & (POLLRDHUP | POLLHUP)) != 0 && !c.rx.is_shut) return true;
  if ((p.revents & POLLIN) == 0) return false;
  {
    Hold hold(c, c.rx.lease);
    // Who has it deals with what wakes him.
    if (!hold.try_take()) return false;
    if (is_next_in_memory(c, fd)) {
      size_t none = 0;
      IoCursor nowhere({});
      MemoryReceiver(c, fd, nowhere, MSG_DONTWAIT, none).heed();
      return false;
    }
  }
  is_recv_ready(c, fd);
  return false;
}

void fail_by_link(Connection& c, int fd, int error, const char* why) {
  if (c.is_state(StreamState::kFailed)) return;
  c.rx.error.store(error);
  end_connection(c, fd, why);
}

// No more than can lie there at once: the peer may go on posting. And not again and again where
// that moves nothing: it may have written what we say of ourselves.
static void take_in(OneSided& q, shm::MessageLane& lane, uint64_t secret) {
  const auto head = [&] { return lane.reader.head.load(std::memory_order_relaxed); };
  const uint64_t first = head();
  uint64_t last = first;
  for (int vain = 0; vain < kMostVain && shm::is_reader_behind(lane, secret);) {
    if (!q.take_in() || head() - first >= shm::kMessageRing) return;
    vain = head() == last ? vain + 1 : 0;
    last = head();
  }
}

Io behind_link(Connection& c, Io io) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return io;
  shm::MessageLane& lane = incoming(c, *segment);
  const uint64_t secret = record_secret(c);
  // What has been sent by memory decides it.
  if (!c.is_linked() && segment->queue_pair_way() != QueuePairWay::kMemory) return io;
  if (OneSided* q = c.queue_pair(); q != nullptr) {
    take_in(*q, lane, secret);
    if (!c.is_state(StreamState::kFailed)) return io;
    const int error = c.rx.error.exchange(0);
    return error != 0 ? Io::fail(error) : Io::ok(0);
  }
  const uint32_t owner = c.r.one_sided_owner.load();
  if (owner == 0 || owner == c.arena.family.my_name()) return io;
  const Time end = base::now() + kForAnother;
  while (shm::is_reader_behind(lane, secret) && base::now() < end &&
         !c.arena.family.is_dead(owner, 0))
    sched_yield();
  return io;
}

// There is no room for what was posted: the peer is to take what lies there.
static int await_room_in_link(Connection& c, int& fd, Time until) {
  if (base::now() >= until) return EAGAIN;
  ++base::effort.waits;
  const bool is_interrupted = base::sys.poll(nullptr, 0, 1) < 0;
  base::note_wake();
  if (is_interrupted && !do_handlers_restart()) return EINTR;
  return (fd = still_named(c, fd)) < 0 ? EBADF : 0;
}

int flush_link(Connection& c, int& fd, int flags) {
  OneSided* q = c.queue_pair();
  if (q == nullptr || !c.is_linked() || c.tx.is_shut || q->flush() != EAGAIN) [[likely]]
    return 0;
  for (const Time end = base::now() + kYielding; base::now() < end;) {
    sched_yield();
    if (q->flush() != EAGAIN) return 0;
  }
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
  const Time until = may_wait ? deadline_of(fd, SO_SNDTIMEO) : base::now() + kMostHurry;
  while ((q = c.queue_pair()) != nullptr && !c.tx.is_shut && !c.is_turned() &&
         q->flush() == EAGAIN) {
    const int e = await_room_in_link(c, fd, until);
    if (e == EAGAIN && !may_wait) refuse_in_kernel(c, fd);
    if (e != 0) return e;
  }
  return 0;
}

}  // namespace ddpsock::engine
