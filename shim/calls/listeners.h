// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Listening sockets that come from elsewhere, and those that leave. Clients on this host go by what
// the registry says of a listener: it must be registered where this program accepts from it, and
// must not count any more before a copy of it goes to where the library is not (decision 0044).
#ifndef DDPSOCK_SHIM_CALLS_LISTENERS_H_
#define DDPSOCK_SHIM_CALLS_LISTENERS_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>

#include "shim/policy/policy.h"

namespace ddpsock::shim {

// errno is kept by both.
bool is_listening_tcp(int fd);

// Before a program listens: who has a ring of which nothing is known may accept by it.
void look_for_rings();
// A ring is there from now on: nobody counts on this program's listeners any more, and its
// connections return to plain TCP where they can.
void give_way_to_rings();

// An accept() from `fd` has returned, with a connection or an error. A listening TCP socket that
// came from elsewhere is entered and registered. (Not earlier: who only holds or watches a
// listener, or is cancelled while it waits, may leave accepting to others.)
void enter_listener(int fd);

// At library start: inherited listeners that clients may have been told of are entered, so that the
// promise is kept whatever the rules say in this program.
void enter_inherited_listeners();

// The listeners a message brought were on the way: they have arrived.
void enter_received_listeners(const msghdr& message);

// Listeners of which a copy is about to leave. Async-signal-safe; writes nothing but itself and the
// registry, so a vfork child may use it.
class LeavingListeners {
 public:
  explicit LeavingListeners(Escape how) : how_(how) {}

  // `fd` leaves, if it is a listener that is registered.
  void note(int fd);
  // Every listener that a new program inherits; `all`: those that are closed on exec too, as
  // posix_spawn may open them again.
  void note_inheritable(bool all);
  // The stream `fd` is given to a program without the library: so are those that accepted it
  // (handing_out.h).
  void note_given(int fd);
  // They have not left. Beyond the first kMost they count as gone all the same.
  void take_back();

 private:
  static constexpr size_t kMost = 64;
  Escape how_;
  size_t count_ = 0, given_ = 0;
  std::array<int, kMost> fds_, given_fds_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_LISTENERS_H_
