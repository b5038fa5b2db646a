// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/region_memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <cstring>
#include <limits>
#include <mutex>
#include <new>

namespace ddpsock::engine::shm {
namespace {

// Not "ddpsock...": the program's to lock in memory (base/sparse.h).
constexpr char kName[] = "ddp-region";

constinit std::mutex list_mutex;

// The kernel has files of any size, and kills for what it cannot have.
bool may_be_provided(size_t size) {
  struct sysinfo machine;
  return sysinfo(&machine) != 0 || size / machine.mem_unit <= machine.totalram;
}

uint8_t* map_private(size_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (populate(p, size)) return static_cast<uint8_t*>(p);
  munmap(p, size);
  return nullptr;
}

}  // namespace

constinit RegionMemory* RegionMemory::first = nullptr;

RegionMemory::RegionMemory(uint8_t* at, size_t size, base::UniqueFd file)
    : at_(at), size_(size), file_(std::move(file)), id_(file_of(file_.get())) {
  madvise(at_, size_, MADV_DONTFORK);
  const std::lock_guard lock(list_mutex);
  static constinit bool has_handler = false;
  if (!has_handler) has_handler = pthread_atfork(nullptr, nullptr, close_inherited) == 0;
  next_ = first;
  first = this;
}

RegionMemory::~RegionMemory() {
  {
    const std::lock_guard lock(list_mutex);
    RegionMemory** at = &first;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
  }
  close_file();
  if (spare_ != nullptr) munmap(spare_, size_);
  if (at_ != nullptr) munmap(at_, size_);
}

Result<std::unique_ptr<RegionMemory>> RegionMemory::make(size_t length, bool is_for_readers) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max() / 4;
  if (length == 0 || length > kMost) return fail_errno(EINVAL);
  const size_t size = (length + kPage - 1) / kPage * kPage;
  if (!may_be_provided(size)) return fail_errno(ENOMEM);
  auto file = make_mapped_file(kName, size, is_for_readers);
  if (file && !populate(file->at, size)) {
    munmap(file->at, size);
    return fail_errno(ENOMEM);
  }
  uint8_t* const at = file ? file->at : map_private(size);
  if (at == nullptr) return fail_errno(ENOMEM);
  std::unique_ptr<RegionMemory> made(
      new (std::nothrow) RegionMemory(at, size, file ? std::move(file->file) : base::UniqueFd()));
  if (made) return made;
  munmap(at, size);
  return fail_errno(ENOMEM);
}

// A program that closes whatever it sees may have been quicker, and the number be another's.
void RegionMemory::close_file() {
  if (file_.is_valid() && file_of(file_.get()) != id_) (void)file_.release();
  file_.reset();
}

// In a child, which has none of the memory. However far another thread was in the parent, the list
// is one of objects that are whole.
void RegionMemory::close_inherited() {
  const int before = errno;
  for (RegionMemory* r = first; r != nullptr; r = r->next_) r->close_file();
  errno = before;
}

Status<> RegionMemory::prepare_to_move() {
  if (spare_ == nullptr) spare_ = map_private(size_);
  return spare_ != nullptr ? Status<>{} : fail_errno(ENOMEM);
}

Status<> RegionMemory::move() {
  std::memcpy(spare_, at_, size_);
  if (mremap(spare_, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED, at_) == MAP_FAILED)
    return fail_errno(errno);
  spare_ = at_ = nullptr;
  return {};
}

}  // namespace ddpsock::engine::shm
