// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A peer of this host and user that writes what it likes into the memory that the queue pairs of a
// byte stream share (doc/decisions/0065). It may end its own connection and nothing else. More with
// DDPSOCK_ATTACKS=5000.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "ddp/segment.h"
#include "engine/memory/message_lane.h"
#include "message/connection.h"
#include "rdmap/format.h"
#include "shm/segment.h"
#include "stream/stream_testing.h"

namespace ddpsock::message {
namespace {

using engine::Buffer;
using engine::MemoryEnd;
using engine::Role;

constexpr int kPatienceMs = 20'000;

// Two ends in memory, and a queue pair at each.
struct Linked {
  Linked() {
    // The first mapping of this connection here is the one end's own, which is shared.
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(a.send(Buffer(5, 'h')).count, 5);
      EXPECT_EQ(b.recv(5).size(), 5u);
      EXPECT_EQ(b.send(Buffer(5, 'h')).count, 5);
      EXPECT_EQ(a.recv(5).size(), 5u);
    }
    const auto mapped = engine::mapped_segments();
    EXPECT_FALSE(mapped.empty());
    shared = reinterpret_cast<engine::shm::Segment*>(mapped.back().first)->queue_pairs();
    x = *Connection::make({});
    y = *Connection::make({});
    EXPECT_TRUE(x->begin_on_stream(a.fd, a.s->one_sided_way()).has_value());
    EXPECT_TRUE(y->begin_on_stream(b.fd, b.s->one_sided_way()).has_value());
    EXPECT_TRUE(a.s->one_sided_way().memory() && b.s->one_sided_way().memory());
    secret = engine::shm::usable_secret(a.s->one_sided_way().memory()->secret);
  }
  ~Linked() {
    for (Connection* c : {x, y}) c->close();
    for (Connection* c : {x, y}) c->destroy();
  }
  // Of the end that connected.
  engine::shm::MessageLane& lane() const { return engine::shm::message_lane(shared, 0); }

