// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/watched_sets.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <array>
#include <span>
#include <string_view>

#include "base/process.h"
#include "shim/pollers/epoll_watch.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

constexpr unsigned kMostSets = 16;
alignas(WatchedSet) constinit std::array<WatchedSet, kMostSets> sets{};
constinit std::atomic<unsigned> sets_end{0};    // places from here on were never used
constinit std::atomic<uint32_t> generation{0};  // of the process that the sets are known in

// Nobody tells us that a set was closed. Where there is no /proc, whatever is open may be one.
bool may_be_epoll_set(int fd) {
  char path[32], name[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int saved_errno = errno;
  const ssize_t n = readlink(path, name, sizeof name);
  const bool is_open = n > 0 || real.fcntl(fd, F_GETFD) >= 0;
  errno = saved_errno;
  return n > 0 ? std::string_view(name, static_cast<size_t>(n)) == "anon_inode:[eventpoll]"
               : is_open;
}

// A child that changes or waits in a set of ours finds it as this process has asked for.
void before_fork() {
  if (is_any_set_watched())
    for (WatchedSet& s : sets) {
      s.waiters().note_fork();
      if (s.place().is_of_any()) const WatchedSet::Hold nobody_is_at_it(s);
    }
  tell_kernel();
}

void renew_leases() {
  for (WatchedSet& s : sets) s.renew_lease();
}

// To the child the sets are somebody else's too.
void in_child() {
  generation.store(base::process_generation(), std::memory_order_relaxed);
  disown_all_sets();
  MemberChange::in_child();
  renew_leases();
  for (WatchedSet& s : sets) s.forget_in_child();
}

// Is this the child of a fork that nobody announced? What its parent had put off is told by whoever
// of them comes first.
[[gnu::noinline]] void begin_in_child() {
  generation.store(base::process_generation(), std::memory_order_relaxed);
  renew_leases();
  tell_kernel();
  in_child();
}

inline void notice_fork() {
  if (generation.load(std::memory_order_relaxed) != base::process_generation()) [[unlikely]]
    begin_in_child();
}

// What is refused the hold forgets all the same: the number is another's.
void forget_known(int set) {
  WatchedSet* s = find_watched_set(set);
  if (s == nullptr) return;
  const WatchedSet::Hold hold(*s);
  if (s->place().is_of(set)) s->forget_all();
}

// Of threads that claim one at once the first in the row has it.
bool is_claimed_elsewhere(int set, const WatchedSet& here) {
  for (const WatchedSet& s : sets)
    if (&s != &here && s.place().is_taken_for(set, &s < &here)) return true;
  return false;
}

// The place is claimed for `set`.
WatchedSet* begin_to_watch(WatchedSet& s, int set, std::optional<WatchedSet::Hold>& hold) {
  if (!is_claimed_elsewhere(set, s)) hold.emplace(s);
  if (!hold || !hold->is_held() || !s.place().is_claimed_for(set)) {
    hold.reset();
    s.members().place().give_back(set);
    return nullptr;
  }
  s.begin();
  const auto end = static_cast<unsigned>(&s - sets.data()) + 1;
  for (unsigned seen = sets_end; seen < end && !sets_end.compare_exchange_weak(seen, end);)
    continue;
  s.members().place().take(set);
  s.members().others().learn(set);
  if (is_own_set(set)) return &s;
  s.forget_all();  // somebody else has it since
  hold.reset();
  return nullptr;
}

}  // namespace

WatchedSet* find_watched_set(int set) {
  if (!is_any_set_watched()) return nullptr;
  notice_fork();
  const unsigned end = sets_end.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i)
    if (sets[i].place().is_of(set, std::memory_order_acquire)) return &sets[i];
  return nullptr;
}

bool may_watch(int set, int fd) {
  notice_fork();
  bool may = false;
  if (is_own_set(set))
    with_stream(fd, [&](engine::MemoryPart& stream) { may = stream.glance().may_be_in_memory; });
  return may;
}

WatchedSet* claim_watched_set(int set, std::optional<WatchedSet::Hold>& hold) {
  for (bool has_swept = false;; has_swept = true) {
    for (WatchedSet& s : sets)
      if (s.members().place().claim(set)) return begin_to_watch(s, set, hold);
    if (has_swept) return nullptr;
    for (const WatchedSet& s : sets)
      if (const int other = s.place().number(std::memory_order_acquire);
          other >= 0 && !may_be_epoll_set(other))
        forget_known(other);
  }
}

void note_set_created(int set) {
  static constinit std::atomic<bool> has_handlers{false};
  if (!has_handlers.exchange(true)) pthread_atfork(before_fork, nullptr, in_child);
  forget_known(set);  // before what was put off is told: not to the new one
  notice_fork();
  own_set(set);
}

void share_own_set(int set) {
  disown_set(set);
  WatchedSet* s = find_watched_set(set);
  if (s == nullptr) return;
  const WatchedSet::Hold hold(*s);
  if (hold.is_held() && s->place().is_of(set)) s->share_all();
}

void forget_own_set(int set) {
  disown_set(set);
  forget_known(set);
}

void forget_member(int fd, bool is_still_watched) {
  if (!is_any_set_watched()) return;
  for (WatchedSet& s : std::span(sets).first(sets_end.load(std::memory_order_acquire)))
    if (s.place().is_of_any(std::memory_order_acquire)) s.forget_fd(fd, is_still_watched);
}

void tell_kernel_all() {
  for (WatchedSet& s : sets) s.tell_all();
}

}  // namespace ddpsock::shim
