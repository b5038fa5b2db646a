// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// DDPSOCK_INVARIANT(condition): an assert of our own bugs where a message passes several times. It
// is checked in builds with sanitizers, which run the same tests, and costs nothing in others; in
// shared memory what rings assert was a fifteenth of a message's time. Elsewhere it is assert().
#ifndef DDPSOCK_BASE_INVARIANT_H_
#define DDPSOCK_BASE_INVARIANT_H_

#include <cassert>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DDPSOCK_CHECKS_INVARIANTS 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DDPSOCK_CHECKS_INVARIANTS 1
#endif

#ifdef DDPSOCK_CHECKS_INVARIANTS
#define DDPSOCK_INVARIANT(condition) assert(condition)
#else
#define DDPSOCK_INVARIANT(condition) static_cast<void>(sizeof(condition))
#endif

#endif  // DDPSOCK_BASE_INVARIANT_H_
