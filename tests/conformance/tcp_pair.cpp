// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/tcp_pair.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace ddpsock::conformance {

// One for all: each would keep its port for a minute after its connection, and tests make tens of
// thousands.
static int listener() {
  static const base::UniqueFd made = [] {
    base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
  }();
  return made.get();
}

TcpPair connect_tcp() {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(getsockname(listener(), generic, &size), 0);
  TcpPair pair;
  pair.initiator.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(pair.initiator.get(), generic, size), 0);
  pair.responder.reset(accept4(listener(), nullptr, nullptr, SOCK_CLOEXEC));
  return pair;
}

void cut_tcp(int end) {
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  ASSERT_EQ(connect(end, &nowhere, sizeof nowhere), 0);  // sends RST
}

}  // namespace ddpsock::conformance
