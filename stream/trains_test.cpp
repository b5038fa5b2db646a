// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Many FPDUs that one read brings, whatever their sizes and the program's room: every byte once and
// in its place, none beyond what the call returned, nothing of a damaged one.
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/sys.h"
#include "stream/stream_testing.h"
#include "stream/wire_testing.h"

namespace ddpsock::engine {
namespace {

int reads = 0;

class Trains : public testing::Test {
 protected:
  Trains() : b(tcp.server, Role::kResponder) {
    put(tcp.client, request());
    reads = 0;
    base::sys.recv = [](int fd, void* to, size_t n, int flags) {
      ++reads;
      return ::recv(fd, to, n, flags);
    };
    base::sys.recvmsg = [](int fd, msghdr* m, int flags) {
      ++reads;
      return ::recvmsg(fd, m, flags);
    };
  }
  ~Trains() override { base::sys = real_; }

  // Gathers what comes, into two pieces of memory between which lies a byte of somebody else's.
  Io read(size_t room, size_t first, Buffer& got) {
    Buffer into(room + 2, 0xa5);
    first = std::min(first, room);
    const iovec list[] = {{into.data(), first}, {into.data() + first + 1, room - first}};
    const Io io = b.s->recv(b.fd, list, MSG_DONTWAIT);
    const auto n = static_cast<size_t>(std::max<ssize_t>(io.count, 0));
    EXPECT_EQ(into[first], 0xa5);
    into.erase(into.begin() + static_cast<ptrdiff_t>(first));
    EXPECT_TRUE(std::all_of(into.begin() + static_cast<ptrdiff_t>(n), into.end(), [](uint8_t byte) {
      return byte == 0xa5;
    })) << "byte beyond the returned count touched";
    got.insert(got.end(), into.begin(), into.begin() + static_cast<ptrdiff_t>(n));
    return io;
  }

  TcpPair tcp{4 << 20, 4 << 20};
  End b;
  const base::SysCalls real_ = base::sys;
};

constexpr size_t kMuch = 1 << 20;

TEST_F(Trains, OfEqualOnesTakeFewReads) {
  constexpr uint32_t kChunks = 10;
  const Buffer one = pattern(14'400);
  Buffer wire, all, got;
  for (uint32_t msn = 1; msn <= kChunks; ++msn) {
    wire = wire + chunk(one, msn);
    all = all + one;
  }
  const size_t size = wire.size();
  put(tcp.client, wire);
  int queued = 0;
  while (ioctl(b.fd, FIONREAD, &queued) == 0 && static_cast<size_t>(queued) < size) sched_yield();
  EXPECT_EQ(read(kMuch, kMuch, got).count, static_cast<ssize_t>(all.size()));
  EXPECT_TRUE(got == all);
  EXPECT_LE(reads, static_cast<int>(kChunks) / 2) << "for " << kChunks << " FPDUs";
}

struct Sizes {
  std::minstd_rand random;
  size_t upto(size_t n) { return random() % (n + 1); }
  // Mostly large, with others between them.
  size_t of_chunk() {
    switch (random() % 6) {
      case 0:
        return upto(20);
      case 1:
        return 12 * 1024 - 8 + upto(16);
      case 2:
        return upto(kMaxChunkPayload);
      default:
        return kPreferredPayload - upto(2) * 8 * 1024;
    }
  }
  size_t of_room() { return random() % 3 == 0 ? upto(200'000) + 1 : kMuch + upto(100); }
};

// Written in pieces that end where an FPDU does, or a little before.
class AnySizes : public Trains, public testing::WithParamInterface<uint32_t> {
 protected:
  void make(int chunks) {
    for (int i = 1; i <= chunks; ++i) {
      const Buffer payload = pattern(sizes.of_chunk(), static_cast<uint32_t>(i));
      const Buffer fpdu = chunk(payload, static_cast<uint32_t>(i));
      wire.insert(wire.end(), fpdu.begin(), fpdu.end());
      all.insert(all.end(), payload.begin(), payload.end());
      ends.push_back(wire.size());
    }
  }
  void write_a_piece() {
    const size_t last = std::min(ends.size() - 1, turn + 1 + sizes.upto(9));
    const size_t end = std::max(at, ends[last] - sizes.upto(1) * sizes.upto(6));
    const ssize_t n = ::send(tcp.client, wire.data() + at, end - at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) at += static_cast<size_t>(n);
    while (turn < ends.size() - 1 && ends[turn] <= at) ++turn;
  }
  bool is_all_in_our_kernel() const {
    int unacknowledged = 0;
    ioctl(tcp.client, SIOCOUTQ, &unacknowledged);
    return unacknowledged == 0;
  }

  Sizes sizes{std::minstd_rand(GetParam())};
  Buffer wire, all;
  std::vector<size_t> ends;
  size_t at = 0, turn = 0;
};

TEST_P(AnySizes, ComeWhole) {
  make(150);
  Buffer got;
  while (got.size() < all.size() && !HasFailure()) {
    if (at < wire.size()) write_a_piece();
    const bool is_all_here = is_all_in_our_kernel(), is_readable = kernel_says_readable(b.fd);
    const size_t room = sizes.of_room();
    const Io io = read(room, sizes.upto(1) * sizes.upto(room), got);
    ASSERT_TRUE(io.count > 0 || io.error == EAGAIN) << got.size();
    EXPECT_TRUE(is_readable || io.count < 0 || !is_all_here)
        << "no poller would have been told, " << got.size();
    ASSERT_LE(got.size(), all.size());
  }
  EXPECT_TRUE(got == all);
  EXPECT_EQ(read(100, 100, got).error, EAGAIN);
}

INSTANTIATE_TEST_SUITE_P(Trains, AnySizes, testing::Range(1u, 13u));

// Each of them in turn; what is in front of it is delivered.
TEST(DamagedTrain, GivesWhatLiesBeforeTheDamageAndNoMore) {
  constexpr uint32_t kChunks = 5;
  for (uint32_t damaged = 1; damaged <= kChunks; ++damaged) {
    TcpPair tcp(4 << 20, 4 << 20);
    End b(tcp.server, Role::kResponder);
    put(tcp.client, request());
    Buffer wire, intact, got;
    for (uint32_t msn = 1; msn <= kChunks; ++msn) {
      const Buffer payload = pattern(30'000 + msn, msn);
      Buffer fpdu = chunk(payload, msn);
      if (msn == damaged) fpdu[kChunkHeader + 29'000] ^= 1;
      if (msn < damaged) intact = intact + payload;
      wire = wire + fpdu;
    }
    put(tcp.client, wire);
    int queued = 0;
    while (ioctl(b.fd, FIONREAD, &queued) == 0 && static_cast<size_t>(queued) < wire.size())
      sched_yield();
    int error = 0;
    for (int calls = 0; error == 0 && calls < 10; ++calls) {
      Buffer into(kMuch);
      const Io io = b.recv(into.data(), into.size(), MSG_DONTWAIT);
      error = io.error;
      if (io.count > 0) got.insert(got.end(), into.begin(), into.begin() + io.count);
    }
    EXPECT_EQ(error, EPROTO) << damaged;
    EXPECT_TRUE(got == intact) << damaged;
  }
}

}  // namespace
}  // namespace ddpsock::engine
