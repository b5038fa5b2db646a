// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is wrong with a call is said at once, by the errno that ddpsock.h names.
#include <fcntl.h>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

class Refusals : public testing::Test {
 protected:
  Refusals() { arm_alarm(); }
};

TEST_F(Refusals, CallsOnWhatIsNotInMessageMode) {
  const Fd plain = make_socket();
  ddp_region region;
  ddp_completion completion;
  char byte;
  EXPECT_ERRNO(EOPNOTSUPP, ddp_reg(plain.get(), &byte, 1, DDP_REMOTE_READ, &region));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_poll(plain.get(), &completion, 1));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_event_fd(STDIN_FILENO));
  EXPECT_ERRNO(EBADF, ddp_poll(-1, &completion, 1));
  EXPECT_ERRNO(EBADF, ddp_wait(1'000'000, &completion, 1, 0));
  EXPECT_ERRNO(EBADF, ddp_establish(999, 0));
  Fd closed = make_socket();
  set_mode(closed.get());
  const int number = closed.get();
  EXPECT_EQ(ddp_poll(number, &completion, 1), 0);
  closed.close();
  EXPECT_ERRNO(EBADF, ddp_poll(number, &completion, 1));
  const int spin = 5;
  EXPECT_ERRNO(EOPNOTSUPP, set_option(plain.get(), DDP_SPIN_US, spin));
  EXPECT_ERRNO(ENOPROTOOPT, set_option(plain.get(), 77, spin));
}

TEST_F(Refusals, NullPointers) {
  const Fd fd = make_socket();
  set_mode(fd.get());
  EXPECT_ERRNO(EFAULT, ddp_poll(fd.get(), nullptr, 1));
  EXPECT_ERRNO(EFAULT, ddp_wait(fd.get(), nullptr, 1, 0));
  EXPECT_ERRNO(EFAULT, ddp_post_send(fd.get(), nullptr, 1));
  char byte;
  EXPECT_ERRNO(EFAULT, ddp_reg(fd.get(), &byte, 1, DDP_REMOTE_READ, nullptr));
  const ddp_recv_work receive{.cookie = 0, .iov = nullptr, .iov_count = 1, .reserved = 0};
  EXPECT_ERRNO(EFAULT, ddp_post_recv(fd.get(), &receive, 1));
  EXPECT_EQ(ddp_post_send(fd.get(), nullptr, 0), 0);
  ddp_completion completion;
  EXPECT_ERRNO(EINVAL, ddp_wait(fd.get(), &completion, 0, 0));
  EXPECT_STRNE(ddp_strerror(nullptr), "");
}

TEST_F(Refusals, Registrations) {
  const Fd fd = make_socket(), other = make_socket();
  set_mode(fd.get());
  set_mode(other.get());
  std::array<char, 64> memory;
  ddp_region region{};
  EXPECT_ERRNO(EINVAL, ddp_reg(fd.get(), memory.data(), 0, DDP_REMOTE_READ, &region));
  EXPECT_ERRNO(EINVAL, ddp_reg(fd.get(), nullptr, 8, DDP_REMOTE_READ, &region));
  EXPECT_ERRNO(EINVAL, ddp_reg(fd.get(), memory.data(), 64, 0, &region));
  EXPECT_ERRNO(EINVAL, ddp_reg(fd.get(), memory.data(), 64, 0x80, &region));
  EXPECT_ERRNO(EINVAL, ddp_reg(fd.get(), memory.data(), SIZE_MAX, DDP_REMOTE_READ, &region));
  ASSERT_EQ(ddp_reg(fd.get(), memory.data(), 64, DDP_REMOTE_READ, &region), 0);
  EXPECT_ERRNO(EINVAL, ddp_dereg(other.get(), region.stag));  // another's
  EXPECT_ERRNO(EINVAL, ddp_dereg(fd.get(), region.stag + 1));
  EXPECT_EQ(ddp_dereg(fd.get(), region.stag), 0);
  EXPECT_ERRNO(EINVAL, ddp_dereg(fd.get(), region.stag));
}

TEST_F(Refusals, AllRegistrationsCanBeHadAgain) {
  std::array<char, 8> memory;
  for (int round = 0; round < 2; ++round) {
    const Fd fd = make_socket();
    set_mode(fd.get());
    ddp_region region{};
    unsigned count = 0;
    while (ddp_reg(fd.get(), memory.data(), 8, DDP_REMOTE_READ, &region) == 0) ++count;
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_EQ(count, 8192u);
  }
}

