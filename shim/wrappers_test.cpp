// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// This program contains the wrappers, so its own libc calls go through them; raw system calls show
// what is on the wire.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "base/kernel_call.h"
#include "ddpsock/ddpsock.h"
#include "shim/exec_environment.h"
#include "shim/fd_table.h"
#include "shim/real.h"
#include "shim/test_parts.h"

namespace ddpsock::shim {
namespace {

using test::engine;
using test::policy;
using namespace std::chrono_literals;

std::string inverted(std::string text) {
  for (char& c : text) c = static_cast<char>(~c);
  return text;
}

std::string raw_read(int fd) {
  char buffer[256];
  const long n = base::kernel_call(SYS_read, fd, buffer, sizeof(buffer));
  return n < 0 ? "error" : std::string(buffer, static_cast<size_t>(n));
}
void raw_write(int fd, const std::string& text) {
  ASSERT_EQ(base::kernel_call(SYS_write, fd, text.data(), text.size()),
            static_cast<long>(text.size()));
}

int int_option(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  return getsockopt(fd, level, name, &value, &length) == 0 ? value : -errno;
}

// A listener, and a client and a served socket connected to each other when asked.
class Wrappers : public testing::Test {
 protected:
  void SetUp() override {
    test::reset_parts();
    listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(bind(listener, where(), sizeof(address)), 0);
    socklen_t length = sizeof(address);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  }
  void TearDown() override {
    for (int fd : {client, served, listener})
      if (fd >= 0) close(fd);
  }

  const sockaddr* where() const { return reinterpret_cast<const sockaddr*>(&address); }

  // Both ends in DDPMODE, blocking.
  void connect_pair() {
    policy.is_active = true;
    policy.connect = policy.established = policy.accept = Mode::kProved;
    ASSERT_EQ(listen(listener, 5), 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(client, where(), sizeof(address)), 0) << strerror(errno);
    served = accept(listener, nullptr, nullptr);
    ASSERT_GE(served, 0);
  }

  void start_connect() {
    policy.is_active = true;
    policy.connect = policy.established = policy.accept = Mode::kProved;
    ASSERT_EQ(listen(listener, 5), 0);
    client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ASSERT_EQ(connect(client, where(), sizeof(address)), -1);
    ASSERT_EQ(errno, EINPROGRESS);
    ASSERT_EQ(engine.opened, 1);
    ASSERT_EQ(engine.completed, 0);
  }

  int listener = -1, client = -1, served = -1;
  sockaddr_in address{};
};

TEST_F(Wrappers, NothingHappensWithoutPolicyOrWish) {
  ASSERT_EQ(listen(listener, 5), 0);
  client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, where(), sizeof(address)), 0);
  served = accept(listener, nullptr, nullptr);
  ASSERT_EQ(write(client, "hi", 2), 2);
  EXPECT_EQ(raw_read(served), "hi");
  EXPECT_EQ(engine.opened, 0);
  EXPECT_EQ(policy.asked, 0);
  EXPECT_EQ(policy.listeners, 0);
}

TEST_F(Wrappers, ConnectAndAcceptOpenStreams) {
  connect_pair();
  EXPECT_EQ(engine.opened, 2);
  EXPECT_EQ(engine.completed, 1);
  EXPECT_TRUE(engine.waited);
  EXPECT_EQ(policy.listeners, 1);
  EXPECT_EQ(policy.late_listeners, 0) << "a client could have come before";
  ASSERT_EQ(write(client, "hello", 5), 5);
  EXPECT_EQ(raw_read(served), inverted("hello"));
  raw_write(client, inverted("back"));
  char buffer[8] = {};
  EXPECT_EQ(read(served, buffer, sizeof(buffer)), 4);
  EXPECT_STREQ(buffer, "back");
}

// Another thread closes a listener, and takes its number for another, while accept returns.
TEST_F(Wrappers, WhatAListenerAcceptedIsJudgedByThatListener) {
  static int number, other;
  number = listener;
  other = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(listen(other, 5), 0);
  const int wish = DDP_MODE_STREAM;
  ASSERT_EQ(setsockopt(listener, SOL_DDP, DDP_MODE, &wish, sizeof wish), 0);
  policy.connect = policy.established = policy.accept = Mode::kPlain;
  ASSERT_EQ(listen(listener, 5), 0);
  client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, where(), sizeof(address)), 0);
  static const auto accept_of_libc = real.accept;
  real.accept = [](int fd, sockaddr* from, socklen_t* length) {
    const int accepted = accept_of_libc(fd, from, length);
    dup2(other, number);
    return accepted;
  };
  served = accept(listener, nullptr, nullptr);
  real.accept = accept_of_libc;
  ASSERT_GE(served, 0);
  EXPECT_EQ(engine.opened, 1);
  close(other);
}

