// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/held_records.h"

#include "relatives/arena_layout.h"

namespace ddpsock::engine {

void HeldRecords::hold_all_for(uint32_t place) {
  for (uint32_t word = 0; word < slots_.rotation() / 64; ++word)
    for (uint64_t bits = held_[word].load(); bits != 0; bits &= bits - 1) {
      shared_.has_heirs.store(true, std::memory_order_relaxed);
      slots_.head(word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits)))->holders.add(place);
    }
}

void HeldRecords::keep_for_unlisted() {
  for (uint32_t i = 0; i < slots_.rotation(); ++i)
    if (has(i)) {
      shared_.has_heirs.store(true, std::memory_order_relaxed);
      slots_.head(i)->has_unlisted_holder.store(true);
    }
}

}  // namespace ddpsock::engine
