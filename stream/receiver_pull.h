// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a receive call takes bytes from the kernel: how many at once, and where to. All of them
// return the bytes that were taken, or seen there; 0 at the kernel's end of stream; -1 with errno,
// or with `error` of the call.
#ifndef DDPSOCK_STREAM_RECEIVER_PULL_H_
#define DDPSOCK_STREAM_RECEIVER_PULL_H_

#include "stream/receive_call.h"

namespace ddpsock::engine {

// More of what the call wants, as its flags say without waiting. REQUIRES: nothing lies in the
// buffer that can be delivered.
ssize_t pull(ReceiveCall& call);
// The same, and nothing beyond the FPDUs that are known to come before what lies elsewhere.
// REQUIRES: is_near_border.
ssize_t pull_no_further(ReceiveCall& call);
// With the last payload byte goes the byte that stood for it; the next header comes along, unless
// that may lie elsewhere. Does not wait. REQUIRES: must_drop.
ssize_t drop_kept_byte(ReceiveCall& call);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_RECEIVER_PULL_H_
