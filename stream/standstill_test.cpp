// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// While a program is executed the calls of all other threads stand where the record is whole.
#include "stream/standstill.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/sys.h"
#include "stream/stream_testing.h"

namespace ddpsock::engine {
namespace {

class Standing : public testing::Test {
 protected:
  Standing() { exchange(); }
  ~Standing() override {
    base::sys.send = ::send;
    base::sys.sendmsg = ::sendmsg;
    base::sys.recv = ::recv;
  }
  void exchange() {
    ASSERT_EQ(a.send(pattern(5)).count, 5);
    ASSERT_EQ(b.recv(5), pattern(5));
  }
  // In another thread, again and again; counts what reaches the kernel.
  void begin_sending() {
    sent = 0;
    base::sys.send = [](int fd, const void* data, size_t n, int flags) {
      ++sent;
      return ::send(fd, data, n, flags);
    };
    base::sys.sendmsg = [](int fd, const msghdr* m, int flags) {
      ++sent;
      return ::sendmsg(fd, m, flags);
    };
    sender = std::thread([this] {
      const Buffer one = pattern(1);
      while (!is_over) a.send(one, MSG_DONTWAIT);
    });
    while (sent == 0) usleep(100);
  }
  void stop_sending() {
    is_over = true;
    sender.join();
  }
  // False: a call was still at work after a second.
  bool stand() {
    engine.stop_calls();
    const Time give_up = base::now() + Duration::from_ms(1000);
    a.s->await_calls(give_up);
    b.s->await_calls(give_up);
    return base::now() < give_up;
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
    ASSERT_TRUE(stand());
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
  ASSERT_TRUE(stand());
  engine.resume_calls();
  const uint64_t before = sent;
  usleep(2000);
  EXPECT_EQ(sent, before);
  std::thread([&] { engine.stop_calls(), engine.resume_calls(), engine.resume_calls(); }).join();
  while (sent == before) usleep(100);
  stop_sending();
}

// A handler of who executes may want what somebody stands with; an image may be slow to load. The
// second is for all calls of a thread together.
TEST_F(Standing, NotForEver) {
  begin_sending();
  ASSERT_TRUE(stand());
  const uint64_t before = sent;
  while (sent < before + 1000) usleep(1000);
  engine.resume_calls();
  stop_sending();
}

TEST_F(Standing, NotInAChildThatWasForkedMeanwhile) {
  ASSERT_TRUE(stand());
  const pid_t child = fork();
  if (child == 0) {
    bool is_sent = false;
    std::thread([&] { is_sent = a.send(pattern(5)).count == 5; }).join();
    engine.resume_calls();  // as after an exec that fails
    std::thread([&] { is_sent &= a.send(pattern(5)).count == 5; }).join();
    _exit(is_sent ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  engine.resume_calls();
  EXPECT_EQ(b.recv(10, MSG_WAITALL).size(), 10u);
}

// Whoever ends where it stands leaves the connection to its relatives.
TEST_F(Standing, WhereTheRecordIsWhole) {
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      begin_sending();
      std::thread receiver([&] {
        for (uint8_t x;;) b.recv(&x, 1);
      });
      usleep(1000);
      const bool does_stand = stand();
      kill(getpid(), does_stand ? SIGKILL : SIGTERM);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
    Buffer some(64 * 1024);
    while (b.recv(some.data(), some.size(), MSG_DONTWAIT).is_ok()) {
    }
    exchange();
  }
}

// It has the one direction at work, so that it must not stop before it has the other.
TEST_F(Standing, NotWithTheOtherDirectionInHand) {
  TcpPair pair;
  End server{pair.server, Role::kResponder, Peer::kRequired};
  End client{pair.client, Role::kInitiator};
  ASSERT_EQ(client.send(pattern(5)).count, 5);
  static std::atomic<int> stage;
  stage = 0;
  base::sys.recv = [](int fd, void* to, size_t n, int flags) {
    if ((flags & MSG_PEEK) == 0 && stage == 0) {
      stage = 1;
      while (stage == 1) usleep(100);
    }
    return ::recv(fd, to, n, flags);
  };
  std::thread receiver([&] { EXPECT_EQ(server.recv(5), pattern(5)); });
  while (stage == 0) usleep(100);
  engine.stop_calls();
  stage = 2;
  const Time give_up = base::now() + Duration::from_ms(900);
  server.s->await_calls(give_up);
  EXPECT_LT(base::now(), give_up);
  engine.resume_calls();
  receiver.join();
}

// The number is another's when the program could not be executed.
TEST_F(Standing, AsksAgainWhatItsNumberMeans) {
  TcpPair other;
  ASSERT_TRUE(stand());
  static std::atomic<pid_t> thread;
  thread = 0;
  Io io{};
  std::thread late([&] {
    thread = gettid();
    io = a.send(pattern(5));
  });
  while (thread == 0) usleep(100);
  usleep(20'000);
  ASSERT_EQ(dup2(other.client, a.fd), a.fd);
  engine.resume_calls();
  late.join();
  EXPECT_EQ(io.error, EBADF);
  char byte;
  EXPECT_EQ(::recv(other.server, &byte, 1, MSG_DONTWAIT), -1);
}

}  // namespace
}  // namespace ddpsock::engine
