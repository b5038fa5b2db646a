// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/set_members.h"

namespace ddpsock::shim {
namespace {

// Programs that take so few events at a time may care which they get.
constexpr int kLittleRoom = 8;

}  // namespace

bool SetMembers::has_other_with(uint64_t data, int fd) {
  return others_.has_data(data) || streams_.has_other_with(data, fd);
}

bool SetMembers::is_for_kernel(int room) {
  if (room > kLittleRoom) return false;
  const int streams = streams_.count_wanted(room + 1);
  if (room < streams) return true;
  return room < streams + static_cast<int>(others_.count()) && others_.was_reported_lately();
}

void SetMembers::watch(int fd, const epoll_event& event) {
  others_.remove(fd);
  if (has_other_with(event.data.u64, fd)) return leave_to_kernel(fd, event);
  WatchedStream* w = streams_.find(fd);
  const bool is_new = w == nullptr;
  if (is_new && (w = streams_.take_place()) == nullptr) return leave_to_kernel(fd, event);
  w->note_asked(event);
  if (is_new) w->begin();
  w->fd.store(fd + 1, std::memory_order_release);
  if (streams_.end(std::memory_order_relaxed) < 2) return;
  w->want_order(fd);
  // The first was alone until the second came.
  const int first = streams_.at(0).fd.load(std::memory_order_acquire) - 1;
  if (w == &streams_.at(1) && first >= 0) streams_.at(0).want_order(first);
}

// So are those that its data may be taken for.
void SetMembers::leave_to_kernel(int fd, const epoll_event& event) {
  if (WatchedStream* w = streams_.find(fd); w != nullptr) w->give_up(place_, fd);
  others_.add(fd, event);
  streams_.each([&](WatchedStream& w, int watched) {
    if (w.data.load(std::memory_order_relaxed) == event.data.u64) hand_over(w, watched);
  });
}

void SetMembers::hand_over(WatchedStream& w, int fd) {
  epoll_event event{};
  event.events = w.events.load(std::memory_order_relaxed);
  event.data.u64 = w.data.load(std::memory_order_relaxed);
  const bool is_wanted = w.is_wanted.load(std::memory_order_relaxed);
  w.give_up(place_, fd);
  if (is_wanted) others_.add(fd, event);
}

// A bell that lies unread stays so until the next settle(): all that can come of it is that a
// poller of another kind finds the socket readable for nothing, once.
void SetMembers::unwatch(int fd) {
  others_.remove(fd);
  WatchedStream* w = streams_.find(fd);
  if (w == nullptr) return;
  w->is_wanted.store(false, std::memory_order_relaxed);
  w->is_in_kernel.store(false, std::memory_order_relaxed);
  // Who reports it sees that, or is seen.
  w->version.fetch_add(1);
  if (!w->has_lazy_bell.load()) w->free();
}

void SetMembers::unwatch_late(int fd) {
  if (!OtherMembers::is_listed(place_.number(std::memory_order_relaxed), fd)) return unwatch(fd);
  if (WatchedStream* w = streams_.find(fd); w != nullptr) hand_over(*w, fd);
}

void SetMembers::free_unwatched() {
  streams_.each([this](WatchedStream& w, int fd) {
    if (w.is_wanted.load(std::memory_order_relaxed) ||
        w.has_lazy_bell.load(std::memory_order_relaxed))
      return;
    w.tell(place_, fd);
    w.free();
  });
}

}  // namespace ddpsock::shim
