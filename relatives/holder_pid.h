// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What stands in a holder's place in an arena where its pid would.
#ifndef DDPSOCK_RELATIVES_HOLDER_PID_H_
#define DDPSOCK_RELATIVES_HOLDER_PID_H_

namespace ddpsock::engine {

// The place waits for a process that is being made.
inline constexpr int kUnborn = -1;
// It is being given up, by whoever comes by.
inline constexpr int kLeaving = -2;

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_HOLDER_PID_H_
