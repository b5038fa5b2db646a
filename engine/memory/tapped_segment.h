// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a tap is shown of a segment that lies in memory: FPDUs with CRC and without Markers, as many
// as it takes, for in memory a segment may be longer than any FPDU.
#ifndef DDPSOCK_ENGINE_MEMORY_TAPPED_SEGMENT_H_
#define DDPSOCK_ENGINE_MEMORY_TAPPED_SEGMENT_H_

#include <span>

#include "engine/engine.h"

namespace ddpsock::engine {

// REQUIRES: `header` is a whole DDP header, `payload` at most ddp::kMaxSlices ranges.
void tell_segment(WireTap& tap, bool is_sent, Bytes header, std::span<const Bytes> payload);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_MEMORY_TAPPED_SEGMENT_H_
