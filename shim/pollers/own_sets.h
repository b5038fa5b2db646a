// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The numbers of the epoll sets that this process has made and nobody else has. Only such sets are
// looked after (memory_watch.h): of another's nobody here knows who relies on the kernel. Any
// thread, signal handlers too; of two that speak of one number at once either may be the last.
#ifndef DDPSOCK_SHIM_POLLERS_OWN_SETS_H_
#define DDPSOCK_SHIM_POLLERS_OWN_SETS_H_

#include <array>
#include <atomic>
#include <cstdint>

namespace ddpsock::shim {

// Sets with higher numbers are the kernel's.
inline constexpr unsigned kMostSetNumbers = 65536;
extern constinit std::array<std::atomic<uint64_t>, kMostSetNumbers / 64> own_set_numbers;

// Any number; false of those that are none.
inline bool is_own_set(int set) {
  return static_cast<unsigned>(set) < kMostSetNumbers &&
         (own_set_numbers[static_cast<unsigned>(set) / 64].load(std::memory_order_relaxed) >>
              (static_cast<unsigned>(set) % 64) &
          1) != 0;
}
// `set` was made just now.
void own_set(int set);
// REQUIRES: it was is_own_set() once.
void disown_set(int set);
// In a forked child, to which all of them are somebody else's too.
void disown_all_sets();

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_OWN_SETS_H_