// Another thread closes the number while accept returns; the listener lives on by another.
TEST_F(Wrappers, WhatAListenerAcceptedIsJudgedByItsOtherNumber) {
  static int number;
  number = listener;
  policy.is_active = true;
  ASSERT_EQ(listen(listener, 5), 0);
  const int other = dup(listener);
  client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, where(), sizeof(address)), 0);
  static const auto accept_of_libc = real.accept;
  real.accept = [](int fd, sockaddr* from, socklen_t* length) {
    const int accepted = accept_of_libc(fd, from, length);
    close(number);
    return accepted;
  };
  served = accept(listener, nullptr, nullptr);
  real.accept = accept_of_libc;
  ASSERT_GE(served, 0);
  EXPECT_EQ(policy.last_listener, other);
  listener = other;
}

TEST_F(Wrappers, AnAcceptThatFailsLeavesTheKernelsErrno) {
  policy.is_active = true;
  // One that is known, and one that accept finds.
  ASSERT_EQ(listen(listener, 5), 0);
  const auto found = static_cast<int>(base::kernel_call(SYS_socket, AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(base::kernel_call(SYS_listen, found, 5), 0);
  static int error;
  static const auto accept_of_libc = real.accept;
  real.accept = [](int, sockaddr*, socklen_t*) {
    errno = error;
    return -1;
  };
  for (const int fd : {listener, found})
    for (const int each : {EAGAIN, EMFILE, ENFILE, ECONNABORTED, EINTR, EINVAL}) {
      error = each;
      EXPECT_EQ(accept(fd, nullptr, nullptr), -1);
      EXPECT_EQ(errno, each) << fd;
    }
  real.accept = accept_of_libc;
  close(found);
}

TEST_F(Wrappers, EverySendingCallIsRouted) {
  connect_pair();
  char a[] = "ab", b[] = "cd";
  const iovec parts[] = {{a, 2}, {b, 2}};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = 2;
  EXPECT_EQ(send(client, "abcd", 4, MSG_NOSIGNAL), 4);
  EXPECT_EQ(raw_read(served), inverted("abcd"));
  EXPECT_EQ(sendto(client, "abcd", 4, 0, where(), sizeof(address)), 4);
  EXPECT_EQ(raw_read(served), inverted("abcd"));
  EXPECT_EQ(writev(client, parts, 2), 4);
  EXPECT_EQ(raw_read(served), inverted("abcd"));
  EXPECT_EQ(pwritev2(client, parts, 2, -1, 0), 4);
  EXPECT_EQ(raw_read(served), inverted("abcd"));
  EXPECT_EQ(sendmsg(client, &message, 0), 4);
  EXPECT_EQ(raw_read(served), inverted("abcd"));
  mmsghdr both[2] = {{message, 0}, {message, 0}};
  EXPECT_EQ(sendmmsg(client, both, 2, 0), 2);
  EXPECT_EQ(both[1].msg_len, 4u);
  EXPECT_EQ(raw_read(served), inverted("abcdabcd"));
}

TEST_F(Wrappers, EveryReceivingCallIsRouted) {
  connect_pair();
  char buffer[8] = {};
  iovec part{buffer, 4};
  const auto expect_data = [&](ssize_t n) {
    EXPECT_EQ(n, 4);
    EXPECT_STREQ(buffer, "data");
    memset(buffer, 0, sizeof(buffer));
  };
  const auto feed = [&] { raw_write(served, inverted("data")); };
  feed();
  expect_data(read(client, buffer, 4));
  feed();
  expect_data(readv(client, &part, 1));
  feed();
  expect_data(preadv2(client, &part, 1, -1, 0));
  feed();
  expect_data(recv(client, buffer, 4, MSG_PEEK));
  expect_data(recv(client, buffer, 4, MSG_WAITALL));
  sockaddr_in from{};
  socklen_t length = sizeof(from);
  feed();
  expect_data(recvfrom(client, buffer, 4, 0, reinterpret_cast<sockaddr*>(&from), &length));
  EXPECT_EQ(length, 0u);
  char control[64];
  msghdr message{&from, sizeof(from), &part, 1, control, sizeof(control), -1};
  feed();
  expect_data(recvmsg(client, &message, 0));
  EXPECT_EQ(message.msg_namelen, 0u);
  EXPECT_EQ(message.msg_controllen, 0u);
  EXPECT_EQ(message.msg_flags, 0);
  mmsghdr two[2] = {{message, 0}, {message, 0}};
  feed();
  EXPECT_EQ(recvmmsg(client, two, 2, MSG_WAITFORONE, nullptr), 1);
  EXPECT_STREQ(buffer, "data");
  EXPECT_EQ(read(client, buffer, 0), 0);
}

TEST_F(Wrappers, FlagsThatTcpWouldRefuseOrTheStreamCannotHave) {
  connect_pair();
  EXPECT_EQ(send(client, "x", 1, MSG_OOB), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(send(client, "x", 1, MSG_FASTOPEN), -1);
  EXPECT_EQ(errno, EISCONN);
  EXPECT_EQ(send(client, "x", 1, MSG_ZEROCOPY), 1) << "without SO_ZEROCOPY it means nothing";
  char c;
  EXPECT_EQ(recv(client, &c, 1, MSG_OOB), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(recv(client, &c, 1, MSG_ERRQUEUE), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(recv(client, &c, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Wrappers, SoErrorCompletesAConnect) {
  start_connect();
  served = accept(listener, nullptr, nullptr);
  EXPECT_EQ(int_option(client, SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(engine.completed, 1);
  EXPECT_FALSE(engine.waited);
  EXPECT_EQ(write(client, "x", 1), 1);
  EXPECT_EQ(raw_read(served), inverted("x"));
}

TEST_F(Wrappers, ASecondConnectCompletesTheFirst) {
  start_connect();
  served = accept(listener, nullptr, nullptr);
  EXPECT_TRUE(connect(client, where(), sizeof(address)) == 0 || errno == EISCONN);
  EXPECT_EQ(engine.completed, 1);
  EXPECT_EQ(connect(client, where(), sizeof(address)), -1);
  EXPECT_EQ(errno, EISCONN);
  EXPECT_EQ(engine.completed, 1);
}

TEST_F(Wrappers, TheFirstWriteCompletesAConnect) {
  start_connect();
  served = accept(listener, nullptr, nullptr);
  EXPECT_EQ(write(client, "x", 1), 1);
  EXPECT_EQ(engine.completed, 1);
  EXPECT_EQ(raw_read(served), inverted("x"));
}

TEST_F(Wrappers, PollersCompleteAConnect) {
  start_connect();
  pollfd p{client, POLLOUT, 0};
  EXPECT_EQ(poll(&p, 1, 1000), 1);
  EXPECT_EQ(engine.completed, 1);
}

TEST_F(Wrappers, SelectCompletesAConnect) {
  start_connect();
  fd_set writers;
  FD_ZERO(&writers);
  FD_SET(client, &writers);
  timeval timeout{1, 0};
  EXPECT_EQ(select(client + 1, nullptr, &writers, nullptr, &timeout), 1);
  EXPECT_TRUE(FD_ISSET(client, &writers));
  EXPECT_EQ(engine.completed, 1);
}

TEST_F(Wrappers, EpollCompletesAConnect) {
  start_connect();
  const int set = epoll_create1(0);
  epoll_event event{.events = EPOLLOUT, .data = {.u64 = 99}};
  ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, client, &event), 0);
  EXPECT_EQ(epoll_wait(set, &event, 1, 1000), 1);
  EXPECT_EQ(uint64_t{event.data.u64}, 99u);
  EXPECT_EQ(engine.completed, 1);
  close(set);
}

TEST_F(Wrappers, ARefusedConnectLeavesAnOrdinarySocket) {
  policy.is_active = true;
  policy.connect = Mode::kProved;
  client = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(client, where(), sizeof(address)), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(engine.opened, 0);
  connect_pair();
}

TEST_F(Wrappers, ARefusedNonBlockingConnectGivesTheStreamUp) {
  policy.is_active = true;
  policy.connect = Mode::kProved;
  client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  connect(client, where(), sizeof(address));
  pollfd p{client, POLLOUT, 0};
  EXPECT_EQ(poll(&p, 1, 1000), 1);
  EXPECT_EQ(int_option(client, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
  EXPECT_EQ(engine.opened, engine.released);
}

TEST_F(Wrappers, TheLastWordMayBePlain) {
  policy.is_active = true;
  policy.connect = Mode::kProved;
  policy.established = Mode::kPlain;
  ASSERT_EQ(listen(listener, 5), 0);
  client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, where(), sizeof(address)), 0);
  served = accept(listener, nullptr, nullptr);
  EXPECT_EQ(engine.released, 1);
  EXPECT_EQ(write(client, "x", 1), 1);
  EXPECT_EQ(raw_read(served), "x");
  ddp_status status{};
  socklen_t length = sizeof(status);
  ASSERT_EQ(getsockopt(client, SOL_DDP, DDP_STATUS, &status, &length), 0);
  EXPECT_EQ(status.mode, unsigned{DDP_MODE_OFF});
  EXPECT_STREQ(status.reason, "as the test says after all");
}

TEST_F(Wrappers, AFullEngineFailsAProvedConnection) {
  engine.is_full = true;
  policy.is_active = true;
  policy.connect = Mode::kProved;
  ASSERT_EQ(listen(listener, 5), 0);
  client = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(client, where(), sizeof(address)), -1);
  EXPECT_EQ(errno, ENOBUFS);
}

TEST_F(Wrappers, APlainPeerFoundLaterIsServedByLibc) {
  connect_pair();
  engine.finds_plain_peer = true;
  EXPECT_EQ(write(client, "plain", 5), 5);
  EXPECT_EQ(raw_read(served), "plain");
  EXPECT_EQ(engine.released, 1);
  engine.finds_plain_peer = false;
  EXPECT_EQ(write(client, "still", 5), 5);
  EXPECT_EQ(raw_read(served), "still");
}

TEST_F(Wrappers, DuplicatesShareTheStreamAndTheLastCloseReleasesIt) {
  connect_pair();
  const int spare = open("/dev/null", O_RDONLY);
  const int copies[] = {dup(client), fcntl(client, F_DUPFD, 50), fcntl(client, F_DUPFD_CLOEXEC, 50),
                        dup2(client, spare), dup3(client, 77, O_CLOEXEC)};
  for (int copy : copies) {
    ASSERT_EQ(write(copy, "x", 1), 1);
    EXPECT_EQ(raw_read(served), inverted("x"));
  }
  for (int copy : copies) close(copy);
  EXPECT_EQ(engine.released, 0);
  close(client);
  EXPECT_EQ(engine.released, 1);
  client = -1;
}

TEST_F(Wrappers, DuplicatesMadeBeforeTheConnectionShareItToo) {
  policy.is_active = true;
  const int early = socket(AF_INET, SOCK_STREAM, 0);
  const int copy = dup(early);
  connect_pair();
  const int accepted_before = served;
  ASSERT_EQ(connect(copy, where(), sizeof(address)), 0);
  served = accept(listener, nullptr, nullptr);
  EXPECT_EQ(write(early, "x", 1), 1);
  EXPECT_EQ(raw_read(served), inverted("x"));
  for (int fd : {early, copy, accepted_before}) close(fd);
}

TEST_F(Wrappers, Dup2OntoAStreamReleasesIt) {
  connect_pair();
  EXPECT_EQ(dup2(-1, client), -1);
  EXPECT_EQ(engine.released, 0);
  const int null = open("/dev/null", O_RDWR);
  EXPECT_EQ(dup2(null, client), client);
  EXPECT_EQ(engine.released, 1);
  EXPECT_EQ(write(client, "x", 1), 1);
  close(null);
}

TEST_F(Wrappers, CloseRangeReleases) {
  connect_pair();
  const int high = fcntl(client, F_DUPFD, 200);
  close(client);
  client = -1;
  EXPECT_EQ(close_range(200, ~0u, CLOSE_RANGE_CLOEXEC), 0);
  EXPECT_EQ(write(high, "x", 1), 1);
  EXPECT_EQ(close_range(200, ~0u, 0), 0);
  EXPECT_EQ(engine.released, 1);
  EXPECT_FALSE(is_ours(high));
}

TEST_F(Wrappers, ClosedBehindOurBack) {
  connect_pair();
  base::kernel_call(SYS_close, client);
  const int file = static_cast<int>(base::kernel_call(SYS_openat, AT_FDCWD, "/dev/zero", O_RDWR));
  ASSERT_EQ(file, client);
  char c = 'x';
  EXPECT_EQ(read(file, &c, 1), 1);
  EXPECT_EQ(c, '\0');
  EXPECT_FALSE(is_ours(file));
}

TEST_F(Wrappers, ASocketThatTakesAStaleNumberIsFresh) {
  connect_pair();
  base::kernel_call(SYS_close, client);
  const int next = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(next, client);
  EXPECT_FALSE(is_ours(next));
}

TEST_F(Wrappers, AForkedChildHasTheStreamToo) {
  connect_pair();
  const pid_t child = fork();
  if (child == 0) {
    const bool is_right =
        write(client, "child", 5) == 5 && close(client) == 0 && engine.released == 1;
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(raw_read(served), inverted("child"));
  EXPECT_EQ(engine.released, 0);
  EXPECT_EQ(write(client, "parent", 6), 6);
  EXPECT_EQ(raw_read(served), inverted("parent"));
}

[[gnu::noinline]] pid_t close_in_vfork_child(int fd) {
  const pid_t child = vfork();
  if (child == 0) {
    close(fd);
    _exit(0);
  }
  return child;
}

TEST_F(Wrappers, AVforkChildLeavesTheTableAlone) {
  connect_pair();
  waitpid(close_in_vfork_child(client), nullptr, 0);
  EXPECT_EQ(engine.released, 0);
  EXPECT_EQ(write(client, "x", 1), 1);
  EXPECT_EQ(raw_read(served), inverted("x"));
}

TEST_F(Wrappers, AVforkChildOfAForkedChildLeavesItsTableAlone) {
  connect_pair();
  const pid_t child = fork();
  if (child == 0) {
    waitpid(close_in_vfork_child(client), nullptr, 0);
    const bool is_right = engine.released == 0 && write(client, "x", 1) == 1;
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(raw_read(served), inverted("x"));
}

TEST_F(Wrappers, CloseDuringAReadReleasesAfterIt) {
  connect_pair();
  std::thread reader([&] {
    char c;
    EXPECT_EQ(read(served, &c, 1), 1);
    EXPECT_EQ(c, 'x');
  });
  std::this_thread::sleep_for(50ms);
  close(served);
  EXPECT_EQ(engine.released, 0);
  EXPECT_EQ(write(client, "x", 1), 1);
  reader.join();
  EXPECT_EQ(engine.released, 1);
  served = -1;
}

TEST_F(Wrappers, ACancelledReadGivesItsUseBack) {
  connect_pair();
  std::thread reader([&] {
    char c;
    read(served, &c, 1);
    ADD_FAILURE() << "was to be cancelled";
  });
  std::this_thread::sleep_for(50ms);
  pthread_cancel(reader.native_handle());
  reader.join();
  close(served);
  EXPECT_EQ(engine.released, 1);
  served = -1;
}

TEST_F(Wrappers, FionreadCountsPayload) {
  connect_pair();
  int bytes = 0;
  EXPECT_EQ(ioctl(client, FIONREAD, &bytes), 0);
  EXPECT_EQ(bytes, 1000);
}

TEST_F(Wrappers, PollOfABlockingSocketWithdrawsPartOfAnFpdu) {
  connect_pair();
  raw_write(served, "x");
  engine.unready = 2;
  pollfd p{client, POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  EXPECT_EQ(p.revents, 0);
  EXPECT_EQ(poll(&p, 1, 1000), 1) << "asks the kernel again";
  EXPECT_EQ(p.revents, POLLIN);
  EXPECT_EQ(engine.unready, 0);
  const timespec second{1, 0};
  engine.unready = 1;
  EXPECT_EQ(ppoll(&p, 1, &second, nullptr), 1);
  EXPECT_EQ(engine.unready, 0);
}

TEST_F(Wrappers, ThePollersLeaveAnErrorForSoError) {
  connect_pair();
  raw_write(client, "unread");
  close(served);
  served = -1;
  engine.unready = 1;
  pollfd p{client, POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 1000), 1);
  fd_set readers;
  FD_ZERO(&readers);
  FD_SET(client, &readers);
  EXPECT_EQ(select(client + 1, &readers, nullptr, nullptr, nullptr), 1);
  const int set = epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 42}};
  epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
  EXPECT_EQ(epoll_wait(set, &event, 1, 1000), 1);
  close(set);
  EXPECT_EQ(engine.unready, 1) << "was not asked";
  EXPECT_EQ(int_option(client, SOL_SOCKET, SO_ERROR), ECONNRESET);
}

TEST_F(Wrappers, ADissolvedConnectionIsJudgedAnew) {
  connect_pair();
  sockaddr nothing{};
  nothing.sa_family = AF_UNSPEC;
  EXPECT_EQ(connect(client, &nothing, sizeof(nothing)), 0);
  EXPECT_EQ(engine.released, 1);
  close(served);
  EXPECT_EQ(connect(client, where(), sizeof(address)), 0);
  served = accept(listener, nullptr, nullptr);
  EXPECT_EQ(write(client, "x", 1), 1);
  EXPECT_EQ(raw_read(served), inverted("x"));
}

TEST_F(Wrappers, PollOfANonBlockingSocketIsTheKernelsAfterItsFirstReports) {
  connect_pair();
  raw_write(served, "x");
  int on = 1;
  ioctl(client, FIONBIO, &on);
  pollfd p{client, POLLIN, 0};
  engine.unready = 1;
  EXPECT_EQ(poll(&p, 1, 0), 0);
  for (int report = 1; report < 32; ++report) EXPECT_EQ(poll(&p, 1, 0), 1);
  engine.unready = 1;
  EXPECT_EQ(poll(&p, 1, 0), 1);
  fcntl(client, F_SETFL, 0);
  EXPECT_EQ(poll(&p, 1, 0), 0);
}

TEST_F(Wrappers, SelectWithdrawsAndKeepsTheOthers) {
  connect_pair();
  raw_write(served, "x");
  engine.unready = 1;
  fd_set readers, writers;
  const auto ask = [&] {
    FD_ZERO(&readers);
    FD_ZERO(&writers);
    FD_SET(client, &readers);
    FD_SET(client, &writers);
    timeval timeout{1, 0};
    return select(client + 1, &readers, &writers, nullptr, &timeout);
  };
  EXPECT_EQ(ask(), 1);
  EXPECT_FALSE(FD_ISSET(client, &readers));
  EXPECT_TRUE(FD_ISSET(client, &writers));
  EXPECT_EQ(ask(), 2);
  FD_CLR(client, &writers);
  engine.unready = 1;
  const timespec second{1, 0};
  EXPECT_EQ(pselect(client + 1, &readers, nullptr, nullptr, &second, nullptr), 1);
  EXPECT_TRUE(FD_ISSET(client, &readers));
}

TEST_F(Wrappers, EpollWithdrawsLevelTriggeredReportsOnly) {
  connect_pair();
  raw_write(served, "x");
  const int set = epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 42}};
  epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
  engine.unready = 1;
  EXPECT_EQ(epoll_wait(set, &event, 1, 0), 0);
  EXPECT_EQ(epoll_wait(set, &event, 1, 0), 1);
  event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = 42}};
  epoll_ctl(set, EPOLL_CTL_MOD, client, &event);
  engine.unready = 1;
  EXPECT_EQ(epoll_pwait(set, &event, 1, 0, nullptr), 1);
  close(set);
}

// What the kernel has said of the set's members holds until the program changes something.
TEST_F(Wrappers, EpollAsksOnceWhoHasTheDataOfAWatch) {
  connect_pair();
  raw_write(served, "x");
  const int set = epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 42}};
  epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
  static int reads;
  static const auto read_of_libc = real.read;
  real.read = [](int fd, void* to, size_t size) {
    ++reads;
    return read_of_libc(fd, to, size);
  };
  std::array<int, 2> asked{};
  for (int& each : asked) {
    reads = 0;
    engine.unready = 1;
    EXPECT_EQ(epoll_wait(set, &event, 1, 0), 0);
    each = reads;
    event = {.events = EPOLLIN, .data = {.u64 = 42}};
    epoll_ctl(set, EPOLL_CTL_MOD, client, &event);
  }
  real.read = read_of_libc;
  EXPECT_GT(asked[0], 0);
  EXPECT_EQ(asked[1], 0);
  close(set);
}

