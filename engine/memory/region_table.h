// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What of this process's registered memory its peers on this host may reach by themselves: a table
// in a file that only we can write, an entry an STag. A peer that finds its STag there maps the
// memory's own file and does to it what the entry allows, or, where the memory has none, reads it
// out of our address space (shm/peer_process.h); what is not there, or not any more, it asks for,
// and is judged as ever (rdmap/stag_table.h). So an entry only ever spares a question.
//
// A row says that the owner is an end of a connection. A peer's word alone might lead to a table of
// somebody else, or to the reader's own, and have it do there what the peer could not.
#ifndef DDPSOCK_ENGINE_MEMORY_REGION_TABLE_H_
#define DDPSOCK_ENGINE_MEMORY_REGION_TABLE_H_

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "rdmap/stag_table.h"
#include "shm/own_file.h"

namespace ddpsock::engine::shm {

inline constexpr char kRegionTableName[] = "ddpsock-regions";
inline constexpr uint32_t kMostShared = 8192;  // by the index of an STag, which begins at 1

struct alignas(64) RegionEntry {
  std::atomic<uint64_t> serial;  // never the same twice; 0: nothing to be reached
  // Written while that is 0.
  uint32_t stag;
  uint32_t file;  // the number of its descriptor in the owner, or kNoFile
  uint64_t inode;
  uint64_t base_to, length;
  uint32_t rights;   // rdmap::Rights
  uint32_t pd, qp;   // the owner's: whose peers may, as in rdmap::MemoryRegion
  uint64_t address;  // where it lies in the owner
};
inline constexpr uint32_t kNoFile = ~uint32_t{0};
// Of the owner's connections.
inline constexpr uint32_t kMostRows = 4096;
struct RegionRow {
  std::atomic<uint64_t> cookie;  // SocketName, of the end that connects; 0: a free row
  uint64_t netns;
  uint32_t pd, qp;            // the owner's queue pair
  uint32_t is_connected_end;  // the owner is
  uint32_t reserved;
};
// What both processes mean by it: another layout is another MessageMemory's, too.
static_assert(sizeof(RegionEntry) == 64 && offsetof(RegionEntry, qp) == 48);
static_assert(sizeof(RegionRow) == 32);
struct RegionTableFile {
  alignas(kPage) RegionEntry entries[kMostShared];
  alignas(kPage) RegionRow rows[kMostRows];
};
inline constexpr size_t kRegionTableSize = sizeof(RegionTableFile);

// The socket of the end that connects, of this boot: no other connection has it.
struct SocketName {
  uint64_t netns = 0;
  uint64_t cookie = 0;
  bool operator==(const SocketName&) const = default;
};
// One end of a connection.
struct ConnectionEnd {
  SocketName socket;
  bool is_connected_end = false;
  bool operator==(const ConnectionEnd&) const = default;
};

// Where a process's table is, and the row there of a connection.
struct RegionTablePlace {
  uint32_t descriptor = 0;  // its number there, plus 1; 0: there is none
  uint32_t row = 0;
  bool is_there() const { return descriptor != 0; }
  uint32_t number() const { return descriptor - 1; }
};

// The owner's. Any thread.
class RegionTable {
 public:
  RegionTable() = default;
  ~RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  // From now on `region`, which is the first bytes of `file`, may be reached as `stag`, until the
  // word that is returned is 0. -1: it has no file, and may only be read. nullptr: it may not.
  // REQUIRES: nobody has been told the STag.
  std::atomic<uint64_t>* share(uint32_t stag, const rdmap::MemoryRegion& region, int file);

  // Whether there is a table, as there is from the first share() on.
  bool is_there() const { return descriptor_.load(std::memory_order_acquire) != 0; }
  // For the peer of `own`, whose queue pair is `stream`, until leave(). Nothing: there is no room.
  // REQUIRES: is_there().
  std::optional<RegionTablePlace> enter(const ConnectionEnd& own, rdmap::StreamId stream);
  void leave(const RegionTablePlace& place);

 private:
  bool open();
  // Provides the page of what is about to be written there.
  template <typename T>
  [[nodiscard]] bool provide(const T& where);

  std::mutex mutex_;
  std::optional<OwnFile> file_;
  RegionTableFile* mapped_ = nullptr;
  uint64_t last_serial_ = 0;
  std::bitset<kRegionTableSize / kPage> provided_;
  std::atomic<uint32_t> descriptor_{0};  // as RegionTablePlace has it
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_ENGINE_MEMORY_REGION_TABLE_H_
