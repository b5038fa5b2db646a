// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up with siw: private data, rejection, depths, CRC, revision, who may speak first.
#include "tests/interop/siw/duel.h"

namespace ddpsock::interop {
namespace {

// siw keeps the length in eight bits, with the four octets of the enhanced words among them.
constexpr size_t kMostPrivateData = 251;

std::vector<uint8_t> data_of(size_t size, uint8_t first) {
  std::vector<uint8_t> data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(first + i * 3);
  return data;
}

class Start : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(All, Start, testing::ValuesIn(all_cases()), name_of);

TEST_P(Start, AgreesOnCrcAndRevision) {
  const Profile& p = profile();
  const auto check = [&p, this](const Peer& peer, const Outcome& o) {
    if (!peer.is_ours()) return;
    EXPECT_EQ(o.has_crc, p.is_crc_expected(!is_ours_active()));
    EXPECT_EQ(o.revision, p.revision);
  };
  duel(
      [&](Peer& peer, Aside& other) {
        check(peer, call(peer, other));
        other.meet();
        peer.finish();
        drain_to_the_end(peer);
      },
      [&](Peer& peer, Aside& other) {
        check(peer, answer(peer, other));
        other.meet();
        drain_to_the_end(peer);
      });
}

TEST_P(Start, RejectsWithPrivateData) {
  duel(
      [](Peer& peer, Aside&) {
        const Outcome o = peer.connect({.private_data = data_of(16, 1)});
        EXPECT_EQ(o.kind, Outcome::Kind::kRejected) << o.text;
        ASSERT_GE(o.private_data.size(), 40u);
        EXPECT_TRUE(std::equal(o.private_data.begin(), o.private_data.begin() + 40,
                               data_of(40, 9).begin()));
      },
      [](Peer& peer, Aside&) {
        EXPECT_EQ(peer.wait_for_request().kind, Outcome::Kind::kRequested);
        EXPECT_TRUE(peer.reject(data_of(40, 9)));
      });
}

class PrivateData : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(Main, PrivateData, testing::ValuesIn(main_cases()), name_of);

// Every length in both frames: one connection each, in one duel after another.
TEST_P(PrivateData, OfEveryLengthArrives) {
  for (size_t size = 0; size <= kMostPrivateData && !HasFailure();
       size += size < 8 || size > 240 ? 1 : 29) {
    SCOPED_TRACE(size);
    const auto check = [size](const Peer& peer, const Outcome& o, uint8_t first) {
      EXPECT_GE(o.private_data.size(), size);
      // A verbs program may be shown more than was sent, padded with zeros.
      EXPECT_TRUE(!peer.is_ours() || o.private_data.size() == size);
      const auto wanted = data_of(size, first);
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), o.private_data.begin()));
    };
    duel(
        [&](Peer& peer, Aside& other) {
          const Outcome o = call(peer, other, {.private_data = data_of(size, 1)});
          check(peer, o, 2);
          other.meet();
          peer.finish();
          drain_to_the_end(peer);
        },
        [&](Peer& peer, Aside& other) {
          const Outcome o = answer(peer, other, {.private_data = data_of(size, 2)});
          check(peer, o, 1);
          other.meet();
          drain_to_the_end(peer);
        });
  }
}

class Depths : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(Main, Depths, testing::ValuesIn(main_cases()), name_of);

// RFC 6581 section 6.3: each side's ORD ends at or below the other's IRD. siw does not tell its
// program what it has agreed to, so ours is judged by what both have asked for.
TEST_P(Depths, AreCrossedOver) {
  struct Pair {
    uint16_t ird, ord;
  };
  constexpr std::array kWishes{Pair{0, 0}, Pair{1, 1}, Pair{16, 2}, Pair{3, 100}};
  const auto check = [this](const Peer& peer, const Outcome& o, Pair mine, Pair theirs) {
    if (!peer.is_ours()) return;
    // As a responder siw serves as many Reads as it is asked for, whatever its program said.
    EXPECT_EQ(o.ord, is_ours_active() ? mine.ord : std::min(mine.ord, theirs.ird));
    EXPECT_GE(o.ird, std::min(mine.ird, theirs.ord));
  };
  for (const Pair a : kWishes) {
    for (const Pair b : kWishes) {
      if (HasFailure()) return;
      SCOPED_TRACE(testing::Message()
                   << a.ird << "/" << a.ord << " with " << b.ird << "/" << b.ord);
      duel(
          [&](Peer& peer, Aside& other) {
            check(peer, call(peer, other, {.ird = a.ird, .ord = a.ord}), a, b);
            other.meet();
            peer.finish();
            drain_to_the_end(peer);
          },
          [&](Peer& peer, Aside& other) {
            check(peer, answer(peer, other, {.ird = b.ird, .ord = b.ord}), b, a);
            other.meet();
            drain_to_the_end(peer);
          });
    }
  }
}

class ReadyToReceive : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(Rtr, ReadyToReceive, testing::ValuesIn(cases_of("Rtr")), name_of);

// Peer to peer: the RTR message lets the responder's ULP speak first, and costs no receive.
TEST_P(ReadyToReceive, LetsTheResponderSpeakFirst) {
  duel(
      [](Peer& peer, Aside& other) {
        const Region in = peer.expose(64, Access::kLocal);
        peer.post_receive(1, in.memory);
        EXPECT_EQ(connect(peer, other).kind, Outcome::Kind::kConnected);
        expect_done(peer, Event::Kind::kReceived, 1);
        EXPECT_TRUE(is_filled(in.memory, 5));
        // An end that comes before siw has counted the Send as sent flushes it.
        other.meet();
        peer.finish();
        drain_to_the_end(peer);
      },
      [](Peer& peer, Aside& other) {
        const Region out = peer.expose(64, Access::kLocal);
        fill(out.memory, 5);
        EXPECT_EQ(peer.wait_for_request().kind, Outcome::Kind::kRequested);
        EXPECT_EQ(accept(peer, other).kind, Outcome::Kind::kConnected);
        peer.send(2, out.memory, {});
        expect_done(peer, Event::Kind::kSent, 2);
        other.meet();
        drain_to_the_end(peer);
      });
}

class Overlooked : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(OursConnects, Overlooked, testing::Values(all_cases().front()), name_of);

// The first FPDU follows siw's Reply at once, as programs send it; what siw overlooks then, it
// finds when our side nudges it (doc/decisions/0005-nudge.md).
TEST_P(Overlooked, FirstFpdusArriveAllTheSame) {
  constexpr int kConnections = 20;
  for (int n = 0; n < kConnections && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    duel(
        [](Peer& peer, Aside& other) {
          EXPECT_EQ(peer.connect({}).kind, Outcome::Kind::kConnected);
          peer.send(1, peer.expose(64, Access::kLocal).memory, {});
          expect_done(peer, Event::Kind::kSent, 1);
          while (!other.has_word() &&
                 peer.next(Duration::from_ms(5)).kind == Event::Kind::kTimedOut) {
          }
          other.hear<char>();
          peer.finish();
          drain_to_the_end(peer);
        },
        [](Peer& peer, Aside& other) {
          EXPECT_EQ(peer.wait_for_request().kind, Outcome::Kind::kRequested);
          peer.post_receive(1, peer.expose(64, Access::kLocal).memory);
          EXPECT_EQ(peer.accept({}, [] {}).kind, Outcome::Kind::kConnected);
          expect_done(peer, Event::Kind::kReceived, 1);
          other.tell('.');
          drain_to_the_end(peer);
        });
  }
}

}  // namespace
}  // namespace ddpsock::interop
