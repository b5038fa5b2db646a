// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Pointers of the program's that lead nowhere, in every other argument than the bytes of a read or
// write (data_test.cpp) and the address of connect (connect_test.cpp): the kernel says EFAULT, and
// nothing is changed.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Nowhere : public TcpTest {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();

  Nowhere() { expect_alive(client_, server_); }
  ~Nowhere() override { expect_alive(client_, server_); }
  static void expect_fault(long result) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, EFAULT) << strerror(errno);
  }
  template <typename T>
  static T* null() {
    static T* volatile pointer = nullptr;  // the compiler is not to know
    return pointer;
  }
  template <typename T>
  static T* outside() {  // of every program's memory
    return reinterpret_cast<T*>(-1);
  }
};

TEST_F(Nowhere, Polls) {
  for (pollfd* fds : {null<pollfd>(), outside<pollfd>()}) {
    expect_fault(poll(fds, 1, 0));
    expect_fault(ppoll(fds, 1, nullptr, nullptr));
  }
  EXPECT_EQ(poll(null<pollfd>(), 0, 0), 0);
}

TEST_F(Nowhere, Selects) {
  timeval at_once{};
  const timespec now{};
  fd_set readers;
  FD_ZERO(&readers);
  FD_SET(server_, &readers);
  expect_fault(select(server_ + 1, outside<fd_set>(), nullptr, nullptr, &at_once));
  expect_fault(select(server_ + 1, &readers, outside<fd_set>(), nullptr, &at_once));
  expect_fault(pselect(server_ + 1, &readers, nullptr, outside<fd_set>(), &now, nullptr));
}

TEST_F(Nowhere, EpollSets) {
  const Fd set(epoll_create1(0));
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, server_, &event), 0);
  send_all(client_, "x");
  await_queued(server_, 1);
  for (epoll_event* events : {null<epoll_event>(), outside<epoll_event>()}) {
    expect_fault(epoll_ctl(set.get(), EPOLL_CTL_MOD, server_, events));
    expect_fault(epoll_ctl(set.get(), EPOLL_CTL_ADD, client_, events));
  }
  expect_fault(epoll_wait(set.get(), outside<epoll_event>(), 1, 0));
  expect_fault(epoll_pwait(set.get(), outside<epoll_event>(), 1, 0, nullptr));
  EXPECT_EQ(epoll_wait(set.get(), &event, 1, 1000), 1);
  EXPECT_EQ(recv_exactly(server_, 1), "x");
}

TEST_F(Nowhere, Options) {
  for (void* value : {null<void>(), outside<void>()}) {
    for (const int name : {SO_RCVLOWAT, SO_LINGER, SO_TIMESTAMP, SO_ZEROCOPY})
      expect_fault(setsockopt(server_, SOL_SOCKET, name, value, sizeof(linger)));
    for (const int name : {TCP_NODELAY, TCP_CORK, TCP_NOTSENT_LOWAT, TCP_INQ})
      expect_fault(setsockopt(server_, IPPROTO_TCP, name, value, sizeof(int)));
    socklen_t length = sizeof(int);
    for (const int name : {SO_RCVLOWAT, SO_ERROR, SO_LINGER})
      expect_fault(getsockopt(server_, SOL_SOCKET, name, value, &length));
    for (const int name : {TCP_INFO, TCP_NODELAY, TCP_CORK})
      expect_fault(getsockopt(server_, IPPROTO_TCP, name, value, &length));
  }
  int value = 0;
  for (socklen_t* length : {null<socklen_t>(), outside<socklen_t>()}) {
    expect_fault(getsockopt(server_, SOL_SOCKET, SO_ERROR, &value, length));
    expect_fault(getsockopt(server_, IPPROTO_TCP, TCP_NODELAY, &value, length));
  }
}

TEST_F(Nowhere, ControlDataTimesAndOffsets) {
  char bytes[] = "bytes";
  iovec part{bytes, 5};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_controllen = 32;
  for (void* control : {null<void>(), outside<void>()}) {
    message.msg_control = control;
    expect_fault(sendmsg(client_, &message, 0));
  }
  mmsghdr one{};
  one.msg_hdr.msg_iov = &part;
  one.msg_hdr.msg_iovlen = 1;
  expect_fault(recvmmsg(server_, &one, 1, MSG_DONTWAIT, outside<timespec>()));
  const Fd file(memfd_create("nowhere", 0));
  EXPECT_EQ(write(file.get(), bytes, 5), 5);
  expect_fault(sendfile(client_, file.get(), outside<off_t>(), 5));
  expect_fault(ioctl(server_, FIONREAD, outside<int>()));
}

}  // namespace
}  // namespace ddpsock::shim_tests
