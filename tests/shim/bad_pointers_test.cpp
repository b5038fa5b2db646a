// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Pointers that lead nowhere: the kernel says EFAULT and takes nothing. On connections, and on
// whatever else a program has beside them.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "passing.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// Not a constant, of which compilers warn.
template <typename T>
T* at(intptr_t address) {
  volatile intptr_t number = address;
  return reinterpret_cast<T*>(number);
}
template <typename T>
T* nowhere() {
  return at<T>(8);
}
// An address of the kernel's own.
template <typename T>
T* beyond() {
  return at<T>(-4096);
}

class BadPointers : public TcpTest {
 protected:
  ~BadPointers() override {
    expect_alive(pair_.client.get(), pair_.server.get());
    munmap(closed_, kPage);
  }
  static void expect_refused(long result) {
    const int error = errno;
    EXPECT_EQ(result, -1);
    EXPECT_EQ(error, EFAULT);
  }
  // Memory that nobody may look at.
  template <typename T>
  T* closed() const {
    return static_cast<T*>(closed_);
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();

 private:
  static constexpr size_t kPage = 4096;
  void* closed_ = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

TEST_F(BadPointers, OfAFilter) {
  expect_alive(client_, server_);
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  for (sock_fprog* program : {nowhere<sock_fprog>(), closed<sock_fprog>()}) {
    expect_refused(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0));
    expect_refused(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program));
  }
  for (sock_filter* filter : {nowhere<sock_filter>(), closed<sock_filter>()}) {
    sock_fprog program{1, filter};
    expect_refused(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
  }
}

TEST_F(BadPointers, OfATimeThatCannotBeWrittenBack) {
  const auto size = static_cast<size_t>(getpagesize());
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const time = new (page) timespec{5, 0};
  ASSERT_EQ(mprotect(page, size, PROT_READ), 0);
  send_all(client_, "x");
  char byte = 0;
  iovec part{&byte, 1};
  mmsghdr one{};
  one.msg_hdr.msg_iov = &part;
  one.msg_hdr.msg_iovlen = 1;
  expect_refused(recvmmsg(server_, &one, 1, 0, time));
  munmap(page, size);
}

TEST_F(BadPointers, OfMessagesThroughAnotherSocket) {
  const UnixPair other;
  const int fd = other.near.get();
  for (const bool is_second : {false, true}) {
    auto* const one = is_second ? beyond<msghdr>() : nowhere<msghdr>();
    auto* const many = is_second ? beyond<mmsghdr>() : nowhere<mmsghdr>();
    expect_refused(recvmsg(fd, one, 0));
    expect_refused(sendmsg(fd, one, 0));
    expect_refused(recvmmsg(fd, many, 1, MSG_DONTWAIT, nullptr));
    expect_refused(sendmmsg(fd, many, 1, 0));
  }
  expect_refused(recvmsg(fd, closed<msghdr>(), 0));
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = nowhere<void>();
  message.msg_controllen = CMSG_SPACE(sizeof(int));
  expect_refused(sendmsg(fd, &message, 0));
}

TEST_F(BadPointers, OfPollers) {
  expect_refused(poll(nowhere<pollfd>(), 1, 0));
  expect_refused(ppoll(nowhere<pollfd>(), 1, nullptr, nullptr));
  timeval none{};
  expect_refused(select(server_ + 1, nowhere<fd_set>(), nullptr, nullptr, &none));
  expect_refused(select(server_ + 1, nullptr, nowhere<fd_set>(), nullptr, &none));
  pollfd one{server_, POLLIN, 0};
  for (timespec* time : {nowhere<timespec>(), closed<timespec>()}) {
    expect_refused(syscall(SYS_ppoll, &one, 1, time, nullptr, 8));
    expect_refused(syscall(SYS_pselect6, 0, nullptr, nullptr, nullptr, time, nullptr));
    expect_refused(syscall(SYS_pselect6, 0, nullptr, nullptr, nullptr, nullptr, time));
    expect_refused(syscall(SYS_select, 0, nullptr, nullptr, nullptr, time));
  }
}

TEST_F(BadPointers, OfASetOfEpoll) {
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 7}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, server_, &event), 0);
  send_all(client_, "abc");
  ASSERT_EQ(epoll_wait(set.get(), &event, 1, 3000), 1);
  expect_refused(epoll_ctl(set.get(), EPOLL_CTL_MOD, server_, nowhere<epoll_event>()));
  expect_refused(epoll_wait(set.get(), beyond<epoll_event>(), 1, 0));
  expect_refused(syscall(SYS_epoll_pwait2, set.get(), &event, 1, nowhere<timespec>(), nullptr, 8));
  EXPECT_EQ(recv_exactly(server_, 3), "abc");
}

