// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Compiled with _FORTIFY_SOURCE: with buffers of known size and counts that are not, the calls
// below are __read_chk, __recv_chk, __recvfrom_chk, __poll_chk and __ppoll_chk.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Fortified : public TcpTest {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
  volatile size_t three_ = 3;
  volatile nfds_t one_ = 1;
};

TEST_F(Fortified, Reads) {
  send_all(client_, "abcdefghi");
  await_queued(server_, 9);
  char buffer[8];
  EXPECT_EQ(read(server_, buffer, three_), 3);
  EXPECT_EQ(std::string(buffer, 3), "abc");
  EXPECT_EQ(recv(server_, buffer, three_, 0), 3);
  EXPECT_EQ(std::string(buffer, 3), "def");
  EXPECT_EQ(recvfrom(server_, buffer, three_, 0, nullptr, nullptr), 3);
  EXPECT_EQ(std::string(buffer, 3), "ghi");
  EXPECT_EQ(recv(server_, buffer, three_, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Fortified, Polls) {
  pollfd set[2] = {{server_, POLLIN, 0}, {-1, 0, 0}};
  const timespec soon{3, 0};
  EXPECT_EQ(poll(set, one_, 0), 0);
  send_all(client_, "x");
  EXPECT_EQ(poll(set, one_, 3000), 1);
  EXPECT_EQ(ppoll(set, one_, &soon, nullptr), 1);
}

TEST_F(Fortified, OverflowsAreCaught) {
  send_all(client_, pattern(100));
  volatile size_t too_many = 100;
  char buffer[8];
  EXPECT_EXIT(
      static_cast<void>(read(server_, buffer, too_many) + recv(server_, buffer, too_many, 0)),
      testing::KilledBySignal(SIGABRT), "buffer overflow detected");
}

}  // namespace
}  // namespace ddpsock::shim_tests
