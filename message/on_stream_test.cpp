// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations of a byte stream without the preloaded library, so that sanitizers see all
// of it; and peers that do what ours never would. What a program sees is tested in tests/message/.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "ddp/segment.h"
#include "message/connection.h"
#include "rdmap/format.h"
#include "stream/chunk.h"
#include "stream/hello.h"
#include "stream/stream_testing.h"

namespace ddpsock::message {
namespace {

using engine::Buffer;
using engine::End;
using engine::Role;

constexpr int kPatienceMs = 20'000;
constexpr unsigned kAllRights =
    DDP_LOCAL_WRITE | DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC;

// As the shim owns one, on the stream of an End.
class Operations {
 public:
  explicit Operations(End& end) : connection_(*Connection::make({})) {
    EXPECT_TRUE(connection_->begin_on_stream(end.fd, end.s->one_sided_way()).has_value());
  }
  ~Operations() {
    connection_->close();
    connection_->destroy();
  }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;
  Connection* operator->() const { return connection_; }

  ddp_region offer(std::string& memory, unsigned rights = kAllRights) {
    const auto region = connection_->register_memory(
        {reinterpret_cast<uint8_t*>(memory.data()), memory.size()}, rights);
    EXPECT_TRUE(region.has_value());
    return *region;
  }
  ddp_completion next() {
    ddp_completion completion{};
    const auto n = connection_->wait({&completion, 1}, kPatienceMs);
    EXPECT_TRUE(n.has_value() && *n == 1);
    return completion;
  }
  bool read(std::string& into, const ddp_region& ours, const ddp_region& from) {
    const ddp_read_work work{.cookie = 1,
                             .address = into.data(),
                             .length = static_cast<uint32_t>(into.size()),
                             .stag = ours.stag,
                             .remote_to = from.to,
                             .remote_stag = from.stag,
                             .flags = 0};
    return connection_->post(std::span(&work, 1)).count == 1;
  }
  bool write(const std::string& bytes, const ddp_region& to, uint32_t flags = DDP_SILENT) {
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    const ddp_write_work work{.cookie = 2,
                              .iov = &part,
                              .iov_count = 1,
                              .flags = flags,
                              .remote_to = to.to,
                              .remote_stag = to.stag,
                              .reserved = 0};
    return connection_->post(std::span(&work, 1)).count == 1;
  }

