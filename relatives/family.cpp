// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/family.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/process.h"
#include "relatives/arena_file.h"
#include "relatives/arena_layout.h"
#include "relatives/held_records.h"

namespace ddpsock::engine {
namespace {

using Proof = HolderPlace::Proof;

constexpr uint32_t kNowhere = ProcessTable::kNowhere;

}  // namespace

// The first call of a process: that which made the arena, or came by exec, or was not foreseen.
uint32_t Family::my_place() {
  const uint32_t generation = base::process_generation();
  if (place_generation_.load(std::memory_order_acquire) == generation) [[likely]]
    return place_.load(std::memory_order_relaxed);
  if (is_silent()) return kNowhere;
  const auto thread = static_cast<uint32_t>(gettid());
  uint32_t other = entering_generation_.load();
  if (other != generation && entering_generation_.compare_exchange_strong(other, generation)) {
    entering_thread_.store(thread);
    enter(kNowhere);
    return place_.load(std::memory_order_relaxed);
  }
  while (place_generation_.load(std::memory_order_acquire) != generation) {
    if (entering_thread_.load() == thread) return kNowhere;  // a signal handler on top of it
    sched_yield();
  }
  return place_.load(std::memory_order_relaxed);
}

void Family::enter_as_child(uint32_t foreseen) {
  const uint32_t generation = base::process_generation();
  uint32_t other = entering_generation_.load();
  if (place_generation_.load() != generation &&
      entering_generation_.compare_exchange_strong(other, generation))
    enter(foreseen);
}

// This process is there from now on: at `foreseen`, or in a place of its own.
void Family::enter(uint32_t foreseen) {
  const base::KeepErrno keep;
  const pid_t pid = getpid();
  uint32_t place = foreseen;
  int unborn = kUnborn;
  if (place == kNowhere || !processes_.pid(place).compare_exchange_strong(unborn, pid)) {
    place = processes_.claim(pid);
    // Before this process's part in its parent's locks is let go of.
    if (place != kNowhere) held_.hold_all_for(place);
  }
  if (place != kNowhere) {
    prove_life(place);
    processes_.at(place).awaited_since.store(kNever.ns);  // also where there is no proof
    // Stopped for so long on the way that it was taken for dead.
    if (processes_.pid(place).load() != pid) {
      own_lock_.let_go();
      return enter(kNowhere);
    }
  }
  lineage_.begin();
  children_under_way_.store(0);
  held_.forget_kept();
  place_.store(place, std::memory_order_relaxed);
  entering_generation_.store(base::process_generation());
  place_generation_.store(base::process_generation(), std::memory_order_release);
}

void Family::prove_life(uint32_t place) {
  if (file_.is_anonymous()) return;
  LifeLock inherited = lineage_lock_;
  const int fd = file_.find_fd();
  HolderPlace& p = processes_.at(place);
  if (own_lock_.hold(fd, own_lock(place), LifeLock::Heirs::kNone)) {
    p.proof.store(Proof::kStrong);
    lineage_lock_.hold(fd, lineage_lock(place), LifeLock::Heirs::kAll);
  } else {
    lineage_lock_ = {};
    p.pid_namespace.store(pid_namespace());
    if (fd >= 0 && fd == file_.fd() && LifeLock::hold_weakly(fd, own_lock(place)))
      p.proof.store(Proof::kWeak);
  }
  inherited.let_go();
  file_.give_back(fd);
}

uint32_t Family::my_name() {
  const uint32_t me = my_place();
  return me == kNowhere ? 0 : processes_.name_of(me);
}

bool Family::is_dead(uint32_t name, uint32_t thread) {
  if (name == 0) return false;
  const uint32_t place = ProcessTable::place_of(name);
  if (processes_.name_of(place) != name) return true;
  const base::KeepErrno keep;
  const auto is_no_thread_of = [thread](int pid) {
    return base::kernel_call(SYS_tgkill, pid, thread, 0) != 0 && errno == ESRCH;
  };
  if (place == my_place()) return is_no_thread_of(getpid());
  const HolderPlace& p = processes_.at(place);
  const int pid = processes_.pid(place).load();
  if (pid == 0 || processes_.is_gone(place)) return true;
  // A program that it executes has its holds, but not its threads: they are gone, as is the lock.
  if (p.proof.load() == Proof::kStrong) return processes_.has_lost_lock(place);
  return pid > 0 && thread != 0 && p.pid_namespace.load() != 0 &&
         p.pid_namespace.load() == pid_namespace() && is_no_thread_of(pid);
}

bool Family::is_stopped(uint64_t thread) const {
  const auto name = static_cast<uint32_t>(thread >> 32);
  const uint32_t place = ProcessTable::place_of(name);
  if (name == 0 || processes_.name_of(place) != name) return false;
  const int pid = processes_.pid(place).load();
  return pid > 0 && is_thread_stopped(pid, static_cast<pid_t>(thread));
}

void Family::expect_child() {
  children_under_way_.fetch_add(1);
  if (!is_silent()) lineage_.expect_child();
}

void Family::child_is_made() {
  if (children_under_way_.fetch_sub(1) == 1 && !is_silent()) lineage_.child_is_made();
}

void Family::note_plain(uint32_t count, const char* last_reason) {
  const uint32_t me = my_place();
  if (me == kNowhere) return;
  PlainNotes& notes = file_.head().plain[me];
  const size_t n = std::min(std::strlen(last_reason), notes.last_reason.size() - 1);
  std::memcpy(notes.last_reason.data(), last_reason, n);
  notes.last_reason[n] = 0;
  notes.count.store(count, std::memory_order_relaxed);
}

}  // namespace ddpsock::engine
