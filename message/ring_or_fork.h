// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A child that is forked while the thread's new ring has a descriptor inherits one that nobody
// there knows, and that would be taken for the program's. fork copies descriptors before memory, so
// that the child cannot tell by what it finds in base::own_ring: a fork and a ring's time with a
// number exclude each other. Whoever has waited for too long (a second) goes on: the child closes
// what is still to be seen then.
#ifndef DDPSOCK_MESSAGE_RING_OR_FORK_H_
#define DDPSOCK_MESSAGE_RING_OR_FORK_H_

namespace ddpsock::message {

// Before a ring is made. True: no fork is under way until end_ring().
bool begin_ring();
void end_ring();

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_RING_OR_FORK_H_
