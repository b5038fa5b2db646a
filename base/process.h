// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who is running: the calling thread's id and a number that changes in a forked child. Cheap enough
// for every call; right after fork, _Fork, clone and raw fork alike, because the kernel itself
// wipes the page that the answer hangs on (MADV_WIPEONFORK) and nothing relies on a handler being
// called.
#ifndef DDPSOCK_BASE_PROCESS_H_
#define DDPSOCK_BASE_PROCESS_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::base {

// Maps the page. Call once before the functions below; false if the kernel refuses (before Linux
// 4.14). Idempotent.
[[nodiscard]] bool process_init();

namespace detail {

// Reads 0 in a fresh child; everything else about it is ordinary private memory.
extern constinit std::atomic<std::atomic<uint32_t>*> generation_page;
uint32_t enter_generation(std::atomic<uint32_t>& page);

struct ThreadIdentity {
  uint32_t generation;
  uint32_t tid;
  uint32_t named_generation;
  uint64_t name;
  uint32_t copies;
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit ThreadIdentity identity;
uint32_t learn_thread_id(uint32_t generation);
uint64_t learn_thread_name(uint32_t generation);

}  // namespace detail

// Never 0; differs between a process and any child forked from it. A vfork child, which shares its
// parent's memory, shares its generation too.
inline uint32_t process_generation() {
  std::atomic<uint32_t>* page = detail::generation_page.load(std::memory_order_acquire);
  if (page == nullptr) return 1;
  const uint32_t g = page->load(std::memory_order_acquire);
  return g != 0 ? g : detail::enter_generation(*page);
}

// Inside a call, another than at its beginning: a signal handler has forked, this is the child, and
// the call its parent's. Known in the child once it has asked for its generation, as handlers of
// fork do.
inline uint32_t thread_copies() {
  return detail::identity.copies;
}

// gettid(), cached per thread and generation.
inline uint32_t thread_id() {
  const uint32_t g = process_generation();
  return detail::identity.generation == g ? detail::identity.tid : detail::learn_thread_id(g);
}

// The calling thread among all processes that share memory: the upper half names the process, for
// ever and in every pid namespace, the lower half is thread_id(). Cached like that.
inline uint64_t thread_name() {
  const uint32_t g = process_generation();
  return detail::identity.named_generation == g ? detail::identity.name
                                                : detail::learn_thread_name(g);
}

// Who names processes: never 0 but where it cannot tell, which is also what it is without one.
// Called once a thread and generation.
void set_process_namer(uint32_t (*namer)());
// Who knows whether the process of that name, or that thread of it, has ended. Without one, and for
// name 0, a thread is taken to be of this pid namespace.
void set_judge_of_processes(bool (*is_dead)(uint32_t name, uint32_t thread));
bool is_thread_dead(uint64_t thread_name);

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_PROCESS_H_
