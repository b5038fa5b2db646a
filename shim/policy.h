// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who gets DDPMODE. The wrappers ask at the four moments of a socket's life where the answer is
// due; behind this header are the rules (rules.h), the registry of this host's ddpsock sockets
// (registry.h) and the kernel's own socket table (inet_diag.h).
//
// Both ends of a same-host connection reach the same verdict before the first byte and without
// timing (doc/design.md decision 5): the client finds the listener in its network namespace by
// inet_diag, looks the listener's socket cookie up in the registry of the user who owns that
// socket, publishes its own cookie, and connects; accept looks up the client's cookie the same way
// and obeys.
#ifndef DDPSOCK_SHIM_POLICY_H_
#define DDPSOCK_SHIM_POLICY_H_

#include <sys/socket.h>

#include <cstdint>

namespace ddpsock::shim {

// What the program asked for on this socket by setsockopt(SOL_DDP, DDP_MODE); kNone: rules decide.
enum class Wish : uint8_t { kNone, kOff, kStream };

enum class Mode : uint8_t {
  kPlain,      // pass through, for good
  kProved,     // DDPMODE; the peer has proved to obey the same verdict
  kRequired,   // DDPMODE because a rule or the program says so; the peer is not proved
  kUndecided,  // accepted sockets only: the first bytes from the peer decide
               // (engine::Peer::kUnknown)
};

struct Verdict {
  Mode mode = Mode::kPlain;
  bool wants_crc = true;
  const char* reason = "";   // static text for DDP_STATUS, --explain and the log
  bool is_required = false;  // plain TCP is not what the rules or the program allow; of a client
};

// Is there any rule that could ever choose a socket, or is the library loaded but off? Constant
// after start; when false the wrappers touch nothing until a program uses SOL_DDP itself.
bool is_policy_active();

// Before connect(2) on `fd`, a TCP socket that is neither connecting nor connected. If the verdict
// is DDPMODE on this host, the registry says so already. Each attempt to connect must ask anew.
Verdict before_connect(int fd, const sockaddr* to, socklen_t length, Wish wish);

// After establishment of a connection judged kProved by before_connect: does the reversed tuple
// exist in this namespace with a socket of the listener judged? If not (address translation, a port
// taken over in between) the connection is plain, and the peer could not have judged otherwise; or
// kRequired, if it was required. Call it before the first byte. REQUIRES: `before` has the reason
// that before_connect gave.
Verdict after_connect(int fd, const Verdict& before);

// After listen(2): registers the listener if every connection to it may be in DDPMODE. (A rule that
// is off for one of a wildcard's addresses keeps the listener out: a client could not know.)
void after_listen(int fd, Wish wish);

// Before the wish of a listener becomes off, or it escapes to where the library is not: new clients
// will be plain, those who asked before are still obeyed. Not needed when it closes, as a cookie is
// never used again; a forked child that closes its copy changes nothing.
void forget_listener(int fd);

// After accept(2) gave `fd`, on a listener with `wish`. Never kProved unless the client published
// it, and then always: the client has been promised.
Verdict after_accept(int listener, int fd, Wish wish);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_H_
