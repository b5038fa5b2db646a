// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads in recv on a connection in which another one waits.
#include <pthread.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>

#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class WaitingReaders : public TcpTest {
 protected:
  WaitingReaders() {
    expect_alive(client_, server_);
    expect_alive(client_, server_);
  }
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get(), server_ = pair_.server.get();
};

// Its turn has not come, and may never.
TEST_F(WaitingReaders, OneBehindAnotherIsCancelled) {
  std::string first(3, 0);
  Sleeper reader([&] { EXPECT_EQ(recv(server_, first.data(), 3, MSG_WAITALL), 3); });
  std::atomic<pthread_t> thread{0};
  Sleeper behind([&] {
    thread = pthread_self();
    char byte;
    recv(server_, &byte, 1, 0);
  });
  EXPECT_EQ(pthread_cancel(thread), 0);
  behind.join();
  send_all(client_, "abc");
  reader.join();
  EXPECT_EQ(first, "abc");
}

}  // namespace
}  // namespace ddpsock::shim_tests
