// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_FAMILY_H_
#define DDPSOCK_RELATIVES_FAMILY_H_

#include <atomic>
#include <cstdint>

#include "relatives/life.h"
#include "relatives/process_table.h"

namespace ddpsock::engine {

class ArenaFile;
class HeldRecords;

// This process as one of its family: its place in the table of processes, and what it can tell of
// the others. A child that nobody foresaw, made by clone() or _Fork() past every handler, has what
// its parent held when it was made: the parent gives nothing up while there may be one, and the
// child takes a place of its own at its first call. All calls are async-signal-safe.
class Family {
 public:
  Family(const ArenaFile& file, ProcessTable& processes, HeldRecords& held)
      : file_(file), processes_(processes), held_(held) {}

  // ProcessTable::kNowhere: the table is full, or a signal handler has interrupted the first call,
  // or is_silent().
  uint32_t my_place();
  // The same, of a process that has made its first call, and of its vfork children.
  uint32_t known_place() const { return place_.load(); }
  // The calling process as one among all that ever had a part in this, 0 if it has no place.
  uint32_t my_name();

  // Is one no more, or at least its thread (0: none)? What a program was before exec is none that
  // is there after it.
  bool is_dead(uint32_t name, uint32_t thread);
  // A guess that this thread (base::thread_name()) does not run before somebody continues it. Of
  // another pid namespace it may be another.
  bool is_stopped(uint64_t thread) const;

  // Around the making of a child that is foreseen.
  void expect_child();
  void child_is_made();
  // In the child, which takes the place that was made for it, if it is still there.
  void enter_as_child(uint32_t foreseen);
  bool may_have_unknown_children() const { return is_silent() || lineage_.has_unknown(); }

  // A filter forbids what is done for the sake of relatives, and this process has no stream any
  // more: from now on nothing is done in it and its children, and what it may hold after all is
  // kept.
  void fall_silent() { is_silent_.store(true); }
  bool is_silent() const { return is_silent_.load(std::memory_order_relaxed); }

  // What ddpstat shows of this process's connections that are plain TCP: how many there were, and
  // why the last one was.
  void note_plain(uint32_t count, const char* last_reason);

 private:
  void enter(uint32_t foreseen);
  void prove_life(uint32_t place);

  const ArenaFile& file_;
  ProcessTable& processes_;
  HeldRecords& held_;
  // Private memory: a child nobody foresaw has its parent's, until my_place() notices.
  std::atomic<uint32_t> place_{ProcessTable::kNowhere};
  std::atomic<uint32_t> place_generation_{0}, entering_generation_{0};
  std::atomic<uint32_t> entering_thread_{0};
  LifeLock own_lock_, lineage_lock_;
  Lineage lineage_;
  std::atomic<uint32_t> children_under_way_{0};
  std::atomic<bool> is_silent_{false};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_FAMILY_H_
