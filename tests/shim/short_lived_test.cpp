// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sockets that come and go by the thousand leave nothing behind that the next one stumbles over.
#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class ShortLived : public TcpTest {
 protected:
  static constexpr int kMany = 6'000;  // in less time than anything ages

  // One thread connects and accepts: a client must not wait for the server.
  static void expect_room() {
    for (int i = 0; i < 50 && !HasFailure(); ++i) {
      const Pair pair = connected_pair();
      expect_alive(pair.client.get(), pair.server.get());
    }
  }
  static sockaddr_in refusing_address(Fd& holder) {
    holder = make_client_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* where = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(holder.get(), where, length), 0);
    EXPECT_EQ(getsockname(holder.get(), where, &length), 0);
    return address;
  }
};

TEST_F(ShortLived, Listeners) {
  for (int i = 0; i < kMany; ++i) listen_loopback();
  expect_room();
}

TEST_F(ShortLived, RefusedClients) {
  Fd holder;
  const sockaddr_in address = refusing_address(holder);
  for (int i = 0; i < kMany; ++i) {
    const Fd client = make_client_socket();
    ASSERT_EQ(connect_to(client.get(), address), -1);
    ASSERT_EQ(errno, ECONNREFUSED);
  }
  expect_room();
}

TEST_F(ShortLived, RefusedNonblockingClients) {
  Fd holder;
  const sockaddr_in address = refusing_address(holder);
  for (int i = 0; i < kMany; ++i) {
    const Fd client = make_client_socket(SOCK_NONBLOCK);
    ASSERT_EQ(connect_to(client.get(), address), -1);
    pollfd one{client.get(), POLLOUT, 0};
    ASSERT_EQ(poll(&one, 1, 3'000), 1);
    int error = 0;
    socklen_t length = sizeof error;
    ASSERT_EQ(getsockopt(client.get(), SOL_SOCKET, SO_ERROR, &error, &length), 0);
    ASSERT_EQ(error, ECONNREFUSED);
  }
  expect_room();
}

}  // namespace
}  // namespace ddpsock::shim_tests
