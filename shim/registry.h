// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The registry: which sockets of this host are in DDPMODE, by whose word. One file a user, named
// ddpsock-<uid>, in /dev/shm (or where DDPSOCK_REGISTRY_DIR says; never in a setuid program). A
// file counts only if its owner is the owner of the socket that it speaks of, as the kernel tells
// (inet_diag); so a user can vouch for own sockets and for no others.
//
// The own user's file is mapped and written. The files of others are read, not mapped: their owner
// could truncate them under a mapping. No descriptor stays open. The file is never removed by the
// library (doc/decisions/0010-discovery.md); who removes it costs new connections their proof and
// nothing else.
//
// All functions are thread-safe, lock-free and async-signal-safe, and work after fork.
#ifndef DDPSOCK_SHIM_REGISTRY_H_
#define DDPSOCK_SHIM_REGISTRY_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "shim/registry_table.h"

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

// Does the user `owner` vouch for the socket? Reads the file anew each time.
Lookup look_up(uid_t owner, const SocketKey& key);

// The file of `owner`, for writing: mapped before (perhaps under another identity, or by the parent
// of this process), or if `owner` is the effective user, or the superuser that this process may
// become again, opened and if need be made. Nothing if that fails; a file that was removed or
// replaced meanwhile is opened anew.
std::optional<RegistryTable> own_registry(uid_t owner);

// As above, but never makes or opens a file: only what this process has mapped, wherever it is now.
std::optional<RegistryTable> mapped_registry(uid_t owner);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_REGISTRY_H_
