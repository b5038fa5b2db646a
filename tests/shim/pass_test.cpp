// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Descriptors that go to another process through a UNIX socket (SCM_RIGHTS). What is in DDPMODE
// returns to plain TCP first (leaving_test.cpp). With one-sided operations it stays: sendmsg says
// EOPNOTSUPP, and nothing else is changed by the attempt.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <thread>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Pass : public TcpTest {
 protected:
  Pass() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    here_ = Fd(ends[0]);
    there_ = Fd(ends[1]);
  }

  // One byte and descriptors.
  struct Parcel {
    explicit Parcel(std::initializer_list<int> fds) {
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      if (fds.size() == 0) return;
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(c), fds.begin(), fds.size() * sizeof(int));
    }
    Parcel(const Parcel&) = delete;
    char byte = 'x';
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, 256> control{};
    msghdr message{};
  };

  ssize_t pass(std::initializer_list<int> fds) {
    const Parcel parcel(fds);
    return sendmsg(here_.get(), &parcel.message, 0);
  }
  // The first that was passed.
  Fd take() {
    char byte;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, 256> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    EXPECT_EQ(recvmsg(there_.get(), &message, MSG_CMSG_CLOEXEC), 1);
    const cmsghdr* c = CMSG_FIRSTHDR(&message);
    if (c == nullptr) return Fd();
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return Fd(fd);
  }
  void expect_nothing_passed() {
    char byte;
    EXPECT_EQ(recv(there_.get(), &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
  }

  Fd here_, there_;
};

bool stays() {
  return column() == Column::kOneSided;
}

TEST_F(Pass, AConnectedSocket) {
  Pair pair = connected_pair();
  for (int i = 0; i < 2; ++i) {
    if (stays()) {
      EXPECT_EQ(pass({pair.client.get()}), -1);
      EXPECT_EQ(errno, EOPNOTSUPP);
      expect_nothing_passed();
    } else {
      EXPECT_EQ(pass({pair.client.get()}), 1);
      const Fd copy = take();
      expect_alive(copy.get(), pair.server.get());
    }
    // Once more when both ends have spoken.
    expect_alive(pair.client.get(), pair.server.get());
  }
}

TEST_F(Pass, AConnectedSocketAmongOthers) {
  const Pair pair = connected_pair();
  const Fd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const ssize_t passed = pass({file.get(), pair.server.get(), file.get()});
  EXPECT_EQ(passed, stays() ? -1 : 1);
  expect_alive(pair.client.get(), pair.server.get());
}

TEST_F(Pass, InABatch) {
  const Pair pair = connected_pair();
  const Parcel first({}), second({pair.client.get()});
  std::array<mmsghdr, 2> both{{{first.message, 0}, {second.message, 0}}};
  EXPECT_EQ(sendmmsg(here_.get(), both.data(), 2, 0), stays() ? 1 : 2);
  if (stays()) {
    EXPECT_EQ(sendmmsg(here_.get(), &both[1], 1, 0), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  EXPECT_LT(take().get(), 0);
}

TEST_F(Pass, AnotherProcessAcceptsFromAListener) {
  Listener listener = listen_loopback();
  Child worker([&] {
    here_.close();
    listener.fd.close();
    const Fd mine = take();
    const Fd connection = accept_one(mine.get());
    EXPECT_EQ(recv_exactly(connection.get(), 50'000), pattern(50'000));
    send_all(connection.get(), pattern(70'000, 2));
  });
  EXPECT_EQ(pass({listener.fd.get()}), 1);
  const Fd client = dial(listener.address);
  send_all(client.get(), pattern(50'000));
  EXPECT_EQ(recv_to_end(client.get()), pattern(70'000, 2));
  worker.expect_success();
}

TEST_F(Pass, ASocketBeforeItConnects) {
  const Listener listener = listen_loopback();
  const Fd early = make_client_socket();
  EXPECT_EQ(pass({early.get()}), 1);
  const Fd mine = take();
  ASSERT_EQ(connect_to(mine.get(), listener.address), 0);
  const Fd server = accept_one(listener.fd.get());
  expect_alive(mine.get(), server.get());
}

TEST_F(Pass, ThroughNothingDisturbsNobody) {
  const Pair pair = connected_pair();
  std::atomic<pid_t> reader_id{0};
  std::jthread reader([&] {
    reader_id = gettid();
    EXPECT_EQ(recv_exactly(pair.server.get(), 1), "x");
  });
  while (reader_id == 0) sched_yield();
  await_asleep(reader_id);
  const Parcel parcel{pair.server.get()};
  EXPECT_EQ(sendmsg(-1, &parcel.message, 0), -1);
  EXPECT_EQ(errno, EBADF);
  send_all(pair.client.get(), "x");
}

TEST_F(Pass, AFileAndNothing) {
  const Pair pair = connected_pair();
  const Fd file(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(pass({file.get()}), 1);
  const Fd copy = take();
  char byte = 'x';
  EXPECT_EQ(read(copy.get(), &byte, 1), 1);
  EXPECT_EQ(pass({}), 1);
  EXPECT_LT(take().get(), 0);
}

}  // namespace
}  // namespace ddpsock::shim_tests