// Another thread waits in the set while the pipe is added.
TEST_F(Wrappers, EpollKeepsTheEdgeOfAMemberThatComesMeanwhile) {
  connect_pair();
  raw_write(served, "x");
  static int set;
  set = epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 42}};
  epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
  engine.unready = 1;
  EXPECT_EQ(epoll_wait(set, &event, 1, 0), 0);  // it is known now that nobody else has its data
  raw_read(client);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  static int reported;
  static const auto epoll_ctl_of_libc = real.epoll_ctl;
  real.epoll_ctl = [](int to, int operation, int fd, epoll_event* as) {
    const int result = epoll_ctl_of_libc(to, operation, fd, as);
    engine.unready = 1;
    epoll_event seen{};
    reported = epoll_wait(set, &seen, 1, 0);
    return result;
  };
  event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = 42}};
  EXPECT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
  real.epoll_ctl = epoll_ctl_of_libc;
  EXPECT_EQ(reported, 1);
  for (const int fd : {set, ends[0], ends[1]}) close(fd);
}

TEST_F(Wrappers, SendfileMovesTheOffsetByWhatWasSent) {
  connect_pair();
  char path[] = "/tmp/shim_sendfile_XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  ASSERT_EQ(write(file, "0123456789", 10), 10);
  off_t offset = 2;
  EXPECT_EQ(sendfile(client, file, &offset, 5), 5);
  EXPECT_EQ(offset, 7);
  EXPECT_EQ(lseek(file, 0, SEEK_CUR), 10) << "with an offset the file's own stays";
  EXPECT_EQ(raw_read(served), inverted("23456"));
  lseek(file, 8, SEEK_SET);
  EXPECT_EQ(sendfile(client, file, nullptr, 100), 2);
  EXPECT_EQ(lseek(file, 0, SEEK_CUR), 10);
  EXPECT_EQ(raw_read(served), inverted("89"));
  EXPECT_EQ(sendfile(client, file, nullptr, 100), 0);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_EQ(sendfile(client, pipes[0], nullptr, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(splice(pipes[0], nullptr, client, nullptr, 1, SPLICE_F_NONBLOCK), -1);
  EXPECT_EQ(errno, EINVAL);
  for (int fd : {file, pipes[0], pipes[1]}) close(fd);
}

// A pair in DDPMODE whose number another thread takes while a call of many parts is between two.
class TakenBetween : public Wrappers {
 protected:
  void SetUp() override {
    Wrappers::SetUp();
    connect_pair();
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, others), 0);
    number = client;
    engine.after_next = [] { dup2(others[0], number); };
  }
  void TearDown() override {
    for (int fd : others) close(fd);
    Wrappers::TearDown();
  }
  static void expect_other_got_nothing() {
    char byte;
    EXPECT_EQ(recv(others[1], &byte, 1, MSG_DONTWAIT), -1);
  }
  static inline int others[2], number;
};

