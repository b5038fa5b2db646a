// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A file that a process writes records to while its program knows nothing of it. `ddprun` makes the
// file before the program begins; the first process writes to it, also in what it executes, every
// other one to a file of its own beside it (PATH.PID), because both ends of a connection in one
// file would be taken for one end's that sends everything twice. A process that cannot make its own
// (another user, chroot) appends to the one it has inherited: records are written whole, by one
// call, with O_APPEND.
//
// The descriptor lies out of the way of programs, is close-on-exec, and is known by its inode
// before it is written to: one that the program has closed is opened again, and its number, which
// may be another file's by then, left alone. What cannot be written ends the file, for this process
// and for good, and what was written of that record is taken back; no signal comes of it.
#ifndef DDPSOCK_ENGINE_WRAP_RECORD_FILE_H_
#define DDPSOCK_ENGINE_WRAP_RECORD_FILE_H_

#include <limits.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/lease.h"
#include "engine/wrap/records.h"

namespace ddpsock::engine::wrap {

// A lock that is free in a forked child, whoever had it there, and that the dead do not keep.
class RecordLock {
 public:
  // False: another has it for long, as where the disk is slow.
  bool acquire();
  void release() { lease_.release(); }

 private:
  base::Lease lease_;
  std::atomic<uint32_t> generation_{0};
  std::atomic<bool> has_missed_{false};
};

// For a scope: no signal is delivered to this thread, so that no handler finds the lock taken by
// who it interrupts, and other threads wait, but not for long: then there is no record.
class Quietly {
 public:
  explicit Quietly(RecordLock& lock);
  ~Quietly();
  Quietly(const Quietly&) = delete;
  Quietly& operator=(const Quietly&) = delete;
  explicit operator bool() const { return is_held_; }

 private:
  RecordLock& lock_;
  uint64_t mask_ = 0;
  bool is_held_;
};

// All calls are async-signal-safe and keep errno.
class RecordFile final : public Records {
 public:
  // As ddprun says it: "PID:NANOSECONDS:PATH", the first process, when the file was made (of its
  // file system's clock), and its absolute path. `header` begins each file; it is static. `notes`
  // is told of the end, once; or nullptr. False: `text` is none.
  bool set(const char* text, Bytes header, Records* notes);
  // Is it written to, still?
  bool is_on() const { return path_[0] != '\0' && !is_stopped_.load(std::memory_order_relaxed); }
  // The first process opens the file at once, before it may have given up the right to.
  void open_early();
  void put(std::span<const Bytes> pieces) override;
  // Observer::make_room().
  void make_room(unsigned first, unsigned last);
  // Nothing more is written; `why` is static text.
  void stop(const char* why);

 private:
  bool open_or_find();
  bool is_ours(int fd, long& size) const;
  int open_own(uint32_t generation);
  void write(std::span<const Bytes> pieces);

  RecordLock lock_;
  std::atomic<bool> is_stopped_{false};
  int fd_ = -1;
  uint32_t generation_ = 0;  // whose descriptor it is
  dev_t device_ = 0;
  ino_t inode_ = 0;
  pid_t first_ = 0;
  int64_t since_ = 0;
  Bytes header_{};
  Records* notes_ = nullptr;
  std::array<char, PATH_MAX> path_{};
};

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_RECORD_FILE_H_
