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
#ifndef DDPSOCK_SHIM_POLICY_POLICY_H_
#define DDPSOCK_SHIM_POLICY_POLICY_H_

#include <sys/socket.h>

#include <cstdint>

#include "shim/policy/inquiry.h"
#include "shim/policy/registry_table.h"

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
  bool is_required = false;  // plain TCP is not what the rules or the program allow
  Inquiry inquiry{};         // before_connect's for after_connect, or after_accept's
};

// Is there any rule that could ever choose a socket, or is the library loaded but off? Constant
// after start; when false the wrappers touch nothing until a program uses SOL_DDP itself.
bool is_policy_active();

// The same, where a connection or a listener is about to be judged. The first question of a program
// that was started under a filter of system calls may cost a fork.
bool may_choose();
// That was not asked yet, or the answer was no.
bool may_filter_hurt();

// No rule applies from now on: another copy of the library serves the program, or libc is not
// glibc.
void choose_nothing();
// A filter of system calls stands against ours, or is about to: no rule applies, but what is
// required fails from now on.
void give_way_to_filter();
// No rule requires DDPMODE of a connection.
bool may_choose_nothing();

// The program is about to set an option that only the kernel can serve (time stamps, a filter, an
// offset of peeks, zero copy, repair) on a TCP socket that is not connected and has `wish`: what it
// connects to or accepts is plain from then on, while the option is set. False: it may have to be
// in DDPMODE, and the option is to be refused.
bool permits_kernel_option(Wish wish);
// Is one set on `fd`, or was it on the listener that it was accepted from?
bool has_kernel_option(int fd);

// Before connect(2) on `fd`, a TCP socket that is neither connecting nor connected. If the verdict
// is DDPMODE on this host, the registry says so already. Each attempt to connect must ask anew.
// Plain and required: the attempt must fail.
Verdict before_connect(int fd, const sockaddr* to, socklen_t length, Wish wish);

// The attempt has failed, or is not made: what was said of it is taken back. REQUIRES: not
// connected.
void give_up_connecting(int fd);

// After establishment of a connection judged kProved by before_connect: does the reversed tuple
// exist in this namespace with a socket of the listener judged? If not (address translation, a port
// taken over in between) the connection is plain, and the peer could not have judged otherwise; or
// kRequired, if it was required. Call it before the first byte. REQUIRES: `before` has the reason
// and the inquiry that before_connect gave.
Verdict after_connect(int fd, const Verdict& before);

// Did this program open the listener, or does it use one that came by exec, by SCM_RIGHTS or from a
// service manager? Of the latter it is not known who was told what, so first bytes decide about
// clients that have said nothing.
enum class Opened : uint8_t { kHere, kElsewhere };

// Before listen(2): static text why it must fail; null if it may succeed.
const char* why_not_to_listen(int fd, Wish wish);

// Registers the listener if every connection to it may be in DDPMODE. (A rule that is off for one
// of a wildcard's addresses keeps the listener out: a client could not know.) Before listen(2), so
// that no client finds it unregistered. False: `fd` has no port yet.
bool register_listener(int fd, Wish wish, Opened opened);

// After listen(2) has succeeded on a listener that was registered before: its entry need not
// outlive it.
void note_listening(int fd);

// Did this program, or another, register it?
bool is_listener_registered(int fd);
// One that is registered was inherited: what is said of it and of its clients is found from now on,
// also where this program changes its root.
void note_inherited_listener(int fd);

// When listen(2) fails, or before the wish of a listener becomes off: new clients will be plain,
// those who asked before are still obeyed. Not when it closes: a cookie is never used again, and
// other processes may hold the socket.
void forget_listener(int fd);

// Before a copy of `fd` goes to where the library is not (a program), or may not be (a message):
// new clients will be plain from now on, whoever registers it again. False if it was not
// registered.
bool note_escaped_listener(int fd, Escape how);
// That copy has not gone after all, or has been received by a process with the library.
void note_returned_listener(int fd, Escape how);

// Before the accepted `fd` is passed on, with nothing said: so will be what its listener gives
// next, whose clients count on it no more than on one that has escaped.
// False if that was not possible.
bool note_handed_out(int fd);
// It has stayed where it was after all.
void note_not_handed_out(int fd);

// A filter of system calls comes, and may mean what the kernel is asked with: none of that is kept.
void ask_with_nothing_kept();

// After accept(2) gave `fd`, on a listener with `wish`. Never kProved unless the client published
// it, and then always: the client has been promised. Plain and required: it must be given up.
// `netns`: the network namespace of the listener, if it is known.
Verdict after_accept(int listener, int fd, Wish wish, uint64_t netns = 0);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_POLICY_H_