TEST_F(TakenBetween, MessagesSent) {
  char text[] = "ab";
  iovec part{text, 2};
  mmsghdr both[2] = {};
  for (mmsghdr& m : both) m.msg_hdr.msg_iov = &part, m.msg_hdr.msg_iovlen = 1;
  EXPECT_EQ(sendmmsg(client, both, 2, 0), 1);
  expect_other_got_nothing();
  EXPECT_EQ(raw_read(served), inverted("ab"));
}

TEST_F(TakenBetween, MessagesReceived) {
  raw_write(served, inverted("ab"));
  raw_write(others[1], "cd");
  char text[2];
  iovec part{text, 2};
  mmsghdr both[2] = {};
  for (mmsghdr& m : both) m.msg_hdr.msg_iov = &part, m.msg_hdr.msg_iovlen = 1;
  EXPECT_EQ(recvmmsg(client, both, 2, 0, nullptr), 1);
  EXPECT_EQ(raw_read(others[0]), "cd");
}

TEST_F(TakenBetween, BurstsOfAFile) {
  const int file = memfd_create("file", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 300 * 1024), 0);
  EXPECT_EQ(sendfile(client, file, nullptr, 300 * 1024), 256 * 1024);
  expect_other_got_nothing();
  close(file);
}

TEST_F(Wrappers, AMessageSentInPartIsTheLast) {
  connect_pair();
  char text[] = "abc";
  iovec part{text, 3};
  mmsghdr both[2] = {};
  for (mmsghdr& m : both) m.msg_hdr.msg_iov = &part, m.msg_hdr.msg_iovlen = 1;
  engine.takes_at_most = 2;
  EXPECT_EQ(sendmmsg(client, both, 2, 0), 1);
  EXPECT_EQ(both[0].msg_len, 2u);
  EXPECT_EQ(raw_read(served), inverted("ab"));
}

