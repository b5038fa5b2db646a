// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Same-host discovery: what the registry and the kernel's socket table together prove about one
// socket. The argument that both ends of a connection come to the same verdict is
// doc/decisions/0010-discovery.md; the steps here must be taken in the order given there.
#ifndef DDPSOCK_SHIM_DISCOVERY_H_
#define DDPSOCK_SHIM_DISCOVERY_H_

#include <cstdint>
#include <optional>

#include "shim/address.h"
#include "shim/registry_table.h"

namespace ddpsock::shim {

// What two sockets say to each other once connected. The registry keeps the two apart: a socket
// that has given its word for the one has said nothing about the other.
enum class Talk : uint8_t { kStream, kMessages };

enum class Listening : uint8_t {
  kRegistered,    // every listener that could take the connection is in the registry
  kUnregistered,  // one of them is not: its program is not in DDPMODE
  kNone,          // nobody listens there in this network namespace
  kUnknown,       // the kernel or the registry cannot be asked
};

// Who would take a connection from `fd` to `server`?
Listening find_listening(int fd, const Address& server, Talk talk);

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
void publish_listener(int fd, bool wants_crc, Talk talk);
void withdraw_listener(int fd, Talk talk);
bool is_listener_published(int fd);

enum class Client : uint8_t {
  kPublished,    // it is in DDPMODE
  kUnpublished,  // it is on this host and said nothing: it is plain
  kUnknown,      // another host's, gone already, or nobody can be asked
};

// Who connected to the accepted socket `fd`? A publication is used up by asking.
Client find_client(int fd);

// The same in message mode, where a client publishes beside its word the descriptor by which it has
// the memory that it offers.
struct MemoryClient {
  uint32_t pid = 0;
  uint32_t memory_fd = 0;
  SocketKey socket;
};
// What the kernel calls `fd`. REQUIRES: find_listening() could ask about it.
SocketKey client_key(int fd);
Publication publish_memory_client(int fd, int memory_fd);
void forget_memory_client(int fd);
std::optional<MemoryClient> find_memory_client(int fd);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_DISCOVERY_H_
