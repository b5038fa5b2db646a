// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the calling thread has spent on its connections since somebody took note (take_effort):
// plain numbers of its own, so that counting costs an increment and no line is shared. Whoever
// gives a direction of a stream back writes them where they can be seen
// (relatives/record.h).
#ifndef DDPSOCK_BASE_EFFORT_H_
#define DDPSOCK_BASE_EFFORT_H_

#include <cstdint>
#include <utility>

namespace ddpsock::base {

struct Effort {
  uint32_t system_calls = 0;
  uint32_t waits = 0;  // calls that were allowed to sleep in the kernel
  uint32_t spins = 0;
  uint32_t vain_spins = 0;  // of these, those that ended without what was waited for
  bool is_none() const { return (system_calls | waits | spins) == 0; }
};

// A signal handler that interrupts an increment may lose what the other has counted.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit Effort effort;

inline Effort take_effort() {
  return std::exchange(effort, {});
}

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_EFFORT_H_