  engine::TcpPair tcp;
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  uint8_t* shared = nullptr;
  uint64_t secret = 0;
  Connection *x, *y;
};

enum class Attack {
  kUnknownStag,
  kBeyondTheEnd,
  kNoRight,
  kUnaskedResponse,
  kMessage,
  kShortHeader,
  kLongHeader,
  kTooManyRanges,
  kTooLong,
  kNamesNothing,
  kTooManyReads,
};
class HostileLink : public testing::TestWithParam<Attack> {};
INSTANTIATE_TEST_SUITE_P(All, HostileLink,
                         testing::Values(Attack::kUnknownStag, Attack::kBeyondTheEnd,
                                         Attack::kNoRight, Attack::kUnaskedResponse,
                                         Attack::kMessage, Attack::kShortHeader,
                                         Attack::kLongHeader, Attack::kTooManyRanges,
                                         Attack::kTooLong, Attack::kNamesNothing,
                                         Attack::kTooManyReads));

TEST_P(HostileLink, EndsItsConnectionAndTouchesNothing) {
  Linked l;
  std::string all(4096 + 2 * 64, '\xa5');
  const unsigned rights =
      GetParam() == Attack::kNoRight ? DDP_REMOTE_READ : DDP_REMOTE_WRITE | DDP_REMOTE_READ;
  const auto region =
      *l.y->register_memory({reinterpret_cast<uint8_t*>(all.data()) + 64, 4096}, rights);
  engine::shm::MessageWriter writer(l.lane(), l.secret);
  const auto put = [&](Bytes header, uint32_t payload, uint32_t told, uint8_t ranges = 0) {
    ASSERT_TRUE(writer.has_room());
    uint8_t* body = writer.begin(header, payload);
    std::memset(body, 'w', std::min<uint32_t>(payload, 64));
    writer.publish(static_cast<uint32_t>(header.size()), payload, told, ranges);
  };
  const auto tagged = [&](uint8_t opcode, uint32_t stag, uint64_t to) {
    std::array<uint8_t, DDP_TAGGED_HEADER_SIZE> h{};
    ddp::write_header(
        h.data(),
        ddp::TaggedHeader{true, static_cast<uint8_t>(RDMAP_CTRL_IETF | opcode), stag, to});
    return h;
  };
  const auto write = tagged(RDMAP_OP_WRITE, region.stag, region.to);
  const auto untagged = [&](uint8_t opcode, uint32_t qn, uint32_t msn) {
    std::array<uint8_t, DDP_UNTAGGED_HEADER_SIZE> h{};
    ddp::write_header(
        h.data(),
        ddp::UntaggedHeader{true, {static_cast<uint8_t>(RDMAP_CTRL_IETF | opcode), 0}, qn, msn, 0});
    return h;
  };
  switch (GetParam()) {
    case Attack::kUnknownStag:
      put(tagged(RDMAP_OP_WRITE, region.stag ^ 1, region.to), 64, 64);
      break;
    case Attack::kBeyondTheEnd:
      put(tagged(RDMAP_OP_WRITE, region.stag, region.to + 4096 - 63), 64, 64);
      break;
    case Attack::kNoRight:
      put(write, 64, 64);
      break;
    case Attack::kUnaskedResponse:
      put(tagged(RDMAP_OP_READ_RESPONSE, region.stag, region.to), 64, 64);
      break;
    case Attack::kMessage:
      put(untagged(RDMAP_OP_SEND, RDMAP_QN_SEND, 1), 64, 64);
      break;
    case Attack::kShortHeader:
      put(Bytes(write).first(3), 64, 64);
      break;
    case Attack::kLongHeader:
      writer.begin(write, 64);
      writer.publish(200, 64, 64, 0);
      break;
    case Attack::kTooManyRanges:
      put(write, 64, 64, 200);
      break;
    case Attack::kTooLong:
      put(write, 64, 0x7fff'ffff);
      break;
    case Attack::kNamesNothing:
      put(write, 16, 64, 1);
      break;
    case Attack::kTooManyReads:
      for (uint32_t i = 1; i <= 200; ++i) {
        uint8_t* body = writer.begin(untagged(RDMAP_OP_READ_REQUEST, RDMAP_QN_READ_REQUEST, i),
                                     RDMAP_READ_REQUEST_SIZE);
        std::memset(body, 0, RDMAP_READ_REQUEST_SIZE);
        base::store_be32(body + RDMAP_RR_LENGTH_OFFSET, 4096);
        base::store_be32(body + RDMAP_RR_SOURCE_STAG_OFFSET, region.stag);
        base::store_be64(body + RDMAP_RR_SOURCE_TO_OFFSET, region.to);
        writer.publish(DDP_UNTAGGED_HEADER_SIZE, RDMAP_READ_REQUEST_SIZE, RDMAP_READ_REQUEST_SIZE,
                       0);
      }
      break;
  }
  // What is not there was not sent: the queue pair is lost by it, and the stream is not.
  if (GetParam() == Attack::kNamesNothing) {
    (void)l.a.send(Buffer(1, 'z'));
    EXPECT_EQ(l.b.recv(1), Buffer(1, 'z'));
    ddp_completion lost{};
    ASSERT_EQ(*l.y->wait({&lost, 1}, kPatienceMs), 1u);
    EXPECT_EQ(lost.status, ECONNRESET);
    EXPECT_TRUE(std::ranges::all_of(all, [](char c) { return c == '\xa5'; }));
    return;
  }
  // Bytes behind it, which must not be delivered.
  (void)l.a.send(Buffer(5, 'z'));
  uint8_t byte;
  const engine::Io io = l.b.recv(&byte, 1);
  EXPECT_LE(io.count, 0);
  ddp_completion ended{};
  const auto n = l.y->wait({&ended, 1}, kPatienceMs);
  ASSERT_TRUE(n.has_value() && *n == 1);
  EXPECT_EQ(ended.kind, static_cast<uint32_t>(DDP_ENDED));
  EXPECT_NE(ended.status, 0);
  EXPECT_TRUE(std::ranges::all_of(all, [](char c) { return c == '\xa5'; }));
  EXPECT_EQ(l.b.s->status().state, engine::StreamState::kFailed);
}

// What an end says of itself lies there, too.
TEST(HostileLinkAtOnce, AReaderWhoseOwnWordsAreSpoiltGoesOn) {
  Linked l;
  for (const uint64_t lie : {uint64_t{0}, uint64_t{64}, ~uint64_t{0}}) {
    l.lane().reader.has_failed.store(1);
    l.lane().reader.head.store(lie);
    ASSERT_EQ(l.a.send(Buffer(5, 'z')).count, 5);
    EXPECT_EQ(l.b.recv(5), Buffer(5, 'z'));
  }
}

int attacks() {
  const char* wanted = std::getenv("DDPSOCK_ATTACKS");
  return wanted != nullptr ? std::atoi(wanted) / 20 : 60;
}

// Anywhere, at any time, while both ends work.
TEST(HostileLinkAtRandom, SpoilsItsOwnConnectionAlone) {
  std::mt19937_64 seeds(11);
  for (int round = 0; round < attacks(); ++round) {
    Linked l;
    std::string all(8192, '\xa5'), sink(4096, '.');
    const auto region = *l.y->register_memory({reinterpret_cast<uint8_t*>(all.data()) + 2048, 4096},
                                              DDP_REMOTE_READ);
    const auto ours = *l.x->register_memory({reinterpret_cast<uint8_t*>(sink.data()), sink.size()},
                                            DDP_LOCAL_WRITE);
    (void)l.x->allocate(4096, DDP_REMOTE_READ | DDP_REMOTE_WRITE);
    (void)l.y->allocate(4096, DDP_REMOTE_READ | DDP_REMOTE_WRITE);
    std::atomic<bool> is_over{false};
    std::jthread harm([&, seed = seeds()] {
      std::mt19937_64 rng(seed);
      usleep(static_cast<useconds_t>(rng() % 1000));
      while (!is_over.load()) {
        const uint64_t lie = rng() >> (rng() % 64);
        // The words of ends and of both lanes, and the first records.
        const size_t page =
            rng() % 3 == 0 ? 0 : 4096 + (rng() % 2) * sizeof(engine::shm::MessageLane);
        const size_t at = page + rng() % (page == 0 ? 512 : 8192) / 8 * 8;
        std::atomic_ref(*reinterpret_cast<uint64_t*>(l.shared + at)).store(lie);
        if (rng() % 8 == 0) usleep(static_cast<useconds_t>(rng() % 50));
      }
    });
    for (int i = 0; i < 50; ++i) {
      const ddp_read_work work{.cookie = 1,
                               .address = sink.data(),
                               .length = 1000,
                               .stag = ours.stag,
                               .remote_to = region.to,
                               .remote_stag = region.stag,
                               .flags = 0};
      (void)l.x->post(std::span(&work, 1));
      (void)l.a.send(Buffer(10, 'z'), MSG_DONTWAIT | MSG_NOSIGNAL);
      uint8_t bytes[100];
      const engine::Io io = l.b.recv(bytes, sizeof bytes, MSG_DONTWAIT);
      ASSERT_TRUE(io.count <= 0 ||
                  std::all_of(bytes, bytes + io.count, [](uint8_t c) { return c == 'z'; }));
      ddp_completion done[4];
      (void)l.x->poll(done);
      (void)l.y->poll(done);
    }
    is_over.store(true);
    harm.join();
    ASSERT_TRUE(std::ranges::all_of(all, [](char c) { return c == '\xa5'; })) << round;
    ASSERT_TRUE(std::ranges::all_of(sink, [](char c) { return c == '.' || c == '\xa5'; })) << round;
  }
}

}  // namespace
}  // namespace ddpsock::message
