// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A thread sleeps in a call on a connection whose other end has spoken first, while another sends
// for the first time: only then do the two ends learn of each other what they can.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr int kRounds = 50;

class FirstSend : public TcpTest {
 protected:
  void connect() {
    pair_ = connected_pair();
    set_option(server(), IPPROTO_TCP, TCP_NODELAY, 1);
  }
  // The client has read the greeting, and has not yet sent.
  void greet() {
    connect();
    send_all(server(), "220");
    EXPECT_EQ(recv_exactly(client(), 3), "220");
  }
  void answer(std::string_view bytes) {
    send_all(client(), "q");
    EXPECT_EQ(recv_exactly(server(), 1), "q");
    for (const char& c : bytes) send_all(server(), {&c, 1});
  }
  int client() const { return pair_.client.get(); }
  int server() const { return pair_.server.get(); }

  Pair pair_;
};

TEST_F(FirstSend, WhileAnotherThreadIsInRecv) {
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    greet();
    Sleeper reader([&] { EXPECT_EQ(recv_exactly(client(), 1), "a"); });
    answer("a");
    reader.join();
    expect_alive(client(), server());
  }
}

// The reader wakes for both at once.
TEST_F(FirstSend, WhileAnotherThreadIsInTheFirstRecv) {
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    connect();
    Sleeper reader([&] { EXPECT_EQ(recv_exactly(client(), 6), "220abc"); });
    send_all(client(), "q");
    send_all(server(), "220");
    EXPECT_EQ(recv_exactly(server(), 1), "q");
    send_all(server(), "a");
    send_all(server(), "bc");
    reader.join();
    expect_alive(client(), server());
  }
}

TEST_F(FirstSend, WhileAnotherThreadTakesByteByByte) {
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    connect();
    Sleeper reader([&] {
      for (const char c : std::string("xyzabc")) {
        char got = 0;
        EXPECT_EQ(recv(client(), &got, 1, 0), 1) << strerror(errno);
        EXPECT_EQ(got, c);
        pollfd one{client(), POLLIN, 0};
        EXPECT_EQ(poll(&one, 1, c == 'c' ? 0 : 3000), c == 'c' ? 0 : 1);
      }
    });
    send_all(server(), "xy");
    send_all(server(), "z");
    answer("abc");
    reader.join();
    expect_alive(client(), server());
  }
}

TEST_F(FirstSend, WhileAnotherThreadIsInRecvWithATimeout) {
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    greet();
    set_timeout(client(), SO_RCVTIMEO, 10'000);
    Sleeper reader([&] {
      char got[2];
      EXPECT_EQ(recv(client(), got, 2, MSG_WAITALL), 2) << strerror(errno);
    });
    answer("ab");
    reader.join();
    expect_alive(client(), server());
  }
}

TEST_F(FirstSend, WhileAnotherThreadPeeks) {
  for (const int flags : {0, int{MSG_WAITALL}})
    for (int round = 0; round < kRounds / 2 && !HasFailure(); ++round) {
      SCOPED_TRACE(round);
      greet();
      Sleeper reader([&] {
        char got[2] = {};
        EXPECT_GE(recv(client(), got, 2, MSG_PEEK | flags), flags == 0 ? 1 : 2);
        EXPECT_EQ(got[0], 'a');
      });
      answer("ab");
      reader.join();
      EXPECT_EQ(recv_exactly(client(), 2), "ab");
      expect_alive(client(), server());
    }
}

TEST_F(FirstSend, AndTheEndWhileAnotherThreadIsInRecv) {
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    greet();
    Sleeper reader([&] { EXPECT_EQ(recv_to_end(client()), "ab"); });
    answer("ab");
    pair_.server.close();
    reader.join();
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
