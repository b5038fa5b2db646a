// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The engine without a machine under it: queue pairs joined by a Network. No fd, no clock, no
// system call; `now` is whatever the caller hands in. Over links of bytes queue pairs are carried
// as over TCP; over links of segments the cores place them out of order.
#ifndef DDPSOCK_ENGINE_LOOPBACK_LOOPBACK_H_
#define DDPSOCK_ENGINE_LOOPBACK_LOOPBACK_H_

#include <memory>

#include "base/random.h"
#include "engine/engine.h"
#include "engine/loopback/network.h"

namespace ddpsock::engine::loopback {

struct Config {
  // The links its queue pairs will be started on. A segment engine takes segment links only.
  LinkAttr::Kind kind = LinkAttr::Kind::kBytes;
  rdmap::StagTable::RandomSource random = base::fill_random;
  uint32_t max_regions = 256;
};

// `network` outlives the engine. nullptr: no memory.
std::unique_ptr<Engine> open(Network& network, const Config& config);

}  // namespace ddpsock::engine::loopback

#endif  // DDPSOCK_ENGINE_LOOPBACK_LOOPBACK_H_
