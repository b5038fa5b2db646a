// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Prints what passes the seam: one line for each start, posted or refused request, completion and
// end.
//
//   qp 1 start initiator 127.0.0.1:50312 > 127.0.0.1:7471 ird 8 ord 8 crc
//   qp 1 post Send id 7 100 bytes solicited
//   qp 1 refused Read id 8: no slot in the completion queue
//   qp 1 done Receive id 3 100 bytes ok
//   qp 1 ended: terminate received, untagged buffer error: no buffer available for the MSN
#ifndef DDPSOCK_ENGINE_WRAP_TRACE_H_
#define DDPSOCK_ENGINE_WRAP_TRACE_H_

#include <memory>

#include "engine/engine.h"
#include "engine/wrap/captured_start.h"
#include "engine/wrap/records.h"

namespace ddpsock::engine::wrap {

// `out` is borrowed and outlives the engine; `ends_of`, if there is one, says between
// which addresses a queue pair is. nullptr: no memory.
std::unique_ptr<Engine> trace(std::unique_ptr<Engine> inner, Records& out,
                              EndsOf ends_of = nullptr);

// For messages; static storage.
const char* to_string(Refusal refusal);
const char* to_string(WorkKind kind);
const char* to_string(WorkStatus status);
const char* to_string(EndReason reason);

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_TRACE_H_
