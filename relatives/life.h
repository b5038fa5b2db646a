// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Proofs that a process lives, or that it has ended, which hold in every pid namespace, for
// zombies, and for pids that are another's by now: the kernel itself takes them back, at death and
// before anybody is told of it. No function touches errno; all are async-signal-safe.
#ifndef DDPSOCK_RELATIVES_LIFE_H_
#define DDPSOCK_RELATIVES_LIFE_H_

#include <sys/types.h>

#include <cstdint>

namespace ddpsock::engine {

// A lock on one byte of a file, held by an open file description that only a mapping keeps: no
// close() ends it, and nothing but the end of the process, or a program that it executes, does.
class LifeLock {
 public:
  enum class Heirs : uint8_t {
    kNone,  // children do not have it
    kAll,   // children that nobody foresees have it too, until they end or let_go()
  };
  // Needs /proc. False, and nothing is held, if it cannot be had. Forgets what a parent held.
  bool hold(int file, off_t byte, Heirs heirs);
  // What this process has, or has inherited.
  void let_go();

  enum class State : uint8_t { kFree, kHeld, kUnknown };
  static State look(int file, off_t byte);
  // The same for as long as this process has every descriptor of the file open: POSIX's own.
  static bool hold_weakly(int file, off_t byte);

 private:
  void* page_ = nullptr;
};

// Whether anybody descends from this process without its knowledge: a child made by clone() or
// _Fork() past every handler, which has copies of the descriptors. Memory that it inherits counts
// its users.
class Lineage {
 public:
  // From now on, of this process. Without System V memory (ENOSPC or half of it taken, a
  // filter) nobody is found.
  void begin();
  // One system call; two once this process has changed its user. What cannot be told may be so.
  bool has_unknown() const;
  // Between these two, for children that are foreseen: they do not count.
  void expect_child() const;
  void child_is_made() const;

 private:
  int id_ = -1;
  void* page_ = nullptr;
};

// The number of this process's pid namespace; 0 where /proc does not say.
uint64_t pid_namespace();
// Has a signal, or a tracer, stopped that thread of process `pid`? False where /proc does not say.
bool is_thread_stopped(pid_t pid, pid_t thread);
// Is process `pid` of this pid namespace gone? A zombie is, once all its threads are.
bool is_process_gone(pid_t pid);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_LIFE_H_
