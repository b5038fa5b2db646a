// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Writes a capture file of what an engine's connections carry, without privilege and for engines
// that have no packets at all. Wireshark decodes it: MPA, DDP, RDMAP, CRCs. On a wire the bytes of
// FPDUs are the true ones (Capability::kWireTap), in memory they are made up from the segments
// (kSegmentTap); the packets around them are made up, and so are the start-up frames (without
// private data), from what was agreed, because start-up happens before an engine sees the
// connection.
#ifndef DDPSOCK_ENGINE_WRAP_PCAP_H_
#define DDPSOCK_ENGINE_WRAP_PCAP_H_

#include <memory>

#include "engine/engine.h"
#include "engine/wrap/captured_start.h"

namespace ddpsock::engine::wrap {

// `out` is borrowed and outlives the engine. Of an engine that calls no tap the file stays without
// packets. nullptr: no memory.
std::unique_ptr<Engine> pcap(std::unique_ptr<Engine> inner, Records& out);

// The same into a file that others write to, with the addresses that `ends_of` says. A queue pair
// on a byte stream is left to who watches that.
std::unique_ptr<Engine> pcap(std::unique_ptr<Engine> inner, CaptureFile& file, EndsOf ends_of);

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_PCAP_H_
