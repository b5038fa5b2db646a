// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_ENGINE_QUEUE_SOFT_LIMITS_H_
#define DDPSOCK_ENGINE_QUEUE_SOFT_LIMITS_H_

#include <cstdint>
#include <limits>

#include "engine/engine.h"

namespace ddpsock::engine {

// What the software engines offer in common.
inline constexpr Capabilities kSoftCapabilities{
    Capability::kOneSided,          Capability::kAtomics,  Capability::kImmediate,
    Capability::kRemoteInvalidate,  Capability::kSharedCq, Capability::kSrq,
    Capability::kUnregisteredLocal,
};

constexpr Limits soft_limits(uint32_t max_regions) {
  return {
      .max_pds = 64,
      .max_regions = max_regions,
      .max_cq_depth = 1u << 16,
      .max_send_depth = 1u << 14,
      .max_recv_depth = 1u << 14,
      .max_srq_depth = 1u << 16,
      .max_ird = 128,
      .max_ord = 128,
      .max_slices = ddp::kMaxSlices,
      .max_inline = rdmap::kMaxInline,
      .max_message = std::numeric_limits<uint32_t>::max(),
  };
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_QUEUE_SOFT_LIMITS_H_
