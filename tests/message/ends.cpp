// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ends.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>

#include <cstdlib>
#include <thread>

namespace ddpsock::message_tests {
namespace {

std::string_view engines() {
  const char* all = std::getenv("MESSAGE_ENGINES");
  return all != nullptr ? all : "shm";
}

void insist_on_user_engine(int fd) {
  EXPECT_EQ(setsockopt(fd, SOL_DDP, DDP_ENGINE, "user", sizeof "user"), 0) << strerror(errno);
}

}  // namespace

const char* expected_engine() {
  return engines() == "shm" ? "shm" : "user";
}

void arm_alarm() {
  alarm(60);
}

Fd make_socket() {
  return Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

void set_mode(int fd, int mode, int role) {
  const ddp_mode wanted{.mode = mode, .role = role};
  ASSERT_EQ(setsockopt(fd, SOL_DDP, DDP_MODE, &wanted, sizeof wanted), 0) << strerror(errno);
}

ddp_status status_of(int fd) {
  ddp_status status{};
  socklen_t size = sizeof status;
  EXPECT_EQ(getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &size), 0) << strerror(errno);
  return status;
}

Listener listen_on_loopback(bool is_plain) {
  Listener listener{.fd = make_socket()};
  listener.address.sin_family = AF_INET;
  listener.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = listener.fd.get();
  auto* address = reinterpret_cast<sockaddr*>(&listener.address);
  socklen_t size = sizeof listener.address;
  if (!is_plain) set_mode(fd);
  if (!is_plain && engines() == "user_listener") insist_on_user_engine(fd);
  EXPECT_EQ(bind(fd, address, size), 0);
  EXPECT_EQ(listen(fd, 64), 0);
  EXPECT_EQ(getsockname(fd, address, &size), 0);
  return listener;
}

int connect_to(int fd, const Listener& listener) {
  if (engines() == "user_client") insist_on_user_engine(fd);
  return connect(fd, reinterpret_cast<const sockaddr*>(&listener.address), sizeof listener.address);
}

Ends connect_ends(const PairOptions& options) {
  Listener listener = listen_on_loopback();
  const int listening = listener.fd.get();
  EXPECT_EQ(set_option(listening, DDP_DEPTHS, options.server), 0);
  EXPECT_EQ(set_option(listening, DDP_PROGRESS, options.progress), 0);
  EXPECT_EQ(set_option(listening, DDP_MARKERS, options.markers), 0);
  if (options.server_cq >= 0) {
    EXPECT_EQ(set_option(listening, DDP_CQ, options.server_cq), 0);
  }
  if (options.server_srq >= 0) {
    EXPECT_EQ(set_option(listening, DDP_SRQ, options.server_srq), 0);
  }
  Ends ends{.client = make_socket(), .server = {}};
  const int client = ends.client.get();
  set_mode(client);
  EXPECT_EQ(set_option(client, DDP_DEPTHS, options.client), 0);
  EXPECT_EQ(set_option(client, DDP_PROGRESS, options.progress), 0);
  if (options.client_cq >= 0) {
    EXPECT_EQ(set_option(client, DDP_CQ, options.client_cq), 0);
  }
  std::jthread connecting([&] { EXPECT_EQ(connect_to(client, listener), 0) << strerror(errno); });
  ends.server = Fd(accept(listening, nullptr, nullptr));
  EXPECT_GE(ends.server.get(), 0);
  EXPECT_EQ(ddp_establish(ends.server.get(), kPatienceMs), 0) << strerror(errno);
  return ends;
}

iovec part_of(std::string_view bytes) {
  return {const_cast<char*>(bytes.data()), bytes.size()};
}

ddp_send_work send_work(const iovec& part, uint64_t cookie, uint32_t flags) {
  return {.cookie = cookie,
          .iov = &part,
          .iov_count = 1,
          .flags = flags,
          .immediate = 0,
          .invalidate = 0,
          .reserved = 0};
}

ddp_recv_work recv_work(const iovec& part, uint64_t cookie) {
  return {.cookie = cookie, .iov = &part, .iov_count = 1, .reserved = 0};
}

void post_send(int fd, std::string_view bytes, uint64_t cookie, uint32_t flags) {
  const iovec part = part_of(bytes);
  const ddp_send_work work = send_work(part, cookie, flags);
  EXPECT_EQ(ddp_post_send(fd, &work, 1), 1) << strerror(errno);
}

void post_recv(int fd, std::string& room, uint64_t cookie) {
  const iovec part = part_of(room);
  const ddp_recv_work work = recv_work(part, cookie);
  EXPECT_EQ(ddp_post_recv(fd, &work, 1), 1) << strerror(errno);
}

ddp_completion next(int fd) {
  ddp_completion completion{};
  for (;;) {
    const int n = ddp_wait(fd, &completion, 1, kPatienceMs);
    if (n < 0 && errno == EINTR) continue;
    EXPECT_EQ(n, 1) << strerror(errno);
    if (n == 1 && completion.kind == DDP_ESTABLISHED) continue;
    return completion;
  }
}

ddp_completion next(int fd, ddp_kind kind, uint64_t cookie) {
  const ddp_completion completion = next(fd);
  EXPECT_EQ(completion.kind, static_cast<uint32_t>(kind)) << ddp_strerror(&completion);
  EXPECT_EQ(completion.cookie, cookie);
  return completion;
}

void expect_nothing(int fd) {
  ddp_completion completion{};
  const int n = ddp_wait(fd, &completion, 1, 30);
  EXPECT_TRUE(n == 0 || (n < 0 && errno == EPIPE)) << n << " " << ddp_strerror(&completion);
}

}  // namespace ddpsock::message_tests
