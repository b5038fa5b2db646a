/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* format.h alone, as a C11 compiler sees it. */
#include "mpa/format.h"

_Static_assert(sizeof(MPA_REQUEST_KEY) - 1 == MPA_KEY_SIZE, "request key");
_Static_assert(sizeof(MPA_REPLY_KEY) - 1 == MPA_KEY_SIZE, "reply key");
_Static_assert(MPA_STARTUP_HEADER_SIZE == 20, "RFC 5044 section 7.1.1");
_Static_assert(MPA_ENHANCED_SIZE == 4, "RFC 6581 section 6");
_Static_assert(MPA_MARKER_SIZE == 4 && MPA_MARKER_SPACING == 508, "RFC 5044 section 4.3");

int main(void) {
  return 0;
}
