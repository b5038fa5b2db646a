// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a peer may not do ends its connection, and the memory stays as it was.
#include <algorithm>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

constexpr unsigned char kCanary = 0xa5;
constexpr unsigned kAllRemote = DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC;

class Remote : public testing::Test {
 protected:
  Remote() {
    arm_alarm();
    all_.fill(kCanary);
  }

  // The middle of all_: what lies beside it is watched, too.
  ddp_region offer(unsigned rights) {
    ddp_region region{};
    EXPECT_EQ(ddp_reg(server_, all_.data() + 64, 64, rights, &region), 0);
    return region;
  }
  bool is_untouched() const {
    return std::ranges::all_of(all_, [](unsigned char byte) { return byte == kCanary; });
  }
  void write(uint64_t to, uint32_t stag, size_t size) {
    const std::string bytes(size, 'w');
    const iovec part = part_of(bytes);
    const ddp_write_work work{.cookie = 1,
                              .iov = &part,
                              .iov_count = 1,
                              .flags = DDP_SILENT,
                              .remote_to = to,
                              .remote_stag = stag,
                              .reserved = 0};
    EXPECT_EQ(ddp_post_write(client_, &work, 1), 1);
    expect_terminates();
  }
  void read(uint64_t to, uint32_t stag, uint32_t size) {
    std::array<char, 256> sink{};
    ddp_region ours{};
    ASSERT_EQ(ddp_reg(client_, sink.data(), sink.size(), DDP_LOCAL_WRITE, &ours), 0);
    const ddp_read_work work{.cookie = 1,
                             .address = sink.data(),
                             .length = size,
                             .stag = ours.stag,
                             .remote_to = to,
                             .remote_stag = stag,
                             .flags = 0};
    EXPECT_EQ(ddp_post_read(client_, &work, 1), 1);
    const ddp_completion cut = next(client_, DDP_READ, 1);
    EXPECT_EQ(cut.status, ECANCELED);
    EXPECT_NE(cut.terminate, 0u);
    expect_terminates();
    EXPECT_TRUE(std::ranges::all_of(sink, [](char byte) { return byte == 0; }));
    ends_.client.close();  // the sink goes with this call
  }
  void add(uint64_t to, uint32_t stag) {
    ddp_atomic_work work{};
    work.cookie = 1;
    work.operand = 1;
    work.remote_to = to;
    work.remote_stag = stag;
    EXPECT_EQ(ddp_post_atomic(client_, &work, 1), 1);
    EXPECT_EQ(next(client_, DDP_ATOMIC_DONE, 1).status, ECANCELED);
    expect_terminates();
  }
  // The offender is told, the offended counts it as its own Terminate.
  void expect_terminates() {
    const ddp_completion theirs = next(server_, DDP_ENDED);
    EXPECT_EQ(theirs.status, EPROTO);
    EXPECT_NE(theirs.terminate, 0u);
    const ddp_completion ours = next(client_, DDP_ENDED);
    EXPECT_EQ(ours.status, EREMOTEIO);
    EXPECT_EQ(ours.terminate, theirs.terminate) << ddp_strerror(&ours);
    EXPECT_TRUE(is_untouched());
  }

  Ends ends_ = connect_ends();
  const int client_ = ends_.client.get();
  const int server_ = ends_.server.get();
  alignas(8) std::array<unsigned char, 192> all_;
};

TEST_F(Remote, WriteBehindTheRegion) {
  const ddp_region region = offer(kAllRemote);
  write(region.to + 60, region.stag, 5);
}
TEST_F(Remote, WriteBeforeTheRegion) {
  const ddp_region region = offer(kAllRemote);
  write(region.to - 1, region.stag, 8);
}
TEST_F(Remote, WriteWithAWrongKey) {
  const ddp_region region = offer(kAllRemote);
  write(region.to, region.stag ^ 1, 8);
}
TEST_F(Remote, WriteWithoutTheRight) {
  const ddp_region region = offer(DDP_REMOTE_READ);
  write(region.to, region.stag, 8);
}
TEST_F(Remote, WriteToADeregisteredRegion) {
  const ddp_region region = offer(kAllRemote);
  ASSERT_EQ(ddp_dereg(server_, region.stag), 0);
  write(region.to, region.stag, 8);
}
TEST_F(Remote, WriteWithTheStagOfALaterRegistration) {
  const ddp_region before = offer(kAllRemote);
  ASSERT_EQ(ddp_dereg(server_, before.stag), 0);
  const ddp_region region = offer(kAllRemote);
  ASSERT_NE(region.stag, before.stag);
  write(before.to, before.stag, 8);
}
TEST_F(Remote, ReadBehindTheRegion) {
  const ddp_region region = offer(kAllRemote);
  read(region.to, region.stag, 65);
}
TEST_F(Remote, ReadWithoutTheRight) {
  const ddp_region region = offer(DDP_REMOTE_WRITE);
  read(region.to, region.stag, 8);
}
TEST_F(Remote, ReadOfNoRegion) {
  read(0, 0x1234'5678, 8);
}
TEST_F(Remote, AtomicWithoutTheRight) {
  const ddp_region region = offer(DDP_REMOTE_READ | DDP_REMOTE_WRITE);
  add(region.to, region.stag);
}
TEST_F(Remote, AtomicNotAligned) {
  const ddp_region region = offer(kAllRemote);
  add(region.to + 4, region.stag);
}

TEST_F(Remote, MemoryOfAnotherConnection) {
  const Ends other = connect_ends();
  ddp_region region{};
  ASSERT_EQ(ddp_reg(other.server.get(), all_.data() + 64, 64, kAllRemote, &region), 0);
  write(region.to, region.stag, 8);
  // Its own peer may.
  const iovec part = part_of("mine");
  const ddp_write_work work{.cookie = 2,
                            .iov = &part,
                            .iov_count = 1,
                            .flags = 0,
                            .remote_to = region.to,
                            .remote_stag = region.stag,
                            .reserved = 0};
  ASSERT_EQ(ddp_post_write(other.client.get(), &work, 1), 1);
  EXPECT_EQ(next(other.client.get(), DDP_WRITTEN, 2).status, 0);
  while (is_untouched()) usleep(100);
}

TEST_F(Remote, ASendWithoutAReceive) {
  post_send(client_, "nobody waits", 1, DDP_SILENT);
  expect_terminates();
}

TEST_F(Remote, ASendLongerThanTheReceive) {
  std::string room(4, '.');
  post_recv(server_, room, 1);
  post_send(client_, "longer", 1, DDP_SILENT);
  EXPECT_EQ(next(server_, DDP_RECEIVED, 1).status, ECANCELED);
  expect_terminates();
}

TEST_F(Remote, AnStagThatIsNotToBeInvalidated) {
  std::string room(4, '.');
  post_recv(server_, room, 1);
  const iovec part = part_of("x");
  ddp_send_work work = send_work(part, 2, DDP_INVALIDATE | DDP_SILENT);
  work.invalidate = 0x00ab'cdef;
  ASSERT_EQ(ddp_post_send(client_, &work, 1), 1);
  EXPECT_EQ(next(server_, DDP_RECEIVED, 1).status, ECANCELED);
  expect_terminates();
}

}  // namespace
}  // namespace ddpsock::message_tests
