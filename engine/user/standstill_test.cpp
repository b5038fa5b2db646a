// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// While a program is executed the calls of all other threads stand where the record is whole.
#include "engine/user/standstill.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/sys.h"
#include "engine/user/stream_testing.h"

namespace ddpsock::engine {
namespace {

class Standing : public testing::Test {
 protected:
  Standing() { exchange(); }
  void exchange() {
    ASSERT_EQ(a.send(pattern(5)).count, 5);
    ASSERT_EQ(b.recv(5), pattern(5));
  }
  // In another thread, again and again; counts what reaches the kernel.
  void begin_sending() {
    base::sys.send = [](int fd, const void* data, size_t n, int flags) {
      ++sent;
      return ::send(fd, data, n, flags);
    };
    base::sys.sendmsg = [](int fd, const msghdr* m, int flags) {
      ++sent;
      return ::sendmsg(fd, m, flags);
    };
    sent = 0;
    sender = std::thread([this] {
      const Buffer one = pattern(1);
      while (!is_over) a.send(one, MSG_DONTWAIT);
    });
    while (sent == 0) usleep(100);
  }
  void stop_sending() {
    is_over = true;
    sender.join();
    base::sys.send = ::send;
    base::sys.sendmsg = ::sendmsg;
  }
  void stand() {
    engine.stop_calls();
    a.s->await_calls();
  }

  StreamEngine& engine = user_stream_engine();
  TcpPair tcp;
  End a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  std::atomic<bool> is_over{false};
  static inline std::atomic<uint64_t> sent{0};
  std::thread sender;
};

TEST_F(Standing, CallsOfOthersAndNoneOfTheOwn) {
  begin_sending();
  for (int i = 0; i < 20; ++i) {
    stand();
    const uint64_t before = sent;
    usleep(2000);
    EXPECT_EQ(sent, before);
    uint8_t some[64 * 1024];
    while (b.recv(some, sizeof some, MSG_DONTWAIT).is_ok()) {
    }
    engine.resume_calls();
    while (sent == before) usleep(100);
  }
  stop_sending();
}

TEST_F(Standing, GoesOnAsLongAsAnybodyExecutes) {
  begin_sending();
  std::thread([&] { engine.stop_calls(); }).join();
  stand();
  engine.resume_calls();
  const uint64_t before = sent;
  usleep(2000);
  EXPECT_EQ(sent, before);
  std::thread([&] { engine.stop_calls(), engine.resume_calls(), engine.resume_calls(); }).join();
  while (sent == before) usleep(100);
  stop_sending();
}

// A handler of who executes may want what somebody stands with.
TEST_F(Standing, NotForEver) {
  begin_sending();
  stand();
  const uint64_t before = sent;
  while (sent == before) usleep(1000);
  engine.resume_calls();
  stop_sending();
}

TEST_F(Standing, NotInAChildThatWasForkedMeanwhile) {
  stand();
  const pid_t child = fork();
  if (child == 0) {
    bool is_sent = false;
    const Time start = base::now();
    std::thread([&] { is_sent = a.send(pattern(5)).count == 5; }).join();
    _exit(is_sent && base::now() - start < Duration::from_ms(500) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  engine.resume_calls();
  EXPECT_EQ(b.recv(5), pattern(5));
}

}  // namespace
}  // namespace ddpsock::engine