TEST_F(Wrappers, OptionsThatWouldBreakFramingAreRefused) {
  connect_pair();
  const int one = 1;
  for (int name : {TCP_REPAIR, TCP_REPAIR_QUEUE}) {
    EXPECT_EQ(setsockopt(client, IPPROTO_TCP, name, &one, sizeof(one)), -1);
    EXPECT_EQ(errno, ENOPROTOOPT);
  }
  EXPECT_EQ(setsockopt(client, IPPROTO_TCP, TCP_ULP, "tls", 3), -1);
  EXPECT_EQ(errno, ENOPROTOOPT);
  EXPECT_EQ(setsockopt(client, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)), -1);
  EXPECT_EQ(errno, ENOPROTOOPT);
  EXPECT_EQ(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
}

TEST_F(Wrappers, LowWaterCountsPayloadAndReadsBack) {
  connect_pair();
  const int bytes = 100, negative = -1;
  EXPECT_EQ(setsockopt(client, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)), 0);
  EXPECT_EQ(int_option(client, SOL_SOCKET, SO_RCVLOWAT), 100);
  int kernels = 0;
  socklen_t length = sizeof(kernels);
  base::kernel_call(SYS_getsockopt, client, SOL_SOCKET, SO_RCVLOWAT, &kernels, &length);
  EXPECT_EQ(kernels, 1);
  setsockopt(client, SOL_SOCKET, SO_RCVLOWAT, &negative, sizeof(negative));
  const int highest = int_option(client, SOL_SOCKET, SO_RCVLOWAT);
  EXPECT_TRUE(highest > 100 && highest < INT_MAX) << highest;
}

