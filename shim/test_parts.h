// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the shim's unit tests put behind it: an engine that merely inverts every byte, so that what
// went through a stream and what did not is plain to see on the wire, and a policy that answers as
// told.
#ifndef DDPSOCK_SHIM_TEST_PARTS_H_
#define DDPSOCK_SHIM_TEST_PARTS_H_

#include <array>
#include <atomic>

#include "shim/policy/policy.h"
#include "stream/stream.h"

namespace ddpsock::shim::test {

inline constexpr size_t kMostStreams = 256;

struct Engine {
  std::atomic<int> opened, released, completed;  // calls of open, release, on_connected
  std::atomic<int> released_as;                  // the last release's descriptor
  std::atomic<bool> waited;                      // the last on_connected's `wait`
  std::atomic<bool> finds_plain_peer;            // streams answer EPROTOTYPE
  std::atomic<int> unready;                      // so many times is_recv_ready says no
  std::atomic<bool> is_full;                     // open fails with ENFILE
  std::atomic<size_t> takes_at_most;             // bytes a send, if not 0
  std::atomic<void (*)()> after_next;            // runs at the end of the next send or recv
  // What a look at each stream's memory says, in the order in which they were opened.
  std::array<ddpsock::engine::Glance, kMostStreams> glances;
  std::array<bool, kMostStreams> have_memory_room{};
  std::array<bool, kMostStreams> are_ended{};          // not open in memory
  std::array<bool, kMostStreams> are_short_of_room{};  // for a blocking send
  std::array<int, kMostStreams> settled{};
};
extern Engine engine;

struct Policy {
  std::atomic<bool> is_active;
  std::atomic<Mode> connect, established, accept;
  std::atomic<int> asked, listeners;  // before_connect calls; registered now
  std::atomic<int> late_listeners;    // registered when clients could see them
  std::atomic<int> last_listener;     // by which after_accept was asked
};
extern Policy policy;

void reset_parts();  // as at the start: no policy, engine without faults, counts 0

}  // namespace ddpsock::shim::test

#endif  // DDPSOCK_SHIM_TEST_PARTS_H_
