// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory of the peer's that it lets us reach (region_table.h), mapped here at its first use. What
// the peer's table says is input; what lies in mapped memory may change at any time.
//
// One thread at a time.
#ifndef DDPSOCK_ENGINE_MEMORY_PEER_REGIONS_H_
#define DDPSOCK_ENGINE_MEMORY_PEER_REGIONS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "engine/memory/message_memory.h"
#include "engine/memory/region_table.h"

namespace ddpsock::engine::shm {

class PeerRegions {
 public:
  // `memory` outlives it.
  explicit PeerRegions(const MessageMemory& memory) : memory_(memory) {}
  ~PeerRegions();
  PeerRegions(const PeerRegions&) = delete;
  PeerRegions& operator=(const PeerRegions&) = delete;

  // Where `length` bytes from `to` on of its region `stag` are here, if the peer lets us do
  // `needed` there. nullptr: it is to be asked.
  uint8_t* find(uint32_t stag, uint64_t to, uint64_t length, rdmap::Rights needed) {
    if (table_ != nullptr) [[likely]] {
      const Slot& s = slot_of(stag);
      if (s.stag == stag && s.is_live()) [[likely]]
        return s.locate(to, length, needed);
    } else if (!memory_.has_peer_table()) {
      return nullptr;
    }
    return map(stag) ? slot_of(stag).locate(to, length, needed) : nullptr;
  }

  // Whether the peer lets us still. REQUIRES: find() has found it.
  bool is_still(uint32_t stag) const { return slot_of(stag).is_live(); }

  // Gives up what the peer has ended.
  void sweep();

 private:
  // Others with the same place wait until what is mapped there is over.
  static constexpr uint32_t kSlots = 64;
  struct Slot {
    uint32_t stag = 0;
    rdmap::Rights rights;
    uint64_t serial = 0;                 // 0: there is nothing to be reached
    const RegionEntry* entry = nullptr;  // nullptr: an empty slot
    uint64_t base_to = 0, length = 0;
    uint8_t* at = nullptr;  // nullptr: there is nothing, or it cannot be mapped
    size_t mapped = 0;

    bool is_live() const {
      return entry != nullptr && entry->serial.load(std::memory_order_acquire) == serial;
    }
    uint8_t* locate(uint64_t to, uint64_t size, rdmap::Rights needed) const {
      const uint64_t offset = to - base_to;
      const bool is_inside = to >= base_to && size <= length && offset <= length - size;
      return at != nullptr && is_inside && rights.has_any(needed) ? at + offset : nullptr;
    }
  };
  Slot& slot_of(uint32_t stag) const { return slots_[rdmap::index_of(stag) % kSlots]; }

  bool map(uint32_t stag);
  bool open_table();
  bool is_of_peer(const RegionTableFile& table, uint32_t row) const;
  void fill(Slot& slot, const RegionEntry& entry, uint64_t serial);
  static void empty(Slot& slot);

  const MessageMemory& memory_;
  const RegionTableFile* table_ = nullptr;
  const RegionRow* row_ = nullptr;  // of this connection there
  bool is_hopeless_ = false;        // the table cannot be had
  uint32_t pid_ = 0;                // the owner
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_ENGINE_MEMORY_PEER_REGIONS_H_
