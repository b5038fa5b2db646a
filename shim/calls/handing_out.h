// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that accept connections for others: those that pass them on before they have said
// anything on them, as Node's cluster does, and those that start a program for each, as inetd does
// (decision 47).
#ifndef DDPSOCK_SHIM_CALLS_HANDING_OUT_H_
#define DDPSOCK_SHIM_CALLS_HANDING_OUT_H_

#include "base/clock.h"
#include "shim/calls/leaving.h"

namespace ddpsock::shim {

// `fd` is about to be passed on. False, and nothing is done, unless it is an accepted connection in
// DDPMODE on which this program has sent nothing, nor has one-sided operations. New clients of its
// listener will be plain, unless this program requires DDPMODE. errno is kept.
bool begin_handing_out(int fd);

// How long peers may keep connections from being handed out: less after each that has not answered,
// so that none can stop the program for long.
Duration patience_while_handing_out();
void note_answers(bool are_in_time);

// What is still handed out as above has a peer that does not let it go: it is reset, as if its
// client had gone, and may be passed on. It is open at `at`: `fd`, but in some vfork children.
// errno is kept.
void reset_handed_out(int fd, int at);

// A program without the library is about to have the stream `fd`. New clients of its listener, if
// it was accepted, will be plain, unless this program requires DDPMODE or the listener is not
// found: true if so. errno is kept.
bool note_given_to_stranger(int fd);

// As leave_ddp_mode_each, where one at least is handed out.
template <typename Each>
bool hand_out_each(Each each, const char* why) {
  Leaving leaving(why, true, patience_while_handing_out());
  leave_each(leaving, each);
  note_answers(!leaving.has_run_out());
  if (!leaving.is_done()) each([](int fd) { reset_handed_out(fd, fd); });
  return leaving.is_done();
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_HANDING_OUT_H_
