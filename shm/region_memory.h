// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory that a peer on this host may map: whole pages of a sealed file. Its owner's mapping is not
// a forked child's. What a peer has mapped it keeps; it is the owner who goes, by unmapping or by
// moving to other pages.
#ifndef DDPSOCK_SHM_REGION_MEMORY_H_
#define DDPSOCK_SHM_REGION_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "shm/own_file.h"

namespace ddpsock::engine::shm {

class RegionMemory {
 public:
  // At least `length` bytes, zeroed, with memory behind each. `is_for_readers`: nobody else can
  // write there. Without descriptors, or where the kernel refuses such files, it is private memory
  // that nobody can map (file() is -1). EINVAL (0, or too long), ENOMEM.
  static Result<std::unique_ptr<RegionMemory>> make(size_t length, bool is_for_readers);
  // Unmaps it, unless it was kept.
  ~RegionMemory();
  RegionMemory(const RegionMemory&) = delete;
  RegionMemory& operator=(const RegionMemory&) = delete;

  MutBytes bytes() const { return {at_, size_}; }
  // -1: it has none.
  int file() const { return file_.number(); }

  // Provides what move() needs. ENOMEM.
  Status<> prepare_to_move();
  // Its bytes are in pages that no peer has, at the same address, and the caller's to unmap: of
  // those nothing is this object's any more. What others write meanwhile may be lost. ENOSPC (too
  // many mappings): the memory is lost. REQUIRES: prepare_to_move().
  Status<> move();

 private:
  RegionMemory(uint8_t* at, size_t size, base::UniqueFd file);

  uint8_t* at_;
  const size_t size_;
  const OwnFile file_;
  uint8_t* spare_ = nullptr;
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_REGION_MEMORY_H_
