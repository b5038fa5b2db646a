// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Does to a caller what a bad day does: refuses posts, makes little progress, drops connections,
// reports errors in completions. By a seed, so that a bad day can be had again.
#ifndef DDPSOCK_ENGINE_WRAP_FAULT_H_
#define DDPSOCK_ENGINE_WRAP_FAULT_H_

#include <cstdint>
#include <memory>

#include "engine/engine.h"

namespace ddpsock::engine::wrap {

// Chances in a million.
struct FaultRates {
  uint32_t refuse = 0;           // a post: a random prefix is accepted, then kQueueFull
  uint32_t stall = 0;            // advance() moves nothing and asks to be called again
  uint32_t trickle = 0;          // advance() moves a few bytes only
  uint32_t drop = 0;             // advance() finds the connection dropped
  uint32_t fail_completion = 0;  // a success is reported as kLocalError
};

// nullptr: no memory.
std::unique_ptr<Engine> fault(std::unique_ptr<Engine> inner, const FaultRates& rates,
                              uint64_t seed);

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_FAULT_H_
