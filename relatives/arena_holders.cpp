// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who holds what: the arena's table of processes, children foreseen and not, and what the dead
// leave behind.
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/process.h"
#include "base/sys.h"
#include "relatives/arena.h"
#include "relatives/arena_layout.h"

namespace ddpsock::engine {
namespace {

using Proof = HolderPlace::Proof;

constexpr uint32_t kNowhere = HolderSet::kMax;
constexpr int kLeaving = -2;  // a place that is being given up, by whoever comes by
constexpr Duration kBirthTakesAtMost = Duration::from_ms(60'000);

// The place that was made for the child which this thread is about to have: two threads may fork at
// once, and the child is a copy of its own.
__attribute__((tls_model("initial-exec"))) thread_local constinit uint32_t unborn_place = kNowhere;
__attribute__((tls_model("initial-exec"))) thread_local constinit uint32_t unborn_name = 0;
// fork() runs its parent's handlers also where it has failed, and then with errno set.
__attribute__((tls_model("initial-exec"))) thread_local constinit int errno_before_fork = 0;
// It may have been another handler that set errno: then the child is being born.
__attribute__((tls_model("initial-exec"))) thread_local constinit bool has_perhaps_failed = false;

}  // namespace

// By one atomic step: who is killed here has a place or has none. free_place() has made it ready.
uint32_t Arena::claim_place(int pid) {
  for (uint32_t i = 0; i < kNowhere; ++i) {
    int none = 0;
    if (shared_->processes[i].load(std::memory_order_relaxed) != 0 ||
        !shared_->processes[i].compare_exchange_strong(none, pid))
      continue;
    shared_->places[i].awaited_since.store(0);
    return i;
  }
  return kNowhere;
}

// Never 0, and for a very long time never that of another who had the place.
uint32_t Arena::name_of(uint32_t place) const {
  constexpr uint32_t kMostTurns = UINT32_MAX / kNowhere;
  return (shared_->places[place].had_before.load() % kMostTurns + 1) * kNowhere + place;
}

// The first call of a process: that which made the arena, or came by exec, or was not foreseen.
uint32_t Arena::my_place() {
  const uint32_t generation = base::process_generation();
  if (place_generation_.load(std::memory_order_acquire) == generation) [[likely]]
    return place_.load(std::memory_order_relaxed);
  if (is_silent()) return kNowhere;
  const auto thread = static_cast<uint32_t>(gettid());
  uint32_t other = entering_generation_.load();
  if (other != generation && entering_generation_.compare_exchange_strong(other, generation)) {
    entering_thread_.store(thread);
    enter_process(kNowhere);
    return place_.load(std::memory_order_relaxed);
  }
  while (place_generation_.load(std::memory_order_acquire) != generation) {
    if (entering_thread_.load() == thread) return kNowhere;  // a signal handler on top of it
    sched_yield();
  }
  return place_.load(std::memory_order_relaxed);
}

// This process is there from now on: at `foreseen`, or in a place of its own.
void Arena::enter_process(uint32_t foreseen) {
  const base::KeepErrno keep;
  const pid_t pid = getpid();
  uint32_t place = foreseen;
  int unborn = kUnborn;
  if (place == kNowhere || !shared_->processes[place].compare_exchange_strong(unborn, pid)) {
    place = claim_place(pid);
    // Before this process's part in its parent's locks is let go of.
    if (place != kNowhere) hold_all_for(place);
  }
  if (place != kNowhere) {
    prove_life(place);
    shared_->places[place].awaited_since.store(kNever.ns);  // also where there is no proof
    // Stopped for so long on the way that it was taken for dead.
    if (shared_->processes[place].load() != pid) {
      own_lock_.let_go();
      return enter_process(kNowhere);
    }
  }
  lineage_.begin();
  forks_under_way_.store(0);
  has_kept_.store(false);
  place_.store(place, std::memory_order_relaxed);
  entering_generation_.store(base::process_generation());
  place_generation_.store(base::process_generation(), std::memory_order_release);
}

void Arena::prove_life(uint32_t place) {
  if (file.is_anonymous()) return;
  LifeLock inherited = lineage_lock_;
  const int fd = file.find_fd();
  HolderPlace& p = shared_->places[place];
  if (own_lock_.hold(fd, own_lock(place), LifeLock::Heirs::kNone)) {
    p.proof.store(Proof::kStrong);
    lineage_lock_.hold(fd, lineage_lock(place), LifeLock::Heirs::kAll);
  } else {
    lineage_lock_ = {};
    p.pid_namespace.store(pid_namespace());
    if (fd >= 0 && fd == file.fd() && LifeLock::hold_weakly(fd, own_lock(place)))
      p.proof.store(Proof::kWeak);
  }
  inherited.let_go();
  file.give_back(fd);
}

LifeLock::State Arena::look_at_lock(off_t byte) const {
  const int fd = file.find_fd();
  if (fd < 0) return LifeLock::State::kUnknown;
  const LifeLock::State state = LifeLock::look(fd, byte);
  file.give_back(fd);
  return state;
}

// Proved, that is: what cannot be known is not so.
bool Arena::is_gone(uint32_t index) const {
  HolderPlace& place = shared_->places[index];
  const int pid = shared_->processes[index].load(std::memory_order_acquire);
  if (pid == kLeaving) return true;
  const Proof proof = place.proof.load();
  if (pid == kUnborn || (pid > 0 && proof == Proof::kNone && place.pid_namespace.load() == 0)) {
    // Who claimed the place may have been killed on the way: time runs from the first look.
    int64_t since = 0;
    const int64_t now = base::now().ns;
    if (place.awaited_since.compare_exchange_strong(since, now)) since = now;
    return now - since > kBirthTakesAtMost.ns;
  }
  if (pid <= 0) return false;
  const bool is_executing = place.is_executing.load();
  if (proof == Proof::kStrong && !is_executing)
    return look_at_lock(own_lock(index)) == LifeLock::State::kFree;
  if (proof != Proof::kNone && look_at_lock(own_lock(index)) != LifeLock::State::kFree)
    return false;
  const uint64_t where = place.pid_namespace.load();
  // Somebody else's pid means nothing here. A lock that could be lost is then all there is.
  if (where == 0 || where != pid_namespace()) return proof == Proof::kWeak && !is_executing;
  return is_process_gone(pid);
}

// Has a child that nobody foresaw outlived it, or may it have?
bool Arena::may_have_heirs(uint32_t index) const {
  return shared_->places[index].proof.load() == Proof::kStrong &&
         look_at_lock(lineage_lock(index)) != LifeLock::State::kFree;
}

uint32_t Arena::my_name() {
  const uint32_t me = my_place();
  return me == kNowhere ? 0 : name_of(me);
}

bool Arena::is_dead(uint32_t name, uint32_t thread) {
  if (name == 0) return false;
  const uint32_t place = name % kNowhere;
  if (name_of(place) != name) return true;
  const base::KeepErrno keep;
  const auto is_no_thread_of = [thread](int pid) {
    return base::kernel_call(SYS_tgkill, pid, thread, 0) != 0 && errno == ESRCH;
  };
  if (place == my_place()) return is_no_thread_of(getpid());
  const HolderPlace& p = shared_->places[place];
  const int pid = shared_->processes[place].load();
  if (pid == 0 || is_gone(place)) return true;
  // A program that it executes has its holds, but not its threads: they are gone, as is the lock.
  if (p.proof.load() == Proof::kStrong)
    return look_at_lock(own_lock(place)) == LifeLock::State::kFree;
  return pid > 0 && thread != 0 && p.pid_namespace.load() != 0 &&
         p.pid_namespace.load() == pid_namespace() && is_no_thread_of(pid);
}

bool Arena::is_stopped(uint64_t thread) const {
  const auto name = static_cast<uint32_t>(thread >> 32);
  const uint32_t place = name % kNowhere;
  if (name == 0 || name_of(place) != name) return false;
  const int pid = shared_->processes[place].load();
  return pid > 0 && is_thread_stopped(pid, static_cast<pid_t>(thread));
}

bool Arena::is_sole_holder(const void* rec) {
  const RecordHead& h = *slots.head(slots.index_of(rec));
  const uint32_t me = my_place();
  return me < kNowhere && !h.has_unlisted_holder.load() && h.holders.is_only(me) &&
         !may_have_unknown_children();
}

bool Arena::may_have_unknown_children() const {
  return is_silent() || lineage_.has_unknown();
}

bool Arena::may_be_shared(const void* rec) {
  if (!shared_->has_heirs.load(std::memory_order_relaxed)) return false;
  const RecordHead& h = *slots.head(slots.index_of(rec));
  const auto is_shared = [&] {
    return h.has_unlisted_holder.load() || !h.holders.is_only(my_place());
  };
  // A child that has ended, or executed a program, is in the table until somebody looks.
  return is_shared() && (!make_room() || is_shared());
}

bool Arena::release_record(void* rec) {
  const uint32_t me = my_place();
  const uint32_t i = slots.index_of(rec);
  note_not_held(i);
  if (me < kNowhere) {
    if (may_have_unknown_children()) {
      has_kept_.store(true);
      return false;
    }
    return slots.head(i)->give_up(me, me);
  }
  return slots.head(i)->holders.is_empty() && slots.head(i)->begin_free(me);
}

// `place` does not hold record `i` any more, nor is about to free it; frees it if nobody does.
void Arena::drop_hold(uint32_t i, uint32_t place) {
  RecordHead* h = slots.head(i);
  if (h == nullptr) return;
  const uint32_t me = my_place();
  const bool is_last = h->holders.has(place) && h->give_up(place, me);
  if (!is_last && !h->take_over(place, me)) return;
  if (free_contents_ != nullptr) free_contents_(blocks, slots.record(i));
  slots.free(i);
}

// What was to be given up while there may have been relatives that nobody knew of.
void Arena::give_up_kept() {
  if (!has_kept_.load() || may_have_unknown_children()) return;
  has_kept_.store(false);
  const uint32_t me = my_place();
  if (me == kNowhere) return;
  for (uint32_t i = 0; i < slots.rotation(); ++i)
    if (slots.is_live(i) && slots.head(i)->holders.has(me) && !holds(i)) drop_hold(i, me);
}

void Arena::before_fork() {
  // Dead relatives are looked for now and then, and when their places are needed (hold_as).
  constexpr uint32_t kForksBetween = 16;
  errno_before_fork = errno;
  const bool is_foreseen = !is_silent();
  if (is_foreseen) {
    my_place();
    give_up_unborn();
    if (forks_.fetch_add(1) % kForksBetween == kForksBetween - 1) collect();
  }
  unborn_place = is_foreseen ? hold_as(kUnborn) : kNowhere;
  if (unborn_place == kNowhere) {
    keep_for_unlisted();
  } else {
    unborn_name = name_of(unborn_place);
  }
  forks_under_way_.fetch_add(1);
  if (is_foreseen) lineage_.expect_child();
  errno = 0;
}

// What this thread made a place for last was not born, as it seems. If it is after all, it finds
// the place gone and takes one of its own.
void Arena::give_up_unborn() {
  if (!has_perhaps_failed) return;
  has_perhaps_failed = false;
  if (unborn_place != kNowhere) free_place(unborn_place, kUnborn, unborn_name);
}

void Arena::in_parent() {
  has_perhaps_failed = errno != 0;
  if (errno == 0) errno = errno_before_fork;
  if (forks_under_way_.fetch_sub(1) == 1 && !is_silent()) lineage_.child_is_made();
}

void Arena::in_child() {
  errno = errno_before_fork;
  has_perhaps_failed = false;
  if (is_silent()) return;
  const uint32_t generation = base::process_generation();
  uint32_t other = entering_generation_.load();
  if (place_generation_.load() != generation &&
      entering_generation_.compare_exchange_strong(other, generation))
    enter_process(unborn_place);
}

// The table of processes is full: what this process holds may be in use where no holder is noted,
// and is never given back.
void Arena::keep_for_unlisted() {
  for (uint32_t i = 0; i < slots.rotation(); ++i)
    if (holds(i)) {
      shared_->has_heirs.store(true, std::memory_order_relaxed);
      slots.head(i)->has_unlisted_holder.store(true);
    }
}

void Arena::hold_all_for(uint32_t place) {
  for (uint32_t word = 0; word < slots.rotation() / 64; ++word)
    for (uint64_t bits = held_[word].load(); bits != 0; bits &= bits - 1) {
      shared_->has_heirs.store(true, std::memory_order_relaxed);
      slots.head(word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits)))->holders.add(place);
    }
}

