// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every operation once, between two sockets of one program.
#include <cstdlib>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

class Operations : public testing::Test {
 protected:
  Operations() { arm_alarm(); }
  Ends ends_ = connect_ends();
  const int client_ = ends_.client.get();
  const int server_ = ends_.server.get();
};

TEST_F(Operations, SendKeepsBoundaries) {
  std::array<std::string, 3> rooms{std::string(100, '\xa5'), std::string(100, '\xa5'),
                                   std::string(100, '\xa5')};
  for (size_t i = 0; i < rooms.size(); ++i) post_recv(server_, rooms[i], i);
  post_send(client_, "one", 10);
  post_send(client_, "", 11);
  post_send(client_, "three", 12, DDP_SOLICITED);
  EXPECT_EQ(next(server_, DDP_RECEIVED, 0).bytes, 3u);
  EXPECT_EQ(next(server_, DDP_RECEIVED, 1).bytes, 0u);
  const ddp_completion third = next(server_, DDP_RECEIVED, 2);
  EXPECT_EQ(third.bytes, 5u);
  EXPECT_EQ(third.flags, DDP_SOLICITED);
  EXPECT_EQ(third.fd, server_);
  EXPECT_EQ(rooms[0], "one" + std::string(97, '\xa5'));
  EXPECT_EQ(rooms[2], "three" + std::string(95, '\xa5'));
  for (const uint64_t cookie : {10u, 11u, 12u}) {
    const ddp_completion sent = next(client_, DDP_SENT, cookie);
    EXPECT_EQ(sent.status, 0);
    EXPECT_EQ(sent.fd, client_);
  }
}

TEST_F(Operations, GathersAndScatters) {
  std::string left(3, '.'), right(10, '.');
  const std::array<iovec, 2> rooms{part_of(left), part_of(right)};
  const ddp_recv_work receive{.cookie = 1, .iov = rooms.data(), .iov_count = 2, .reserved = 0};
  ASSERT_EQ(ddp_post_recv(server_, &receive, 1), 1);
  const std::array<iovec, 3> parts{part_of("ab"), part_of(""), part_of("cdefg")};
  ddp_send_work send = send_work(parts[0], 2);
  send.iov_count = 3;
  ASSERT_EQ(ddp_post_send(client_, &send, 1), 1);
  EXPECT_EQ(next(server_, DDP_RECEIVED, 1).bytes, 7u);
  EXPECT_EQ(left, "abc");
  EXPECT_EQ(right, "defg......");
}

TEST_F(Operations, SendsMegabytes) {
  std::string from(3'000'000, 'x'), to(from.size(), '.');
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 251);
  post_recv(server_, to, 1);
  post_send(client_, from, 2);
  EXPECT_EQ(next(server_, DDP_RECEIVED, 1).bytes, from.size());
  EXPECT_EQ(next(client_, DDP_SENT, 2).status, 0);
  EXPECT_TRUE(from == to);
}

TEST_F(Operations, InlineBuffersAreFreeAtOnce) {
  std::string room(64, '.'), bytes = "before";
  post_recv(server_, room);
  post_send(client_, bytes, 1, DDP_INLINE | DDP_MORE);
  bytes = "after!";
  std::string other(64, '.');
  post_recv(server_, other);
  post_send(client_, "", 2);
  EXPECT_EQ(next(server_, DDP_RECEIVED).bytes, 6u);
  EXPECT_EQ(room.substr(0, 6), "before");
}

TEST_F(Operations, ImmediatesCarryEightBytes) {
  std::string room(8, '.');
  post_recv(server_, room, 5);
  ddp_send_work work{};
  work.cookie = 6;
  work.flags = DDP_IMMEDIATE | DDP_SOLICITED;
  work.immediate = 0x0123'4567'89ab'cdef;
  ASSERT_EQ(ddp_post_send(client_, &work, 1), 1);
  const ddp_completion got = next(server_, DDP_RECEIVED, 5);
  EXPECT_EQ(got.flags, DDP_IMMEDIATE | DDP_SOLICITED);
  EXPECT_EQ(got.value, work.immediate);
  EXPECT_EQ(next(client_, DDP_SENT, 6).status, 0);
}

