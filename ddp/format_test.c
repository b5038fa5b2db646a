/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The constants as C11 sees them, alone. */
#include "ddp/format.h"

_Static_assert(DDP_TAGGED_HEADER_SIZE == 14, "RFC 5041 section 4.2");
_Static_assert(DDP_UNTAGGED_HEADER_SIZE == 18, "RFC 5041 section 4.3");
_Static_assert((DDP_CTRL_TAGGED | DDP_CTRL_LAST | DDP_VERSION) == 0xc1, "RFC 5041 section 4.1");
_Static_assert((DDP_CTRL_TAGGED | DDP_CTRL_LAST | DDP_CTRL_RESERVED | DDP_CTRL_DV_MASK) == 0xff,
               "every bit is named");

int main(void) {
  return 0;
}