 private:
  Connection* connection_;
};

struct Kind {
  bool has_memory, has_crc;
};
class OnStream : public testing::TestWithParam<Kind> {
 protected:
  OnStream() {
    const Buffer hello = engine::pattern(5);
    EXPECT_EQ(a.send(hello).count, 5);
    EXPECT_EQ(b.recv(5), hello);
    EXPECT_EQ(b.send(hello).count, 5);
    EXPECT_EQ(a.recv(5), hello);
  }
  engine::TcpPair tcp;
  End a{tcp.client, Role::kInitiator,   engine::Peer::kProved,
        false,      GetParam().has_crc, GetParam().has_memory};
  End b{tcp.server, Role::kResponder,   engine::Peer::kProved,
        false,      GetParam().has_crc, GetParam().has_memory};
};
INSTANTIATE_TEST_SUITE_P(Kinds, OnStream,
                         testing::Values(Kind{false, true}, Kind{false, false}, Kind{true, true}),
                         [](const auto& p) {
                           return std::string(p.param.has_memory ? "memory" : "wire") +
                                  (p.param.has_crc ? "" : "_without_crc");
                         });

TEST_P(OnStream, ThreadsReadWriteAndPostAtOnce) {
  constexpr size_t kTotal = 2 << 20;
  Operations x(a), y(b);
  struct Side {
    End& end;
    Operations& ops;
    std::string memory, sink;
    ddp_region offered{}, ours{};
  } sides[] = {{a, x, std::string(50'000, 'a'), std::string(50'000, '.')},
               {b, y, std::string(50'000, 'b'), std::string(50'000, '.')}};
  for (Side& s : sides) {
    s.offered = s.ops.offer(s.memory);
    s.ours = s.ops.offer(s.sink);
  }
  const Buffer text = engine::pattern(kTotal);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    Side& s = sides[i];
    Side& other = sides[1 - i];
    threads.emplace_back([&] {
      for (size_t sent = 0; sent < kTotal;) {
        const iovec v{const_cast<uint8_t*>(text.data()) + sent,
                      std::min<size_t>(40'001, kTotal - sent)};
        const engine::Io io = s.end.s->send(s.end.fd, {&v, 1}, 0);
        ASSERT_GT(io.count, 0);
        sent += static_cast<size_t>(io.count);
      }
    });
    threads.emplace_back([&] {
      Buffer part(17'777);
      for (size_t got = 0; got < kTotal;) {
        const engine::Io io = s.end.recv(part.data(), part.size());
        ASSERT_GT(io.count, 0) << io.error;
        const auto n = static_cast<size_t>(io.count);
        ASSERT_TRUE(std::equal(part.begin(), part.begin() + static_cast<long>(n),
                               text.begin() + static_cast<long>(got)));
        got += n;
      }
    });
    threads.emplace_back([&] {
      for (int k = 0; k < 40; ++k) {
        ASSERT_TRUE(s.ops.read(s.sink, s.ours, other.offered));
        ASSERT_EQ(s.ops.next().status, 0);
        ASSERT_TRUE(s.sink == other.memory);
      }
    });
  }
}

TEST_P(OnStream, BytesFollowTheWriteBeforeThem) {
  std::string memory(150'000, '\0');
  Operations y(b);
  const ddp_region region = y.offer(memory);
  Operations x(a);
  for (int round = 1; round <= 50; ++round) {
    const std::string bytes(memory.size(), static_cast<char>(round));
    // Also what the post itself has held back.
    const uint32_t more = round % 2 == 0 ? DDP_MORE : 0;
    ASSERT_TRUE(x.write(bytes, region, DDP_SILENT | more));
    ASSERT_EQ(a.send(Buffer(1, static_cast<uint8_t>(round))).count, 1);
    ASSERT_EQ(b.recv(1), Buffer(1, static_cast<uint8_t>(round)));
    ASSERT_TRUE(memory == bytes) << round;
  }
}

TEST_P(OnStream, UnreadBytesStayVisibleWhileReadsPass) {
  std::string memory(100'000, 'm'), sink(100'000, '.');
  Operations x(a), y(b);
  const ddp_region theirs = y.offer(memory), ours = x.offer(sink);
  const Buffer text = engine::pattern(500'000);
  std::jthread talking([&] { EXPECT_EQ(b.send(text).count, 500'000); });
  while (!engine::kernel_says_readable(a.fd)) std::this_thread::yield();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(x.read(sink, ours, theirs));
    ASSERT_EQ(x.next().status, 0);
    EXPECT_TRUE(sink == memory);
    EXPECT_TRUE(engine::kernel_says_readable(a.fd));
    sink.assign(sink.size(), '.');
  }
  talking.join();
  Buffer all;
  while (all.size() < text.size()) {
    EXPECT_TRUE(engine::kernel_says_readable(a.fd)) << all.size();
    const Buffer part = a.recv(77'777, MSG_DONTWAIT);
    ASSERT_FALSE(part.empty());
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_EQ(all, text);
  EXPECT_FALSE(engine::kernel_says_readable(a.fd));
}

// What had been read of a chunk before counts, too.
TEST_P(OnStream, BeginsInTheMiddleOfAChunk) {
  const Buffer text = engine::pattern(30'000);
  ASSERT_EQ(b.send(text).count, 30'000);
  Buffer all = a.recv(10'000);
  Operations x(a), y(b);
  while (all.size() < text.size()) {
    EXPECT_TRUE(engine::kernel_says_readable(a.fd));
    const Buffer part = a.recv(7'777);
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_EQ(all, text);
  EXPECT_FALSE(engine::kernel_says_readable(a.fd));
}

TEST_P(OnStream, AFullPoolStopsTheWriterAsTcpWould) {
  Operations x(a), y(b);
  const Buffer text = engine::pattern(100'000);
  size_t sent = 0;
  // The thread drains meanwhile: until the kernel has refused for long.
  for (int refused = 0; refused < 200 && sent < (64u << 20);) {
    const iovec v{const_cast<uint8_t*>(text.data()) + sent % text.size(),
                  text.size() - sent % text.size()};
    const engine::Io io = b.s->send(b.fd, {&v, 1}, MSG_DONTWAIT);
    if (io.is_ok()) {
      sent += static_cast<size_t>(io.count);
      refused = 0;
      continue;
    }
    ASSERT_EQ(io.error, EAGAIN);
    pollfd p{b.fd, POLLOUT, 0};
    poll(&p, 1, 1);
    ++refused;
  }
  EXPECT_LT(sent, 64u << 20);
  for (size_t got = 0; got < sent;) {
    const Buffer part = a.recv(std::min<size_t>(sent - got, 50'000));
    ASSERT_FALSE(part.empty());
    for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], text[(got + i) % text.size()]);
    got += part.size();
  }
}

// Without it in the hello the peer is left alone.
class Raw : public testing::Test {
 protected:
  static Buffer sealed(Buffer fpdu) {
    base::store_le32(fpdu.data() + fpdu.size() - 4,
                     base::crc32c(Bytes(fpdu).first(fpdu.size() - 4)));
    return fpdu;
  }
  static Buffer request(uint16_t features) {
    std::array<uint8_t, DDPSOCK_HELLO_MAX_SIZE> hello{};
    const size_t size =
        *stream::encode(hello, {.features = features, .max_payload = engine::kPreferredPayload});
    mpa::StartupFrame frame{.kind = mpa::FrameKind::kRequest,
                            .wants_crc = true,
                            .private_data = Bytes(hello).first(size)};
    frame.enhanced = mpa::Enhanced{};
    Buffer bytes(512);
    bytes.resize(*mpa::write_startup(frame, bytes));
    return bytes;
  }
  static Buffer chunk(const Buffer& payload, uint32_t msn) {
    const auto size = static_cast<uint32_t>(payload.size());
    Buffer f(engine::chunk_size(size), 0);
    std::copy(payload.begin(), payload.end(), engine::write_chunk_header(f.data(), size, msn));
    return sealed(f);
  }
  static Buffer tagged(uint8_t opcode, uint32_t stag, uint64_t to, const Buffer& payload) {
    const auto ulpdu = static_cast<uint16_t>(DDP_TAGGED_HEADER_SIZE + payload.size());
    Buffer f(engine::fpdu_size(ulpdu), 0);
    uint8_t* p = ddp::write_header(
        mpa::write_header(f.data(), ulpdu),
        ddp::TaggedHeader{.is_last = true,
                          .rsvd_ulp = static_cast<uint8_t>(RDMAP_CTRL_IETF | opcode),
                          .stag = stag,
                          .to = to});
    std::copy(payload.begin(), payload.end(), p);
    return sealed(f);
  }
  static Buffer read_request(uint32_t msn, uint32_t stag, uint64_t to, uint32_t length) {
    const auto ulpdu = static_cast<uint16_t>(DDP_UNTAGGED_HEADER_SIZE + RDMAP_READ_REQUEST_SIZE);
    Buffer f(engine::fpdu_size(ulpdu), 0);
    uint8_t* p = ddp::write_header(
        mpa::write_header(f.data(), ulpdu),
        ddp::UntaggedHeader{.is_last = true,
                            .rsvd_ulp = {RDMAP_CTRL_IETF | RDMAP_OP_READ_REQUEST, 0},
                            .qn = RDMAP_QN_READ_REQUEST,
                            .msn = msn,
                            .mo = 0});
    base::store_be32(p + RDMAP_RR_LENGTH_OFFSET, length);
    base::store_be32(p + RDMAP_RR_SOURCE_STAG_OFFSET, stag);
    base::store_be64(p + RDMAP_RR_SOURCE_TO_OFFSET, to);
    return sealed(f);
  }
  void put(const Buffer& bytes) {
    ASSERT_EQ(::send(tcp.client, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void start(uint16_t features = DDPSOCK_FEATURE_STREAM | DDPSOCK_FEATURE_ONE_SIDED) {
    put(request(features));
    put(chunk(Buffer(3, 'x'), 1));
    EXPECT_EQ(b.recv(3), Buffer(3, 'x'));
  }

  engine::TcpPair tcp;
  End b{tcp.server, Role::kResponder};
};

TEST_F(Raw, APeerThatDoesNotOfferItIsLeftAlone) {
  start(DDPSOCK_FEATURE_STREAM);
  Connection* c = *Connection::make({});
  const auto begun = c->begin_on_stream(b.fd, b.s->one_sided_way());
  ASSERT_FALSE(begun.has_value());
  EXPECT_EQ(to_int(begun.error()), EOPNOTSUPP);
  put(chunk(Buffer(4, 'y'), 2));
  EXPECT_EQ(b.recv(4), Buffer(4, 'y'));
  c->close();
  c->destroy();
}

enum class Attack {
  kUnknownStag,
  kBeyondTheEnd,
  kNoRight,
  kUnaskedResponse,
  kTooManyReads,
  kBadCrc,
  kBadLength,
};
class Hostile : public Raw, public testing::WithParamInterface<Attack> {};
INSTANTIATE_TEST_SUITE_P(All, Hostile,
                         testing::Values(Attack::kUnknownStag, Attack::kBeyondTheEnd,
                                         Attack::kNoRight, Attack::kUnaskedResponse,
                                         Attack::kTooManyReads, Attack::kBadCrc,
                                         Attack::kBadLength));

TEST_P(Hostile, EndsItsConnectionAndTouchesNothing) {
  start();
  std::string all(4096 + 2 * 64, '\xa5');
  Operations y(b);
  const unsigned rights =
      GetParam() == Attack::kNoRight ? DDP_REMOTE_READ : DDP_REMOTE_WRITE | DDP_REMOTE_READ;
  const auto region =
      *y->register_memory({reinterpret_cast<uint8_t*>(all.data()) + 64, 4096}, rights);
  const Buffer bytes(64, 'w');
  Buffer attack;
  switch (GetParam()) {
    case Attack::kUnknownStag:
      attack = tagged(RDMAP_OP_WRITE, region.stag ^ 1, region.to, bytes);
      break;
    case Attack::kBeyondTheEnd:
      attack = tagged(RDMAP_OP_WRITE, region.stag, region.to + 4096 - 63, bytes);
      break;
    case Attack::kNoRight:
      attack = tagged(RDMAP_OP_WRITE, region.stag, region.to, bytes);
      break;
    case Attack::kUnaskedResponse:
      attack = tagged(RDMAP_OP_READ_RESPONSE, region.stag, region.to, bytes);
      break;
    case Attack::kTooManyReads:
      for (uint32_t i = 1; i <= 200; ++i) {
        const Buffer one = read_request(i, region.stag, region.to, 4096);
        attack.insert(attack.end(), one.begin(), one.end());
      }
      break;
    case Attack::kBadCrc:
      attack = tagged(RDMAP_OP_WRITE, region.stag, region.to + 8192, bytes);
      attack.back() ^= 1;
      break;
    case Attack::kBadLength:
      attack = tagged(RDMAP_OP_WRITE, region.stag, region.to, {});
      attack[0] = 0;
      attack[1] = 3;
      break;
  }
  // A chunk behind it, which must not be delivered.
  const Buffer behind = chunk(Buffer(5, 'z'), 2);
  attack.insert(attack.end(), behind.begin(), behind.end());
  put(attack);
  const ddp_completion ended = y.next();
  EXPECT_EQ(ended.kind, static_cast<uint32_t>(DDP_ENDED));
  EXPECT_NE(ended.status, 0);
  EXPECT_TRUE(std::ranges::all_of(all, [](char c) { return c == '\xa5'; }));
  uint8_t byte;
  const engine::Io io = b.recv(&byte, 1);
  EXPECT_LE(io.count, 0);
  EXPECT_EQ(b.s->status().state, engine::StreamState::kFailed);
}

}  // namespace
}  // namespace ddpsock::message