TEST_F(Operations, SilentRequestsCompleteSilently) {
  std::string first(8, '.'), second(8, '.');
  post_recv(server_, first);
  post_recv(server_, second);
  post_send(client_, "a", 1, DDP_SILENT);
  post_send(client_, "b", 2);
  EXPECT_EQ(next(client_).cookie, 2u);
  expect_nothing(client_);
}

TEST_F(Operations, WritesReadsAndAtomics) {
  alignas(8) std::array<uint64_t, 8> remote{100, 1, 2, 3};
  std::array<uint64_t, 8> local{};
  ddp_region theirs{}, ours{};
  ASSERT_EQ(ddp_reg(server_, remote.data(), sizeof remote,
                    DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC, &theirs),
            0);
  ASSERT_EQ(ddp_reg(client_, local.data(), sizeof local, DDP_LOCAL_WRITE, &ours), 0);
  EXPECT_EQ(theirs.length, sizeof remote);

  const uint64_t value = 77;
  const iovec part{const_cast<uint64_t*>(&value), sizeof value};
  const ddp_write_work write{.cookie = 1,
                             .iov = &part,
                             .iov_count = 1,
                             .flags = 0,
                             .remote_to = theirs.to + 8,
                             .remote_stag = theirs.stag,
                             .reserved = 0};
  ASSERT_EQ(ddp_post_write(client_, &write, 1), 1);
  EXPECT_EQ(next(client_, DDP_WRITTEN, 1).bytes, 8u);

  ddp_atomic_work atomic{.cookie = 2,
                         .operation = DDP_FETCH_ADD,
                         .flags = 0,
                         .operand = 5,
                         .compare = 0,
                         .remote_to = theirs.to,
                         .remote_stag = theirs.stag,
                         .reserved = 0};
  ASSERT_EQ(ddp_post_atomic(client_, &atomic, 1), 1);
  EXPECT_EQ(next(client_, DDP_ATOMIC_DONE, 2).value, 100u);
  atomic.operation = DDP_SWAP;
  atomic.operand = 9;
  ASSERT_EQ(ddp_post_atomic(client_, &atomic, 1), 1);
  EXPECT_EQ(next(client_, DDP_ATOMIC_DONE, 2).value, 105u);
  atomic.operation = DDP_COMPARE_SWAP;
  atomic.operand = 10;
  atomic.compare = 8;  // is 9
  ASSERT_EQ(ddp_post_atomic(client_, &atomic, 1), 1);
  EXPECT_EQ(next(client_, DDP_ATOMIC_DONE, 2).value, 9u);
  atomic.compare = 9;
  ASSERT_EQ(ddp_post_atomic(client_, &atomic, 1), 1);
  EXPECT_EQ(next(client_, DDP_ATOMIC_DONE, 2).value, 9u);

  const ddp_read_work read{.cookie = 3,
                           .address = local.data(),
                           .length = 32,
                           .stag = ours.stag,
                           .remote_to = theirs.to,
                           .remote_stag = theirs.stag,
                           .flags = DDP_FENCE};
  ASSERT_EQ(ddp_post_read(client_, &read, 1), 1);
  EXPECT_EQ(next(client_, DDP_READ, 3).bytes, 32u);
  EXPECT_EQ(local, (std::array<uint64_t, 8>{10, 77, 2, 3}));
  EXPECT_EQ(ddp_dereg(client_, ours.stag), 0);
  EXPECT_EQ(ddp_dereg(server_, theirs.stag), 0);
  EXPECT_ERRNO(EINVAL, ddp_dereg(server_, theirs.stag));
}

TEST_F(Operations, SendInvalidatesTheReceiversStag) {
  std::string memory(64, '.'), room(8, '.');
  ddp_region region{};
  ASSERT_EQ(ddp_reg(server_, memory.data(), memory.size(), DDP_REMOTE_WRITE, &region), 0);
  post_recv(server_, room, 1);
  const iovec part = part_of("x");
  ddp_send_work work = send_work(part, 2, DDP_INVALIDATE);
  work.invalidate = region.stag;
  ASSERT_EQ(ddp_post_send(client_, &work, 1), 1);
  const ddp_completion got = next(server_, DDP_RECEIVED, 1);
  EXPECT_EQ(got.flags, DDP_INVALIDATE);
  EXPECT_EQ(got.stag, region.stag);
  EXPECT_EQ(ddp_dereg(server_, region.stag), 0);
}

