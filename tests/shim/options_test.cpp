// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What fcntl, ioctl, getsockopt and their like say about a socket, and what they do to its calls.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "calls.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Options : public TcpTest {
 protected:
  void expect_eagain(int fd) {
    char byte;
    EXPECT_EQ(recv(fd, &byte, 1, 0), -1);
    EXPECT_EQ(errno, EAGAIN);
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

TEST_F(Options, NonblockingByFcntl) {
  EXPECT_EQ(fcntl(server_, F_GETFL), O_RDWR);
  make_nonblocking(server_);
  EXPECT_EQ(fcntl(server_, F_GETFL), O_RDWR | O_NONBLOCK);
  expect_eagain(server_);
  EXPECT_EQ(fcntl(server_, F_SETFL, 0), 0);
  EXPECT_FALSE(is_nonblocking(server_));
  std::jthread sender([&] {
    sleep_ms(30);
    send_all(client_, "x");
  });
  EXPECT_EQ(recv_exactly(server_, 1), "x");
}

TEST_F(Options, NonblockingByIoctl) {
  int on = 1, off = 0;
  EXPECT_EQ(ioctl(server_, FIONBIO, &on), 0);
  EXPECT_TRUE(is_nonblocking(server_));
  expect_eagain(server_);
  EXPECT_EQ(ioctl(server_, FIONBIO, &off), 0);
  EXPECT_FALSE(is_nonblocking(server_));
}

TEST_F(Options, CloseOnExec) {
  EXPECT_EQ(fcntl(client_, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(fcntl(client_, F_SETFD, 0), 0);
  EXPECT_EQ(fcntl(client_, F_GETFD), 0);
  EXPECT_EQ(ioctl(client_, FIOCLEX), 0);
  EXPECT_EQ(fcntl(client_, F_GETFD), FD_CLOEXEC);
}

TEST_F(Options, FionreadCountsPayloadExactly) {
  EXPECT_EQ(queued_bytes(server_), 0);
  int total = 0;
  for (const int size : {1, 7, 1000, 30'000, 64}) {
    send_all(client_, pattern(size_t(size)));
    total += size;
    await_queued(server_, total);
  }
  for (const int size : {1, 8, 999, 29'000}) {
    recv_exactly(server_, size_t(size));
    total -= size;
    EXPECT_EQ(queued_bytes(server_), total);
  }
  recv_exactly(server_, size_t(total));
  EXPECT_EQ(queued_bytes(server_), 0);
}

TEST_F(Options, FionreadCountsMuch) {
  for (const int fd : {client_, server_}) {
    set_option(fd, SOL_SOCKET, SO_RCVBUF, 4 * 1024 * 1024);
    set_option(fd, SOL_SOCKET, SO_SNDBUF, 4 * 1024 * 1024);
  }
  send_all(client_, pattern(700'000));
  await_queued(server_, 700'000);
  recv_exactly(server_, 1);
  EXPECT_EQ(queued_bytes(server_), 699'999);
}

TEST_F(Options, FionreadAtTheEndIsZero) {
  send_all(client_, "abc");
  pair_.client.close();
  await_queued(server_, 3);
  recv_exactly(server_, 3);
  EXPECT_EQ(queued_bytes(server_), 0);
  expect_end_of_stream(server_);
  EXPECT_EQ(queued_bytes(server_), 0);
}

TEST_F(Options, FionreadOfAListenerIsInvalid) {
  const Listener listener = listen_loopback();
  int count;
  EXPECT_EQ(ioctl(listener.fd.get(), FIONREAD, &count), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Options, WhatKindOfSocketItIs) {
  struct stat status{};
  for (const int fd : {client_, server_}) {
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_ERROR), 0);
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
    ASSERT_EQ(fstat(fd, &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(isatty(fd), 0);
    EXPECT_EQ(lseek(fd, 0, SEEK_CUR), -1);
    EXPECT_EQ(errno, ESPIPE);
  }
}

TEST_F(Options, DefaultsAreTheKernels) {
  for (const int fd : {client_, server_}) {
    EXPECT_EQ(get_option(fd, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_EQ(get_option(fd, IPPROTO_TCP, TCP_CORK), 0);
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_RCVLOWAT), 1);
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_OOBINLINE), 0);
  }
}

TEST_F(Options, AreReadBackAsSet) {
  const std::array<std::array<int, 3>, 7> kBooleans{{{SOL_SOCKET, SO_KEEPALIVE, 1},
                                                     {SOL_SOCKET, SO_REUSEADDR, 1},
                                                     {SOL_SOCKET, SO_RCVLOWAT, 123},
                                                     {SOL_SOCKET, SO_PRIORITY, 3},
                                                     {IPPROTO_TCP, TCP_NODELAY, 1},
                                                     {IPPROTO_TCP, TCP_KEEPIDLE, 77},
                                                     {IPPROTO_TCP, TCP_USER_TIMEOUT, 5000}}};
  for (const auto& [level, option, value] : kBooleans) {
    set_option(client_, level, option, value);
    EXPECT_EQ(get_option(client_, level, option), value) << level << "/" << option;
  }
  set_option(client_, SOL_SOCKET, SO_SNDBUF, 20'000);
  EXPECT_EQ(get_option(client_, SOL_SOCKET, SO_SNDBUF), 40'000);
  set_timeout(client_, SO_SNDTIMEO, 1500);
  timeval time{};
  socklen_t length = sizeof time;
  ASSERT_EQ(getsockopt(client_, SOL_SOCKET, SO_SNDTIMEO, &time, &length), 0);
  EXPECT_EQ(time.tv_sec * 1000 + time.tv_usec / 1000, 1500);
}

TEST_F(Options, TheLimitOfWhatIsUnsentStaysTheProgramsWhileTheWireIsFull) {
  if (column() == Column::kDdp || column() == Column::kOneSided)
    GTEST_SKIP() << "such a limit cuts FPDUs, and sends wait for the rest";
  set_option(client_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 100'000);
  for (int i = 0; i < 3; ++i) {
    expect_alive(client_, server_);
    expect_alive(server_, client_);
  }
  make_nonblocking(client_);
  for (const int limit : {100'000, 200'000, 0}) {
    if (limit != 100'000) set_option(client_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, limit);
    const size_t sent = fill_until_refused(client_, 1);
    EXPECT_EQ(get_option(client_, IPPROTO_TCP, TCP_NOTSENT_LOWAT), limit);
    EXPECT_TRUE(is_same(recv_exactly(server_, sent), pattern(sent, 1)));
    expect_alive(client_, server_);
    EXPECT_EQ(get_option(client_, IPPROTO_TCP, TCP_NOTSENT_LOWAT), limit);
  }
}

TEST_F(Options, ErrorsAreTheKernels) {
  int value = 1;
  socklen_t length = sizeof value;
  EXPECT_EQ(getsockopt(client_, SOL_SOCKET, 9999, &value, &length), -1);
  EXPECT_EQ(errno, ENOPROTOOPT);
  EXPECT_EQ(setsockopt(client_, IPPROTO_TCP, 9999, &value, sizeof value), -1);
  EXPECT_EQ(errno, ENOPROTOOPT);
  EXPECT_EQ(setsockopt(client_, SOL_SOCKET, SO_KEEPALIVE, &value, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(setsockopt(client_, SOL_SOCKET, SO_TYPE, &value, sizeof value), -1);
  EXPECT_EQ(errno, ENOPROTOOPT);
  EXPECT_EQ(ioctl(client_, 0x12345, &value), -1);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(fcntl(client_, 9999), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Options, NamesOfBothEndsAgree) {
  sockaddr_in a{}, b{};
  socklen_t length = sizeof a;
  ASSERT_EQ(getsockname(client_, reinterpret_cast<sockaddr*>(&a), &length), 0);
  ASSERT_EQ(getpeername(server_, reinterpret_cast<sockaddr*>(&b), &length), 0);
  EXPECT_EQ(length, sizeof b);
  EXPECT_EQ(a.sin_port, b.sin_port);
  EXPECT_EQ(a.sin_addr.s_addr, b.sin_addr.s_addr);
  const Fd unconnected = make_client_socket();
  EXPECT_EQ(getpeername(unconnected.get(), reinterpret_cast<sockaddr*>(&a), &length), -1);
  EXPECT_EQ(errno, ENOTCONN);
}

TEST_F(Options, TcpInfoSaysEstablished) {
  tcp_info info{};
  socklen_t length = sizeof info;
  ASSERT_EQ(getsockopt(client_, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
  EXPECT_EQ(info.tcpi_state, TCP_ESTABLISHED);
}

TEST_F(Options, ReceiveTimeout) {
  set_timeout(server_, SO_RCVTIMEO, 100);
  for (const Reader& reader : kReaders) {
    const int64_t start = now_ms();
    char bytes[10];
    EXPECT_EQ(reader.read(server_, bytes, sizeof bytes), -1) << reader.name;
    EXPECT_EQ(errno, EAGAIN) << reader.name;
    EXPECT_GE(now_ms() - start, 95) << reader.name;
  }
  send_all(client_, "x");
  EXPECT_EQ(recv_exactly(server_, 1), "x");
}

TEST_F(Options, SendTimeout) {
  fill_until_refused(client_, 1);
  set_timeout(client_, SO_SNDTIMEO, 100);
  const std::string bytes = pattern(1'000'000);
  for (const Writer& writer : kWriters) {
    ssize_t sent = 0;
    int64_t start = 0;
    do {  // the kernel squeezes its queues when it probes the full peer, and takes a little more
      start = now_ms();
      sent = writer.write(client_, bytes.data(), bytes.size());
    } while (sent > 0);
    EXPECT_EQ(sent, -1) << writer.name;
    EXPECT_EQ(errno, EAGAIN) << writer.name;
    EXPECT_GE(now_ms() - start, 95) << writer.name;
  }
}

TEST_F(Options, SendTimeoutAfterAPartIsThePart) {
  set_timeout(client_, SO_SNDTIMEO, 100);
  const std::string bytes = pattern(64 * 1024 * 1024);
  const ssize_t sent = send(client_, bytes.data(), bytes.size(), 0);
  ASSERT_GT(sent, 0);
  ASSERT_LT(sent, ssize_t(bytes.size()));
  EXPECT_TRUE(is_same(recv_exactly(server_, size_t(sent)), bytes.substr(0, size_t(sent))));
}

TEST_F(Options, AcceptTimeout) {
  const Listener listener = listen_loopback();
  set_timeout(listener.fd.get(), SO_RCVTIMEO, 50);
  EXPECT_EQ(accept(listener.fd.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Options, LowWaterMarkHoldsBackPoll) {
  set_option(server_, SOL_SOCKET, SO_RCVLOWAT, 100);
  send_all(client_, pattern(99));
  await_queued(server_, 99);
  pollfd one{server_, POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 30), 0);
  send_all(client_, "x");
  EXPECT_EQ(poll(&one, 1, 3000), 1);
  EXPECT_TRUE(is_same(recv_exactly(server_, 100), pattern(99) + "x"));
}

TEST_F(Options, LowWaterMarkHoldsBackRecv) {
  set_option(server_, SOL_SOCKET, SO_RCVLOWAT, 100);
  std::jthread sender([&, reader = gettid()] {
    await_asleep(reader);  // TCP does not wake a call that has taken a part before it slept
    send_all(client_, pattern(50));
    sleep_ms(30);
    send_all(client_, pattern(100).substr(50));
  });
  std::string buffer(1000, '\0');
  EXPECT_EQ(recv(server_, buffer.data(), buffer.size(), 0), 100);
  send_all(client_, "abc");
  await_queued(server_, 3);  // the kernel does not wake a sleeper for less than the mark
  EXPECT_EQ(recv(server_, buffer.data(), 3, 0), 3) << "a smaller request is not held back";
}

TEST_F(Options, LowWaterMarkYieldsToTheEnd) {
  set_option(server_, SOL_SOCKET, SO_RCVLOWAT, 100);
  send_all(client_, "abc");
  pair_.client.close();
  pollfd one{server_, POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 3000), 1);
  EXPECT_EQ(recv_to_end(server_), "abc");
}

TEST_F(Options, CallsOnABadDescriptor) {
  const int bad = closed_number();
  char bytes[4];
  for (const Writer& writer : kWriters) {
    EXPECT_EQ(writer.write(bad, "abc", 3), -1);
    EXPECT_EQ(errno, EBADF) << writer.name;
    EXPECT_EQ(writer.write(-1, "abc", 3), -1);
    EXPECT_EQ(errno, EBADF) << writer.name;
  }
  for (const Reader& reader : kReaders) {
    EXPECT_EQ(reader.read(bad, bytes, 3), -1);
    EXPECT_EQ(errno, EBADF) << reader.name;
  }
  EXPECT_EQ(close(bad), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(shutdown(bad, SHUT_WR), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(accept(bad, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(fcntl(bad, F_GETFL), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(Options, CallsOnSomethingElse) {
  const Fd file(open("/dev/null", O_RDWR | O_CLOEXEC));
  char bytes[4];
  for (const Writer& writer : kWriters) {
    EXPECT_EQ(writer.write(file.get(), "abc", 3), writer.is_socket_only ? -1 : 3) << writer.name;
    EXPECT_TRUE(!writer.is_socket_only || errno == ENOTSOCK) << writer.name;
  }
  for (const Reader& reader : kReaders) {
    EXPECT_EQ(reader.read(file.get(), bytes, 3), reader.is_socket_only ? -1 : 0) << reader.name;
    EXPECT_TRUE(!reader.is_socket_only || errno == ENOTSOCK) << reader.name;
  }
}

TEST_F(Options, CallsOnAnUnconnectedSocket) {
  const Fd fd = make_client_socket();
  char bytes[4];
  for (const Writer& writer : kWriters) {
    EXPECT_EQ(writer.write(fd.get(), "abc", 3), -1) << writer.name;
    EXPECT_EQ(errno, EPIPE) << writer.name;
  }
  for (const Reader& reader : kReaders) {
    EXPECT_EQ(reader.read(fd.get(), bytes, 3), -1) << reader.name;
    EXPECT_EQ(errno, ENOTCONN) << reader.name;
  }
}

TEST_F(Options, CallsOnAListener) {
  const Listener listener = listen_loopback();
  EXPECT_EQ(get_option(listener.fd.get(), SOL_SOCKET, SO_ACCEPTCONN), 1);
  char byte;
  EXPECT_EQ(recv(listener.fd.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(send(listener.fd.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(Options, OffsetsAreRefused) {
  char byte = 'x';
  EXPECT_EQ(pread(client_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ESPIPE);
  EXPECT_EQ(pwrite(client_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ESPIPE);
  expect_alive(client_, server_);
}

TEST_F(Options, ALimitOfWhatIsUnsentHoldsNoSendUp) {
  const Pair pair = connected_pair();
  const int client = pair.client.get(), server = pair.server.get();
  expect_alive(client, server);
  set_option(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16'384);
  make_nonblocking(client);
  const int64_t start = now_ms();
  const size_t sent = fill_until_refused(client, 7, 256 * 1024);
  EXPECT_LT(now_ms() - start, 1'000);
  EXPECT_EQ(get_option(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 16'384);
  EXPECT_TRUE(is_same(recv_exactly(server, sent), pattern(sent, 7)));
  expect_alive(client, server);
}

// A program that chooses late what it sends writes until it is refused: that is soon, also after an
// FPDU that had begun went past the limit. In memory nothing is unsent.
TEST_F(Options, ALimitOfWhatIsUnsentHolds) {
  const Listener listener = listen_loopback();
  set_option(listener.fd.get(), SOL_SOCKET, SO_RCVBUF, 8192);
  const Fd dialled = dial(listener.address), accepted = accept_one(listener.fd.get());
  const int client = dialled.get(), server = accepted.get();
  expect_alive(client, server);
  set_option(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16'384);
  make_nonblocking(client);
  const size_t sent = fill_until_refused(client, 7, 100'000);
  if (!is_in_memory()) {
    EXPECT_LT(sent, 300'000u);
  }
  EXPECT_TRUE(is_same(recv_exactly(server, sent), pattern(sent, 7)));
  expect_alive(client, server);
}

}  // namespace
}  // namespace ddpsock::shim_tests
