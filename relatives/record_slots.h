// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_RECORD_SLOTS_H_
#define DDPSOCK_RELATIVES_RECORD_SLOTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddpsock::engine {

struct ArenaHead;
class ArenaFile;
struct RecordGroup;
struct RecordHead;

// Where the records lie, each under a number: the same in all processes of the family, which map
// them in groups as they come into use. Any thread may call.
class RecordSlots {
 public:
  static constexpr size_t kRecordSize = 896;
  static constexpr uint32_t kGroupRecords = 1024, kRecordGroups = 64;
  static constexpr uint32_t kMaxRecords = kGroupRecords * kRecordGroups;

  explicit RecordSlots(const ArenaFile& file);

  // nullptr where this process may not map it: then it holds nothing there.
  RecordHead* head(uint32_t i);
  // REQUIRES: head(i) != nullptr.
  void* record(uint32_t i);
  bool is_live(uint32_t i);
  // Of a record that this process has had from here.
  uint32_t index_of(const void* record) const;

  // So many there can be, are in use, and have come into use: all that are live lie below that.
  uint32_t count() const;
  uint32_t live() const;
  uint32_t rotation() const;

  // Another may have it at once. REQUIRES: it is for the caller to free (RecordHead).
  void free(uint32_t i);

 private:
  RecordGroup* group(uint32_t index);

  const ArenaFile& file_;
  ArenaHead& shared_;
  // Each where this process has mapped it.
  std::array<std::atomic<RecordGroup*>, kRecordGroups> groups_{};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_RECORD_SLOTS_H_
