// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_DEAD_HOLDERS_H_
#define DDPSOCK_RELATIVES_DEAD_HOLDERS_H_

#include <atomic>
#include <cstdint>

#include "relatives/process_table.h"

namespace ddpsock::engine {

class Blocks;
class Family;
class HeldRecords;
class RecordSlots;

// What processes held that have ended, or were never born: found by whoever comes by, and given up
// in their place. Who dies over that leaves it for the next. Any thread may call.
class DeadHolders {
 public:
  DeadHolders(RecordSlots& slots, Blocks& blocks, ProcessTable& processes, HeldRecords& held,
              Family& family)
      : slots_(slots), blocks_(blocks), processes_(processes), held_(held), family_(family) {}

  // Before a record of theirs is freed, `free_contents` gives its blocks back.
  using FreeContents = void (*)(Blocks& blocks, void* record);
  void set_free_contents(FreeContents f) { free_contents_ = f; }

  void collect();
  // Not at every call of a program that has come to the end of a table. False: not now.
  bool collect_if_due();

  // What this thread made a place for last was not born, as it seems. If it is after all, it finds
  // the place gone and takes one of its own.
  void give_up_unborn();
  // What `pid` held at `place` when that had this name.
  void free_place(uint32_t place, int pid, uint32_t name);

 private:
  void give_up_kept();
  void drop_hold(uint32_t i, uint32_t place);

  RecordSlots& slots_;
  Blocks& blocks_;
  ProcessTable& processes_;
  HeldRecords& held_;
  Family& family_;
  FreeContents free_contents_ = nullptr;
  std::atomic<int64_t> last_collection_{0};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_DEAD_HOLDERS_H_
