// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/process.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace ddpsock::base {
namespace {

constexpr size_t kPage = 4096;

// Copied, not wiped, by fork: a child learns from it which number its parent had.
std::atomic<uint32_t> last_generation{0};

std::atomic<uint32_t (*)()> process_namer{nullptr};
std::atomic<bool (*)(uint32_t, uint32_t)> judge{nullptr};

}  // namespace

namespace detail {

constinit std::atomic<std::atomic<uint32_t>*> generation_page{nullptr};
[[gnu::tls_model("initial-exec")]] thread_local constinit ThreadIdentity identity{};

uint32_t enter_generation(std::atomic<uint32_t>& page) {
  const uint32_t next = last_generation.load(std::memory_order_relaxed) + 1;
  uint32_t seen = 0;
  if (!page.compare_exchange_strong(seen, next, std::memory_order_acq_rel)) return seen;
  if (next > 1) ++identity.copies;
  last_generation.store(next, std::memory_order_relaxed);
  return next;
}

uint32_t learn_thread_id(uint32_t generation) {
  identity.tid = static_cast<uint32_t>(gettid());
  identity.generation = generation;
  return identity.tid;
}

uint64_t learn_thread_name(uint32_t generation) {
  const auto namer = process_namer.load(std::memory_order_acquire);
  const uint64_t name = uint64_t{namer != nullptr ? namer() : 0} << 32 | thread_id();
  if (namer == nullptr) return name;
  identity.name = name;
  identity.named_generation = generation;
  return name;
}

}  // namespace detail

using detail::generation_page;

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

void set_process_namer(uint32_t (*namer)()) {
  process_namer.store(namer, std::memory_order_release);
}

void set_judge_of_processes(bool (*is_dead)(uint32_t name, uint32_t thread)) {
  judge.store(is_dead, std::memory_order_release);
}

bool is_thread_dead(uint64_t name) {
  const int saved_errno = errno;
  const auto process = static_cast<uint32_t>(name >> 32);
  const auto thread = static_cast<uint32_t>(name);
  const auto ask = judge.load(std::memory_order_acquire);
  const bool is_dead = ask != nullptr && process != 0
                           ? ask(process, thread)
                           : kill(static_cast<pid_t>(thread), 0) != 0 && errno == ESRCH;
  errno = saved_errno;
  return is_dead;
}

}  // namespace ddpsock::base
