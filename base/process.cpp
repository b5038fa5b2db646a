// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace ddpsock::base {
namespace {

constexpr size_t kPage = 4096;

// Reads 0 in a fresh child; everything else about it is ordinary private memory.
std::atomic<std::atomic<uint32_t>*> generation_page{nullptr};
// Copied, not wiped, by fork: a child learns from it which number its parent had.
std::atomic<uint32_t> last_generation{0};

struct ThreadIdentity {
  uint32_t generation;
  uint32_t tid;
};
__attribute__((tls_model("initial-exec"))) thread_local constinit ThreadIdentity identity{0, 0};

uint32_t enter_generation(std::atomic<uint32_t>& page) {
  const uint32_t next = last_generation.load(std::memory_order_relaxed) + 1;
  uint32_t seen = 0;
  if (!page.compare_exchange_strong(seen, next, std::memory_order_acq_rel)) return seen;
  last_generation.store(next, std::memory_order_relaxed);
  return next;
}

}  // namespace

bool process_init() {
  if (generation_page.load(std::memory_order_acquire) != nullptr) return true;
  void* p = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  if (madvise(p, kPage, MADV_WIPEONFORK) != 0) {
    munmap(p, kPage);
    return false;
  }
  std::atomic<uint32_t>* none = nullptr;
  if (!generation_page.compare_exchange_strong(none, static_cast<std::atomic<uint32_t>*>(p)))
    munmap(p, kPage);
  return true;
}

uint32_t process_generation() {
  std::atomic<uint32_t>* page = generation_page.load(std::memory_order_acquire);
  if (page == nullptr) return 1;
  const uint32_t g = page->load(std::memory_order_acquire);
  return g != 0 ? g : enter_generation(*page);
}

uint32_t thread_id() {
  const uint32_t g = process_generation();
  if (identity.generation != g) identity = {g, static_cast<uint32_t>(gettid())};
  return identity.tid;
}

}  // namespace ddpsock::base
