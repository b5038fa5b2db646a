// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What engine/engine.h promises an end for what it has posted, and whether that was kept: also
// where it is open how far the work got.
#ifndef DDPSOCK_TESTS_DIFFERENTIAL_ORACLE_H_
#define DDPSOCK_TESTS_DIFFERENTIAL_ORACLE_H_

#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/differential/script.h"

namespace ddpsock::differential {

// Of one end, oldest first. The script outlives it.
struct Promised {
  static constexpr uint8_t kUntouched = 0xa5;  // what buffers are filled with
  struct Buffer {
    Receive receive;
    std::vector<uint8_t> octets;
  };
  std::vector<Buffer> buffers;
  std::vector<const Work*> accepted;
  std::vector<const Work*> messages;  // of those
  size_t signalled = 0;               // of those

  void note_accepted(const Work& work);
};

// Once the connection has ended: what is wrong, or nothing. `completions`: all of that queue.
std::string judge_sent(const Promised& end, std::span<const engine::Completion> completions);
// `is_shared`: what was not taken from a shared queue does not complete.
std::string judge_received(const Promised& end, const Promised& peer,
                           std::span<const engine::Completion> completions, bool is_shared);

}  // namespace ddpsock::differential

#endif  // DDPSOCK_TESTS_DIFFERENTIAL_ORACLE_H_