TEST_F(Wrappers, AWishChoosesAConnection) {
  const int mode = DDP_MODE_STREAM;
  ASSERT_EQ(setsockopt(listener, SOL_DDP, DDP_MODE, &mode, sizeof(mode)), 0);
  ASSERT_EQ(listen(listener, 5), 0);
  EXPECT_EQ(policy.listeners, 1);
  client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(setsockopt(client, SOL_DDP, DDP_MODE, &mode, sizeof(mode)), 0);
  EXPECT_EQ(int_option(client, SOL_DDP, DDP_MODE), DDP_MODE_STREAM);
  ASSERT_EQ(connect(client, where(), sizeof(address)), 0);
  served = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
  EXPECT_EQ(engine.opened, 2);
  ddp_status status{};
  socklen_t length = sizeof(status);
  ASSERT_EQ(getsockopt(client, SOL_DDP, DDP_STATUS, &status, &length), 0);
  EXPECT_EQ(length, sizeof(status));
  EXPECT_EQ(status.mode, unsigned{DDP_MODE_STREAM});
  EXPECT_EQ(status.role, unsigned{DDP_ROLE_INITIATOR});
  EXPECT_STREQ(status.engine, "user");
  EXPECT_STREQ(status.reason, "as the test says");
  EXPECT_EQ(status.mpa_revision, 2u);
  const int off = DDP_MODE_OFF;
  EXPECT_EQ(setsockopt(client, SOL_DDP, DDP_MODE, &off, sizeof(off)), -1);
  EXPECT_EQ(errno, EISCONN);
  EXPECT_EQ(setsockopt(client, SOL_DDP, DDP_MODE, &mode, sizeof(mode)), -1);
  EXPECT_EQ(errno, EALREADY);
  close(listener);
  listener = -1;
  // Another process may hold it.
  EXPECT_EQ(policy.listeners, 1);
}

