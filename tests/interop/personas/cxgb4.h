// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Chelsio cxgb4. Rules as read [R] in Linux 6.1.192, drivers/infiniband/hw/cxgb4/cm.c and qp.c;
// what its firmware does with FPDUs is [M]. The options are its module parameters.
#ifndef DDPSOCK_TESTS_INTEROP_PERSONAS_CXGB4_H_
#define DDPSOCK_TESTS_INTEROP_PERSONAS_CXGB4_H_

#include "tests/interop/personas/persona.h"

namespace ddpsock::interop {

struct Cxgb4Options {
  uint8_t revision = 2;          // mpa_rev
  bool is_peer_to_peer = true;   // peer2peer
  PeerRtr rtr = PeerRtr::kRead;  // p2p_type: Read or Write
  bool has_crc = true;           // crc_enabled
  bool wants_markers = false;    // markers_enabled
  bool is_second_call = false;   // the redial with revision 1
  Ulp ulp = {};
};

std::unique_ptr<Persona> make_cxgb4(Role role, const Cxgb4Options& options);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_PERSONAS_CXGB4_H_
