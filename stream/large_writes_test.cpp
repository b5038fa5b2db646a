// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A write that takes several calls of the kernel's is one on TCP all the same: no short segment in
// the middle, for whose acknowledgement the next one would wait (Nagle).
#include <errno.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

#include "base/socket_option.h"
#include "base/sys.h"
#include "stream/stream_testing.h"

namespace ddpsock::engine {
namespace {

bool has(int fd, int option) {
  return base::socket_option(fd, IPPROTO_TCP, option) == 1;
}

// Was the socket corked, in each call that handed FPDUs to the kernel, and where one waited?
std::vector<bool> corked, corked_asleep;

class LargeWrites : public testing::Test {
 protected:
  LargeWrites() {
    set(TCP_NODELAY, 0);
    EXPECT_EQ(a.send(pattern(1)).count, 1);
    corked.clear();
    corked_asleep.clear();
    base::sys.send = [](int fd, const void* from, size_t n, int flags) {
      corked.push_back(has(fd, TCP_CORK));
      return ::send(fd, from, n, flags);
    };
    base::sys.sendmsg = [](int fd, const msghdr* m, int flags) {
      corked.push_back(has(fd, TCP_CORK));
      return ::sendmsg(fd, m, flags);
    };
    base::sys.poll = [](pollfd* fds, nfds_t count, int ms) {
      if (count == 1 && ms != 0) corked_asleep.push_back(has(fds->fd, TCP_CORK));
      return ::poll(fds, count, ms);
    };
  }
  ~LargeWrites() override { base::sys = real_; }

  void set(int option, int value) const {
    ASSERT_TRUE(base::set_socket_option(a.fd, IPPROTO_TCP, option, value));
  }
  // Whether or not there is somebody who reads.
  void write(size_t size, int flags = 0) {
    Buffer all = pattern(size);
    std::thread reader([&] {
      if (flags == 0) {
        EXPECT_EQ(b.recv(1 + size, MSG_WAITALL).size(), 1 + size);
      }
    });
    const Io io = a.send(all, flags);
    EXPECT_GT(io.count, 0);
    reader.join();
  }

  const base::SysCalls real_ = base::sys;
  TcpPair tcp{};
  End a{tcp.client, Role::kInitiator};
  End b{tcp.server, Role::kResponder};
};

constexpr size_t kOne = 4000, kSeveral = 900'001;

TEST_F(LargeWrites, OneCallIsNotHeldBack) {
  write(kOne);
  EXPECT_EQ(corked, std::vector<bool>{false});
}

TEST_F(LargeWrites, SeveralCallsAreHeldBackUntilTheLast) {
  write(kSeveral);
  EXPECT_GT(corked.size(), 2u);
  EXPECT_EQ(corked, std::vector<bool>(corked.size(), true));
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

TEST_F(LargeWrites, WithoutNagleNothingIs) {
  set(TCP_NODELAY, 1);
  write(kSeveral);
  EXPECT_EQ(corked, std::vector<bool>(corked.size(), false));
  EXPECT_TRUE(has(a.fd, TCP_NODELAY));
}

TEST_F(LargeWrites, TheProgramsCorkStays) {
  set(TCP_CORK, 1);
  write(kSeveral);
  EXPECT_EQ(corked, std::vector<bool>(corked.size(), true));
  EXPECT_TRUE(has(a.fd, TCP_CORK));
  set(TCP_CORK, 0);
}

TEST_F(LargeWrites, APartIsNotHeldBack) {
  write(64 << 20, MSG_DONTWAIT);
  EXPECT_GT(corked.size(), 2u);
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

TEST_F(LargeWrites, NobodySleepsOnWhatIsHeldBack) {
  write(64 << 20);
  EXPECT_FALSE(corked_asleep.empty());
  EXPECT_EQ(corked_asleep, std::vector<bool>(corked_asleep.size(), false));
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

TEST_F(LargeWrites, ARefusalIsNotHeldBack) {
  static int refused_from;
  refused_from = 2;
  base::sys.sendmsg = [](int fd, const msghdr* m, int flags) -> ssize_t {
    if (refused_from-- > 0) return ::sendmsg(fd, m, flags);
    errno = EAGAIN;
    return -1;
  };
  write(kSeveral, MSG_DONTWAIT);
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

}  // namespace
}  // namespace ddpsock::engine
