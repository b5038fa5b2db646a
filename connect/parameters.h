// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_CONNECT_PARAMETERS_H_
#define DDPSOCK_CONNECT_PARAMETERS_H_

#include "engine/engine.h"
#include "mpa/agreement.h"

namespace ddpsock::connecting {

// MPA and RDMAP know nothing of each other; both know the four RTR messages.
constexpr rdmap::Rtr to_rdmap(mpa::Rtr rtr) {
  static_assert(static_cast<int>(mpa::Rtr::kSend) == static_cast<int>(rdmap::Rtr::kSend) &&
                static_cast<int>(mpa::Rtr::kWrite) == static_cast<int>(rdmap::Rtr::kWrite) &&
                static_cast<int>(mpa::Rtr::kRead) == static_cast<int>(rdmap::Rtr::kRead));
  return static_cast<rdmap::Rtr>(rtr);
}

// What an engine needs to know of what MPA start-up has agreed.
inline engine::Parameters parameters_of(const mpa::Agreement& agreed, uint32_t max_ulpdu = 0) {
  const auto depth = [](uint16_t value) {
    return value == mpa::kNotNegotiated ? engine::Parameters::kNotAgreed : value;
  };
  return {.ird = depth(agreed.ird),
          .ord = depth(agreed.ord),
          .is_initiator = agreed.is_initiator,
          .rtr = to_rdmap(agreed.rtr),
          .has_crc = agreed.has_crc,
          .send_markers = agreed.send_markers,
          .receive_markers = agreed.receive_markers,
          .revision = agreed.revision,
          .max_ulpdu = max_ulpdu};
}

}  // namespace ddpsock::connecting

#endif  // DDPSOCK_CONNECT_PARAMETERS_H_
