// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The registry: which sockets of this host are in DDPMODE, by whose word. One file a user, named
// ddpsock-<uid>, in /dev/shm (or where DDPSOCK_REGISTRY_DIR says; never in a setuid program). A
// file counts only if its owner is the owner of the socket that it speaks of, as the kernel tells
// (inet_diag); so a user can vouch for own sockets and for no others.
//
// The own user's file is mapped and written. The files of others are read, not mapped: their owner
// could truncate them under a mapping. So a process that acts as a user and may become the
// superuser again (seteuid) speaks in the superuser's file, and says so in the user's. No
// descriptor stays open. The file is never removed by the library
// (doc/decisions/0010-discovery.md); who removes it costs new connections their proof and nothing
// else.
//
// All functions are thread-safe, lock-free and async-signal-safe, and work after fork.
#ifndef DDPSOCK_SHIM_POLICY_REGISTRY_H_
#define DDPSOCK_SHIM_POLICY_REGISTRY_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "shim/policy/registry_table.h"

namespace ddpsock::shim {

struct Lookup {
  enum class Outcome : uint8_t {
    kFound,
    kAbsent,      // the owner's file was read, or does not exist
    kOutOfSight,  // the file cannot be read or is not to be trusted: nothing is known
  };
  Outcome outcome;
  Entry entry{};  // if kFound
};

// What a user namespace shows for every user that it does not know, so one name for many: only that
// user itself looks up what it says.
constexpr uid_t kOverflowUid = 65534;

// Does the user `owner` vouch for the socket? Reads the file anew each time. `read`: what was
// read, for the rest of the verdict, if this process has it mapped; a mapping that was the one that
// others see a few ms ago will do then.
Lookup look_up(uid_t owner, const SocketKey& key, FoundRegistry* read = nullptr);

// Where this process may write of sockets of `owner`: that user's file, if it was mapped before
// (perhaps under another identity, or by the parent of this process) or if this process is that
// user and no other; the superuser's, if it is the superuser or may become it again. Opened and if
// need be made, and anew where it was removed or replaced meanwhile. Nothing if that fails.
// kPublishing: what is written is found by look_up(owner).
enum class For : uint8_t { kAmending, kPublishing };
std::optional<RegistryTable> own_registry(uid_t owner, For what = For::kAmending);

// That of `owner` alone, if it is mapped and others see it too, or did a few ms ago.
FoundRegistry current_registry(uid_t owner);

// As own_registry(), but never makes or opens a file: only what this process has mapped, wherever
// it is now.
std::optional<RegistryTable> mapped_registry(uid_t owner);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_REGISTRY_H_
