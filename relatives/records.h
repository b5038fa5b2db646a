// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_RECORDS_H_
#define DDPSOCK_RELATIVES_RECORDS_H_

#include <cstdint>

#include "relatives/record_slots.h"

namespace ddpsock::engine {

class DeadHolders;
class Family;
class HeldRecords;

// The records that this process holds, with others or alone. A record is freed when nobody holds it
// any more; a process that dies at any instruction leaks at most what it held, and DeadHolders
// finds that again. Any thread may call.
class Records {
 public:
  Records(RecordSlots& slots, ArenaHead& shared, HeldRecords& held, Family& family,
          DeadHolders& dead)
      : slots_(slots), shared_(shared), held_(held), family_(family), dead_(dead) {}

  // A zeroed record of RecordSlots::kRecordSize bytes held by this process, or nullptr when all are
  // in use. Records come round in rotation, so that a thread that raced with release() meets a free
  // one, not a stranger's.
  void* allocate();
  // Could allocate() succeed?
  bool has_room();
  // This process gives its hold up; returns true if it was the last, and then `record` may be
  // reused at once after finish_release(). Between the two the caller frees the record's blocks.
  [[nodiscard]] bool release(void* record);
  void finish_release(void* record) { slots_.free(slots_.index_of(record)); }

  // Does no other process hold the record, foreseen or not? One that forks at this moment is seen,
  // or its child has what this process had mapped before the question.
  bool is_sole_holder(const void* record);
  // Is another process known to hold the record? A load, in a family of one.
  bool may_be_shared(const void* record);

  // A live record for which `matches` is true, held by this process from now on; nullptr if none
  // is.
  template <typename F>
  void* find(F matches) {
    for (uint32_t i = 0; i < slots_.rotation(); ++i)
      if (slots_.is_live(i) && matches(slots_.record(i)) && hold(i)) {
        if (matches(slots_.record(i))) return slots_.record(i);
        let_go(i);  // it was given to another connection meanwhile
      }
    return nullptr;
  }

 private:
  void* take_free(uint32_t round);
  bool hold(uint32_t i);
  void let_go(uint32_t i);

  RecordSlots& slots_;
  ArenaHead& shared_;
  HeldRecords& held_;
  Family& family_;
  DeadHolders& dead_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_RECORDS_H_
