// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a connection begins in a capture file: TCP's handshake and MPA's start-up frames, without
// private data, made up from what was agreed.
#ifndef DDPSOCK_ENGINE_WRAP_CAPTURED_START_H_
#define DDPSOCK_ENGINE_WRAP_CAPTURED_START_H_

#include "engine/engine.h"
#include "engine/wrap/capture_file.h"

namespace ddpsock::engine::wrap {

// Between which addresses the `index`-th queue pair of the process is.
using EndsOf = CapturedEnds (*)(const Start& start, uint32_t index);

void write_start(CapturedTcp& tcp, const Agreement& agreed, Time now);

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_CAPTURED_START_H_
