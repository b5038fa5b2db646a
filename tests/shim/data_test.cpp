// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Bytes through every call that moves them: counts, gather and scatter, empty calls, what the
// address and control fields of a message come back as, and that no byte beyond the count is
// touched.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>
#include <tuple>
#include <vector>

#include "calls.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr char kCanary = static_cast<char>(0xa5);

class Data : public TcpTest {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

class DataCalls : public Data, public testing::WithParamInterface<std::tuple<Writer, Reader>> {
 protected:
  const Writer& writer() const { return std::get<0>(GetParam()); }
  const Reader& reader() const { return std::get<1>(GetParam()); }
};

std::string pair_name(const testing::TestParamInfo<std::tuple<Writer, Reader>>& way) {
  return std::string(std::get<0>(way.param).name) + "_" + std::get<1>(way.param).name;
}

TEST_P(DataCalls, CarriesAMessageEachWay) {
  const std::string request = pattern(300, 1), reply = pattern(7000, 2);
  std::vector<char> buffer(8000);
  ASSERT_EQ(writer().write(client_, request.data(), request.size()), 300);
  await_queued(server_, 300);
  ASSERT_EQ(reader().read(server_, buffer.data(), buffer.size()), 300);
  EXPECT_TRUE(is_same(std::string(buffer.data(), 300), request));
  ASSERT_EQ(writer().write(server_, reply.data(), reply.size()), 7000);
  await_queued(client_, 7000);
  ASSERT_EQ(reader().read(client_, buffer.data(), buffer.size()), 7000);
  EXPECT_TRUE(is_same(std::string(buffer.data(), 7000), reply));
}

TEST_P(DataCalls, ABufferThatIsNowhereIsAFaultThatTakesNothing) {
  void* const outside = reinterpret_cast<void*>(-1);  // of every program's memory
  void* volatile null = nullptr;                      // the compiler is not to know
  const auto expect_error = [](ssize_t result, int error) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, error) << strerror(errno);
  };
  make_nonblocking(server_);
  std::vector<char> buffer(100);
  expect_error(writer().write(client_, outside, 9), EFAULT);
  expect_error(writer().write(client_, null, 9), EFAULT);
  expect_error(reader().read(server_, outside, 9), EFAULT);
  expect_error(reader().read(server_, null, 9), EAGAIN);
  ASSERT_EQ(writer().write(client_, "some bytes", 10), 10);
  await_queued(server_, 10);
  expect_error(reader().read(server_, outside, 9), EFAULT);
  expect_error(reader().read(server_, null, 9), EFAULT);
  ASSERT_EQ(reader().read(server_, buffer.data(), buffer.size()), 10);
  EXPECT_EQ(std::string(buffer.data(), 10), "some bytes");
  shutdown(client_, SHUT_WR);
  pollfd end{server_, POLLIN, 0};
  ASSERT_EQ(poll(&end, 1, 5000), 1);
  EXPECT_EQ(reader().read(server_, null, 9), 0);
}

TEST_F(Data, VectorsAndMessagesThatAreNowhereAreFaults) {
  const auto* outside = reinterpret_cast<iovec*>(-1);
  iovec* volatile null = nullptr;
  const auto expect_fault = [](ssize_t result) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, EFAULT) << strerror(errno);
  };
  send_all(client_, "bytes");
  await_queued(server_, 5);
  for (iovec* parts : {const_cast<iovec*>(outside), static_cast<iovec*>(null)}) {
    expect_fault(writev(client_, parts, 1));
    expect_fault(readv(server_, parts, 1));
    expect_fault(pwritev2(client_, parts, 1, -1, 0));
    expect_fault(preadv2(server_, parts, 1, -1, 0));
    auto* message = reinterpret_cast<msghdr*>(parts);
    expect_fault(sendmsg(client_, message, 0));
    expect_fault(recvmsg(server_, message, 0));
    expect_fault(sendmmsg(client_, reinterpret_cast<mmsghdr*>(parts), 1, 0));
    expect_fault(recvmmsg(server_, reinterpret_cast<mmsghdr*>(parts), 1, 0, nullptr));
    msghdr of_nothing{};
    of_nothing.msg_iov = parts;
    of_nothing.msg_iovlen = 1;
    expect_fault(sendmsg(client_, &of_nothing, 0));
    expect_fault(recvmsg(server_, &of_nothing, 0));
  }
  EXPECT_EQ(recv_exactly(server_, 5), "bytes");
}

