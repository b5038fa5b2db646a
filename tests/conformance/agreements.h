// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_CONFORMANCE_AGREEMENTS_H_
#define DDPSOCK_TESTS_CONFORMANCE_AGREEMENTS_H_

#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

// What start-up would hand to each end, without start-up.
inline engine::Agreement agreed_by(const Wish& wish, bool is_initiator) {
  return {.is_initiator = is_initiator,
          .has_crc = wish.has_crc,
          .send_markers = wish.has_markers,
          .receive_markers = wish.has_markers,
          .ird = wish.ird,
          .ord = wish.ord,
          .rtr = wish.rtr};
}

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_AGREEMENTS_H_