TEST_F(Wrappers, AWishOnAListenerComesAndGoes) {
  ASSERT_EQ(listen(listener, 5), 0);
  EXPECT_EQ(policy.listeners, 0);
  const int stream = DDP_MODE_STREAM, off = DDP_MODE_OFF;
  ASSERT_EQ(setsockopt(listener, SOL_DDP, DDP_MODE, &stream, sizeof(stream)), 0);
  EXPECT_EQ(policy.listeners, 1);
  ASSERT_EQ(setsockopt(listener, SOL_DDP, DDP_MODE, &off, sizeof(off)), 0);
  EXPECT_EQ(policy.listeners, 0);
}

TEST_F(Wrappers, UpgradeTakesTheRoleFromHowTheSocketCameToBe) {
  ASSERT_EQ(listen(listener, 5), 0);
  client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, where(), sizeof(address)), 0);
  served = accept(listener, nullptr, nullptr);
  ddp_status status{};
  socklen_t length = sizeof(status);
  ASSERT_EQ(getsockopt(client, SOL_DDP, DDP_STATUS, &status, &length), 0);
  EXPECT_STREQ(status.reason, "nothing asked for DDPMODE");
  const int mode = DDP_MODE_STREAM;
  ASSERT_EQ(setsockopt(served, SOL_DDP, DDP_MODE, &mode, sizeof(mode)), 0);
  EXPECT_EQ(engine.completed, 0);
  ASSERT_EQ(setsockopt(client, SOL_DDP, DDP_MODE, &mode, sizeof(mode)), 0);
  EXPECT_EQ(engine.completed, 1);
  EXPECT_EQ(write(client, "x", 1), 1);
  EXPECT_EQ(raw_read(served), inverted("x"));
}

