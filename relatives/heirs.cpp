// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/heirs.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "relatives/arena_layout.h"
#include "relatives/dead_holders.h"
#include "relatives/family.h"
#include "relatives/held_records.h"
#include "relatives/unborn.h"

namespace ddpsock::engine {
namespace {

constexpr uint32_t kNowhere = ProcessTable::kNowhere;

[[gnu::tls_model("initial-exec")]] thread_local constinit int errno_before_fork = 0;

}  // namespace

void Heirs::before_fork() {
  // Dead relatives are looked for now and then, and when their places are needed (hold_as).
  constexpr uint32_t kForksBetween = 16;
  errno_before_fork = errno;
  const bool is_foreseen = !family_.is_silent();
  if (is_foreseen) {
    family_.my_place();
    dead_.give_up_unborn();
    if (forks_.fetch_add(1) % kForksBetween == kForksBetween - 1) dead_.collect();
  }
  unborn.place = is_foreseen ? hold_as(kUnborn) : kNowhere;
  if (unborn.place == kNowhere) {
    held_.keep_for_unlisted();
  } else {
    unborn.name = processes_.name_of(unborn.place);
  }
  family_.expect_child();
  errno = 0;
}

void Heirs::in_parent() {
  unborn.has_perhaps_failed = errno != 0;
  if (errno == 0) errno = errno_before_fork;
  family_.child_is_made();
}

void Heirs::in_child() {
  errno = errno_before_fork;
  unborn.has_perhaps_failed = false;
  if (!family_.is_silent()) family_.enter_as_child(unborn.place);
}

// All that this process holds, process `pid` holds too. Its place.
uint32_t Heirs::hold_as(int pid) {
  uint32_t place = processes_.claim(pid);
  if (place == kNowhere) {
    dead_.collect();
    place = processes_.claim(pid);
  }
  if (place != kNowhere) held_.hold_all_for(place);
  return place;
}

// A vfork child, which must leave its parent's memory as it is, has the parent's holds.
uint32_t Heirs::hold_for_program(int pid) {
  const uint32_t me = family_.known_place();
  if (me != kNowhere && processes_.pid(me).load() == pid) {
    processes_.at(me).pid_namespace.store(pid_namespace());
    processes_.at(me).is_executing.store(true);
    return me;
  }
  const uint32_t place = hold_as(pid);
  if (place != kNowhere) processes_.at(place).pid_namespace.store(pid_namespace());
  if (place != kNowhere && pid > 0) processes_.at(place).awaited_since.store(kNever.ns);
  return place;
}

void Heirs::settle_program(uint32_t place, int pid) {
  if (place == kNowhere) return;
  if (place == family_.known_place()) return processes_.at(place).is_executing.store(false);
  const uint32_t name = processes_.name_of(place);
  if (pid == 0) return dead_.free_place(place, processes_.pid(place).load(), name);
  // The program may run already. Either it sees this place, or we that it has looked.
  processes_.at(place).awaited_since.store(kNever.ns);
  processes_.pid(place).store(pid);
  const uint64_t here = processes_.at(place).pid_namespace.load();
  for (uint32_t i = 0; i < kNowhere; ++i) {
    const HolderPlace& other = processes_.at(i);
    if (processes_.pid(i).load() == pid && other.has_finished_adoption.load() &&
        other.pid_namespace.load() == here)
      return dead_.free_place(place, pid, name);
  }
}

// A place made for this process before it executed the program it is.
bool Heirs::was_me(uint32_t index) const {
  const HolderPlace& place = processes_.at(index);
  const uint32_t me = family_.known_place();
  return index != me && processes_.pid(index).load() == getpid() &&
         (place.proof.load() == HolderPlace::Proof::kNone || place.is_executing.load()) &&
         place.pid_namespace.load() == processes_.at(me).pid_namespace.load();
}

void Heirs::finish_adoption() {
  const uint32_t me = family_.my_place();
  if (me == kNowhere) return;
  processes_.at(me).pid_namespace.store(pid_namespace());
  processes_.at(me).has_finished_adoption.store(true);
  for (uint32_t i = 0; i < kNowhere; ++i)
    if (was_me(i)) dead_.free_place(i, getpid(), processes_.name_of(i));
}

}  // namespace ddpsock::engine
