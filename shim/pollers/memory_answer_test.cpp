// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// This program contains the wrappers; its streams say of their memory what a test tells them, so
// that it shows whom an answer is from.
#include "shim/pollers/memory_answer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "base/kernel_call.h"
#include "shim/real.h"
#include "shim/test_parts.h"

namespace ddpsock::shim {
namespace {

using test::policy;

int asked = 0;
decltype(real.poll) kernels_poll;

class MemoryAnswerTest : public testing::Test {
 protected:
  // Two connections whose connecting ends are in DDPMODE, in memory, with nothing to read; the
  // kernel has just had its turn.
  MemoryAnswerTest() {
    test::reset_parts();
    engine::MemoryPart::note_memory_in_use();
    policy.is_active = true;
    policy.connect = policy.established = Mode::kProved;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener, 4), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    for (size_t i = 0; i < fds.size(); ++i) {
      glance(i) = {.may_be_in_memory = true, .is_in_memory = true};
      test::engine.have_memory_room[i] = true;
      fds[i] = socket(AF_INET, SOCK_STREAM, 0);
      EXPECT_EQ(connect(fds[i], reinterpret_cast<sockaddr*>(&address), length), 0);
      peers[i] = static_cast<int>(base::kernel_call(SYS_accept4, listener, nullptr, nullptr, 0));
    }
    close(listener);
    kernels_poll = real.poll;
    real.poll = [](pollfd* all, nfds_t count, int ms) {
      ++asked;
      return kernels_poll(all, count, ms);
    };
    begin_millisecond();
  }
  ~MemoryAnswerTest() override {
    real.poll = kernels_poll;
    for (const int fd : {fds[0], fds[1], peers[0], peers[1]}) close(fd);
  }

  static engine::Glance& glance(size_t i) { return test::engine.glances[i]; }
  void begin_millisecond() {
    for (const int fd : fds)
      socket_at(fd)->kernel_asked_at.store((base::now() + Duration::from_ms(1000)).ns);
    asked = 0;
  }
  void end_millisecond() {
    for (const int fd : fds) socket_at(fd)->kernel_asked_at.store(0);
  }
  // What is so of both.
  std::array<short, 2> ask(short first, short second) {
    pollfd both[]{{fds[0], first, 0}, {fds[1], second, 0}};
    poll(both, 2, 0);
    return {both[0].revents, both[1].revents};
  }
  using Two = std::array<short, 2>;

