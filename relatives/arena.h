// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The memory that a family of forked processes shares: one record a stream, and blocks for bytes
// that were read from the kernel but not yet delivered. A file without a name (memfd), that goes
// with the last process, costs only the pages that were touched, and is mapped as it comes into
// use.
//
// Everything in it is crash-safe by construction: a record or block is free or not by one atomic
// word, so a process that dies at any instruction leaks at most what it held, and that is found
// again by collect().
//
// Who holds a record is a set of places in a table of processes. A process's place is proved to be
// in use, or not to be, by a lock (life.h). A child that nobody foresaw, made by clone() or _Fork()
// past every handler, has what its parent held when it was made: the parent gives nothing up while
// there may be one, and the child takes a place of its own at its first call.
#ifndef DDPSOCK_RELATIVES_ARENA_H_
#define DDPSOCK_RELATIVES_ARENA_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "relatives/arena_file.h"
#include "relatives/blocks.h"
#include "relatives/holder_set.h"
#include "relatives/life.h"
#include "relatives/record_head.h"
#include "relatives/record_slots.h"

namespace ddpsock::engine {

class Arena {
 public:
  // The process family's arena; made at the first call. nullptr if the kernel refuses the memory.
  static Arena* get();
  static Arena* get_if_mapped();
  // Maps the arena that another program of this family carried here by exec, and owns `fd`; nullptr
  // if that is not one of this build, or not this user's, or an arena is mapped already.
  static Arena* adopt(int fd);
  // A zeroed record of RecordSlots::kRecordSize bytes held by this process, or nullptr when all are
  // in use. Records come round in rotation, so that a thread that raced with release() meets a free
  // one, not a stranger's.
  void* allocate_record();
  // This process gives its hold up; returns true if it was the last, and then `record` may be
  // reused at once after finish_release(). Between the two the caller frees the record's blocks.
  [[nodiscard]] bool release_record(void* record);
  void finish_release(void* record);

  // Does no other process hold the record, foreseen or not? One that forks at this moment is seen,
  // or its child has what this process had mapped before the question.
  bool is_sole_holder(const void* record);
  // Is another process known to hold the record? A load, in a family of one.
  bool may_be_shared(const void* record);

  // Could allocate_record() succeed?
  bool has_room();

  // A live record for which `matches` is true, held by this process from now on; nullptr if none
  // is.
  template <typename F>
  void* find_record(F matches) {
    for (uint32_t i = 0; i < slots.rotation(); ++i)
      if (slots.is_live(i) && matches(slots.record(i)) && hold_record(i)) {
        if (matches(slots.record(i))) return slots.record(i);
        let_go(i);  // it was given to another connection meanwhile
      }
    return nullptr;
  }

  // Called around fork(), by pthread_atfork and by whoever else foresees a child, in the thread
  // that makes it: the child inherits the parent's holds.
  void before_fork();
  void in_parent();
  void in_child();

  // A filter forbids what is done for the sake of relatives, and this process has no stream any
  // more: from now on nothing is done in it and its children, and what it may hold after all is
  // kept.
  void fall_silent() { is_silent_.store(true); }
  bool is_silent() const { return is_silent_.load(std::memory_order_relaxed); }

  // What this process holds is from now on also held for a program that it starts, so that a parent
  // which closes at once does not free what the program will ask for. `pid` is the process that
  // executes the program, perhaps a vfork child of this memory's owner; kUnborn: not known yet.
  // Returns the place in the table of processes, HolderSet::kMax if there is nothing to undo.
  static constexpr int kUnborn = -1;
  uint32_t hold_for_program(int pid);
  // The program has begun as process `pid`; 0: it has not, the holds are given up.
  void settle_program(uint32_t place, int pid);
  // After adopt() and the find_record() of every inherited socket: gives up what this process held
  // before exec and did not find again.
  void finish_adoption();

  // What ddpstat shows of this process's connections that are plain TCP: how many there were, and
  // why the last one was.
  void note_plain(uint32_t count, const char* last_reason);

  // Frees what dead processes held, by way of `free_contents(record)`. Called now and then by
  // before_fork(), and before more memory is taken into use.
  using FreeContents = void (*)(Blocks& blocks, void* record);
  void set_collector(FreeContents f) { free_contents_ = f; }
  void collect();

  // The calling process as one among all that ever had a part in this, 0 if it has no place; and
  // whether one is no more, or at least its thread (0: none). What a program was before exec is
  // none that is there after it.
  uint32_t my_name();
  bool is_dead(uint32_t name, uint32_t thread);
  // A guess that this thread (base::thread_name()) does not run before somebody continues it. Of
  // another pid namespace it may be another.
  bool is_stopped(uint64_t thread) const;

  ArenaFile file;
  RecordSlots slots;
  Blocks blocks;

 private:
  Arena(ArenaHead& shared, int fd)
      : file(shared, fd), slots(file), blocks(file), shared_(&shared) {}
  static Arena* create();
  static Arena* map(int fd);
  static void publish(Arena* arena);
  bool hold_record(uint32_t i);
  void let_go(uint32_t i);
  void* take_free_record(uint32_t round);
  bool make_room();

  // arena_holders.cpp
  uint32_t my_place();
  void enter_process(uint32_t place);
  uint32_t claim_place(int pid);
  void prove_life(uint32_t place);
  bool is_gone(uint32_t place) const;
  LifeLock::State look_at_lock(off_t byte) const;
  bool may_have_heirs(uint32_t place) const;
  bool may_have_unknown_children() const;
  bool was_me(uint32_t place) const;
  void keep_for_unlisted();
  void hold_all_for(uint32_t place);
  void drop_hold(uint32_t i, uint32_t place);
  uint32_t hold_as(int pid);
  void free_place(uint32_t place, int pid, uint32_t name);
  uint32_t name_of(uint32_t place) const;
  void give_up_unborn();
  void give_up_kept();

  bool holds(uint32_t i) const { return (held_[i / 64].load() >> (i % 64) & 1) != 0; }
  void note_held(uint32_t i) { held_[i / 64].fetch_or(uint64_t{1} << (i % 64)); }
  void note_not_held(uint32_t i) { held_[i / 64].fetch_and(~(uint64_t{1} << (i % 64))); }

  ArenaHead* shared_;
  FreeContents free_contents_ = nullptr;

  // Private memory: a child nobody foresaw has its parent's, until my_place() notices.
  std::atomic<uint32_t> place_{HolderSet::kMax};
  std::atomic<uint32_t> place_generation_{0}, entering_generation_{0};
  std::atomic<uint32_t> entering_thread_{0};
  std::array<std::atomic<uint64_t>, RecordSlots::kMaxRecords / 64> held_{};
  LifeLock own_lock_, lineage_lock_;
  Lineage lineage_;
  std::atomic<bool> is_silent_{false};
  std::atomic<bool> has_kept_{false};  // holds that were to be given up, but for unknown relatives
  std::atomic<uint32_t> forks_{0}, forks_under_way_{0};
  std::atomic<int64_t> last_collection_{0};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_ARENA_H_
