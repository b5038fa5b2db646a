// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Several descriptors of one socket, and one number for several sockets in turn.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "calls.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

constexpr int kHigh = 200;

struct Duplicator {
  const char* name;
  int (*duplicate)(int fd);
  bool is_cloexec;
};

void PrintTo(const Duplicator& way, std::ostream* out) {
  *out << way.name;
}

int spare_number() {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return fd;
}

const std::array<Duplicator, 6> kWays{{
    {"dup", [](int fd) { return dup(fd); }, false},
    {"dup2", [](int fd) { return dup2(fd, spare_number()); }, false},
    {"dup3", [](int fd) { return dup3(fd, spare_number(), O_CLOEXEC); }, true},
    {"F_DUPFD", [](int fd) { return fcntl(fd, F_DUPFD, kHigh); }, false},
    {"F_DUPFD_CLOEXEC", [](int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, kHigh); }, true},
    {"dup_of_a_dup",
     [](int fd) {
       const Fd middle(dup(fd));
       return dup(middle.get());
     },
     false},
}};

class Dup : public TcpTest {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

class DupWays : public Dup, public testing::WithParamInterface<Duplicator> {
 protected:
  Fd duplicate(int fd) const {
    Fd copy(GetParam().duplicate(fd));
    EXPECT_GE(copy.get(), 0) << strerror(errno);
    return copy;
  }
};

TEST_P(DupWays, EitherDescriptorServes) {
  const Fd client = duplicate(client_), server = duplicate(server_);
  expect_alive(client.get(), server_);
  expect_alive(client_, server.get());
  expect_alive(client.get(), server.get());
  expect_alive(client_, server_);
}

TEST_P(DupWays, BytesStayInOrderOverBoth) {
  const Fd client = duplicate(client_), server = duplicate(server_);
  const std::string bytes = pattern(100'000);
  std::mt19937 random(3);
  std::string got;
  for (size_t sent = 0; got.size() < bytes.size();) {
    const size_t piece = std::min(random_size(random, 1, 5000), bytes.size() - sent);
    send_all(random() % 2 ? client_ : client.get(), bytes.substr(sent, piece));
    sent += piece;
    const size_t take =
        sent == bytes.size() ? sent - got.size() : random_size(random, 0, sent - got.size());
    got += recv_exactly(random() % 2 ? server_ : server.get(), take);
  }
  EXPECT_TRUE(is_same(got, bytes));
}

TEST_P(DupWays, OriginalMayBeClosed) {
  const Fd client = duplicate(client_);
  send_all(client_, "before");
  pair_.client.close();
  EXPECT_EQ(recv_exactly(server_, 6), "before");
  expect_alive(client.get(), server_);
}

TEST_P(DupWays, PeerSeesTheEndOnlyAfterTheLastClose) {
  Fd client = duplicate(client_);
  client.close();
  expect_alive(client_, server_);
  client = duplicate(client_);
  pair_.client.close();
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  client.close();
  expect_end_of_stream(server_);
}

TEST_P(DupWays, MiddleOfAMessageMovesAlong) {
  send_all(client_, pattern(50'000));
  EXPECT_TRUE(is_same(recv_exactly(server_, 1), pattern(1)));
  const Fd server = duplicate(server_);
  pair_.server.close();
  EXPECT_TRUE(is_same(recv_exactly(server.get(), 49'999), pattern(50'000).substr(1)));
}

TEST_P(DupWays, FlagsAreTheSocketsOrTheDescriptors) {
  const Fd client = duplicate(client_);
  EXPECT_EQ((fcntl(client.get(), F_GETFD) & FD_CLOEXEC) != 0, GetParam().is_cloexec);
  make_nonblocking(client_);
  EXPECT_TRUE(is_nonblocking(client.get()));
  char byte;
  EXPECT_EQ(read(client.get(), &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  int off = 0;
  EXPECT_EQ(ioctl(client.get(), FIONBIO, &off), 0);
  EXPECT_FALSE(is_nonblocking(client_));
}

TEST_P(DupWays, OfAListener) {
  Listener listener = listen_loopback();
  const Fd copy = duplicate(listener.fd.get());
  listener.fd.close();
  const Fd client = dial(listener.address);
  const Fd server = accept_one(copy.get());
  expect_alive(client.get(), server.get());
}

TEST_P(DupWays, OfASocketBeforeItConnects) {
  const Listener listener = listen_loopback();
  const Fd early = make_client_socket();
  const Fd copy = duplicate(early.get());
  ASSERT_EQ(connect_to(early.get(), listener.address), 0);
  const Fd server = accept_one(listener.fd.get());
  expect_alive(copy.get(), server.get());
}

INSTANTIATE_TEST_SUITE_P(All, DupWays, testing::ValuesIn(kWays), call_name<Duplicator>);

TEST_F(Dup, LowestNumberAsked) {
  const Fd a(fcntl(client_, F_DUPFD, kHigh)), b(fcntl(client_, F_DUPFD, kHigh));
  EXPECT_EQ(a.get(), kHigh);
  EXPECT_EQ(b.get(), kHigh + 1);
}

TEST_F(Dup, OntoALiveSocketClosesIt) {
  const Pair other = connected_pair();
  ASSERT_EQ(dup2(client_, other.client.get()), other.client.get());
  expect_end_of_stream(other.server.get());
  expect_alive(other.client.get(), server_);
  pair_.client.close();
  expect_alive(other.client.get(), server_);
}

TEST_F(Dup, OfAFileOntoALiveSocketClosesIt) {
  const Fd file(open("/dev/zero", O_RDWR | O_CLOEXEC));
  ASSERT_EQ(dup2(file.get(), client_), client_);
  expect_end_of_stream(server_);
  char byte = 'x';
  EXPECT_EQ(read(client_, &byte, 1), 1);
  EXPECT_EQ(byte, '\0');
  EXPECT_EQ(write(client_, "gone", 4), 4);
  EXPECT_EQ(send(client_, "x", 1, 0), -1);
  EXPECT_EQ(errno, ENOTSOCK);
}

TEST_F(Dup, OfASocketOntoAFile) {
  const Fd file(open("/dev/null", O_RDWR | O_CLOEXEC));
  ASSERT_EQ(dup2(client_, file.get()), file.get());
  expect_alive(file.get(), server_);
}

TEST_F(Dup, OntoItself) {
  EXPECT_EQ(dup2(client_, client_), client_);
  EXPECT_EQ(dup3(client_, client_, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  expect_alive(client_, server_);
}

TEST_F(Dup, OfABadNumberLeavesTheTargetAlone) {
  EXPECT_EQ(dup2(-1, client_), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(dup2(client_, -1), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(dup3(client_, 100, 12345), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(fcntl(client_, F_DUPFD, -1), -1);
  EXPECT_EQ(errno, EINVAL);
  expect_alive(client_, server_);
}

TEST_F(Dup, OntoANumberBeyondALoweredLimitLeavesItAlone) {
  const Fd high(fcntl(server_, F_DUPFD, kHigh));
  pair_.server.close();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit lowered{kHigh / 2, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lowered), 0);
  EXPECT_EQ(dup2(STDERR_FILENO, high.get()), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(dup3(STDERR_FILENO, high.get(), O_CLOEXEC), -1);
  EXPECT_EQ(errno, EBADF);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  expect_alive(client_, high.get());
}

TEST_F(Dup, ACloseRangeThatIsRefusedClosesNothing) {
  constexpr unsigned kUnknown = 1 << 5;
  const auto number = static_cast<unsigned>(client_);
  EXPECT_EQ(close_range(number, number, kUnknown), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(close_range(number, number, kUnknown | CLOSE_RANGE_UNSHARE), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(close_range(number + 1, number, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  expect_alive(client_, server_);
}

// The others go on, whatever it does with the numbers.
TEST_F(Dup, AThreadThatClosesCopiesOfItsOwn) {
  expect_alive(client_, server_);
  std::thread([this] {
    const auto number = static_cast<unsigned>(client_);
    EXPECT_EQ(close_range(number, number, CLOSE_RANGE_UNSHARE), 0);
    EXPECT_EQ(dup2(STDERR_FILENO, client_), client_);
    EXPECT_EQ(close_range(number, number, 0), 0);
    EXPECT_EQ(dup2(STDERR_FILENO, client_), client_);
    EXPECT_EQ(close(client_), 0);
  }).join();
  expect_alive(client_, server_);
}

TEST_F(Dup, AThreadThatClosesCopiesOfItsOwnWhereOneDescriptorIsLeft) {
  expect_alive(client_, server_);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Fd> all;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) all.emplace_back(fd);
  all.pop_back();
  std::thread([this] {
    const auto number = static_cast<unsigned>(client_);
    EXPECT_EQ(close_range(number, number, CLOSE_RANGE_UNSHARE), 0);
    EXPECT_EQ(dup2(STDERR_FILENO, client_), client_);
    EXPECT_EQ(close(client_), 0);
  }).join();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  all.clear();
  expect_alive(client_, server_);
}

TEST_F(Dup, AProcessThatClosesCopiesOfItsOwn) {
  const auto number = static_cast<unsigned>(client_);
  EXPECT_EQ(close_range(number, number, CLOSE_RANGE_UNSHARE), 0);
  expect_end_of_stream(server_);
}

TEST_F(Dup, ANumberIsReusedForOtherThings) {
  const Fd lower(dup(STDERR_FILENO));  // takes the number the listener had
  const int number = pair_.client.get();
  pair_.client.close();
  expect_end_of_stream(server_);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd in(ends[0]), out(ends[1]);
  EXPECT_EQ(in.get(), number);
  EXPECT_EQ(write(out.get(), "pipe", 4), 4);
  char bytes[8];
  EXPECT_EQ(read(in.get(), bytes, sizeof bytes), 4);
  EXPECT_EQ(recv(in.get(), bytes, sizeof bytes, 0), -1);
  EXPECT_EQ(errno, ENOTSOCK);
}

TEST_F(Dup, ANumberIsReusedForAnotherConnection) {
  for (int round = 0; round < 50; ++round) {
    send_all(pair_.client.get(), "left over");
    await_queued(pair_.server.get(), 9);
    pair_.client.close();
    pair_.server.close();
    pair_ = connected_pair();
    expect_alive(pair_.client.get(), pair_.server.get());
  }
}

TEST_F(Dup, NoDescriptorIsLeftBehind) {
  pair_ = Pair{};
  const Fd before(dup(STDERR_FILENO));
  for (int round = 0; round < 20; ++round) {
    const Pair pair = connected_pair();
    const Fd copy(dup(pair.client.get()));
    expect_alive(copy.get(), pair.server.get());
  }
  const Fd after(dup(STDERR_FILENO));
  EXPECT_EQ(after.get(), before.get() + 1);
}

}  // namespace
}  // namespace ddpsock::shim_tests