TEST_F(Refusals, RequestsThatCannotBe) {
  const Ends ends = connect_ends();
  const int fd = ends.client.get();
  const iovec part = part_of("abc");
  const auto send_with = [&](uint32_t flags) {
    const ddp_send_work work = send_work(part, 0, flags);
    return ddp_post_send(fd, &work, 1);
  };
  EXPECT_ERRNO(EINVAL, send_with(0x4000'0000));
  EXPECT_ERRNO(EINVAL, send_with(DDP_IMMEDIATE));  // with bytes
  ddp_send_work work = send_work(part);
  work.reserved = 1;
  EXPECT_ERRNO(EINVAL, ddp_post_send(fd, &work, 1));

  const std::array<iovec, 9> parts{part, part, part, part, part, part, part, part, part};
  work = send_work(parts[0]);
  work.iov_count = 9;
  EXPECT_ERRNO(E2BIG, ddp_post_send(fd, &work, 1));
  const std::string large(65, 'x');
  const iovec large_part = part_of(large);
  work = send_work(large_part, 0, DDP_INLINE);
  EXPECT_ERRNO(EMSGSIZE, ddp_post_send(fd, &work, 1));
  const iovec huge{part.iov_base, size_t{1} << 32};
  work = send_work(huge);
  EXPECT_ERRNO(EMSGSIZE, ddp_post_send(fd, &work, 1));

  ddp_atomic_work atomic{};
  atomic.operation = 3;
  EXPECT_ERRNO(EINVAL, ddp_post_atomic(fd, &atomic, 1));
  ddp_write_work write{};
  write.flags = DDP_SOLICITED;
  EXPECT_ERRNO(EINVAL, ddp_post_write(fd, &write, 1));
}

TEST_F(Refusals, ReadsIntoWhatIsNotOurs) {
  const Ends ends = connect_ends();
  const int fd = ends.client.get();
  std::array<char, 64> memory{}, foreign{};
  ddp_region region{}, servers{};
  ASSERT_EQ(ddp_reg(fd, memory.data(), memory.size(), DDP_LOCAL_WRITE, &region), 0);
  ASSERT_EQ(ddp_reg(ends.server.get(), foreign.data(), 64, DDP_LOCAL_WRITE, &servers), 0);
  ddp_read_work read{.cookie = 0,
                     .address = memory.data(),
                     .length = 65,
                     .stag = region.stag,
                     .remote_to = 0,
                     .remote_stag = 1,
                     .flags = 0};
  EXPECT_ERRNO(EACCES, ddp_post_read(fd, &read, 1));
  read.length = 64;
  read.stag = servers.stag;
  read.address = foreign.data();
  EXPECT_ERRNO(EACCES, ddp_post_read(fd, &read, 1));  // registered for another connection
  ASSERT_EQ(ddp_dereg(fd, region.stag), 0);
  ASSERT_EQ(ddp_reg(fd, memory.data(), memory.size(), DDP_REMOTE_READ, &region), 0);
  read.stag = region.stag;
  read.address = memory.data();
  EXPECT_ERRNO(EACCES, ddp_post_read(fd, &read, 1));  // without the right
}

TEST_F(Refusals, ReadsThatThePeerDoesNotTake) {
  const Ends ends = connect_ends({.server = {64, 64, 0, 0}});
  std::array<char, 8> memory{};
  ddp_region region{};
  ASSERT_EQ(ddp_reg(ends.client.get(), memory.data(), 8, DDP_LOCAL_WRITE, &region), 0);
  const ddp_read_work read{.cookie = 0,
                           .address = memory.data(),
                           .length = 8,
                           .stag = region.stag,
                           .remote_to = 0,
                           .remote_stag = 1,
                           .flags = 0};
  EXPECT_ERRNO(ENOTSUP, ddp_post_read(ends.client.get(), &read, 1));
}

TEST_F(Refusals, PostingPastTheQueueAcceptsAPrefix) {
  const Ends ends = connect_ends({.client = {4, 3, 1, 1}});
  const int fd = ends.client.get();
  std::array<std::string, 5> rooms;
  std::array<iovec, 5> parts;
  std::array<ddp_recv_work, 5> receives;
  for (size_t i = 0; i < rooms.size(); ++i) {
    rooms[i].resize(8);
    parts[i] = part_of(rooms[i]);
    receives[i] = recv_work(parts[i], i);
  }
  errno = 0;
  EXPECT_EQ(ddp_post_recv(fd, receives.data(), 5), 3);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_ERRNO(EAGAIN, ddp_post_recv(fd, receives.data() + 3, 2));

  // Reads of a peer that does not answer stay in the queue.
  std::array<std::string, 8> answers;
  for (std::string& room : answers) post_recv(ends.server.get(), room = std::string(8, '.'));
  std::array<ddp_send_work, 6> sends;
  const iovec part = part_of("x");
  for (size_t i = 0; i < sends.size(); ++i) sends[i] = send_work(part, i);
  EXPECT_EQ(ddp_post_send(fd, sends.data(), 6), 4);
  EXPECT_EQ(errno, EAGAIN);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(next(fd, DDP_SENT, i).status, 0);
  EXPECT_EQ(ddp_post_send(fd, sends.data() + 4, 2), 2);
  EXPECT_EQ(next(fd, DDP_SENT, 4).status, 0);
  EXPECT_EQ(next(fd, DDP_SENT, 5).status, 0);
  expect_nothing(fd);
}

TEST_F(Refusals, AWrongRequestAmongRightOnes) {
  const Ends ends = connect_ends();
  const int fd = ends.client.get();
  std::string room(8, '.');
  post_recv(ends.server.get(), room, 1);
  const iovec part = part_of("right");
  const std::array<ddp_send_work, 2> sends{send_work(part, 1), send_work(part, 2, DDP_IMMEDIATE)};
  errno = 0;
  EXPECT_EQ(ddp_post_send(fd, sends.data(), 2), 1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 1).bytes, 5u);
  EXPECT_EQ(next(fd, DDP_SENT, 1).status, 0);
  expect_nothing(fd);
}

TEST_F(Refusals, BeforeAndAfterTheConnection) {
  const Fd fd = make_socket();
  set_mode(fd.get());
  const iovec part = part_of("x");
  const ddp_send_work work = send_work(part);
  EXPECT_ERRNO(ENOTCONN, ddp_post_send(fd.get(), &work, 1));
  EXPECT_ERRNO(ENOTCONN, ddp_establish(fd.get(), 0));
  EXPECT_ERRNO(ENOTCONN, shutdown(fd.get(), SHUT_WR));
  Ends ends = connect_ends();
  ends.server.close();
  EXPECT_EQ(next(ends.client.get()).kind, DDP_ENDED);
  EXPECT_ERRNO(EPIPE, ddp_post_send(ends.client.get(), &work, 1));
  EXPECT_ERRNO(EPIPE, ddp_establish(ends.client.get(), 0));
  EXPECT_ERRNO(ENOTCONN, shutdown(ends.client.get(), SHUT_WR));
  ddp_completion completion;
  EXPECT_ERRNO(EPIPE, ddp_wait(ends.client.get(), &completion, 1, -1));
}

TEST_F(Refusals, OptionsOfWhatIsNotOpen) {
  Fd closed = make_socket();
  const int number = closed.get();
  closed.close();
  for (const int fd : {-1, number, 1'000'000}) {
    for (int name = DDP_MODE; name <= DDP_SRQ_LIMIT; ++name) {
      int value = 1;
      socklen_t size = sizeof value;
      EXPECT_ERRNO(EBADF, setsockopt(fd, SOL_DDP, name, &value, size));
      EXPECT_ERRNO(EBADF, getsockopt(fd, SOL_DDP, name, &value, &size));
      EXPECT_ERRNO(EBADF, setsockopt(fd, SOL_DDP, name, nullptr, 0));
    }
  }
}

TEST_F(Refusals, WishesThatComeTooLateOrCannotBe) {
  const Fd fd = make_socket();
  set_mode(fd.get());
  EXPECT_ERRNO(EINVAL, set_option(fd.get(), DDP_DEPTHS, ddp_depths{0, 1, 1, 1}));
  EXPECT_ERRNO(EINVAL, set_option(fd.get(), DDP_DEPTHS, ddp_depths{1, 1, 129, 1}));
  EXPECT_ERRNO(EINVAL, set_option(fd.get(), DDP_CQ, fd.get()));
  EXPECT_ERRNO(EINVAL, set_option(fd.get(), DDP_PROGRESS, 7));
  const std::array<char, 509> long_data{};
  EXPECT_ERRNO(EINVAL, set_option(fd.get(), DDP_PRIVATE_DATA, long_data));
  const ddp_depths depths{10, 20, 3, 4};
  EXPECT_EQ(set_option(fd.get(), DDP_DEPTHS, depths), 0);
  ddp_depths told{};
  socklen_t size = sizeof told;
  EXPECT_EQ(getsockopt(fd.get(), SOL_DDP, DDP_DEPTHS, &told, &size), 0);
  EXPECT_EQ(told.receive, 20u);
  std::string room(8, '.');
  post_recv(fd.get(), room);
  EXPECT_ERRNO(EBUSY, set_option(fd.get(), DDP_DEPTHS, depths));
  EXPECT_ERRNO(EBUSY, set_option(fd.get(), DDP_MARKERS, 1));
  EXPECT_ERRNO(EINVAL, ddp_open_cq(0));
  EXPECT_ERRNO(EINVAL, ddp_open_cq(65'537));
}

TEST_F(Refusals, BytesHaveNoWayThrough) {
  const Ends ends = connect_ends();
  char byte = 'x';
  for (const int fd : {ends.client.get(), ends.server.get()}) {
    EXPECT_ERRNO(EOPNOTSUPP, read(fd, &byte, 1));
    EXPECT_ERRNO(EOPNOTSUPP, write(fd, &byte, 1));
    EXPECT_ERRNO(EOPNOTSUPP, recv(fd, &byte, 1, MSG_PEEK));
    EXPECT_ERRNO(EOPNOTSUPP, send(fd, &byte, 1, 0));
    EXPECT_ERRNO(EOPNOTSUPP, dprintf(fd, "x"));
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  std::string room(8, '.');
  post_recv(ends.server.get(), room);
  post_send(ends.client.get(), "still");
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED).bytes, 5u);
}

}  // namespace
}  // namespace ddpsock::message_tests
