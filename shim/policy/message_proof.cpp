// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/message_proof.h"

#include "shim/policy/discovery.h"

namespace ddpsock::shim {

void register_message_listener(int fd) {
  publish_listener(fd, true, Traffic::kMessages);
}

void forget_message_listener(int fd) {
  withdraw_listener(fd, Traffic::kMessages);
}

std::optional<engine::shm::SocketName> find_message_listener(int fd, const sockaddr* to,
                                                             socklen_t length) {
  const auto server = read_address(to, length);
  if (!server || find_listening(fd, *server, Traffic::kMessages) != Listening::kRegistered)
    return std::nullopt;
  const SocketKey key = client_key(fd);
  return engine::shm::SocketName{key.netns, key.cookie};
}

bool offer_message_memory(int fd, int memory_fd) {
  return publish_memory_client(fd, memory_fd) == Publication::kDone;
}

void forget_message_offer(int fd) {
  forget_memory_client(fd);
}

std::optional<MessageOffer> take_message_offer(int fd) {
  const auto client = find_memory_client(fd);
  if (!client) return std::nullopt;
  return MessageOffer{
      .pid = client->pid,
      .memory_fd = client->memory_fd,
      .socket = {client->socket.netns, client->socket.cookie},
  };
}

}  // namespace ddpsock::shim
