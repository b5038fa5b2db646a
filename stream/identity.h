// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whose a descriptor is. The number that a program passes is the stream's only as long as the
// program has not closed it and got it back for something else; a socket's cookie is never used
// again. Closes that pass the library by (io_uring, the bare instruction) are seen by the cookie
// alone, which is compared once somebody has slept, and at most once in a tick of the coarse clock.
#ifndef DDPSOCK_STREAM_IDENTITY_H_
#define DDPSOCK_STREAM_IDENTITY_H_

#include "stream/connection.h"

namespace ddpsock::engine {

// SO_COOKIE, 0 if the kernel does not say. errno is kept.
uint64_t cookie_of(int fd);
void set_naming(StreamEngine::Naming names);

// A stream whose kernel gave no cookie is taken at its number.
bool is_my_cookie(const Connection& c, int fd);
// `fd`, or -1 if it is another's by now. For after a sleep that was noted (base::note_wake); the
// direction that the caller holds is no longer `is_asleep`.
int still_named(Connection& c, int fd);
// The same, or what outlives it. Only for who lets go of `fd` with that (Descriptor): everybody up
// the stack who still has it would act on its new owner.
int going_on(Connection& c, int fd);
// Notes the sleep too.
inline int still(Connection& c, int fd) {
  base::note_wake();
  return still_named(c, fd);
}
// Stream::outlive() and await_calls().
void outlive(Connection& c, int fd);
// What outlives the program's last number, for calls that slept on it; -1: nothing.
int outliving(const Connection& c);
// For release(): the caller closes it.
base::UniqueFd take_outliving(Connection& c);
void await_calls(Connection& c, Time give_up);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_IDENTITY_H_
