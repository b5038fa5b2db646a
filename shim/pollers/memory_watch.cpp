// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/memory_watch.h"

#include "base/process.h"
#include "shim/pollers/own_sets.h"
#include "shim/real.h"

namespace ddpsock::shim {

constinit std::atomic<unsigned> watched_sets{0};

WatchedSet::Hold::Hold(WatchedSet& set)
    : Unfinished(abandon), set_(set), was_mine_(set.lease_.is_mine()) {
  begin();
  is_held_ = set.lease_.acquire();
}

void WatchedSet::Hold::abandon(base::Unfinished& unfinished) {
  auto& hold = static_cast<Hold&>(unfinished);
  if (hold.was_mine_ || !hold.set_.lease_.is_mine()) return;
  hold.set_.lease_.doubt();
  hold.is_held_ = true;
  hold.end();
}

// In a child that a signal handler forked inside the call it is nobody's.
void WatchedSet::Hold::end() {
  while (is_held_ && set_.lease_.is_mine()) {
    if (set_.lease_.is_in_doubt()) [[unlikely]]
      set_.share_all();
    is_held_ = set_.lease_.release();
  }
  is_held_ = false;
}

void WatchedSet::begin() {
  // A child that was forked inside a change may have left something.
  members_.streams().clear_unseen();
  lease_.end_doubt();
  waiters_.begin();
  deferral_.begin();
  look_turn_.begin();
  // Whoever takes it back has been counted.
  watched_sets.fetch_add(1, std::memory_order_acq_rel);
}

bool WatchedSet::defer(int operation, int fd, const epoll_event* event) {
  WatchedStream* w = members_.streams().find(fd);
  if (w == nullptr) return false;
  const bool is_wanted = w->is_wanted.load(std::memory_order_relaxed);
  const bool is_usual = w->has_lazy_bell.load(std::memory_order_relaxed) &&
                        waiters_.is_only(base::thread_id()) &&
                        is_wanted == (operation != EPOLL_CTL_ADD);
  constexpr uint32_t kServed = EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLRDHUP;
  const bool is_simple =
      operation == EPOLL_CTL_DEL ||
      ((event->events & ~kServed) == 0 && !members_.has_other_with(event->data.u64, fd));
  const bool is_edge = (w->events.load(std::memory_order_relaxed) & EPOLLET) != 0;
  if (!is_usual || !is_simple || is_edge) {
    // The kernel answers, and must know what came before.
    w->tell(place(), fd);
    return false;
  }
  w->is_wanted.store(operation != EPOLL_CTL_DEL, std::memory_order_relaxed);
  if (operation != EPOLL_CTL_DEL) {
    w->events.store(event->events, std::memory_order_relaxed);
    w->data.store(event->data.u64, std::memory_order_release);
  }
  // Either a thread that goes to wait sees that, and waits for this change, or it is seen here.
  if (deferral_.note_change() && waiters_.is_any_inside()) tell_all_now();
  return true;
}

void WatchedSet::share_all() {
  lease_.end_doubt();
  const int set = members_.place().drop_claim();  // a handler has jumped out of the claim
  if (set < 0) return;
  disown_set(set);
  members_.streams().each([this](WatchedStream& w, int fd) { members_.hand_over(w, fd); });
  forget_all();
}

void WatchedSet::forget_all() {
  deferral_.forget();
  members_.streams().clear();
  members_.place().leave();
  free_if_left();
}

void WatchedSet::free_if_left() {
  if (!waiters_.is_any_inside() && members_.place().free_left())
    watched_sets.fetch_sub(1, std::memory_order_acq_rel);
}

// Of a member that is being added somebody may have been told already, who closes it now. Who adds
// it later finds that the number is no stream's any more: it was taken out of the table of
// descriptors before this.
void WatchedSet::forget_fd(int fd, bool is_still_watched) {
  if (!lease_.is_held_for(fd) && members_.streams().find(fd) == nullptr)
    return members_.others().remove(fd);
  const Hold hold(*this);
  members_.others().remove(fd);
  WatchedStream* w = members_.streams().find(fd);
  if (w == nullptr) return;
  if (is_still_watched) w->tell(place(), fd);
  w->free();  // who is refused too: the number may be another's soon
}

// Who is refused tells what it knows: its caller is about to ask the kernel.
void WatchedSet::tell_all() {
  if (!deferral_.is_any()) return;
  const Hold hold(*this);
  tell_all_now();
}

void WatchedSet::tell_all_now() {
  if (!deferral_.is_any()) return;
  deferral_.begin_telling();
  members_.streams().each([this](WatchedStream& w, int fd) { w.tell(place(), fd); });
  deferral_.note_told();
}

void WatchedSet::tell_changes() {
  if (!deferral_.has_changes()) return;
  const Hold hold(*this);
  if (deferral_.take_changes())
    members_.streams().each([this](WatchedStream& w, int fd) { w.tell_but_hush(place(), fd); });
}

bool WatchedSet::ask_quietly() {
  if (!deferral_.note_question()) return deferral_.is_quiet();
  const Hold hold(*this);
  if (!hold.is_held() || !waiters_.is_one_alone()) return false;
  deferral_.begin_quiet();
  return true;
}

void WatchedSet::hand_over_seen(WatchedStream& w, int fd, uint32_t version) {
  const Hold hold(*this);
  if (hold.is_held() && w.is(fd, version)) members_.hand_over(w, fd);
}

int WatchedSet::ask(epoll_event* answer, int room) const {
  return real.epoll_wait(place().number(std::memory_order_relaxed), answer, room, 0);
}

void WatchedSet::forget_in_child() {
  waiters_.begin_in_child();
  if (members_.place().drop_claim(std::memory_order_relaxed) >= 0) forget_all();
  free_if_left();
}

}  // namespace ddpsock::shim
