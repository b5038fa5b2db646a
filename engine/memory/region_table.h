// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What of this process's registered memory its peers on this host may reach by themselves: a table
// in a file that only we can write, an entry an STag. A peer that finds its STag there maps the
// memory's own file and does to it what the entry allows; what is not there, or not any more, it
// asks for, and is judged as ever (rdmap/stag_table.h). So an entry only ever spares a question.
#ifndef DDPSOCK_ENGINE_MEMORY_REGION_TABLE_H_
#define DDPSOCK_ENGINE_MEMORY_REGION_TABLE_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/fd.h"
#include "rdmap/stag_table.h"
#include "shm/sealed_file.h"

namespace ddpsock::engine::shm {

inline constexpr char kRegionTableName[] = "ddpsock-regions";
inline constexpr uint32_t kMostShared = 8192;  // by the index of an STag

struct alignas(64) RegionEntry {
  std::atomic<uint64_t> serial;  // never the same twice; 0: nothing to be reached
  // Written while that is 0.
  uint32_t stag;
  uint32_t file;  // its number in the owner
  uint64_t inode;
  uint64_t base_to, length;
  uint32_t rights;  // rdmap::Rights
  uint32_t pd, qp;  // the owner's: whose peers may, as in rdmap::MemoryRegion
};
struct RegionTableFile {
  alignas(kPage) uint64_t secret;
  alignas(kPage) RegionEntry entries[kMostShared];
};
inline constexpr size_t kRegionTableSize = sizeof(RegionTableFile);

// Where a process's table is.
struct RegionTablePlace {
  uint32_t file = 0;  // its number there; 0: there is none
  uint64_t secret = 0;
};

// The owner's. Any thread.
class RegionTable {
 public:
  RegionTable() = default;
  ~RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  // From now on `region`, which is the first bytes of `file`, may be reached as `stag`, until the
  // word that is returned is 0. nullptr: it may not. REQUIRES: nobody has been told the STag.
  std::atomic<uint64_t>* share(uint32_t stag, const rdmap::MemoryRegion& region, int file);

  // As of the first share().
  RegionTablePlace place() const;

 private:
  bool open();

  std::mutex mutex_;
  RegionTableFile* mapped_ = nullptr;
  base::UniqueFd file_;
  uint64_t last_serial_ = 0;
  std::atomic<uint32_t> number_{0};  // of file_
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_ENGINE_MEMORY_REGION_TABLE_H_