  std::array<int, 2> fds{-1, -1}, peers{-1, -1};
};

TEST_F(MemoryAnswerTest, IsGivenWithoutTheKernel) {
  glance(1).has_bytes = true;
  EXPECT_EQ(ask(POLLIN, POLLIN), (Two{0, POLLIN}));
  EXPECT_EQ(ask(POLLIN, POLLIN | POLLPRI | POLLRDHUP), (Two{0, POLLIN}));
  EXPECT_EQ(ask(POLLOUT, POLLRDNORM), (Two{POLLOUT, POLLRDNORM}));
  EXPECT_EQ(ask(0, POLLIN), (Two{0, POLLIN}));
  fd_set in, out;
  FD_ZERO(&in);
  FD_ZERO(&out);
  FD_SET(fds[0], &in);
  FD_SET(fds[1], &in);
  FD_SET(fds[0], &out);
  EXPECT_EQ(select(fds[1] + 1, &in, &out, nullptr, nullptr), 2);
  EXPECT_FALSE(FD_ISSET(fds[0], &in));
  EXPECT_TRUE(FD_ISSET(fds[1], &in));
  EXPECT_TRUE(FD_ISSET(fds[0], &out));
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(test::engine.settled[0] + test::engine.settled[1], 0);
}

TEST_F(MemoryAnswerTest, IsNotThatNothingIsReady) {
  EXPECT_EQ(ask(POLLIN, POLLIN), (Two{0, 0}));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(test::engine.settled[0], 1) << "before the kernel is asked";
  EXPECT_EQ(test::engine.settled[1], 1);
  EXPECT_EQ(ask(POLLOUT, POLLIN), (Two{POLLOUT, 0}));
  EXPECT_EQ(test::engine.settled[0], 1);
}

// The kernel says of the other that there is something, which is what the peer has written by
// itself.
TEST_F(MemoryAnswerTest, LeavesToTheKernelWhatMemoryMayNotKnow) {
  EXPECT_EQ(base::kernel_call(SYS_write, peers[0], "b", 1), 1);
  glance(1).has_bytes = true;
  const auto expect_kernels = [this](const char* why) {
    begin_millisecond();
    EXPECT_EQ(ask(POLLIN, POLLIN), (Two{POLLIN, POLLIN})) << why;
    EXPECT_GT(asked, 0) << why;
    glance(0) = {.may_be_in_memory = true, .is_in_memory = true};
    test::engine.are_ended[0] = false;
    begin_millisecond();
    EXPECT_EQ(ask(POLLIN, POLLIN), (Two{0, POLLIN})) << why;
    EXPECT_EQ(asked, 0) << why;
  };
  glance(0).is_wire_in_use = true;
  expect_kernels("an FPDU");
  glance(0).may_have_ended = true;
  expect_kernels("an end");
  glance(0).is_in_memory = false;
  expect_kernels("not in memory");
  test::engine.are_ended[0] = true;
  expect_kernels("an end or an error of one's own");
}

TEST_F(MemoryAnswerTest, LeavesWritabilityToTheKernelWhereMemoryIsFull) {
  glance(1).has_bytes = true;
  test::engine.have_memory_room[0] = false;
  EXPECT_EQ(ask(POLLOUT, POLLIN), (Two{POLLOUT, POLLIN}));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(ask(POLLIN, POLLIN), (Two{0, POLLIN}));
  EXPECT_EQ(asked, 1) << "it is not asked for";
  test::engine.have_memory_room[0] = true;
  EXPECT_EQ(ask(POLLOUT, POLLIN), (Two{POLLOUT, POLLIN}));
  EXPECT_EQ(asked, 1);
}

TEST_F(MemoryAnswerTest, ABlockingSendMustFindRoom) {
  glance(1).has_bytes = true;
  test::engine.are_short_of_room[0] = true;
  EXPECT_EQ(ask(POLLOUT, POLLIN), (Two{0, POLLIN}));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(ask(POLLOUT, POLLIN), (Two{POLLOUT, POLLIN}));
  EXPECT_EQ(asked, 1);
}

TEST_F(MemoryAnswerTest, TheKernelHasItsTurn) {
  glance(1).has_bytes = true;
  end_millisecond();
  EXPECT_EQ(ask(POLLIN, POLLIN), (Two{0, POLLIN}));
  EXPECT_EQ(asked, 1);
  // An end of which memory knows nothing, once it was told, is told each time.
  EXPECT_EQ(base::kernel_call(SYS_shutdown, peers[0], SHUT_WR), 0);
  end_millisecond();
  EXPECT_EQ(ask(POLLIN, POLLIN), (Two{POLLIN, POLLIN}));
  begin_millisecond();
  EXPECT_EQ(ask(POLLIN, POLLIN), (Two{POLLIN, POLLIN}));
  EXPECT_EQ(ask(POLLIN | POLLRDHUP, POLLIN), (Two{POLLIN | POLLRDHUP, POLLIN}));
}

// A bell of which the bytes were taken.
TEST_F(MemoryAnswerTest, TheKernelsTurnTellsOfNoBell) {
  glance(1).has_bytes = true;
  EXPECT_EQ(base::kernel_call(SYS_write, peers[0], "b", 1), 1);
  for (int turn = 0; turn < 3; ++turn) {
    end_millisecond();
    EXPECT_EQ(ask(POLLIN, POLLIN), (Two{0, POLLIN}));
  }
}

TEST_F(MemoryAnswerTest, ANumberThatWasClosedIsNone) {
  glance(0).has_bytes = glance(1).has_bytes = true;
  const int closed = fds[0];
  close(closed);
  pollfd both[]{{closed, POLLIN, 0}, {fds[1], POLLIN, 0}};
  EXPECT_EQ(poll(both, 2, 0), 2);
  EXPECT_EQ(both[0].revents, POLLNVAL);
  EXPECT_EQ(both[1].revents, POLLIN);
}

}  // namespace
}  // namespace ddpsock::shim
