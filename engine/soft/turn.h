// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_ENGINE_SOFT_TURN_H_
#define DDPSOCK_ENGINE_SOFT_TURN_H_

#include <cstdint>

namespace ddpsock::engine {

// What one direction's turn came to.
enum class Turn : uint8_t {
  kIdle,     // nothing to do, or nothing to be had
  kBlocked,  // the lower layer takes no more now
  kMore,     // the budget is used up
  kLost,
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_SOFT_TURN_H_
