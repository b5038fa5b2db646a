// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Same-host discovery: what the registry and the kernel's socket table together prove about one
// socket. The argument that both ends of a connection come to the same verdict is
// doc/decisions/0010-discovery.md; the steps here must be taken in the order given there.
#ifndef DDPSOCK_SHIM_POLICY_DISCOVERY_H_
#define DDPSOCK_SHIM_POLICY_DISCOVERY_H_

#include <cstdint>
#include <optional>

#include "shim/policy/address.h"
#include "shim/policy/inquiry.h"
#include "shim/policy/registry_table.h"

namespace ddpsock::shim {

// What two sockets say to each other once connected. The registry keeps the two apart: a socket
// that has given its word for the one has said nothing about the other.
enum class Traffic : uint8_t { kStream, kMessages };

enum class Listening : uint8_t {
  kRegistered,    // every listener that could take the connection is in the registry
  kUnregistered,  // one of them is not: its program is not in DDPMODE
  kNone,          // nobody listens there in this network namespace
  kUnknown,       // the kernel or the registry cannot be asked
};

// Who would take a connection from `fd` to `server`?
Listening find_listening(int fd, const Address& server, Traffic traffic);

// Before connect(2) of a stream: what is to be known of `fd`, and who would take the connection.
// The answer may be one of a short while ago, which the inquiry says.
Inquiry begin_inquiry(int fd);
Listening find_listening(int fd, const Address& server, Inquiry& inquiry);

enum class Publication : uint8_t { kDone, kNoRegistry, kFull };

// Says in the registry that a client before connect(2) to `server` will be in DDPMODE.
// `awaits_reply`: it goes in unproved, and will wait until the server's MPA Reply.
Publication publish_client(const Inquiry& client, const Address& server, bool wants_crc,
                           bool awaits_reply);

// Takes back what an earlier attempt with the same socket said. REQUIRES: not connected.
void forget_client(int fd);

enum class Confirmation : uint8_t {
  kConfirmed,  // the other end is on this host and was a registered listener's
  kWithdrawn,  // it is not, and nobody can have found the publication
};

// After establishment of a published client. One that is required is published all the same when it
// is withdrawn, as one that awaits the Reply.
Confirmation confirm_client(int fd, const Inquiry& inquiry, bool is_required);

// Registers a listener, before the kernel's listen(2) makes it visible or after; no word to the
// caller, as nothing depends on it. REQUIRES: bound.
void publish_listener(int fd, bool wants_crc, Traffic traffic);
// After listen(2), where the listener was registered before: from now on it is gone, for those who
// need its slot, as soon as the kernel does not know it any more.
void note_listened(int fd);
// The same as publish_listener for one that came from elsewhere, unless it is known: what was said
// of it stays.
void adopt_listener(int fd, bool wants_crc);
void withdraw_listener(int fd, Traffic traffic);
bool is_listener_published(int fd);
// Maps what speaks of sockets of the owner of `fd`, to be found wherever this process goes.
void keep_registry_of(int fd);
// What a listener's clients were told, they were told by this registry and no other: who has said
// nothing is plain.
bool is_silence_proof(int listener);

// Copies of a listener escape to where the library is not, or (-1) have not escaped after all.
// False if nobody was told of this listener.
bool count_escaped(int fd, Escape how, int change);

// The listeners from which `fd` was accepted, or may have been: as if a copy had escaped for good,
// or (-1) had not after all. False if none was counted.
bool count_escaped_listeners_of(int fd, int change);

enum class Client : uint8_t {
  kPublished,    // it is in DDPMODE
  kAwaiting,     // the same, and it waits for the Reply
  kUnpublished,  // it is on this host and said nothing: it is plain
  kUnknown,      // another host's, gone already, or nobody can be asked
};

// Who connected to the accepted socket `fd`? A publication is used up by asking. What is found out
// about `fd` is noted in the inquiry, which has its ends, if it has any, and its network namespace
// if that is known.
Client find_client(int fd, Inquiry& inquiry);

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

#endif  // DDPSOCK_SHIM_POLICY_DISCOVERY_H_
