// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Writes a capture file of what an engine's connections carry, without privilege and for engines
// that have no packets at all. Wireshark decodes it: MPA, DDP, RDMAP, CRCs. The bytes of FPDUs are
// the true ones (Capability::kWireTap); the packets around them are made up, and so are the
// start-up frames (without private data), from what was agreed, because start-up happens before an
// engine sees the connection.
#ifndef DDPSOCK_ENGINE_WRAP_PCAP_H_
#define DDPSOCK_ENGINE_WRAP_PCAP_H_

#include <cstdio>
#include <memory>

#include "engine/engine.h"

namespace ddpsock::engine::wrap {

// `out` is borrowed, opened for writing in binary, and outlives the engine. Without kWireTap in
// `inner` the file stays without packets. nullptr: no memory.
std::unique_ptr<Engine> pcap(std::unique_ptr<Engine> inner, std::FILE* out);

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_PCAP_H_
