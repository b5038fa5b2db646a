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

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "relatives/life.h"

namespace ddpsock::engine {

// Which processes hold a record, as a set of indices into the arena's table of processes.
class HolderSet {
 public:
  static constexpr uint32_t kMax = 1024;
  void add(uint32_t index) { word(index).fetch_or(bit(index), std::memory_order_acq_rel); }
  void remove(uint32_t index) { word(index).fetch_and(~bit(index), std::memory_order_acq_rel); }
  void clear() {
    for (auto& w : words_) w.store(0, std::memory_order_relaxed);
  }
  bool has(uint32_t index) const {
    return (words_[index / 64].load(std::memory_order_acquire) & bit(index)) != 0;
  }
  bool is_only(uint32_t index) const {
    for (uint32_t i = 0; i < kMax / 64; ++i)
      if (words_[i].load(std::memory_order_acquire) != (i == index / 64 ? bit(index) : 0))
        return false;
    return true;
  }
  bool is_empty() const {
    for (const auto& w : words_)
      if (w.load(std::memory_order_acquire) != 0) return false;
    return true;
  }

 private:
  static uint64_t bit(uint32_t index) { return uint64_t{1} << (index % 64); }
  std::atomic<uint64_t>& word(uint32_t index) { return words_[index / 64]; }
  std::array<std::atomic<uint64_t>, kMax / 64> words_{};
};

// Whose a process is, if it is one user's and one group's; none otherwise.
struct Identity {
  static Identity of_caller();
  bool is_one = false;
  uid_t user = 0;
  gid_t group = 0;
};

struct ArenaHead;
struct RecordGroup;
struct RecordHead;

class Arena {
 public:
  static constexpr size_t kRecordSize = 896;
  static constexpr size_t kBlockSize = 136 * 1024;  // largest FPDU and a full read behind it
  static constexpr uint32_t kNoBlock = 0;
  static constexpr uint32_t kGroupRecords = 1024, kRecordGroups = 64;
  static constexpr uint32_t kGroupBlocks = 16, kBlockGroups = 4096;
  static constexpr uint32_t kMaxRecords = kGroupRecords * kRecordGroups;
  // As many blocks, so that no stream can take another's.
  static constexpr uint32_t kMaxBlocks = kGroupBlocks * kBlockGroups;
  static_assert(kMaxBlocks == kMaxRecords);

  // The process family's arena; made at the first call. nullptr if the kernel refuses the memory.
  static Arena* get();
  static Arena* get_if_mapped();
  // Maps the arena that another program of this family carried here by exec, and owns `fd`; nullptr
  // if that is not one of this build, or not this user's, or an arena is mapped already.
  static Arena* adopt(int fd);
  // Has this process the users and groups, real, effective and saved, of who made the arena, and
  // would a program that it executes? Else the program could write where that one reads.
  bool is_among_equals() const;
  // Close-on-exec; -1 where it could not be had (RLIMIT_FSIZE, no memfd): then nothing survives
  // exec.
  int fd() const { return fd_; }
  // The program may have closed or replaced it.
  bool has_fd() const { return is_mine(fd_); }

  // A zeroed record of kRecordSize bytes held by this process, or nullptr when all are in use.
  // Records come round in rotation, so that a thread that raced with release() meets a free one,
  // not a stranger's.
  void* allocate_record();
  // This process gives its hold up; returns true if it was the last, and then `record` may be
  // reused at once after finish_release(). Between the two the caller frees the record's blocks.
  [[nodiscard]] bool release_record(void* record);
  void finish_release(void* record);

  // A block, never kNoBlock, or kNoBlock when there is none. Contents are arbitrary.
  uint32_t allocate_block();
  void free_block(uint32_t block);
  // nullptr: this process may not map it (RLIMIT_AS). Never so where it has allocated the block.
  uint8_t* block_data(uint32_t block);

  // Does no other process hold the record, foreseen or not? One that forks at this moment is seen,
  // or its child has what this process had mapped before the question.
  bool is_sole_holder(const void* record);
  // Is another process known to hold the record? A load, in a family of one.
  bool may_be_shared(const void* record);

  uint32_t live_records() const;
  // Could allocate_record() succeed?
  bool has_room();
  uint32_t index_of(const void* record) const;

  // A live record for which `matches` is true, held by this process from now on; nullptr if none
  // is.
  template <typename F>
  void* find_record(F matches) {
    for (uint32_t i = 0; i < rotation(); ++i)
      if (is_live(i) && matches(record(i)) && hold_record(i)) {
        if (matches(record(i))) return record(i);
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

  // fd(), or where the program has closed or replaced that, another descriptor of the same, from a
  // relative that still has it; the caller closes that one. -1 if there is none.
  int find_fd() const;

  // What ddpstat shows of this process's connections that are plain TCP: how many there were, and
  // why the last one was.
  void note_plain(uint32_t count, const char* last_reason);

  // Frees what dead processes held, by way of `free_contents(record)`. Called now and then by
  // before_fork(), and before more memory is taken into use.
  using FreeContents = void (*)(Arena&, void* record);
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

 private:
  explicit Arena(ArenaHead* shared, int fd) : shared_(shared), fd_(fd) {}
  static Arena* create();
  static Arena* map(int fd);
  static void publish(Arena* arena);
  void* map_part(size_t offset, size_t size) const;
  RecordGroup* group(uint32_t index);
  uint32_t record_count() const { return fd_ < 0 ? kGroupRecords : kMaxRecords; }
  uint32_t block_count() const;
  uint32_t rotation() const;
  bool is_live(uint32_t i);
  bool hold_record(uint32_t i);
  void let_go(uint32_t i);
  RecordHead* head(uint32_t i);
  void* record(uint32_t i);
  void* take_free_record(uint32_t round);
  bool make_room();
  void keep_freed(uint32_t block);
  bool is_mine(int fd) const;

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
  static bool begin_free(RecordHead& head, uint32_t me);
  static bool give_up(RecordHead& head, uint32_t place, uint32_t me);
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
  int fd_ = -1;
  ino_t fd_inode_ = 0;
  dev_t fd_device_ = 0;
  FreeContents free_contents_ = nullptr;
  Identity creator_;
  std::array<std::atomic<RecordGroup*>, kRecordGroups> groups_{};
  std::array<std::atomic<uint8_t*>, kBlockGroups> block_groups_{};

  // Private memory: a child nobody foresaw has its parent's, until my_place() notices.
  std::atomic<uint32_t> place_{HolderSet::kMax};
  std::atomic<uint32_t> place_generation_{0}, entering_generation_{0};
  std::atomic<uint32_t> entering_thread_{0};
  std::array<std::atomic<uint64_t>, kMaxRecords / 64> held_{};
  LifeLock own_lock_, lineage_lock_;
  Lineage lineage_;
  std::atomic<bool> is_silent_{false};
  std::atomic<bool> has_kept_{false};  // holds that were to be given up, but for unknown relatives
  std::atomic<uint32_t> forks_{0}, forks_under_way_{0};
  std::atomic<int64_t> last_collection_{0};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_ARENA_H_
