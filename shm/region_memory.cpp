// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/region_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <cstring>
#include <new>

namespace ddpsock::engine::shm {
namespace {

// Not "ddpsock...": its owner's memory, to be locked like any other (base/sparse.h).
constexpr char kName[] = "ddp-region";

// The kernel has files of any size, and kills for what it cannot have.
bool may_be_provided(size_t size) {
  struct sysinfo machine;
  return sysinfo(&machine) != 0 || size / machine.mem_unit <= machine.totalram;
}

// Before Linux 5.14 by touching it.
bool provide(uint8_t* at, size_t size) {
  if (populate(at, size)) return true;
  if (errno != EINVAL) return false;
  for (size_t i = 0; i < size; i += kPage) const_cast<volatile uint8_t*>(at)[i] = 0;
  return true;
}

uint8_t* map_private(size_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<uint8_t*>(p);
}

}  // namespace

RegionMemory::RegionMemory(uint8_t* at, size_t size, base::UniqueFd file)
    : at_(at), size_(size), file_(std::move(file)) {
  madvise(at_, size_, MADV_DONTFORK);
}

RegionMemory::~RegionMemory() {
  if (spare_ != nullptr) munmap(spare_, size_);
  if (at_ != nullptr) munmap(at_, size_);
}

Result<std::unique_ptr<RegionMemory>> RegionMemory::make(size_t length, bool is_for_readers) {
  if (length == 0 || length > kMostInFile) return fail_errno(EINVAL);
  const size_t size = whole_pages(length);
  if (!may_be_provided(size)) return fail_errno(ENOMEM);
  auto file = make_mapped_file(kName, size, is_for_readers);
  uint8_t* const at = file ? file->at : map_private(size);
  if (at == nullptr) return fail_errno(ENOMEM);
  // Before it is filled, which may take long: so that children have none of it meanwhile.
  std::unique_ptr<RegionMemory> made(
      new (std::nothrow) RegionMemory(at, size, file ? std::move(file->file) : base::UniqueFd()));
  if (!made) munmap(at, size);
  if (!made || !provide(at, size)) return fail_errno(ENOMEM);
  return made;
}

Status<> RegionMemory::prepare_to_move() {
  if (spare_ == nullptr) spare_ = map_private(size_);
  return spare_ != nullptr && provide(spare_, size_) ? Status<>{} : fail_errno(ENOMEM);
}

Status<> RegionMemory::move() {
  std::memcpy(spare_, at_, size_);
  if (mremap(spare_, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED, at_) == MAP_FAILED) {
    // Perhaps there is nothing any more, and what comes there is somebody's.
    at_ = nullptr;
    return fail_errno(ENOSPC);
  }
  spare_ = at_ = nullptr;
  return {};
}

}  // namespace ddpsock::engine::shm