// All that this process holds, process `pid` holds too. Its place.
uint32_t Arena::hold_as(int pid) {
  uint32_t place = claim_place(pid);
  if (place == kNowhere) {
    collect();
    place = claim_place(pid);
  }
  if (place != kNowhere) hold_all_for(place);
  return place;
}

// A vfork child, which must leave its parent's memory as it is, has the parent's holds.
uint32_t Arena::hold_for_program(int pid) {
  const uint32_t me = place_.load();
  if (me != kNowhere && shared_->processes[me].load() == pid) {
    shared_->places[me].pid_namespace.store(pid_namespace());
    shared_->places[me].is_executing.store(true);
    return me;
  }
  const uint32_t place = hold_as(pid);
  if (place != kNowhere) shared_->places[place].pid_namespace.store(pid_namespace());
  if (place != kNowhere && pid > 0) shared_->places[place].awaited_since.store(kNever.ns);
  return place;
}

void Arena::settle_program(uint32_t place, int pid) {
  if (place == kNowhere) return;
  if (place == place_.load()) return shared_->places[place].is_executing.store(false);
  const uint32_t name = name_of(place);
  if (pid == 0) return free_place(place, shared_->processes[place].load(), name);
  // The program may run already. Either it sees this place, or we that it has looked.
  shared_->places[place].awaited_since.store(kNever.ns);
  shared_->processes[place].store(pid);
  const uint64_t here = shared_->places[place].pid_namespace.load();
  for (uint32_t i = 0; i < kNowhere; ++i) {
    const HolderPlace& other = shared_->places[i];
    if (shared_->processes[i].load() == pid && other.has_finished_adoption.load() &&
        other.pid_namespace.load() == here)
      return free_place(place, pid, name);
  }
}

