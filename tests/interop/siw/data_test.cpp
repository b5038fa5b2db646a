// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sends, Writes and Reads of all sizes between siw and us, in both directions on each connection.
#include "rdmap/format.h"
#include "tests/interop/siw/duel.h"

namespace ddpsock::interop {
namespace {

constexpr std::array<size_t, 21> kSizes{0,    1,    2,    3,    4,     5,     63,
                                        64,   65,   1400, 1428, 1440,  1444,  1448,
                                        1460, 2897, 4095, 4096, 65535, 65536, 1 << 20};
constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kHuge = 64 << 20;

struct Target {
  uint32_t stag;
  uint64_t to;
};

void end_actively(Peer& peer, Aside& other) {
  other.meet();
  peer.finish();
  drain_to_the_end(peer);
}

void end_passively(Peer& peer, Aside& other) {
  other.meet();
  drain_to_the_end(peer);
}

class Data : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(All, Data, testing::ValuesIn(all_cases()), name_of);

void send_all(Peer& peer, Aside& other) {
  const Region out = peer.expose(kMostBytes, Access::kLocal);
  for (const size_t size : kSizes) {
    const auto n = static_cast<uint32_t>(size);
    fill(out.memory.first(size), n);
    other.meet();  // the receive is posted
    peer.send(n, out.memory.first(size), {.is_solicited = (n & 1) != 0});
    expect_done(peer, Event::Kind::kSent, n);
  }
}

void receive_all(Peer& peer, Aside& other) {
  const Region in = peer.expose(kMostBytes, Access::kLocal);
  for (const size_t size : kSizes) {
    const auto n = static_cast<uint32_t>(size);
    peer.post_receive(n, in.memory);
    other.meet();
    const Event e = peer.next();
    EXPECT_EQ(e.kind, Event::Kind::kReceived);
    EXPECT_EQ(e.id, n);
    EXPECT_EQ(e.length, n);
    EXPECT_TRUE(is_filled(in.memory.first(size), n));
  }
}

TEST_P(Data, SendsArriveWhole) {
  duel(
      [](Peer& peer, Aside& other) {
        call(peer, other);
        send_all(peer, other);
        receive_all(peer, other);
        end_actively(peer, other);
      },
      [](Peer& peer, Aside& other) {
        answer(peer, other);
        receive_all(peer, other);
        send_all(peer, other);
        end_passively(peer, other);
      });
}

// A Write says nothing to its target's program: a Send after it does.
void write_all(Peer& peer, Aside& other) {
  const Region out = peer.expose(kMostBytes, Access::kLocal);
  const auto target = other.hear<Target>();
  for (const size_t size : kSizes) {
    const auto n = static_cast<uint32_t>(size);
    fill(out.memory.first(size), n);
    other.meet();
    peer.write(n, out.memory.first(size), target.stag, target.to);
    peer.send(n + 1, out.memory.first(0), {});
    expect_done(peer, Event::Kind::kWritten, n);
    expect_done(peer, Event::Kind::kSent, n + 1);
  }
}

void be_written_to(Peer& peer, Aside& other) {
  const Region in = peer.expose(kMostBytes, Access::kRemoteWrite);
  other.tell(Target{in.stag, in.to});
  for (const size_t size : kSizes) {
    const auto n = static_cast<uint32_t>(size);
    fill(in.memory.first(size), n + 1);
    peer.post_receive(n, in.memory.last(1));
    other.meet();
    expect_done(peer, Event::Kind::kReceived, n);
    EXPECT_TRUE(is_filled(in.memory.first(size), n));
  }
}

TEST_P(Data, WritesArePlaced) {
  duel(
      [](Peer& peer, Aside& other) {
        call(peer, other);
        write_all(peer, other);
        be_written_to(peer, other);
        end_actively(peer, other);
      },
      [](Peer& peer, Aside& other) {
        answer(peer, other);
        be_written_to(peer, other);
        write_all(peer, other);
        end_passively(peer, other);
      });
}

void read_all(Peer& peer, Aside& other) {
  const Region in = peer.expose(kMostBytes, Access::kRemoteWrite);
  const auto source = other.hear<Target>();
  for (const size_t size : kSizes) {
    const auto n = static_cast<uint32_t>(size);
    fill(in.memory.first(size), n + 1);
    other.meet();
    peer.read(n, in.memory.first(size), source.stag, source.to);
    expect_done(peer, Event::Kind::kRead, n);
    EXPECT_TRUE(is_filled(in.memory.first(size), n)) << n;
    other.meet();
  }
}

void be_read_from(Peer& peer, Aside& other) {
  const Region out = peer.expose(kMostBytes, Access::kRemoteRead);
  other.tell(Target{out.stag, out.to});
  for (const size_t size : kSizes) {
    fill(out.memory.first(size), static_cast<uint32_t>(size));
    other.meet();
    // Our side answers in the caller's thread: it must look.
    if (peer.is_ours()) {
      while (peer.next(Duration::from_ms(1)).kind == Event::Kind::kTimedOut && !other.has_word()) {
      }
    }
    other.meet();
  }
}

TEST_P(Data, ReadsAreAnswered) {
  duel(
      [](Peer& peer, Aside& other) {
        call(peer, other);
        read_all(peer, other);
        be_read_from(peer, other);
        end_actively(peer, other);
      },
      [](Peer& peer, Aside& other) {
        answer(peer, other);
        be_read_from(peer, other);
        read_all(peer, other);
        end_passively(peer, other);
      });
}

class Load : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(Main, Load, testing::ValuesIn(main_cases()), name_of);

constexpr uint32_t kMany = 200;
constexpr size_t kPiece = 3000;

// Both sides at once: `kMany` Sends posted without waiting, of sizes that share no boundary with
// segments.
TEST_P(Load, ManySendsMayBeOutstanding) {
  const auto play = [](Peer& peer, Aside& other, bool is_active) {
    const Region in = peer.expose(kMany * kPiece, Access::kLocal);
    const Region out = peer.expose(kMany * kPiece, Access::kLocal);
    if (is_active) {
      call(peer, other);
    } else {
      answer(peer, other);
    }
    for (uint32_t n = 0; n < kMany; ++n)
      peer.post_receive(n, in.memory.subspan(n * kPiece, kPiece));
    other.meet();
    for (uint32_t n = 0; n < kMany; ++n) {
      const MutBytes part = out.memory.subspan(n * kPiece, kPiece - n);
      fill(part, n);
      peer.send(kMany + n, part, {});
    }
    uint32_t sent = 0;
    uint32_t received = 0;
    while (sent + received < 2 * kMany && !testing::Test::HasFailure()) {
      const Event e = peer.next();
      EXPECT_TRUE(e.is_ok);
      if (e.kind == Event::Kind::kSent) {
        EXPECT_EQ(e.id, kMany + sent++);
      } else {
        EXPECT_EQ(e.kind, Event::Kind::kReceived);
        EXPECT_EQ(e.id, received);
        EXPECT_TRUE(is_filled(in.memory.subspan(received * kPiece, kPiece - received), received));
        ++received;
      }
    }
    if (is_active) {
      end_actively(peer, other);
    } else {
      end_passively(peer, other);
    }
  };
  duel([&](Peer& peer, Aside& other) { play(peer, other, true); },
       [&](Peer& peer, Aside& other) { play(peer, other, false); });
}

// Far more Reads than ORD, with Writes and Sends between them; results come in posting order.
TEST_P(Load, ReadsBeyondTheOrdWait) {
  constexpr uint32_t kReads = 60;
  constexpr size_t kEach = 5000;
  duel(
      [&](Peer& peer, Aside& other) {
        const Region in = peer.expose(kReads * kEach, Access::kRemoteWrite);
        call(peer, other, {.ird = 4, .ord = 4});
        const auto source = other.hear<Target>();
        for (uint32_t n = 0; n < kReads; ++n) {
          peer.read(n, in.memory.subspan(n * kEach, kEach), source.stag, source.to + n * kEach);
        }
        for (uint32_t n = 0; n < kReads; ++n) expect_done(peer, Event::Kind::kRead, n);
        for (uint32_t n = 0; n < kReads; ++n) {
          EXPECT_TRUE(is_filled(in.memory.subspan(n * kEach, kEach), n)) << n;
        }
        peer.finish();
        drain_to_the_end(peer);
      },
      [&](Peer& peer, Aside& other) {
        const Region out = peer.expose(kReads * kEach, Access::kRemoteRead);
        for (uint32_t n = 0; n < kReads; ++n) fill(out.memory.subspan(n * kEach, kEach), n);
        answer(peer, other, {.ird = 4, .ord = 4});
        other.tell(Target{out.stag, out.to});
        drain_to_the_end(peer);
      });
}

// RFC 5040 section 4.4: the STag is gone once the Send is delivered, on the side that owned it.
// rdma-core 44 does neither tell its program of it nor put the STag into its own Sends.
TEST_P(Load, SendInvalidates) {
  duel(
      [](Peer& peer, Aside& other) {
        const Region out = peer.expose(64, Access::kLocal);
        call(peer, other);
        const auto target = other.hear<Target>();
        other.meet();
        peer.write(1, out.memory, target.stag, target.to);
        expect_done(peer, Event::Kind::kWritten, 1);
        peer.send(2, out.memory, {.invalidate = target.stag});
        expect_done(peer, Event::Kind::kSent, 2);
        other.meet();
        // What it named before is out of reach now.
        if (peer.is_ours()) peer.write(3, out.memory, target.stag, target.to);
        drain_to_the_end(peer);
        if (peer.is_ours()) {
          EXPECT_EQ(peer.terminate(), rdmap::TermCode::ddp(ddp::Error::kInvalidStag));
        }
      },
      [](Peer& peer, Aside& other) {
        const Region in = peer.expose(64, Access::kRemoteWrite);
        const Region message = peer.expose(64, Access::kLocal);
        answer(peer, other);
        other.tell(Target{in.stag, in.to});
        peer.post_receive(7, message.memory);
        other.meet();
        const Event e = peer.next();
        EXPECT_EQ(e.kind, Event::Kind::kReceived);
        EXPECT_EQ(e.id, 7u);
        EXPECT_EQ(e.is_ok, !peer.is_ours());
        fill(in.memory, 99);
        other.meet();
        drain_to_the_end(peer);
        EXPECT_TRUE(is_filled(in.memory, 99));
        if (peer.is_ours()) {
          EXPECT_EQ(peer.terminate(), rdmap::TermCode::protection(RDMAP_ECODE_CANNOT_INVALIDATE));
        }
      });
}

class Huge : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(Main, Huge, testing::ValuesIn(main_cases()), name_of);

// 64 MB in one Send, one Write and one Read.
TEST_P(Huge, MessagesArrive) {
  duel(
      [](Peer& peer, Aside& other) {
        const Region here = peer.expose(kHuge, Access::kRemoteBoth);
        call(peer, other);
        const auto there = other.hear<Target>();
        other.meet();
        fill(here.memory, 1);
        peer.send(1, here.memory, {});
        expect_done(peer, Event::Kind::kSent, 1);
        other.meet();
        fill(here.memory, 2);
        peer.write(2, here.memory, there.stag, there.to);
        peer.send(3, here.memory.first(0), {});
        expect_done(peer, Event::Kind::kWritten, 2);
        expect_done(peer, Event::Kind::kSent, 3);
        other.meet();
        peer.read(4, here.memory, there.stag, there.to);
        expect_done(peer, Event::Kind::kRead, 4);
        EXPECT_TRUE(is_filled(here.memory, 3));
        peer.finish();
        drain_to_the_end(peer);
      },
      [](Peer& peer, Aside& other) {
        const Region here = peer.expose(kHuge, Access::kRemoteBoth);
        answer(peer, other);
        other.tell(Target{here.stag, here.to});
        peer.post_receive(1, here.memory);
        peer.post_receive(3, here.memory.first(0));
        other.meet();
        expect_done(peer, Event::Kind::kReceived, 1);
        EXPECT_TRUE(is_filled(here.memory, 1));
        other.meet();
        expect_done(peer, Event::Kind::kReceived, 3);
        EXPECT_TRUE(is_filled(here.memory, 2));
        fill(here.memory, 3);
        other.meet();
        drain_to_the_end(peer);
      });
}

}  // namespace
}  // namespace ddpsock::interop
