// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/record.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/keep_errno.h"

namespace ddpsock::engine {

const char* memory_text(MemoryState state) {
  switch (state) {
    case MemoryState::kUnasked:
      return "nobody has offered shared memory";
    case MemoryState::kOffered:
      return "shared memory is offered, the peer has not joined";
    case MemoryState::kInvited:
      return "shared memory is offered by the peer, not joined yet";
    case MemoryState::kJoined:
      return "shared memory";
    case MemoryState::kNotWanted:
      return "shared memory is not wanted, or the peer is not proved";
    case MemoryState::kNoMemory:
      return "the kernel has no memory or descriptor for it";
    case MemoryState::kNotAllowed:
      return "the peer is another user's, hides, or is in another pid namespace";
    case MemoryState::kBadOffer:
      return "the memory that the peer offered is not what it said";
    case MemoryState::kShared:
      return "several processes held the connection when it began";
    case MemoryState::kLeft:
      return "left shared memory for a program that was executed";
    case MemoryState::kYielded:
      return "left shared memory for one-sided operations";
  }
  return "";
}

Record::Record(const StreamAttr& attr, uint32_t payload)
    : role(attr.role),
      peer(attr.peer),
      is_strict(attr.is_strict),
      wants_crc(attr.wants_crc),
      wants_memory(attr.may_share_memory && attr.peer == Peer::kProved),
      offers_later(wants_memory && attr.may_share_later && attr.role == Role::kInitiator),
      max_payload(payload),
      start_timeout(attr.start_timeout),
      opened_at(base::now()) {
  std::strncpy(verdict.data(), attr.verdict, verdict.size() - 1);
}

namespace {

base::TcpAddress ask_address(int (*ask)(int, sockaddr*, socklen_t*), int fd) {
  sockaddr_in6 name{};
  socklen_t size = sizeof name;
  if (ask(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return {};
  return base::tcp_address_of(name);
}

}  // namespace

// libc's own functions: no preload stands in front of them.
base::TcpAddress local_address(int fd) {
  return ask_address(getsockname, fd);
}

base::TcpAddress remote_address(int fd) {
  return ask_address(getpeername, fd);
}

void Record::note_addresses(int fd) {
  const base::KeepErrno keep;
  local = local_address(fd);
  remote = remote_address(fd);
}

void Record::note_addresses(const sockaddr_in6& here, const sockaddr_in6& there) {
  local = base::tcp_address_of(here);
  remote = base::tcp_address_of(there);
}

void Record::note_failure(const char* why) {
  if (has_failure.load(std::memory_order_acquire)) return;
  const size_t n = std::min(std::strlen(why), failure.size() - 1);
  std::copy_n(why, n, failure.begin());
  has_failure.store(true, std::memory_order_release);
}

}  // namespace ddpsock::engine