TEST_F(Operations, ShutdownLetsBothSidesEndInOrder) {
  std::string room(8, '.');
  post_recv(server_, room, 1);
  post_send(client_, "last", 2);
  ASSERT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(next(server_, DDP_RECEIVED, 1).bytes, 4u);
  EXPECT_EQ(next(server_, DDP_ENDED).status, 0);
  EXPECT_EQ(next(client_, DDP_SENT, 2).status, 0);
  EXPECT_EQ(next(client_, DDP_ENDED).status, 0);
  expect_nothing(client_);
}

TEST_F(Operations, ClosingEndsThePeer) {
  std::string room(8, '.');
  post_recv(server_, room, 1);
  ends_.client.close();
  const ddp_completion flushed = next(server_, DDP_RECEIVED, 1);
  EXPECT_EQ(flushed.status, ECANCELED);
  next(server_, DDP_ENDED);
  const iovec part = part_of("x");
  const ddp_send_work work = send_work(part);
  EXPECT_ERRNO(EPIPE, ddp_post_send(server_, &work, 1));
}

TEST_F(Operations, StatusTells) {
  const ddp_status status = status_of(client_);
  EXPECT_EQ(status.mode, static_cast<uint32_t>(DDP_MODE_MESSAGE));
  EXPECT_EQ(status.role, static_cast<uint32_t>(DDP_ROLE_INITIATOR));
  EXPECT_STREQ(status.engine, expected_engine());
  EXPECT_EQ(status.is_proved, status.engine == std::string_view("shm") ? 1u : 0u);
  // tests/message/meson.build and refused_test.py say which it must be; otherwise the kernel
  // decides.
  if (const char* wanted = getenv("PROGRESS_WANTED")) {
    EXPECT_STREQ(status.progress, wanted);
  } else {
    EXPECT_TRUE(std::string_view(status.progress) == "io_uring" ||
                std::string_view(status.progress) == "epoll")
        << status.progress;
  }
  EXPECT_EQ(status.mpa_revision, 2u);
  EXPECT_EQ(status.has_crc, 1u);
  EXPECT_EQ(status.ird, 16u);
  EXPECT_EQ(status.is_starting, 0u);
}

TEST_F(Operations, StatusCounts) {
  EXPECT_GT(status_of(server_).max_payload, 500u) << "known before anything was sent";
  // An initiator that has heard nothing yet sends more than it is told to.
  std::string answer(8, '.');
  post_recv(client_, answer, 3);
  post_send(server_, "x", 4);
  EXPECT_EQ(next(client_, DDP_RECEIVED, 3).status, 0);
  EXPECT_EQ(next(server_, DDP_SENT, 4).status, 0);
  const ddp_status before = status_of(client_);
  const std::string large(3 * before.max_payload, 'x');
  std::string room(large.size(), '.');
  post_recv(server_, room, 1);
  post_send(client_, large, 2);
  EXPECT_EQ(next(server_, DDP_RECEIVED, 1).status, 0);
  EXPECT_EQ(next(client_, DDP_SENT, 2).status, 0);
  const ddp_status sender = status_of(client_), receiver = status_of(server_);
  EXPECT_EQ(sender.bytes_sent, before.bytes_sent + large.size());
  EXPECT_EQ(sender.fpdus_sent, before.fpdus_sent + 3);
  EXPECT_EQ(receiver.bytes_received, large.size());
  EXPECT_EQ(receiver.fpdus_received, sender.fpdus_sent);
  const bool is_in_memory = std::string_view(receiver.engine) == "shm";
  EXPECT_EQ(receiver.crcs_checked, is_in_memory ? 0 : receiver.fpdus_received);
  EXPECT_EQ(receiver.bytes_sent, 1u);
}

}  // namespace
}  // namespace ddpsock::message_tests
