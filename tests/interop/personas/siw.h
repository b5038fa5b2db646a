// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Linux siw. Rules as read [R] in Linux 6.1.192, drivers/infiniband/sw/siw/siw_cm.c and siw_qp.c;
// its policy values are constants there, which is why the variants are options here.
#ifndef DDPSOCK_TESTS_INTEROP_PERSONAS_SIW_H_
#define DDPSOCK_TESTS_INTEROP_PERSONAS_SIW_H_

#include "tests/interop/personas/persona.h"

namespace ddpsock::interop {

struct SiwOptions {
  uint8_t revision = 2;          // mpa_version
  bool is_crc_required = false;  // mpa_crc_required
  bool is_peer_to_peer = false;  // peer_to_peer
  Ulp ulp = {};
};

std::unique_ptr<Persona> make_siw(Role role, const SiwOptions& options);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_PERSONAS_SIW_H_
