// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The memory that a family of forked processes shares: one record a stream, and blocks for bytes
// that were read from the kernel but not yet delivered. Anonymous and MAP_SHARED, so that it has no
// name, goes with the last process and costs only the pages that were touched.
//
// Everything in it is crash-safe by construction: a record or block is free or not by one atomic
// word, so a process that dies at any instruction leaks at most what it held, and that is found
// again by collect().
#ifndef DDPSOCK_ENGINE_USER_ARENA_H_
#define DDPSOCK_ENGINE_USER_ARENA_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddpsock::engine {

// Which processes hold a record, as a set of indices into the arena's table of processes.
class HolderSet {
 public:
  static constexpr uint32_t kMax = 1024;
  void add(uint32_t index) { word(index).fetch_or(bit(index), std::memory_order_acq_rel); }
  void remove(uint32_t index) { word(index).fetch_and(~bit(index), std::memory_order_acq_rel); }
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

struct ArenaHead;
struct RecordHead;

class Arena {
 public:
  static constexpr size_t kRecordSize = 768;
  static constexpr size_t kBlockSize = 136 * 1024;  // largest FPDU and a full read behind it
  static constexpr uint32_t kNoBlock = 0;

  // The process family's arena; mapped at the first call. nullptr if the kernel refuses the memory.
  static Arena* get();
  static Arena* get_if_mapped();
  // Maps the arena that another program of this family carried here by exec, and owns `fd`; nullptr
  // if that is not one of this build, or an arena is mapped already.
  static Arena* adopt(int fd);
  // Close-on-exec; -1 where it could not be had (RLIMIT_FSIZE, no memfd): then nothing survives
  // exec.
  int fd() const { return fd_; }

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
  uint8_t* block_data(uint32_t block) { return blocks_ + (block - 1) * kBlockSize; }

  // Does no other process hold the record? One that forks at this moment is seen, or its child has
  // what this process had mapped before the question.
  bool is_sole_holder(const void* record);

  uint32_t live_records() const;
  uint32_t record_count() const { return record_count_; }
  uint32_t index_of(const void* record) const;

  // A live record for which `matches` is true, held by this process from now on; nullptr if none
  // is.
  template <typename F>
  void* find_record(F matches) {
    for (uint32_t i = 0; i < rotation(); ++i)
      if (is_live(i) && matches(record(i)) && hold_record(i)) return record(i);
    return nullptr;
  }

  // Called around fork(), by pthread_atfork: the child inherits the parent's holds.
  void before_fork();
  void in_child();

  // What this process holds is from now on also held for a program that it starts, so that a parent
  // which closes at once does not free what the program will ask for. `pid` is the process that
  // executes the program, perhaps a vfork child of this memory's owner; kUnborn: not known yet.
  // Returns the place in the table of processes, HolderSet::kMax if there is nothing to undo.
  static constexpr int kUnborn = -1;
  uint32_t hold_for_program(int pid);
  // The program has begun as process `pid`; 0: it has not, the holds are given up.
  void settle_program(uint32_t process, int pid);
  // After adopt() and the find_record() of every inherited socket: gives up what this process held
  // before exec and did not find again.
  void finish_adoption();

  // fd(), or where the program has closed or replaced that, another descriptor of the same, from a
  // relative that still has it; the caller closes that one. -1 if there is none.
  int find_fd() const;

  // What ddpstat shows of this process's connections that are plain TCP: how many there were, and
  // why the last one was.
  void note_plain(uint32_t count, const char* last_reason);

  // Frees what dead processes held, by way of `free_contents(record)`. Called by before_fork.
  using FreeContents = void (*)(Arena&, void* record);
  void set_collector(FreeContents f) { free_contents_ = f; }
  void collect();

 private:
  explicit Arena(ArenaHead* shared);
  static Arena* create();
  static Arena* map(int fd, uint32_t shrink);
  static void publish(Arena* arena);
  uint32_t rotation() const;
  bool is_live(uint32_t i);
  bool hold_record(uint32_t i);
  RecordHead* head(uint32_t i);
  void* record(uint32_t i) { return records_ + size_t{i} * kRecordSize; }
  uint32_t find_process(int pid) const;
  uint32_t claim_free_process(int pid);
  uint32_t claim_process(int pid);
  void keep_for_unlisted(uint32_t me);
  bool begin_free(RecordHead& head);
  uint32_t hold_as(uint32_t me, int pid);
  void free_process(uint32_t process, int pid);
  bool is_mine(int fd) const;
  uint32_t my_process();

  ArenaHead* shared_;
  uint8_t* records_;
  uint8_t* blocks_;
  uint32_t record_count_;
  uint32_t block_count_;
  int fd_ = -1;
  ino_t fd_inode_ = 0;
  dev_t fd_device_ = 0;
  FreeContents free_contents_ = nullptr;
  uint32_t process_index_ =
      HolderSet::kMax;  // private memory: right in a child only after in_child
  uint32_t process_generation_ = 0;
  uint32_t child_index_ = HolderSet::kMax;
  uint32_t forks_ = 0;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_ARENA_H_