TEST_F(Wrappers, DdpOptionsRefuseWhatTheyMust) {
  const int message = DDP_MODE_MESSAGE, unknown = 9, stream = DDP_MODE_STREAM;
  const auto set = [](int fd, int name, const void* value, socklen_t length) {
    return setsockopt(fd, SOL_DDP, name, value, length) == 0 ? 0 : errno;
  };
  EXPECT_EQ(set(STDIN_FILENO, DDP_MODE, &message, sizeof(message)), EOPNOTSUPP);
  EXPECT_EQ(set(listener, DDP_MARKERS, &message, sizeof(message)), EOPNOTSUPP);
  EXPECT_EQ(set(listener, DDP_MODE, &unknown, sizeof(unknown)), EINVAL);
  EXPECT_EQ(set(listener, DDP_MODE, &stream, 1), EINVAL);
  EXPECT_EQ(set(listener, DDP_ENGINE, "warp", 5), EINVAL);
  EXPECT_EQ(set(listener, DDP_ENGINE, "user", 5), 0);
  EXPECT_EQ(set(listener, 99, &stream, sizeof(stream)), ENOPROTOOPT);
  EXPECT_EQ(set(STDIN_FILENO, DDP_MODE, &stream, sizeof(stream)), EOPNOTSUPP);
  ddp_status status;
  socklen_t length = sizeof(status);
  EXPECT_EQ(getsockopt(listener, SOL_DDP, DDP_STATUS, &status, &length), -1);
  EXPECT_EQ(errno, ENOTCONN);
}

TEST(HandoverVariable, SaysWhatIsRead) {
  const std::string_view name = "DDPSOCK_HANDOVER=";
  for (const int fd : {0, 7, 2'147'483'647})
    for (const unsigned strayed : {0U, 1U, 7U}) {
      HandoverEntry entry({fd, strayed});
      const std::string_view text = entry.text();
      ASSERT_TRUE(text.starts_with(name));
      const HandoverNote note = parse_handover(text.substr(name.size()));
      EXPECT_EQ(note.fd, fd);
      EXPECT_EQ(note.strayed, strayed);
    }
  for (const char* text :
       {"", "+1", "x", "-1", "1+", "1+0", "1+8", "1+11", "1 ", "2147483648", "1++1"})
    EXPECT_EQ(parse_handover(text).fd, -1) << text;
}

}  // namespace
}  // namespace ddpsock::shim