// A place made for this process before it executed the program it is.
bool Arena::was_me(uint32_t index) const {
  const HolderPlace& place = shared_->places[index];
  return index != place_.load() && shared_->processes[index].load() == getpid() &&
         (place.proof.load() == Proof::kNone || place.is_executing.load()) &&
         place.pid_namespace.load() == shared_->places[place_.load()].pid_namespace.load();
}

void Arena::finish_adoption() {
  const uint32_t me = my_place();
  if (me == kNowhere) return;
  shared_->places[me].pid_namespace.store(pid_namespace());
  shared_->places[me].has_finished_adoption.store(true);
  for (uint32_t i = 0; i < kNowhere; ++i)
    if (was_me(i)) free_place(i, getpid(), name_of(i));
}

// What `pid` held there when the place had that name. One at a time, so that the place is not
// another's before the second has gone; where one has died over it, the next begins again.
void Arena::free_place(uint32_t index, int pid, uint32_t name) {
  HolderPlace& place = shared_->places[index];
  const auto outcome = place.freeing.try_take_over();
  if (outcome != base::Lease::Outcome::kAcquired && outcome != base::Lease::Outcome::kInherited)
    return;
  if (name_of(index) == name && pid != 0 &&
      shared_->processes[index].compare_exchange_strong(pid, kLeaving)) {
    for (uint32_t i = 0; i < slots.rotation(); ++i) drop_hold(i, index);
    shared_->plain[index].count.store(0, std::memory_order_relaxed);
    place.had_before.fetch_add(1);
    place.proof.store(Proof::kNone);
    place.is_executing.store(false);
    place.has_finished_adoption.store(false);
    place.pid_namespace.store(0);
    place.awaited_since.store(0);
    shared_->processes[index].store(0);
  }
  place.freeing.release();
}

void Arena::collect() {
  if (is_silent()) return;
  give_up_unborn();
  give_up_kept();
  for (uint32_t p = 0; p < kNowhere; ++p) {
    const uint32_t name = name_of(p);
    const int pid = shared_->processes[p].load(std::memory_order_acquire);
    if (pid != 0 && p != place_.load() && is_gone(p) && !may_have_heirs(p))
      free_place(p, pid, name);
  }
}

}  // namespace ddpsock::engine
