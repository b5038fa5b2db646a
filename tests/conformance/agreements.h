// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_CONFORMANCE_AGREEMENTS_H_
#define DDPSOCK_TESTS_CONFORMANCE_AGREEMENTS_H_

#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

// What start-up would hand to each end, without start-up.
inline engine::Parameters parameters_of(const Wish& wish, bool is_initiator) {
  engine::Parameters a;
  a.is_initiator = is_initiator;
  a.has_crc = wish.has_crc;
  a.send_markers = a.receive_markers = wish.has_markers;
  a.ird = wish.ird;
  a.ord = wish.ord;
  a.rtr = wish.rtr;
  a.max_ulpdu = wish.max_ulpdu;
  return a;
}

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_AGREEMENTS_H_
