// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Same-host discovery: what the registry and the kernel's socket table together prove about one
// socket. The argument that both ends of a connection come to the same verdict is
// doc/decisions/0010-discovery.md; the steps here must be taken in the order given there.
#ifndef DDPSOCK_SHIM_DISCOVERY_H_
#define DDPSOCK_SHIM_DISCOVERY_H_

#include <cstdint>

#include "shim/address.h"

namespace ddpsock::shim {

enum class Listening : uint8_t {
  kRegistered,    // every listener that could take the connection is in the registry
  kUnregistered,  // one of them is not: its program is not in DDPMODE
  kNone,          // nobody listens there in this network namespace
  kUnknown,       // the kernel or the registry cannot be asked
};

// Who would take a connection from `fd` to `server`?
Listening find_listening(int fd, const Address& server);

enum class Publication : uint8_t { kDone, kNoRegistry, kFull };

// Says in the registry that `fd`, a client before connect(2), will be in DDPMODE.
Publication publish_client(int fd, bool wants_crc);

// Takes back what an earlier attempt with the same socket said. REQUIRES: not connected.
void forget_client(int fd);

enum class Confirmation : uint8_t {
  kConfirmed,  // the other end is on this host and was a registered listener's
  kWithdrawn,  // it is not, and nobody can have found the publication
};

// After establishment of a published client.
Confirmation confirm_client(int fd);

// Registers a listener; no word to the caller, as nothing depends on it.
void publish_listener(int fd, bool wants_crc);
void withdraw_listener(int fd);
bool is_listener_published(int fd);

enum class Client : uint8_t {
  kPublished,    // it is in DDPMODE
  kUnpublished,  // it is on this host and said nothing: it is plain
  kUnknown,      // another host's, gone already, or nobody can be asked
};

// Who connected to the accepted socket `fd`? A publication is used up by asking.
Client find_client(int fd);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_DISCOVERY_H_
