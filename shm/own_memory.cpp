// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/own_memory.h"

#include <sys/mman.h>

#include <atomic>

#include "base/random.h"
#include "shm/sealed_file.h"

namespace ddpsock::engine::shm {
namespace {

using Word = std::atomic<uint64_t>;
constinit std::atomic<Word*> page{nullptr};
constinit std::atomic<bool> may_be_a_peers{false};

// The kernel wipes it in a forked child, which then finds a word of its own.
Word* map_page() {
  if (Word* const mapped = page.load(std::memory_order_acquire)) return mapped;
  void* p = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  Word* first = nullptr;
  if (madvise(p, kPage, MADV_WIPEONFORK) == 0 &&
      page.compare_exchange_strong(first, static_cast<Word*>(p)))
    return static_cast<Word*>(p);
  munmap(p, kPage);
  return first;
}

}  // namespace

OwnMark OwnMark::get() {
  Word* const mapped = map_page();
  if (mapped == nullptr) return {};
  uint64_t word = mapped->load(std::memory_order_relaxed);
  while (word == 0) {
    uint64_t fresh = 0;
    if (!base::fill_random({reinterpret_cast<uint8_t*>(&fresh), sizeof fresh})) return {};
    if (mapped->compare_exchange_strong(word, fresh)) word = fresh;
  }
  return {.address = reinterpret_cast<uintptr_t>(mapped), .word = word};
}

void take_own_memory_for_a_peers(bool may_be) {
  may_be_a_peers.store(may_be);
}

bool is_own_memory_a_peers() {
  return may_be_a_peers.load(std::memory_order_relaxed);
}

}  // namespace ddpsock::engine::shm
