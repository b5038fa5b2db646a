// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Timeouts as TCP has them: SO_RCVTIMEO is for the whole call, bytes that come one by one, too few
// for what it wants, do not make it longer; and TCP_USER_TIMEOUT ends what the peer does not take.
#include <errno.h>
#include <netinet/tcp.h>

#include <atomic>
#include <string>
#include <thread>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr size_t kWanted = 300;

class Timeouts : public TcpTest {
 protected:
  // The peer sends as long as the call goes on.
  size_t receive_of_a_trickle(int flags) {
    std::atomic<bool> is_over{false};
    std::thread peer([&] {
      for (size_t i = 0; i < kWanted && !is_over; ++i) {
        send_all(pair_.client.get(), "x");
        sleep_ms(5);
      }
    });
    std::string room(kWanted, 0);
    const ssize_t n = recv(pair_.server.get(), room.data(), room.size(), flags);
    is_over = true;
    peer.join();
    EXPECT_GT(n, 0) << errno;
    return static_cast<size_t>(n);
  }
  void begin() {
    // Both ends have read the other's first words, and are where they will be.
    for (int i = 0; i < 3; ++i) expect_alive(pair_.client.get(), pair_.server.get());
    set_timeout(pair_.server.get(), SO_RCVTIMEO, 200);
  }

  const Pair pair_ = connected_pair();
};

TEST_F(Timeouts, AreOfTheWholeCall) {
  begin();
  EXPECT_LT(receive_of_a_trickle(MSG_WAITALL), kWanted);
}

TEST_F(Timeouts, AreOfAWholeLook) {
  begin();
  EXPECT_LT(receive_of_a_trickle(MSG_WAITALL | MSG_PEEK), kWanted);
}

TEST_F(Timeouts, CountFromTheFirstWordsToo) {
  set_timeout(pair_.server.get(), SO_RCVTIMEO, 200);
  EXPECT_LT(receive_of_a_trickle(MSG_WAITALL), kWanted);
}

// A part that comes late in the first sleep gives the call no second timeout.
TEST_F(Timeouts, CountTheFirstSleepToo) {
  for (int i = 0; i < 3; ++i) expect_alive(pair_.client.get(), pair_.server.get());
  set_timeout(pair_.server.get(), SO_RCVTIMEO, 1000);
  for (const int how : {int{MSG_PEEK}, 0}) {
    std::thread peer([&] {
      sleep_ms(800);
      send_all(pair_.client.get(), "part!");
    });
    const int64_t start = now_ms();
    char room[10];
    EXPECT_EQ(recv(pair_.server.get(), room, sizeof room, MSG_WAITALL | how), 5);
    EXPECT_LT(now_ms() - start, 1500);
    peer.join();
    if (how != 0) recv_exactly(pair_.server.get(), 5);
  }
}

// The peer lives and reads nothing.
TEST_F(Timeouts, TcpUserTimeoutEndsABlockedSend) {
  begin();
  const int client = pair_.client.get();
  set_option(client, IPPROTO_TCP, TCP_USER_TIMEOUT, 1'000);
  const std::string bytes = pattern(100'000);
  ssize_t sent;
  while ((sent = send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL)) > 0) {
  }
  EXPECT_EQ(sent, -1);
  // Beside one-sided operations the library's thread may be told first, and keeps it for recv.
  if (column() == Column::kOneSided && errno == EPIPE) {
    char byte;
    EXPECT_EQ(recv(client, &byte, 1, 0), -1);
  }
  EXPECT_EQ(errno, ETIMEDOUT);
}

}  // namespace
}  // namespace ddpsock::shim_tests
