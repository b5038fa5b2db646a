// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the registry proves about connections in message mode: that both ends are this library's, of
// one user on one host, and mean messages. Nothing but speed hangs on it: without proof, message
// mode is what any peer speaks. The proof is that of policy.h; the last word of the client (C4 to
// C6 in doc/decisions/0010-discovery.md) is not needed, as the memory itself says whether it was
// joined before MPA start-up ends (0031).
#ifndef DDPSOCK_SHIM_POLICY_MESSAGE_PROOF_H_
#define DDPSOCK_SHIM_POLICY_MESSAGE_PROOF_H_

#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "engine/memory/message_memory.h"

namespace ddpsock::shim {

// A listener in message mode whose connections may lie in shared memory; and one that is no more.
void register_message_listener(int fd);
void forget_message_listener(int fd);

// Before connect(2) on `fd`: whether those who could take the connection are such listeners, and
// how the memory for it is to be named.
std::optional<engine::shm::SocketName> find_message_listener(int fd, const sockaddr* to,
                                                             socklen_t length);
// Publishes the memory that this process has open as `memory_fd`. False: there is no registry, or
// it is full.
[[nodiscard]] bool offer_message_memory(int fd, int memory_fd);
// The connection does without, or has ended.
void forget_message_offer(int fd);

// What the client of the accepted socket `fd` offers. A publication is used up by asking.
struct MessageOffer {
  uint32_t pid = 0;
  uint32_t memory_fd = 0;
  engine::shm::SocketName socket;
};
std::optional<MessageOffer> take_message_offer(int fd);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_MESSAGE_PROOF_H_