using Call = std::function<long(int fd, void* buffer)>;

const std::vector<Call> kReads = {
    [](int fd, void* to) { return read(fd, to, 3); },
    [](int fd, void* to) { return recv(fd, to, 3, 0); },
    [](int fd, void* to) { return recv(fd, to, 3, MSG_WAITALL); },
    [](int fd, void* to) { return recv(fd, to, 3, MSG_PEEK); },
    [](int fd, void* to) {
      const iovec part{to, 3};
      return readv(fd, &part, 1);
    },
    [](int fd, void* to) {
      iovec part{to, 3};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      return recvmsg(fd, &message, 0);
    },
};

TEST_F(BadPointers, OfWhatIsToBeReceived) {
  send_all(client_, "abc");
  for (const Call& call : kReads) {
    expect_refused(call(server_, nowhere<void>()));
    expect_refused(call(server_, nullptr));
    expect_refused(call(server_, beyond<void>()));
  }
  expect_refused(readv(server_, nowhere<iovec>(), 1));
  expect_refused(recvmsg(server_, nowhere<msghdr>(), 0));
  expect_refused(ioctl(server_, FIONREAD, nowhere<int>()));
  EXPECT_EQ(recv_exactly(server_, 3), "abc");
}

TEST_F(BadPointers, NobodyHearsOfWhereThereIsNothingToReceive) {
  expect_alive(client_, server_);
  EXPECT_EQ(recv(server_, nowhere<void>(), 3, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  send_all(client_, "abc");
  EXPECT_EQ(recv(server_, nullptr, 3, MSG_TRUNC | MSG_WAITALL), 3);
  shutdown(client_, SHUT_WR);
  EXPECT_EQ(recv(server_, nowhere<void>(), 3, 0), 0);
  pair_ = connected_pair();
}

TEST_F(BadPointers, OfAPartOfAVector) {
  char bytes[4] = "xyz";
  const iovec harmless[] = {{bytes, 3}, {nowhere<void>(), 0}};
  const iovec parts[] = {{bytes, 2}, {nowhere<void>(), 2}};
  EXPECT_EQ(writev(client_, harmless, 2), 3);
  expect_refused(writev(client_, parts, 2));
  EXPECT_EQ(readv(server_, harmless, 2), 3);
}

const std::vector<Call> kWrites = {
    [](int fd, void* from) { return write(fd, from, 3); },
    [](int fd, void* from) { return send(fd, from, 3, 0); },
    [](int fd, void* from) {
      const iovec part{from, 3};
      return writev(fd, &part, 1);
    },
    [](int fd, void* from) {
      iovec part{from, 3};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      return sendmsg(fd, &message, 0);
    },
};

TEST_F(BadPointers, OfWhatIsToBeSent) {
  for (const Call& call : kWrites) {
    expect_refused(call(client_, nowhere<void>()));
    expect_refused(call(client_, nullptr));
    expect_refused(call(client_, beyond<void>()));
  }
  expect_refused(writev(client_, nowhere<iovec>(), 1));
  expect_refused(sendmsg(client_, nowhere<msghdr>(), 0));
  expect_refused(sendmmsg(client_, nowhere<mmsghdr>(), 1, 0));
  expect_refused(sendfile(client_, STDERR_FILENO, nowhere<off_t>(), 1));
}

TEST_F(BadPointers, OfOptionsAndAddresses) {
  socklen_t length = sizeof(int);
  int value = 1;
  for (const int name : {SO_ERROR, SO_RCVLOWAT}) {
    expect_refused(getsockopt(server_, SOL_SOCKET, name, nowhere<int>(), &length));
    expect_refused(getsockopt(server_, SOL_SOCKET, name, &value, nowhere<socklen_t>()));
  }
  for (const int name : {SO_TIMESTAMP, SO_RCVLOWAT, SO_LINGER})
    expect_refused(setsockopt(server_, SOL_SOCKET, name, nowhere<int>(), sizeof(linger)));
  const Fd other(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  expect_refused(connect(other.get(), nowhere<sockaddr>(), sizeof(sockaddr_in)));
}

}  // namespace
}  // namespace ddpsock::shim_tests
