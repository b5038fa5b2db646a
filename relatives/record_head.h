// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_RECORD_HEAD_H_
#define DDPSOCK_RELATIVES_RECORD_HEAD_H_

#include <atomic>
#include <cstdint>

#include "relatives/holder_set.h"

namespace ddpsock::engine {

// Whether the place of a record is free, and who holds the record. Lies in shared memory; every
// step is one atomic word, so that a process which dies between two leaves a record that is free,
// that is held, or that names who was about to free it.
struct RecordHead {
  enum State : uint32_t {
    kFree,
    kLive,
    kDying,  // plus the place of the process that is about to free it: nobody holds it any more
  };
  bool is_live() const { return state.load(std::memory_order_acquire) == kLive; }
  // Free until now? It is the caller's then, and live.
  bool try_use();
  // True for one caller, whose place `me` is: to free it then.
  bool begin_free(uint32_t me);
  // `place` does not hold the record any more. True if nobody does, and it is for `me` to free it.
  bool give_up(uint32_t place, uint32_t me);
  // Was `place`, which is gone, about to free it? Then it is for `me`.
  bool take_over(uint32_t place, uint32_t me);
  // REQUIRES: it is for the caller to free.
  void free();
  bool is_held_by_others(uint32_t me) const {
    return has_unlisted_holder.load() || !holders.is_only(me);
  }

  std::atomic<uint32_t> state;
  HolderSet holders;
  std::atomic<bool> has_unlisted_holder;  // then nobody can say when it may be freed
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_RECORD_HEAD_H_
