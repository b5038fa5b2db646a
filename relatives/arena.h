// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The memory that a family of forked processes shares: one record a stream, and blocks for bytes
// that were read from the kernel but not yet delivered. A file without a name (memfd), that goes
// with the last process, costs only the pages that were touched, and is mapped as it comes into
// use.
//
// Everything in it is crash-safe by construction: a record or block is free or not by one atomic
// word, so a process that dies at any instruction leaks at most what it held, and that is found
// again by DeadHolders::collect().
#ifndef DDPSOCK_RELATIVES_ARENA_H_
#define DDPSOCK_RELATIVES_ARENA_H_

#include "relatives/arena_file.h"
#include "relatives/blocks.h"
#include "relatives/dead_holders.h"
#include "relatives/family.h"
#include "relatives/heirs.h"
#include "relatives/held_records.h"
#include "relatives/process_table.h"
#include "relatives/record_slots.h"
#include "relatives/records.h"

namespace ddpsock::engine {

// One process's view of it, in the parts that callers use. Never destroyed. Any thread may use any
// part.
struct Arena {
  // The process family's arena; made at the first call. nullptr if the kernel refuses the memory.
  static Arena* get();
  static Arena* get_if_mapped();
  // Maps the arena that another program of this family carried here by exec, and owns `fd`; nullptr
  // if that is not one of this build, or not this user's, or an arena is mapped already.
  static Arena* adopt(int fd);

  // For get() and adopt() alone. `head` and `fd` as ArenaFile has them.
  Arena(ArenaHead& head, int fd);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  ArenaFile file;
  Blocks blocks;
  RecordSlots slots;
  ProcessTable processes;
  HeldRecords held;
  Family family;
  DeadHolders dead_holders;
  Records records;
  Heirs heirs;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_ARENA_H_
