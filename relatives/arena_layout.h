// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How an arena lies in its file, for the parts of it (arena.h) and for who only looks at it from
// outside (arena_view.cpp).
#ifndef DDPSOCK_RELATIVES_ARENA_LAYOUT_H_
#define DDPSOCK_RELATIVES_ARENA_LAYOUT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/lease.h"
#include "relatives/blocks.h"
#include "relatives/holder_pid.h"
#include "relatives/holder_set.h"
#include "relatives/layout_number.h"  // generated: changes with any of these headers
#include "relatives/message_record.h"
#include "relatives/record.h"
#include "relatives/record_head.h"
#include "relatives/record_slots.h"

namespace ddpsock::engine {

inline constexpr char kArenaName[] = "ddpsock";  // of its memfd

// A process that holds records. Its pid is in ArenaHead::processes.
struct HolderPlace {
  enum class Proof : uint8_t {
    kNone,    // none but its pid, for those of its pid namespace
    kWeak,    // a lock that it could lose without ending
    kStrong,  // a lock that ends with it and not before
  };
  base::Lease freeing;                  // of whoever gives up what it held
  std::atomic<uint32_t> had_before;     // how many have had the place before
  std::atomic<int64_t> awaited_since;   // before it is proved; 0: nobody has looked yet
  std::atomic<uint64_t> pid_namespace;  // 0: not known
  std::atomic<Proof> proof;
  std::atomic<bool> is_executing;  // a program, which takes the place's lock away
  std::atomic<bool> has_finished_adoption;
};

// Connections of one process that stayed plain TCP.
struct PlainNotes {
  std::atomic<uint32_t> count;
  std::array<char, 64> last_reason;
};

struct ArenaHead {
  std::atomic<uint64_t>
      build;  // kArenaBuild once set up: another build may lay things out differently
  std::atomic<uint32_t> record_cursor;
  std::atomic<uint32_t> records_live;
  std::atomic<uint32_t> rotation;
  std::atomic<bool> has_heirs;  // what one process held was held for another, once
  std::atomic<uint32_t> block_hint;
  std::atomic<uint32_t> freed_cursor;
  // Free, or in use again, and their pages kept: beyond the first blocks, whose are kept always.
  std::array<std::atomic<uint32_t>, 32> freed_last;
  std::array<std::atomic<int>, HolderSet::kMax> processes;
  std::array<HolderPlace, HolderSet::kMax> places;
  std::array<PlainNotes, HolderSet::kMax> plain;
  std::array<std::atomic<uint8_t>, Blocks::kMaxBlocks> block_used;
};

// Mapped one by one, as they come into use. So are groups of blocks.
struct RecordGroup {
  std::array<RecordHead, RecordSlots::kGroupRecords> heads;
  alignas(64) std::array<std::array<std::byte, RecordSlots::kRecordSize>,
                         RecordSlots::kGroupRecords> records;
};
inline constexpr size_t kBlockGroupSize = Blocks::kGroupBlocks * Blocks::kBlockSize;

// Two builds that may lay the arena out differently have different numbers.
constexpr uint64_t hash(const char* text, uint64_t h = 0xcbf29ce484222325) {
  for (; *text != 0; ++text) h = (h ^ static_cast<uint8_t>(*text)) * 0x100000001b3;
  return h;
}
constexpr uint64_t hash(uint64_t number, uint64_t h) {
  return (h ^ number) * 0x100000001b3;
}
inline constexpr uint64_t kArenaBuild =
    hash(DDPSOCK_ARENA_LAYOUT,
         hash(sizeof(Record) << 32 | offsetof(Record, sent),
              hash(sizeof(MessageRecord) << 32 | offsetof(MessageRecord, counters),
                   hash(sizeof(ArenaHead), hash(DDPSOCK_VERSION))))) |
    1;

// The head, the groups of records, those of blocks, each from a page on.
constexpr size_t whole_pages(size_t size) {
  return (size + 4095) & ~size_t{4095};
}
inline constexpr size_t kRecordsOffset = whole_pages(sizeof(ArenaHead));
constexpr size_t record_group_offset(uint32_t group) {
  return kRecordsOffset + group * whole_pages(sizeof(RecordGroup));
}
constexpr size_t block_group_offset(uint32_t group) {
  return record_group_offset(RecordSlots::kRecordGroups) + group * kBlockGroupSize;
}
inline constexpr size_t kArenaSize = block_group_offset(Blocks::kBlockGroups);
static_assert(kBlockGroupSize % 4096 == 0);
// As many blocks as records, so that no stream can take another's.
static_assert(Blocks::kMaxBlocks == RecordSlots::kMaxRecords);

// Without a file: the head, one group of records, a few blocks.
inline constexpr size_t kAnonymousBlocksOffset = record_group_offset(1);
inline constexpr size_t kAnonymousSize =
    kAnonymousBlocksOffset + Blocks::kAnonymousBlocks * Blocks::kBlockSize;

// Bytes of the file that are locked and never written: far behind its end.
constexpr off_t own_lock(uint32_t place) {
  return (off_t{1} << 40) + 2 * off_t{place};
}
constexpr off_t lineage_lock(uint32_t place) {
  return own_lock(place) + 1;
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_ARENA_LAYOUT_H_
