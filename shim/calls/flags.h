// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MSG_* flags of a call on a stream: those that the engine sees, and those that end the call here.
#ifndef DDPSOCK_SHIM_CALLS_FLAGS_H_
#define DDPSOCK_SHIM_CALLS_FLAGS_H_

#include "stream/stream.h"

namespace ddpsock::shim {

// What a call's flags come to.
struct Flags {
  int for_engine = 0;
  int error = 0;  // errno that TCP would give, or the nearest to it; 0: go on
};

// Without MSG_ERRQUEUE: that is the kernel's queue, not the stream.
Flags receive_flags(int flags);
// What the peer's library has to say is heard all the same: it may be about to send the urgent byte
// that is asked for.
engine::Io refuse_receive(engine::Stream& stream, int fd, Flags wanted);

// `fd` is asked for SO_ZEROCOPY if MSG_ZEROCOPY is given.
Flags send_flags(int fd, int flags);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_FLAGS_H_
