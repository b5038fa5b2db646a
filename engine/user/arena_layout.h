// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How an arena lies in its file, for those who map it (arena.cpp) and for who only looks at it from
// outside (arena_view.cpp).
#ifndef DDPSOCK_ENGINE_USER_ARENA_LAYOUT_H_
#define DDPSOCK_ENGINE_USER_ARENA_LAYOUT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/user/arena.h"
#include "engine/user/message_record.h"
#include "engine/user/record.h"

namespace ddpsock::engine {

inline constexpr uint32_t kMaxRecords = 65536;
inline constexpr uint32_t kMaxBlocks = kMaxRecords;  // so that no stream can take another's
inline constexpr uint32_t kMostShrink = 256;         // of records and blocks, to 45 MB in all
inline constexpr char kArenaName[] = "ddpsock";      // of its memfd

struct RecordHead {
  enum State : uint32_t { kFree, kLive, kDying };
  std::atomic<uint32_t> state;
  HolderSet holders;
  std::atomic<bool> has_unlisted_holder;  // then nobody can say when it may be freed
};

// Connections of one process that stayed plain TCP.
struct PlainNotes {
  std::atomic<uint32_t> count;
  std::array<char, 64> last_reason;
};

struct ArenaHead {
  std::atomic<uint64_t>
      build;  // kArenaBuild once set up: another build may lay things out differently
  std::atomic<uint32_t> shrink;
  std::atomic<uint32_t> record_cursor;
  std::atomic<uint32_t> records_live;
  std::atomic<uint32_t> rotation;
  std::atomic<uint32_t> block_hint;
  std::array<std::atomic<int>, HolderSet::kMax> processes;
  std::array<std::atomic<int64_t>, HolderSet::kMax> forking_since;
  std::array<std::atomic<bool>, HolderSet::kMax> has_finished_adoption;
  std::array<PlainNotes, HolderSet::kMax> plain;
  std::array<RecordHead, kMaxRecords> heads;
  std::array<std::atomic<uint8_t>, kMaxBlocks> block_used;
};

// Two builds that may lay the arena out differently have different numbers.
constexpr uint64_t hash(const char* text, uint64_t h = 0xcbf29ce484222325) {
  for (; *text != 0; ++text) h = (h ^ static_cast<uint8_t>(*text)) * 0x100000001b3;
  return h;
}
constexpr uint64_t hash(uint64_t number, uint64_t h) {
  return (h ^ number) * 0x100000001b3;
}
inline constexpr uint64_t kArenaBuild =
    hash(sizeof(Record) << 32 | offsetof(Record, sent),
         hash(sizeof(MessageRecord) << 32 | offsetof(MessageRecord, counters),
              hash(sizeof(ArenaHead), hash(DDPSOCK_VERSION)))) |
    1;

// The head, the records, the blocks.
inline constexpr size_t kRecordsOffset = (sizeof(ArenaHead) + 4095) & ~size_t{4095};
constexpr size_t arena_size(uint32_t shrink) {
  return kRecordsOffset + size_t{kMaxRecords / shrink} * Arena::kRecordSize +
         size_t{kMaxBlocks / shrink} * Arena::kBlockSize;
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_ARENA_LAYOUT_H_