TEST_F(Data, NamesThatNothingCouldBeAreRefused) {
  const auto expect_error = [](ssize_t result, int error) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, error) << strerror(errno);
  };
  sockaddr_in name{};
  auto* const where = reinterpret_cast<sockaddr*>(&name);
  auto* const outside = reinterpret_cast<sockaddr*>(-1);
  char buffer[10];
  expect_error(sendto(client_, "bytes", 5, 0, where, static_cast<socklen_t>(-1)), EINVAL);
  expect_error(sendto(client_, "bytes", 5, 0, where, sizeof(sockaddr_storage) + 1), EINVAL);
  expect_error(sendto(client_, "bytes", 5, 0, outside, sizeof name), EFAULT);
  EXPECT_EQ(sendto(client_, "bytes", 5, 0, outside, 0), 5);
  await_queued(server_, 5);
  iovec part{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_name = &name;
  message.msg_namelen = static_cast<socklen_t>(-1);
  expect_error(recvmsg(server_, &message, 0), EINVAL);
  expect_error(sendmsg(client_, &message, 0), EINVAL);
  // Here the bytes are gone.
  socklen_t length = static_cast<socklen_t>(-1);
  expect_error(recvfrom(server_, buffer, 2, 0, where, &length), EINVAL);
  expect_error(recvfrom(server_, buffer, 2, 0, where, nullptr), EFAULT);
  EXPECT_EQ(recv_exactly(server_, 1), "s");
}

