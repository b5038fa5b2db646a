// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who is running: the calling thread's id and a number that changes in a forked child. Cheap enough
// for every call; right after fork, _Fork, clone and raw fork alike, because the kernel itself
// wipes the page that the answer hangs on (MADV_WIPEONFORK) and nothing relies on a handler being
// called.
#ifndef DDPSOCK_BASE_PROCESS_H_
#define DDPSOCK_BASE_PROCESS_H_

#include <cstdint>

namespace ddpsock::base {

// Maps the page. Call once before the functions below; false if the kernel refuses (before Linux
// 4.14). Idempotent.
[[nodiscard]] bool process_init();

// Never 0; differs between a process and any child forked from it. A vfork child, which shares its
// parent's memory, shares its generation too.
uint32_t process_generation();

// gettid(), cached per thread and generation.
uint32_t thread_id();

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_PROCESS_H_
