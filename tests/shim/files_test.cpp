// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls that move bytes between files, pipes and sockets, and the vectored and batched ones.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "kernel.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Files : public TcpTest {
 protected:
  static Fd file_of(const std::string& bytes) {
    Fd file(memfd_create("file", MFD_CLOEXEC));
    EXPECT_EQ(write(file.get(), bytes.data(), bytes.size()), ssize_t(bytes.size()));
    EXPECT_EQ(lseek(file.get(), 0, SEEK_SET), 0);
    return file;
  }
  static off_t place(const Fd& file) { return lseek(file.get(), 0, SEEK_CUR); }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
  const std::string bytes_ = pattern(20'000);
};

TEST_F(Files, SendfileFromTheFilesPlace) {
  const Fd file = file_of(bytes_);
  EXPECT_EQ(lseek(file.get(), 100, SEEK_SET), 100);
  EXPECT_EQ(sendfile(client_, file.get(), nullptr, 5'000), 5'000);
  EXPECT_EQ(place(file), 5'100);
  EXPECT_TRUE(is_same(recv_exactly(server_, 5'000), bytes_.substr(100, 5'000)));
}

TEST_F(Files, SendfileFromAGivenPlace) {
  const Fd file = file_of(bytes_);
  off_t offset = 7'000;
  EXPECT_EQ(sendfile(client_, file.get(), &offset, 3'000), 3'000);
  EXPECT_EQ(offset, 10'000);
  EXPECT_EQ(place(file), 0);
  EXPECT_TRUE(is_same(recv_exactly(server_, 3'000), bytes_.substr(7'000, 3'000)));
}

TEST_F(Files, Sendfile64) {
  const Fd file = file_of(bytes_);
  off64_t offset = 1;
  EXPECT_EQ(sendfile64(client_, file.get(), &offset, 10), 10);
  EXPECT_EQ(offset, 11);
  EXPECT_EQ(sendfile64(client_, file.get(), nullptr, 10), 10);
  EXPECT_EQ(place(file), 10);
  EXPECT_TRUE(is_same(recv_exactly(server_, 20), bytes_.substr(1, 10) + bytes_.substr(0, 10)));
}

TEST_F(Files, SendfileStopsAtTheEndOfTheFile) {
  const Fd file = file_of(bytes_);
  EXPECT_EQ(sendfile(client_, file.get(), nullptr, 1'000'000), 20'000);
  EXPECT_EQ(sendfile(client_, file.get(), nullptr, 1'000'000), 0);
  EXPECT_TRUE(is_same(recv_exactly(server_, 20'000), bytes_));
  expect_alive(client_, server_);
}

// The end of the file is the end of what waits for more: nothing is held back.
TEST_F(Files, SendfileBeyondTheEndHoldsNothingBack) {
  set_option(client_, IPPROTO_TCP, TCP_NODELAY, 1);
  expect_alive(client_, server_);
  for (const size_t size : {size_t{1}, size_t{20'000}}) {
    const std::string bytes = pattern(size);
    const Fd file = file_of(bytes);
    EXPECT_EQ(sendfile(client_, file.get(), nullptr, 1'000'000), ssize_t(size));
    EXPECT_EQ(kernel_unsent(client_), 0) << size;
    EXPECT_TRUE(is_same(recv_exactly(server_, size), bytes));
  }
}

TEST_F(Files, SendfileOfNothing) {
  const Fd file = file_of("");
  EXPECT_EQ(sendfile(client_, file.get(), nullptr, 10), 0);
  EXPECT_EQ(sendfile(client_, file.get(), nullptr, 0), 0);
  expect_alive(client_, server_);
}

TEST_F(Files, SendfileOfMuch) {
  const std::string much = pattern(8 * 1024 * 1024 + 5);
  const Fd file = file_of(much);
  std::jthread sender([&] {
    size_t total = 0;
    while (total < much.size()) {
      const ssize_t sent = sendfile(client_, file.get(), nullptr, much.size());
      ASSERT_GT(sent, 0) << strerror(errno);
      total += size_t(sent);
    }
    EXPECT_EQ(total, much.size());
  });
  EXPECT_TRUE(is_same(recv_exactly(server_, much.size()), much));
}

TEST_F(Files, SendfileToAFullPeer) {
  const std::string much = pattern(32 * 1024 * 1024);
  const Fd file = file_of(much);
  make_nonblocking(client_);
  size_t total = 0;
  ssize_t sent = 0;
  while ((sent = sendfile(client_, file.get(), nullptr, 1'000'000)) > 0) total += size_t(sent);
  EXPECT_EQ(sent, -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(place(file), off_t(total)) << "the file's place moves by what was sent";
  EXPECT_TRUE(is_same(recv_exactly(server_, total), much.substr(0, total)));
}

TEST_F(Files, SendfileBetweenOtherThings) {
  const Fd from = file_of(bytes_);
  const Fd to = file_of("");
  EXPECT_EQ(sendfile(to.get(), from.get(), nullptr, 30'000), 20'000);
  EXPECT_EQ(place(to), 20'000);
}

TEST_F(Files, SendfileErrors) {
  const Fd file = file_of(bytes_);
  EXPECT_EQ(sendfile(client_, -1, nullptr, 10), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(sendfile(-1, file.get(), nullptr, 10), -1);
  EXPECT_EQ(errno, EBADF);
  off_t negative = -1;
  EXPECT_EQ(sendfile(client_, file.get(), &negative, 10), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(sendfile(client_, file.get(), nullptr, 10), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(place(file), 0) << "nothing was sent";
}

TEST_F(Files, SpliceFromAPipeAndIntoOne) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd in(ends[0]), out(ends[1]);
  EXPECT_EQ(write(out.get(), bytes_.data(), 5'000), 5'000);
  EXPECT_EQ(splice(in.get(), nullptr, client_, nullptr, 5'000, 0), 5'000);
  await_queued(server_, 5'000);
  size_t total = 0;
  std::string got;
  while (total < 5'000) {
    const ssize_t moved = splice(server_, nullptr, out.get(), nullptr, 5'000 - total, 0);
    ASSERT_GT(moved, 0) << strerror(errno);
    total += size_t(moved);
  }
  std::string buffer(5'000, '\0');
  EXPECT_EQ(read(in.get(), buffer.data(), buffer.size()), 5'000);
  EXPECT_TRUE(is_same(buffer, bytes_.substr(0, 5'000)));
}

TEST_F(Files, VectorsWithFlags) {
  iovec from[] = {{const_cast<char*>("abc"), 3}, {const_cast<char*>("def"), 3}};
  EXPECT_EQ(pwritev2(client_, from, 2, -1, 0), 6);
  await_queued(server_, 6);
  char a[2], b[10];
  iovec to[] = {{a, sizeof a}, {b, sizeof b}};
  EXPECT_EQ(preadv2(server_, to, 2, -1, 0), 6);
  EXPECT_EQ(std::string(a, 2) + std::string(b, 4), "abcdef");
  EXPECT_EQ(preadv2(server_, to, 2, -1, RWF_NOWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// No call moves more than the kernel's.
TEST_F(Files, VectorsOfMoreThanACallMoves) {
  constexpr size_t kPart = 64 << 20, kParts = 41, kMost = 0x7fff'f000;
  void* const memory =
      mmap(nullptr, kPart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::array<iovec, kParts> parts;
  parts.fill({memory, kPart});
  std::jthread writer(
      [&] { EXPECT_EQ(writev(client_, parts.data(), kParts), ssize_t{kMost}) << errno; });
  std::array<iovec, kParts> room;
  room.fill({memory, kPart});
  msghdr message{};
  message.msg_iov = room.data();
  message.msg_iovlen = room.size();
  EXPECT_EQ(recvmsg(server_, &message, MSG_WAITALL | MSG_TRUNC), ssize_t{kMost}) << errno;
  writer.join();
  munmap(memory, kPart);
  expect_alive(client_, server_);
}

TEST_F(Files, PartsOfNegativeLength) {
  char byte = 'x';
  iovec parts[] = {{&byte, 1}, {&byte, SIZE_MAX}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const auto expect_invalid = [](ssize_t result) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, EINVAL);
  };
  expect_invalid(writev(client_, parts, 2));
  expect_invalid(pwritev2(client_, parts, 2, -1, 0));
  expect_invalid(sendmsg(client_, &message, 0));
  send_all(client_, "abc");
  await_queued(server_, 3);
  expect_invalid(readv(server_, parts, 2));
  expect_invalid(preadv2(server_, parts, 2, -1, 0));
  expect_invalid(recvmsg(server_, &message, 0));
  EXPECT_EQ(recv_exactly(server_, 3), "abc");
  expect_alive(client_, server_);
}

TEST_F(Files, ControlDataIsJudged) {
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  mmsghdr batch{};
  msghdr& message = batch.msg_hdr;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr& header = *CMSG_FIRSTHDR(&message);
  header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_IP, .cmsg_type = 9999};
  EXPECT_EQ(sendmsg(client_, &message, 0), 1) << "of another level";
  const auto expect_invalid = [&] {
    EXPECT_EQ(sendmsg(client_, &message, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(sendmmsg(client_, &batch, 1, 0), -1);
    EXPECT_EQ(errno, EINVAL);
  };
  header.cmsg_level = SOL_SOCKET;
  expect_invalid();
  header = {.cmsg_len = 1, .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  expect_invalid();
  message.msg_controllen = 0;
  EXPECT_EQ(sendmsg(client_, &message, 0), 1);
  EXPECT_EQ(recv_exactly(server_, 2), "xx");
  expect_alive(client_, server_);
}

class Batches : public Files {
 protected:
  static constexpr size_t kMessages = 4;
  Batches() {
    for (size_t at = 0; at < kMessages; ++at) {
      parts_[at] = {buffers_[at].data(), buffers_[at].size()};
      headers_[at].msg_hdr.msg_iov = &parts_[at];
      headers_[at].msg_hdr.msg_iovlen = 1;
    }
  }
  std::array<std::string, kMessages> buffers_{std::string(10, 'a'), std::string(20, 'b'),
                                              std::string(30, 'c'), std::string(40, 'd')};
  std::array<iovec, kMessages> parts_{};
  std::array<mmsghdr, kMessages> headers_{};
};

TEST_F(Batches, AreSentInOrder) {
  EXPECT_EQ(sendmmsg(client_, headers_.data(), kMessages, 0), int{kMessages});
  for (size_t at = 0; at < kMessages; ++at) EXPECT_EQ(headers_[at].msg_len, 10 * (at + 1));
  EXPECT_TRUE(
      is_same(recv_exactly(server_, 100), buffers_[0] + buffers_[1] + buffers_[2] + buffers_[3]));
}

TEST_F(Batches, AreReceivedInOrder) {
  send_all(client_, bytes_.substr(0, 65));
  await_queued(server_, 65);
  EXPECT_EQ(recvmmsg(server_, headers_.data(), kMessages, MSG_DONTWAIT, nullptr), 4);
  const std::array<unsigned, kMessages> lengths{10, 20, 30, 5};
  std::string got;
  for (size_t at = 0; at < kMessages; ++at) {
    EXPECT_EQ(headers_[at].msg_len, lengths[at]);
    got.append(buffers_[at], 0, headers_[at].msg_len);
  }
  EXPECT_TRUE(is_same(got, bytes_.substr(0, 65)));
  EXPECT_EQ(recvmmsg(server_, headers_.data(), kMessages, MSG_DONTWAIT, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// The first message finds that the connection has returned to plain TCP, the second the end.
TEST_F(Batches, GoOnWhereTheConnectionTurnsPlain) {
  if (column() == Column::kOneSided)
    GTEST_SKIP() << "connections with one-sided operations do not leave";
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd in(ends[0]), out(ends[1]);
  ASSERT_EQ(write(out.get(), "abcdefgh", 8), 8);
  ASSERT_EQ(splice(in.get(), nullptr, client_, nullptr, 8, 0), 8);
  ASSERT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(recvmmsg(server_, headers_.data(), 2, MSG_WAITFORONE, nullptr), 2);
  EXPECT_EQ(headers_[0].msg_len, 8u);
  EXPECT_EQ(headers_[1].msg_len, 0u);
}

TEST_F(Batches, WaitForOne) {
  send_all(client_, "abc");
  EXPECT_EQ(recvmmsg(server_, headers_.data(), kMessages, MSG_WAITFORONE, nullptr), 1);
  EXPECT_EQ(headers_[0].msg_len, 3u);
}

TEST_F(Batches, TellWhatIsLeftOfTheTime) {
  send_all(client_, bytes_.substr(0, 100));
  await_queued(server_, 100);
  for (timespec time : {timespec{-1, 0}, timespec{0, -1}, timespec{0, 1'000'000'000}}) {
    EXPECT_EQ(recvmmsg(server_, headers_.data(), kMessages, 0, &time), -1);
    EXPECT_EQ(errno, EINVAL);
  }
  timespec time{1000, 0};
  EXPECT_EQ(recvmmsg(server_, headers_.data(), kMessages, 0, &time), 4);
  EXPECT_LT(time.tv_sec, 1000);
  EXPECT_GT(time.tv_sec, 900);
}

}  // namespace
}  // namespace ddpsock::shim_tests
