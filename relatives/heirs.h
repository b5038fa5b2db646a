// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_HEIRS_H_
#define DDPSOCK_RELATIVES_HEIRS_H_

#include <atomic>
#include <cstdint>

#include "relatives/process_table.h"

namespace ddpsock::engine {

class DeadHolders;
class Family;
class HeldRecords;

// Children that this process makes, and programs that it executes, hold what it holds: from before
// they are made, so that a parent which closes at once does not free what they will ask for. If
// this process dies on the way, or they are never made, their places are found by DeadHolders.
class Heirs {
 public:
  Heirs(ProcessTable& processes, HeldRecords& held, Family& family, DeadHolders& dead)
      : processes_(processes), held_(held), family_(family), dead_(dead) {}

  // Called around fork(), by pthread_atfork and by whoever else foresees a child, in the thread
  // that makes it. errno is kept.
  void before_fork();
  void in_parent();
  void in_child();

  // `pid` is the process that executes a program, perhaps a vfork child of this memory's owner;
  // kUnborn: not known yet. Returns the place in the table of processes,
  // ProcessTable::kNowhere if there is nothing to undo.
  uint32_t hold_for_program(int pid);
  // The program has begun as process `pid`; 0: it has not, the holds are given up.
  void settle_program(uint32_t place, int pid);
  // In the program, after Arena::adopt() and the find() of every inherited socket: gives up what
  // this process held before exec and did not find again.
  void finish_adoption();

 private:
  uint32_t hold_as(int pid);
  bool was_me(uint32_t place) const;

  ProcessTable& processes_;
  HeldRecords& held_;
  Family& family_;
  DeadHolders& dead_;
  std::atomic<uint32_t> forks_{0};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_HEIRS_H_
