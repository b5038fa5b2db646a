// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory of the peer's that it lets us reach (region_table.h): mapped here at its first use, or, if
// it has no file, known by where it lies there. What the peer's table says is input; what lies in
// such memory may change at any time.
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
    const Slot* s = look_for(stag);
    return s != nullptr ? s->locate(to, length, needed) : nullptr;
  }
  // The same of memory that can only be read: where it is in the peer's address space. 0: it is to
  // be asked.
  uint64_t find_there(uint32_t stag, uint64_t to, uint64_t length) {
    const Slot* s = look_for(stag);
    return s != nullptr ? s->locate_there(to, length) : 0;
  }

  // Whether the peer lets us still. REQUIRES: it has just been found.
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
    uint64_t address = 0;  // in the peer, of what has no file; 0: nowhere

    bool is_live() const {
      return entry != nullptr && entry->serial.load(std::memory_order_acquire) == serial;
    }
    bool allows(uint64_t to, uint64_t size, rdmap::Rights needed) const {
      const bool is_inside = to >= base_to && size <= length && to - base_to <= length - size;
      return is_inside && rights.has_any(needed);
    }
    uint8_t* locate(uint64_t to, uint64_t size, rdmap::Rights needed) const {
      return at != nullptr && allows(to, size, needed) ? at + (to - base_to) : nullptr;
    }
    uint64_t locate_there(uint64_t to, uint64_t size) const {
      const bool is_there = address != 0 && allows(to, size, rdmap::kRemoteRead);
      return is_there ? address + (to - base_to) : 0;
    }
  };
  Slot& slot_of(uint32_t stag) const { return slots_[rdmap::index_of(stag) % kSlots]; }

  // nullptr: there is nothing to be reached.
  const Slot* look_for(uint32_t stag) {
    if (table_ != nullptr) [[likely]] {
      const Slot& s = slot_of(stag);
      if (s.stag == stag && s.is_live()) [[likely]]
        return &s;
    } else if (!memory_.has_peer_table()) {
      return nullptr;
    }
    return open(stag) ? &slot_of(stag) : nullptr;
  }
  bool open(uint32_t stag);
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
