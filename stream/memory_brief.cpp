// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/memory_brief.h"

#include <sys/socket.h>

#include <cstring>

#include "base/cancellation.h"
#include "base/spin.h"
#include "stream/hold.h"
#include "stream/lanes.h"
#include "stream/memory_receiver.h"
#include "stream/memory_tx.h"
#include "stream/reading_habit.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

// Copying more takes longer than what is saved here.
constexpr size_t kMostBrief = 8 * 1024;

// Without a lease: guesses, by which the calls that are not for here lose little.
// Which end this is, is known before there is a segment.
shm::Segment* segment_if_used(const Connection& c, const std::atomic<Way>& way) {
  if (way.load(std::memory_order_relaxed) != Way::kMemory) return nullptr;
  return c.segment.load(std::memory_order_acquire);
}
bool may_send_briefly(const Connection& c, size_t size) {
  if (size - 1 >= kMostBrief || c.is_spill_keeper.load(std::memory_order_relaxed)) return false;
  shm::Segment* segment = segment_if_used(c, c.r.memory.sending);
  if (segment == nullptr) return false;
  const shm::Lane& lane = segment->lane_from(c.r.memory.end);
  return lane.bell.armed.load(std::memory_order_relaxed) == 0;
}
bool may_receive_briefly(const Connection& c) {
  // Who may be told of edges by pollers that are not known must have each bell.
  if (ReadingHabit::waits_for_edges() &&
      c.lazy_thread.load(std::memory_order_relaxed) != base::thread_id())
    return false;
  shm::Segment* segment = segment_if_used(c, c.r.memory.receiving);
  if (segment == nullptr) return false;
  const shm::Lane& lane = segment->lane_from(other(c.r.memory.end));
  return lane.writer.tail.load(std::memory_order_relaxed) !=
         lane.reader.head.load(std::memory_order_relaxed);
}

// With the lease of either direction.
bool is_usual(const Connection& c) {
  return c.rx.is_started && c.rx.error == 0 && !c.is_turned() &&
         !c.r.is_one_sided.load(std::memory_order_relaxed) &&
         c.segment.load(std::memory_order_relaxed) != nullptr && !is_watched();
}

bool is_sending_usual(const Connection& c) {
  const Memory& m = c.r.memory;
  return is_usual(c) && c.tx.is_started &&
         m.sending.load(std::memory_order_relaxed) == Way::kMemory && c.tx.error == 0 &&
         !c.tx.is_shut && c.tx.tail_block == Blocks::kNoBlock && !c.r.offers_later &&
         m.ends_told.load(std::memory_order_relaxed) == 0 && !m.tx.keeps_spill &&
         !c.is_spill_keeper.load(std::memory_order_relaxed) && !is_look_at_peer_due(m);
}

bool is_receiving_usual(const Connection& c) {
  const Memory& m = c.r.memory;
  return is_usual(c) && m.receiving.load(std::memory_order_relaxed) == Way::kMemory &&
         m.state == MemoryState::kJoined && !c.rx.is_drained;
}

}  // namespace

std::optional<Io> send_briefly(Connection& c, int fd, const iovec& from, int flags) {
  constexpr int kKnown = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR | MSG_CONFIRM;
  if ((flags & ~kKnown) != 0 || !may_send_briefly(c, from.iov_len)) return std::nullopt;
  base::cancellation_point();
  Hold hold(c, c.tx.lease);
  if (!hold.try_take() || !is_sending_usual(c)) return std::nullopt;
  OutLane lane(c);
  const size_t size = from.iov_len;
  const auto room = lane->room(size);
  if (room.size != size || lane->is_bell_wanted()) return std::nullopt;
  std::memcpy(room.data, from.iov_base, size);
  lane->put_beside_tail(room.data, size);
  const shm::Publication p = lane->publish(size, base::current_cpu());
  if (p == shm::Publication::kMustRing) return ring_for_published(c, fd, size, flags);
  if (p != shm::Publication::kQuiet) return std::nullopt;
  ++c.r.memory.unnoticed;
  c.r.sent.bytes.add(size);
  c.r.sent.bytes_copied.add(size);
  return Io::ok(static_cast<ssize_t>(size));
}

std::optional<Io> receive_briefly(Connection& c, int fd, const iovec& to, int flags) {
  constexpr int kKnown = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;
  if ((flags & ~kKnown) != 0 || !may_receive_briefly(c)) return std::nullopt;
  base::cancellation_point();
  Hold hold(c, c.rx.lease);
  if (!hold.try_take() || !is_receiving_usual(c)) return std::nullopt;
  InLane lane(c);
  const size_t lying = lane->size();
  const size_t size = std::min({to.iov_len, lying, kMostBrief});
  const bool is_all = size == lying;
  // A call that returns less than it could says that there is no more.
  // Nor if FPDUs may lie behind it.
  const bool is_whole = size == to.iov_len || (is_all && !lane->is_leaving());
  if (size == 0 || !is_whole || size < static_cast<size_t>(std::max(c.rx.low_water.load(), 1)))
    return std::nullopt;
  const uint64_t octets = lane->octets_unread();
  const bool may_lie = may_bell_lie(c, octets);
  if (octets > kMostBells || (octets != 0 && is_all && !may_lie)) return std::nullopt;
  const auto bytes = lane->next(size);
  if (bytes.is_corrupt || bytes.size != size) return std::nullopt;
  std::memcpy(to.iov_base, bytes.data, size);
  if (lane->take(bytes, base::current_cpu())) wake_writer(*lane);
  c.r.received.bytes.add(size);
  c.r.received.bytes_copied.add(size);
  c.habit.on_prompt(base::thread_id());
  if (is_all && !may_lie) settle_behind(c, fd, *lane);
  base::Spin::mine().note_peer(lane->peer_cpu());
  return Io::ok(static_cast<ssize_t>(size));
}

}  // namespace ddpsock::engine
