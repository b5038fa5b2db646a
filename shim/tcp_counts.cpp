// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/tcp_counts.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/keep_errno.h"
#include "shim/libc_edge.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

// Has a socket of this process ever been asked for it? So that nobody else's connections cost a
// question.
constinit std::atomic<bool> may_tell_queue{false};

int queued(int fd, unsigned long request, const engine::Stream& stream) {
  int of_wire = 0;
  return real.ioctl(fd, request, &of_wire) == 0 ? queued_of_stream(stream, of_wire) : 0;
}

// Until the first bytes have decided, all is the plain socket's (doc/design.md, I8).
bool is_decided(const engine::StreamStatus& status) {
  using State = engine::StreamState;
  const bool is_known =
      status.role == engine::Role::kInitiator || status.mpa_revision != 0 || status.fpdus_sent != 0;
  return status.state == State::kOpen || (status.state == State::kStarting && is_known);
}

// Kernels have more of it than this was built with, or less.
template <typename T>
void put(void* info, socklen_t length, size_t offset, T value) {
  if (offset + sizeof(value) <= length)
    memcpy(static_cast<char*>(info) + offset, &value, sizeof(value));
}

// What the kernel says it has sent again is among all that it has sent.
uint64_t sent_again(const void* info, socklen_t length) {
  constexpr size_t kOffset = offsetof(tcp_info, tcpi_bytes_retrans);
  uint64_t bytes = 0;
  if (kOffset + sizeof(bytes) <= length)
    memcpy(&bytes, static_cast<const char*>(info) + kOffset, sizeof(bytes));
  return bytes;
}

}  // namespace

int queued_of_stream(const engine::Stream& stream, int of_wire) {
  const engine::StreamStatus status = stream.status();
  if (!is_decided(status)) return of_wire;
  const auto queued = static_cast<uint64_t>(std::max(of_wire, 0));
  return static_cast<int>(std::min(status.bytes_sent, queued));
}

void correct_tcp_info(engine::Stream& stream, int fd, void* info, socklen_t length) {
  const base::KeepErrno keep;
  const engine::StreamStatus status = stream.status();
  if (!is_decided(status)) return;
  const engine::Io unread = status.is_drained ? engine::Io::ok(0) : stream.readable(fd, false);
  const auto unacknowledged = static_cast<uint64_t>(queued(fd, SIOCOUTQ, stream));
  const auto unsent = static_cast<uint64_t>(queued(fd, SIOCOUTQNSD, stream));
  const auto waiting = unread.is_ok() ? static_cast<uint64_t>(unread.count) : 0;
  put(info, length, offsetof(tcp_info, tcpi_bytes_acked),
      uint64_t{status.bytes_sent - unacknowledged});
  put(info, length, offsetof(tcp_info, tcpi_bytes_sent),
      uint64_t{status.bytes_sent - unsent + sent_again(info, length)});
  put(info, length, offsetof(tcp_info, tcpi_bytes_received),
      uint64_t{status.bytes_received + waiting});
  put(info, length, offsetof(tcp_info, tcpi_notsent_bytes), static_cast<uint32_t>(unsent));
}

int get_tells_queue(int fd, void* value, socklen_t* length) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase()))
    return real.getsockopt(fd, IPPROTO_TCP, TCP_INQ, value, length);
  return copy_out(use->tells_queue.load(std::memory_order_relaxed), value, length);
}

// What the kernel takes for a value is its to say, of a number that it sets to what it is.
int set_tells_queue(int fd, const void* value, socklen_t length) {
  may_tell_queue.store(true, std::memory_order_relaxed);
  const SocketUse use(fd);
  int wanted = 0;
  if (!use || !has_live_stream(use.phase()) || value == nullptr || length < sizeof(wanted))
    return real.setsockopt(fd, IPPROTO_TCP, TCP_INQ, value, length);
  memcpy(&wanted, value, sizeof(wanted));
  if (wanted < 0 || wanted > 1) return fail(EINVAL);
  use->tells_queue.store(wanted != 0, std::memory_order_relaxed);
  return 0;
}

void take_over_tells_queue(Socket& socket, int fd) {
  if (!may_tell_queue.load(std::memory_order_relaxed)) [[likely]]
    return;
  const base::KeepErrno keep;
  if (int_option(fd, IPPROTO_TCP, TCP_INQ) != 0)
    socket.tells_queue.store(true, std::memory_order_relaxed);
}

void give_back_tells_queue(const Socket& socket, int fd) {
  if (!socket.tells_queue.load(std::memory_order_relaxed)) [[likely]]
    return;
  const base::KeepErrno keep;
  const int on = 1;
  real.setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof(on));
}

// As the kernel does it: an end that is there counts as one byte, so that nobody waits for it.
void tell_queue(const SocketUse& use, int fd, msghdr& message, size_t room) {
  if (!use->tells_queue.load(std::memory_order_relaxed)) [[likely]]
    return;
  const base::KeepErrno keep;
  engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  if (message.msg_control == nullptr || room < sizeof(cmsghdr)) {
    message.msg_flags |= MSG_CTRUNC;
    return;
  }
  if (socket_at(fd) != &*use && (fd = stream.outliving()) < 0) return;
  // Asked with each message; what an answer leaves out is told with one of the next.
  const engine::Io io = stream.readable(fd, true);
  const auto count = static_cast<int>(io.is_ok() ? io.count : 0);
  const int told = count == 0 && stream.is_recv_ready(fd) ? 1 : count;
  std::array<char, CMSG_SPACE(sizeof(int))> whole{};
  const cmsghdr head{.cmsg_len = std::min<size_t>(CMSG_LEN(sizeof(int)), room),
                     .cmsg_level = IPPROTO_TCP,
                     .cmsg_type = TCP_CM_INQ};
  memcpy(whole.data(), &head, sizeof(head));
  memcpy(whole.data() + CMSG_LEN(0), &told, sizeof(told));
  if (head.cmsg_len < CMSG_LEN(sizeof(int))) message.msg_flags |= MSG_CTRUNC;
  message.msg_controllen = std::min(whole.size(), room);
  memcpy(message.msg_control, whole.data(), head.cmsg_len);
}

}  // namespace ddpsock::shim
