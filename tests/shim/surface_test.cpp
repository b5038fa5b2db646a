// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What else programs do with a connection: asynchronous I/O, control messages, counts of what is
// under way, sizes of buffers, keepalive.
#include <aio.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "ddpsock/ddpsock.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Surface : public TcpTest {
 protected:
  void talk() const {
    for (int i = 0; i < 3; ++i) expect_alive(client_, server_);
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

ssize_t finish(aiocb& request) {
  const aiocb* list[] = {&request};
  while (aio_error(&request) == EINPROGRESS) aio_suspend(list, 1, nullptr);
  EXPECT_EQ(aio_error(&request), 0) << strerror(aio_error(&request));
  return aio_return(&request);
}

// False, where a connection cannot become plain TCP: refused.
bool begin(int (*call)(aiocb*), aiocb& request) {
  const bool has_begun = call(&request) == 0;
  EXPECT_EQ(has_begun, column() != Column::kOneSided);
  if (!has_begun) {
    EXPECT_EQ(errno, EAGAIN);
  }
  return has_begun;
}

TEST_F(Surface, AsynchronousReadsAndWrites) {
  talk();
  send_all(client_, "unread ");
  await_queued(server_, 7);
  std::string room(100, '\0');
  aiocb read{}, write{};
  read.aio_fildes = write.aio_fildes = server_;
  read.aio_buf = room.data();
  read.aio_nbytes = room.size();
  char answer[] = "answer";
  write.aio_buf = answer;
  write.aio_nbytes = 6;
  if (begin(aio_read, read)) {
    EXPECT_EQ(finish(read), 7);
    EXPECT_EQ(room.substr(0, 7), "unread ");
  } else {
    EXPECT_EQ(recv_exactly(server_, 7), "unread ");
  }
  if (begin(aio_write, write)) {
    EXPECT_EQ(finish(write), 6);
    EXPECT_EQ(recv_exactly(client_, 6), "answer");
  }
  expect_alive(client_, server_);
  expect_alive(server_, client_);
}

TEST_F(Surface, AListOfAsynchronousRequests) {
  talk();
  std::string room(5, '\0');
  char words[] = "hello";
  aiocb read{}, write{}, nothing{};
  write.aio_fildes = client_;
  write.aio_lio_opcode = LIO_WRITE;
  write.aio_buf = words;
  read.aio_fildes = server_;
  read.aio_lio_opcode = LIO_READ;
  read.aio_buf = room.data();
  read.aio_nbytes = write.aio_nbytes = 5;
  nothing.aio_lio_opcode = LIO_NOP;
  aiocb* list[] = {&write, nullptr, &nothing, &read};
  const int result = lio_listio(LIO_WAIT, list, 4, nullptr);
  if (column() == Column::kOneSided) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, EAGAIN);
  } else {
    EXPECT_EQ(result, 0) << strerror(errno);
    EXPECT_EQ(room, "hello");
  }
  expect_alive(client_, server_);
}

struct Received {
  ssize_t result;
  int flags;
  size_t control_size;
  int inq;  // -1: none was told
};

Received receive(int fd, size_t size, size_t room, int flags = 0) {
  std::string bytes(size, '\0');
  alignas(cmsghdr) std::array<char, 256> control;
  control.fill('\xa5');
  iovec part{bytes.data(), size};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = room > 0 ? control.data() : nullptr;
  m.msg_controllen = room;
  m.msg_flags = -1;
  const ssize_t result = recvmsg(fd, &m, flags);
  Received r{result, m.msg_flags, m.msg_controllen, -1};
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    EXPECT_EQ(c->cmsg_level, IPPROTO_TCP);
    EXPECT_EQ(c->cmsg_type, TCP_CM_INQ);
    if (c->cmsg_len == CMSG_LEN(sizeof(int))) memcpy(&r.inq, CMSG_DATA(c), sizeof r.inq);
  }
  EXPECT_EQ(control.back(), '\xa5');
  return r;
}

TEST_F(Surface, ControlDataIsWhatWasAskedFor) {
  talk();
  set_option(server_, IPPROTO_IP, IP_RECVTOS, 1);
  set_option(server_, IPPROTO_IP, IP_RECVTTL, 1);
  set_option(server_, IPPROTO_IP, IP_PKTINFO, 1);
  send_all(client_, "abc");
  const Received r = receive(server_, 3, 200, MSG_CMSG_CLOEXEC);
  EXPECT_EQ(r.result, 3);
  EXPECT_EQ(r.flags, MSG_CMSG_CLOEXEC);
  EXPECT_EQ(r.control_size, 0u) << "TCP tells by IP_PKTOPTIONS only";
}

