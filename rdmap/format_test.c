/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The constants as C11 sees them, alone. */
#include "rdmap/format.h"

_Static_assert(RDMAP_READ_REQUEST_SIZE == 28, "RFC 5040 section 4.4");
_Static_assert(RDMAP_ATOMIC_REQUEST_SIZE == 52, "RFC 7306 section 5.2.1");
_Static_assert(RDMAP_ATOMIC_RESPONSE_SIZE == 12, "RFC 7306 section 5.2.2");
_Static_assert(RDMAP_CTRL_IETF == 0x40, "RFC 5040 section 4.1");
_Static_assert(RDMAP_TERM_MAX_SIZE == 52, "RFC 5040 section 4.8");
_Static_assert((RDMAP_CTRL_VERSION_MASK | RDMAP_CTRL_RESERVED | RDMAP_CTRL_OPCODE_MASK) == 0xff,
               "every bit is named");

int main(void) {
  return 0;
}
