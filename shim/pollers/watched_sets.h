// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The epoll sets of this process that are looked at here (memory_watch.h): a few, in static memory;
// the rest are the kernel's. A forked child begins with none, whether its fork was announced or
// not. Nobody tells that a set was closed: its place is found free when all are taken, or the
// number is another set's. Any descriptor, any thread, signal handlers too; errno is kept.
#ifndef DDPSOCK_SHIM_POLLERS_WATCHED_SETS_H_
#define DDPSOCK_SHIM_POLLERS_WATCHED_SETS_H_

#include <optional>

#include "shim/pollers/deferral.h"
#include "shim/pollers/memory_watch.h"
#include "shim/pollers/own_sets.h"

namespace ddpsock::shim {

// The set `set` if it watches anything that is of interest here; nullptr otherwise.
WatchedSet* find_watched_set(int set);
// Could `fd` in `set` be looked at here, now or later?
bool may_watch(int set, int fd);
// A place for `set`, and a hold of it, which was empty. What the set holds is asked when all who
// change it from now on wait for that. nullptr: there is no room, or another thread is at it.
WatchedSet* claim_watched_set(int set, std::optional<WatchedSet::Hold>& hold);

// `set` was made just now, by this process: nobody else has it yet.
void note_set_created(int set);
// Somebody else will wait in what `set` may be, or change it, who relies on the kernel: another set
// or poll() that holds it, a duplicate, a process that it is passed to. From now on it is the
// kernel's.
void share_own_set(int set);
inline void share_set(int set) {
  if (is_own_set(set)) share_own_set(set);
}
// A call has just returned `set` as another descriptor than it was. What was put off of the one
// that had the number before went with it.
void forget_own_set(int set);
inline void forget_set(int set) {
  if (is_own_set(set)) forget_own_set(set);
}
// `fd` is about to be closed; with `is_still_watched` false it was, and is perhaps another's.
void forget_member(int fd, bool is_still_watched);

// Tells the kernel what was put off of all sets: somebody is about to ask it.
void tell_kernel_all();
inline void tell_kernel() {
  if (Deferral::is_any_in_process()) tell_kernel_all();
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_WATCHED_SETS_H_
