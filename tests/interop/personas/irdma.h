// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Intel irdma. Rules as read [R] in Linux 6.1.192, drivers/infiniband/hw/irdma/cm.c and ctrl.c;
// what its hardware does with FPDUs is [M].
#ifndef DDPSOCK_TESTS_INTEROP_PERSONAS_IRDMA_H_
#define DDPSOCK_TESTS_INTEROP_PERSONAS_IRDMA_H_

#include "tests/interop/personas/persona.h"

namespace ddpsock::interop {

struct IrdmaOptions {
  bool wants_markers = false;  // iw_ooo
  Ulp ulp = {};                // as responder its depths are the hardware's
};

std::unique_ptr<Persona> make_irdma(Role role, const IrdmaOptions& options);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_PERSONAS_IRDMA_H_