// It tells whether there is something.
TEST_F(Data, RecvOfNothing) {
  char byte;
  for (int round = 0; round < 12; ++round) {
    std::jthread sender([&] {
      sleep_ms(2);
      send_all(client_, "a");
    });
    EXPECT_EQ(recv_exactly(server_, 1), "a");
    EXPECT_EQ(recv(server_, &byte, 0, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  std::jthread sender([&] {
    sleep_ms(30);
    send_all(client_, "b");
  });
  EXPECT_EQ(recv(server_, &byte, 0, 0), 0);
  EXPECT_EQ(recv(server_, &byte, 1, MSG_DONTWAIT), 1) << "it did not wait";
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(recv(server_, &byte, 0, 0), 0);
}

TEST_P(DataCalls, TouchesNoByteBeyondTheCount) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    const std::string bytes = pattern(random_size(random, 1, 5000), round);
    ASSERT_EQ(writer().write(client_, bytes.data(), bytes.size()), ssize_t(bytes.size()));
    size_t have = 0;
    while (have < bytes.size()) {
      std::string buffer(random_size(random, 1, 6000), kCanary);
      const ssize_t got = reader().read(server_, buffer.data(), buffer.size());
      ASSERT_GT(got, 0);
      const auto count = static_cast<size_t>(got);
      EXPECT_TRUE(is_same(buffer.substr(0, count), bytes.substr(have, count)));
      EXPECT_EQ(buffer.find_first_not_of(kCanary, count), std::string::npos);
      have += count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DataCalls,
                         testing::Combine(testing::ValuesIn(kWriters), testing::ValuesIn(kReaders)),
                         pair_name);

TEST_F(Data, ReaderMayPutATerminatorAfterTheCount) {
  send_all(client_, "hello");
  await_queued(server_, 5);
  send_all(client_, "world");
  await_queued(server_, 10);
  char buffer[6];
  ASSERT_EQ(recv(server_, buffer, 5, 0), 5);
  buffer[5] = '\0';
  EXPECT_STREQ(buffer, "hello");
  EXPECT_EQ(recv_exactly(server_, 5), "world");
}

TEST_F(Data, EmptyWriteSendsNothing) {
  EXPECT_EQ(write(client_, "", 0), 0);
  EXPECT_EQ(send(client_, "", 0, 0), 0);
  const iovec none{nullptr, 0};
  EXPECT_EQ(writev(client_, &none, 1), 0);
  EXPECT_EQ(writev(client_, &none, 0), 0);
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  expect_alive(client_, server_);
}

TEST_F(Data, EmptyReadOfAnIdleSocket) {
  char byte;
  EXPECT_EQ(read(server_, &byte, 0), 0);
  const iovec none{&byte, 0};
  EXPECT_EQ(readv(server_, &none, 1), 0);
  EXPECT_EQ(recv(server_, &byte, 0, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  expect_alive(client_, server_);
}

TEST_F(Data, EmptyReadTakesNothing) {
  send_all(client_, "abc");
  await_queued(server_, 3);
  char byte = kCanary;
  EXPECT_EQ(read(server_, &byte, 0), 0);
  EXPECT_EQ(recv(server_, &byte, 0, 0), 0);
  EXPECT_EQ(byte, kCanary);
  EXPECT_EQ(recv_exactly(server_, 3), "abc");
}

TEST_F(Data, GathersAndScattersManySmallParts) {
  const std::string bytes = pattern(IOV_MAX);
  std::string out(IOV_MAX, kCanary);
  std::vector<iovec> from(IOV_MAX), to(IOV_MAX);
  for (size_t at = 0; at < IOV_MAX; ++at) {
    from[at] = {const_cast<char*>(&bytes[at]), 1};
    to[IOV_MAX - 1 - at] = {&out[at], 1};
  }
  ASSERT_EQ(writev(client_, from.data(), IOV_MAX), IOV_MAX);
  await_queued(server_, IOV_MAX);
  ASSERT_EQ(readv(server_, to.data(), IOV_MAX), IOV_MAX);
  EXPECT_TRUE(is_same(out, std::string(bytes.rbegin(), bytes.rend())));
}

TEST_F(Data, RefusesBadVectorCounts) {
  std::vector<iovec> parts(IOV_MAX + 1);
  EXPECT_EQ(writev(client_, parts.data(), IOV_MAX + 1), -1);
  EXPECT_EQ(errno, EINVAL);
  volatile int negative = -1;  // hidden from the compiler, which would warn
  EXPECT_EQ(readv(server_, parts.data(), negative), -1);
  EXPECT_EQ(errno, EINVAL);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = IOV_MAX + 1;
  EXPECT_EQ(sendmsg(client_, &message, 0), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  expect_alive(client_, server_);
}

TEST_F(Data, ScattersOverUnevenParts) {
  const std::string bytes = pattern(10000);
  send_all(client_, bytes);
  await_queued(server_, 10000);
  std::string a(1, kCanary), b(4095, kCanary), c(3000, kCanary), d(9000, kCanary);
  iovec parts[] = {
      {a.data(), 1}, {b.data(), 4095}, {nullptr, 0}, {c.data(), 3000}, {d.data(), 9000}};
  ASSERT_EQ(readv(server_, parts, 5), 10000);
  EXPECT_TRUE(is_same(a + b + c + d.substr(0, 2904), bytes));
  EXPECT_EQ(d.find_first_not_of(kCanary, 2904), std::string::npos);
}

TEST_F(Data, RecvfromGivesNoAddress) {
  send_all(client_, "x");
  sockaddr_in from;
  memset(&from, 0xa5, sizeof from);
  const sockaddr_in before = from;
  socklen_t length = sizeof from;
  char byte;
  ASSERT_EQ(recvfrom(server_, &byte, 1, 0, reinterpret_cast<sockaddr*>(&from), &length), 1);
  EXPECT_EQ(length, 0u);
  EXPECT_EQ(memcmp(&from, &before, sizeof from), 0);
}

TEST_F(Data, SendtoIgnoresTheAddress) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(sendto(client_, "abc", 3, 0, reinterpret_cast<sockaddr*>(&to), sizeof to), 3);
  EXPECT_EQ(recv_exactly(server_, 3), "abc");
}

TEST_F(Data, RecvmsgFillsInTheHeader) {
  send_all(client_, "abcdef");
  await_queued(server_, 6);
  char bytes[4], control[64];
  sockaddr_in name{};
  iovec part{bytes, sizeof bytes};
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = sizeof name;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  message.msg_flags = -1;
  ASSERT_EQ(recvmsg(server_, &message, 0), 4);
  EXPECT_EQ(message.msg_namelen, 0u);
  EXPECT_EQ(message.msg_controllen, 0u);
  EXPECT_EQ(message.msg_flags, 0);
  EXPECT_EQ(message.msg_iovlen, 1u);
  EXPECT_EQ(part.iov_len, sizeof bytes);
}

TEST_F(Data, WritesLargerThanEveryBufferArriveWhole) {
  const std::string bytes = pattern(3 * 1024 * 1024 + 17);
  std::jthread sender(
      [&] { EXPECT_EQ(write(client_, bytes.data(), bytes.size()), ssize_t(bytes.size())); });
  EXPECT_TRUE(is_same(recv_exactly(server_, bytes.size()), bytes));
}

TEST_F(Data, OneByteAtATimeOfA64KBWrite) {
  const std::string bytes = pattern(64 * 1024);
  std::jthread sender([&] { send_all(client_, bytes); });
  std::string got;
  char byte;
  while (got.size() < bytes.size() && read(server_, &byte, 1) == 1) got.push_back(byte);
  EXPECT_TRUE(is_same(got, bytes));
}

TEST_F(Data, ManyOneByteWritesAreOneRead) {
  make_nonblocking(server_);
  const std::string bytes = pattern(2000);
  for (const char& byte : bytes) ASSERT_EQ(write(client_, &byte, 1), 1);
  await_queued(server_, 2000);
  std::string buffer(4000, kCanary);
  ASSERT_EQ(read(server_, buffer.data(), buffer.size()), 2000);
  EXPECT_TRUE(is_same(buffer.substr(0, 2000), bytes));
}

}  // namespace
}  // namespace ddpsock::shim_tests