TEST_F(Surface, WhatIsThereIsToldByInq) {
  talk();
  set_option(server_, IPPROTO_TCP, TCP_INQ, 1);
  EXPECT_EQ(get_option(server_, IPPROTO_TCP, TCP_INQ), 1);
  EXPECT_EQ(get_option(client_, IPPROTO_TCP, TCP_INQ), 0);
  send_all(client_, pattern(30'000));
  await_queued(server_, 30'000);
  Received r = receive(server_, 10'000, 200);
  EXPECT_EQ(r.result, 10'000);
  EXPECT_EQ(r.inq, 20'000);
  EXPECT_EQ(r.flags, 0);
  EXPECT_EQ(r.control_size, CMSG_SPACE(sizeof(int)));
  r = receive(server_, 5'000, 200, MSG_PEEK);
  EXPECT_EQ(r.inq, 20'000);
  r = receive(server_, 10'000, 0);
  EXPECT_EQ(r.flags, MSG_CTRUNC);
  r = receive(server_, 1, CMSG_LEN(2));
  EXPECT_EQ(r.flags, MSG_CTRUNC);
  EXPECT_EQ(r.control_size, CMSG_LEN(2));
  r = receive(server_, 9'999, 200);
  EXPECT_EQ(r.inq, 0);
  // What it does not stop at would be waited for in vain.
  send_all(client_, "end");
  shutdown(client_, SHUT_WR);
  pollfd ended{server_, POLLRDHUP, 0};
  ASSERT_EQ(poll(&ended, 1, 5'000), 1);
  r = receive(server_, 3, 200);
  EXPECT_EQ(r.result, 3);
  EXPECT_EQ(r.inq, 1);
  r = receive(server_, 3, 200);
  EXPECT_EQ(r.result, 0);
  EXPECT_EQ(r.inq, 1);
}

TEST_F(Surface, InqThatWasAskedForBeforeHolds) {
  Listener listener = listen_loopback();
  set_option(listener.fd.get(), IPPROTO_TCP, TCP_INQ, 1);
  const Fd client = dial(listener.address), server = accept_one(listener.fd.get());
  for (int i = 0; i < 3; ++i) expect_alive(client.get(), server.get());
  send_all(client.get(), "abcdef");
  await_queued(server.get(), 6);
  EXPECT_EQ(receive(server.get(), 2, 200).inq, 4);
  // Also once it is the kernel's.
  const int off = 0, on = 1;
  if (setsockopt(server.get(), SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0)
    set_option(server.get(), SOL_SOCKET, SO_TIMESTAMP, off);
  EXPECT_EQ(receive(server.get(), 1, 200).inq, 3);
}

int outq(int fd, unsigned long request = SIOCOUTQ) {
  int count = -1;
  EXPECT_EQ(ioctl(fd, request, &count), 0);
  return count;
}

// A program takes it from what it has sent, and what is left has arrived.
// The kernel goes on counting what it has thrown away.
TEST_F(Surface, WhatIsUnderWayTowardsAPeerThatHasNeverSpoken) {
  Pair pair = connected_pair();
  pair.client = Fd();
  const std::string bytes = pattern(65536);
  const ssize_t sent = send(pair.server.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  EXPECT_EQ(sent, 65536);
  EXPECT_LE(outq(pair.server.get()), 65536 + 1);
}

TEST_F(Surface, WhatIsUnderWayIsNeverMoreThanWasSent) {
  const Pair pair = connected_pair();
  const int client = pair.client.get(), server = pair.server.get();
  int sent = 0;
  for (int i = 0; i < 50; ++i) {
    send_all(client, "x");
    ++sent;
    EXPECT_LE(outq(client), sent);
    EXPECT_LE(outq(client, SIOCOUTQNSD), sent);
  }
  recv_exactly(server, static_cast<size_t>(sent));
  send_all(server, "y");
  EXPECT_LE(outq(server), 1);
  recv_exactly(client, 1);
  const int64_t deadline = now_ms() + 5'000;
  while (outq(client) != 0 && now_ms() < deadline) sleep_ms(1);
  EXPECT_EQ(outq(client), 0);
  make_nonblocking(client);
  const size_t much = fill_until_refused(client, 3);
  EXPECT_LE(outq(client), static_cast<int>(much));
  EXPECT_TRUE(is_same(recv_exactly(server, much), pattern(much, 3)));
  while (outq(client) != 0 && now_ms() < deadline + 5'000) sleep_ms(1);
  EXPECT_EQ(outq(client), 0);
}

tcp_info info_of(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
  return info;
}

// What monitors, iperf3 and the like make of it: how much got through, and how long ago.
TEST_F(Surface, TcpInfoCountsTheProgramsBytes) {
  talk();
  const tcp_info before = info_of(client_), there = info_of(server_);
  const size_t size = 300'000;
  std::thread reader([&] { EXPECT_EQ(recv_exactly(server_, size).size(), size); });
  send_all(client_, pattern(size));
  reader.join();
  expect_alive(server_, client_);
  const int64_t deadline = now_ms() + 5'000;
  while (outq(client_) != 0 && now_ms() < deadline) sleep_ms(1);
  const tcp_info after = info_of(client_), server = info_of(server_);
  EXPECT_EQ(after.tcpi_state, 1);
  EXPECT_EQ(after.tcpi_bytes_acked - before.tcpi_bytes_acked, size + 11);
  EXPECT_EQ((after.tcpi_bytes_sent - after.tcpi_bytes_retrans) -
                (before.tcpi_bytes_sent - before.tcpi_bytes_retrans),
            size + 11);
  EXPECT_EQ(server.tcpi_bytes_received - there.tcpi_bytes_received, size + 11);
  EXPECT_EQ(after.tcpi_notsent_bytes, 0u);
  EXPECT_LT(after.tcpi_last_data_sent, 5'000u);
  EXPECT_LT(after.tcpi_rtt, 5'000'000u);
  EXPECT_GT(after.tcpi_snd_mss, 0u);
  EXPECT_GT(after.tcpi_snd_cwnd, 0u);
  // Unread bytes have been received all the same.
  send_all(client_, "abc");
  await_queued(server_, 3);
  EXPECT_EQ(info_of(server_).tcpi_bytes_received - server.tcpi_bytes_received, 3u);
}

// Who looks for connections on which nothing happens.
TEST_F(Surface, TcpInfoKnowsThatDataFlow) {
  talk();
  info_of(server_);
  info_of(client_);
  const int64_t start = now_ms();
  while (now_ms() - start < 300) {
    expect_alive(client_, server_);
    sleep_ms(1);
  }
  EXPECT_LT(info_of(client_).tcpi_last_data_sent, 250u);
  info_of(server_);
  expect_alive(client_, server_);
  EXPECT_LT(info_of(server_).tcpi_last_data_recv, 250u);
}

// Nothing holds back what goes through memory.
TEST_F(Surface, WhatTheKernelPacesGoesThroughTheKernel) {
  for (const bool is_late : {false, true}) {
    const Listener listener = listen_loopback();
    const Fd client = make_client_socket();
    if (!is_late) set_option(client.get(), SOL_SOCKET, SO_MAX_PACING_RATE, 50'000'000);
    EXPECT_EQ(connect_to(client.get(), listener.address), 0);
    const Fd server = accept_one(listener.fd.get());
    for (int i = 0; i < 3; ++i) expect_alive(client.get(), server.get());
    if (is_late) set_option(client.get(), SOL_SOCKET, SO_MAX_PACING_RATE, 50'000'000);
    for (int i = 0; i < 3; ++i) expect_alive(client.get(), server.get());
    const uint64_t before = info_of(client.get()).tcpi_segs_out;
    const std::string bytes = pattern(500'000);
    std::thread reader(
        [&] { EXPECT_TRUE(is_same(recv_exactly(server.get(), bytes.size()), bytes)); });
    send_all(client.get(), bytes);
    reader.join();
    EXPECT_GE(info_of(client.get()).tcpi_segs_out - before, 7u) << "of 64 KB and more";
  }
}

// The kernel answers for a stopped process.
TEST_F(Surface, KeepaliveDoesNotMindAStoppedPeer) {
  const Listener listener = listen_loopback();
  Child peer([&] {
    const Fd fd = accept_one(listener.fd.get());
    for (int i = 0; i < 3; ++i) recv_exactly(fd.get(), 5), send_all(fd.get(), "hello");
    raise(SIGSTOP);
    EXPECT_EQ(recv_exactly(fd.get(), 5), "after");
    send_all(fd.get(), "hello");
  });
  const Fd fd = dial(listener.address);
  set_option(fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd.get(), IPPROTO_TCP, TCP_KEEPCNT, 1);
  set_option(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, 500);
  for (int i = 0; i < 3; ++i) {
    send_all(fd.get(), "hello");
    EXPECT_EQ(recv_exactly(fd.get(), 5), "hello");
  }
  send_all(fd.get(), "after");
  sleep_ms(2'500);
  EXPECT_EQ(get_option(fd.get(), SOL_SOCKET, SO_ERROR), 0);
  kill(peer.pid(), SIGCONT);
  EXPECT_EQ(recv_exactly(fd.get(), 5), "hello");
  peer.expect_success();
}

bool is_stream(int fd) {
  ddp_status status{};
  socklen_t length = sizeof status;
  return getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &length) == 0 &&
         status.mode == DDP_MODE_STREAM;
}

// Set before there is a connection: too late to refuse it there.
TEST_F(Surface, WhatOnlyTheKernelServesIsPlainFromTheStart) {
  static sock_filter pass[] = {BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
  const sock_fprog program{1, pass};
  const int on = 1, zero = 0;
  struct Option {
    int name;
    const void* value;
    socklen_t size;
  };
  for (const Option& o :
       {Option{SO_ZEROCOPY, &on, sizeof on}, Option{SO_PEEK_OFF, &zero, sizeof zero},
        Option{SO_ATTACH_FILTER, &program, sizeof program}}) {
    SCOPED_TRACE(o.name);
    const Listener listener = listen_loopback();
    const Fd client = make_client_socket();
    const int result = setsockopt(client.get(), SOL_SOCKET, o.name, o.value, o.size);
    EXPECT_EQ(result, is_ddp_mode_required() ? -1 : 0);
    if (result != 0) {
      EXPECT_EQ(errno, ENOPROTOOPT);
    }
    EXPECT_EQ(connect_to(client.get(), listener.address), 0);
    const Fd server = accept_one(listener.fd.get());
    EXPECT_EQ(is_stream(client.get()), is_ddp_mode_required());
    if (o.name != SO_PEEK_OFF) expect_alive(client.get(), server.get());
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
