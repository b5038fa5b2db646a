// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/set_change.h"

#include "shim/pollers/watched_sets.h"
#include "shim/program_memory.h"

namespace ddpsock::shim {
namespace {

constexpr bool is_served(uint32_t events) {
  return (events & (EPOLLONESHOT | EPOLLEXCLUSIVE)) == 0;
}

// Will the kernel find it? What a caller has just put on its stack is not asked about.
bool is_there(const epoll_event* event) {
  constexpr uintptr_t kNear = 1024;
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return reinterpret_cast<uintptr_t>(event) - frame < kNear || is_readable(event, sizeof *event);
}

}  // namespace

SetChange::SetChange(int set, int operation, int fd, const epoll_event* event)
    : number_(set), operation_(operation), fd_(fd), event_(event), set_(find_watched_set(set)) {
  if (set_ != nullptr) {
    hold_.emplace(*set_);
  } else if (operation != EPOLL_CTL_DEL && event != nullptr && may_watch(set, fd) &&
             is_there(event) && is_served(event->events)) {
    set_ = claim_watched_set(set, hold_);
  }
  if (!hold_) return;
  const bool is_held = hold_->is_held();
  if (is_held && set_->place().is_of(number_, std::memory_order_relaxed)) {
    hold_->note_change_of(fd);
    return;
  }
  // What was put off of this member comes first, for who is refused too.
  WatchedStream* const w = is_held ? nullptr : set_->members().streams().find(fd);
  if (w != nullptr) w->tell(set_->place(), fd);
  if (is_held) set_ = nullptr;  // forgotten meanwhile
  hold_.reset();
}

bool SetChange::defer_held() {
  return (operation_ == EPOLL_CTL_DEL || event_ != nullptr) && set_->defer(operation_, fd_, event_);
}

void SetChange::note() {
  const bool is_in_order = hold_.has_value();
  // Refused; or, where it was not watched, it may be since.
  if (!is_in_order && (set_ != nullptr || (set_ = find_watched_set(number_)) == nullptr)) return;
  if (!is_in_order) hold_.emplace(*set_);
  if (!hold_->is_held() || !set_->place().is_of(number_, std::memory_order_relaxed)) return;
  SetMembers& members = set_->members();
  if (operation_ == EPOLL_CTL_DEL) {
    is_in_order ? members.unwatch(fd_) : members.unwatch_late(fd_);
  } else if (event_ != nullptr && is_in_order && is_served(event_->events) &&
             may_watch(number_, fd_)) {
    members.watch(fd_, *event_);
  } else if (event_ != nullptr) {
    // Where others may have changed it meanwhile, nobody knows which the kernel heard last.
    members.leave_to_kernel(fd_, *event_);
  }
  hold_.reset();
}

void SetChange::note_late(int set, int operation, int fd, const epoll_event* event) {
  SetChange(Late{}, set, operation, fd, event).note();
}

}  // namespace ddpsock::shim
