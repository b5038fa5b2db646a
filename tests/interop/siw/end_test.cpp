// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How connections with siw end: drained, by a Terminate of either side, by sudden death.
#include <signal.h>
#include <unistd.h>

#include "rdmap/format.h"
#include "tests/interop/siw/duel.h"

namespace ddpsock::interop {
namespace {

using rdmap::TermCode;

constexpr size_t kSize = 4096;
constexpr uint64_t kOffence = 77;
constexpr Duration kShort = Duration::from_ms(300);

struct Target {
  uint32_t stag;
  uint64_t to;
};

// What the offender does to the other side, and what the other side calls it.
struct Offence {
  const char* name;
  void (*commit)(Peer& offender, const Region& own, Target target);
  Access exposed;
  size_t room;  // of the victim's one receive; 0: none is posted
  TermCode ours_says;
  // Nothing: siw serves it as if it were right.
  std::optional<TermCode> siw_says;
};

constexpr TermCode kBadStag = TermCode::ddp(ddp::Error::kInvalidStag);
constexpr TermCode kBadBounds = TermCode::ddp(ddp::Error::kBaseOrBounds);

const std::array kOffences{
    Offence{"WriteToUnknownStag",
            [](Peer& p, const Region& own, Target t) {
              p.write(kOffence, own.memory, t.stag ^ 0x500, t.to);
            },
            Access::kRemoteWrite, kSize, kBadStag, kBadStag},
    Offence{"WriteWithWrongKey",
            [](Peer& p, const Region& own, Target t) {
              p.write(kOffence, own.memory, t.stag ^ 0x5a, t.to);
            },
            Access::kRemoteWrite, kSize, kBadStag, kBadStag},
    Offence{"WriteBeyondTheEnd",
            [](Peer& p, const Region& own, Target t) {
              p.write(kOffence, own.memory.first(8), t.stag, t.to + kSize - 4);
            },
            Access::kRemoteWrite, kSize, kBadBounds, kBadBounds},
    Offence{"WriteBeforeTheStart",
            [](Peer& p, const Region& own, Target t) {
              p.write(kOffence, own.memory.first(8), t.stag, t.to - 4);
            },
            Access::kRemoteWrite, kSize, kBadBounds, kBadBounds},
    Offence{
        "WriteWithoutRights",
        [](Peer& p, const Region& own, Target t) { p.write(kOffence, own.memory, t.stag, t.to); },
        Access::kRemoteRead, kSize, kBadStag, kBadStag},
    Offence{"ReadFromUnknownStag",
            [](Peer& p, const Region& own, Target t) {
              p.read(kOffence, own.memory, t.stag ^ 0x500, t.to);
            },
            Access::kRemoteRead, kSize, TermCode::protection(RDMAP_ECODE_INVALID_STAG),
            TermCode::protection(RDMAP_ECODE_INVALID_STAG)},
    Offence{"ReadBeyondTheEnd",
            [](Peer& p, const Region& own, Target t) {
              p.read(kOffence, own.memory, t.stag, t.to + 1);
            },
            Access::kRemoteRead, kSize, TermCode::protection(RDMAP_ECODE_BASE_BOUNDS),
            TermCode::protection(RDMAP_ECODE_BASE_BOUNDS)},
    Offence{
        "ReadWithoutRights",
        [](Peer& p, const Region& own, Target t) { p.read(kOffence, own.memory, t.stag, t.to); },
        Access::kRemoteWrite, kSize, TermCode::protection(RDMAP_ECODE_ACCESS_RIGHTS), std::nullopt},
    Offence{"SendWithoutReceive",
            [](Peer& p, const Region& own, Target) { p.send(kOffence, own.memory, {}); },
            Access::kLocal, 0, TermCode::ddp(ddp::Error::kNoBuffer),
            TermCode::ddp(ddp::Error::kNoBuffer)},
    Offence{"SendTooLong",
            [](Peer& p, const Region& own, Target) { p.send(kOffence, own.memory, {}); },
            Access::kLocal, kSize - 1, TermCode::ddp(ddp::Error::kTooLong),
            TermCode::ddp(ddp::Error::kNoBuffer)},
};

class Offences : public SiwTest {
 protected:
  static void offend(Peer& peer, Aside& other, const Offence& offence) {
    const auto target = other.hear<Target>();
    const Region own = peer.expose(kSize, Access::kRemoteBoth);
    fill(own.memory, 3);
    offence.commit(peer, own, target);
    if (peer.is_ours() && !offence.siw_says) {
      EXPECT_TRUE(peer.next().is_ok);
      peer.finish();
    }
    drain_to_the_end(peer);
    if (peer.is_ours() && offence.siw_says) expect_code(peer, *offence.siw_says);
    other.tell('.');
  }
  static void suffer(Peer& peer, Aside& other, const Region& exposed) {
    fill(exposed.memory, 8);
    other.tell(Target{exposed.stag, exposed.to});
    drain_to_the_end(peer);
    EXPECT_TRUE(is_filled(exposed.memory, 8)) << "memory was touched";
    other.hear<char>();
  }
  static void expect_code(const Peer& peer, TermCode wanted) {
    const auto code = peer.terminate();
    EXPECT_TRUE(code.has_value()) << "no Terminate";
    if (code) {
      EXPECT_EQ(*code, wanted) << rdmap::to_string(*code)
                               << ", expected: " << rdmap::to_string(wanted);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Main, Offences, testing::ValuesIn(main_cases()), name_of);

// The side that connects offends.
TEST_P(Offences, OfTheActiveSideEndTheConnection) {
  for (const Offence& offence : kOffences) {
    SCOPED_TRACE(offence.name);
    duel(
        [&](Peer& peer, Aside& other) {
          call(peer, other);
          offend(peer, other, offence);
        },
        [&](Peer& peer, Aside& other) {
          const Region exposed = peer.expose(kSize, offence.exposed);
          const Region room = peer.expose(kSize, Access::kLocal);
          answer(peer, other);
          if (offence.room != 0) peer.post_receive(1, room.memory.first(offence.room));
          suffer(peer, other, exposed);
          if (peer.is_ours()) expect_code(peer, offence.ours_says);
        });
  }
}

// The side that was called offends.
TEST_P(Offences, OfThePassiveSideEndTheConnection) {
  for (const Offence& offence : kOffences) {
    SCOPED_TRACE(offence.name);
    duel(
        [&](Peer& peer, Aside& other) {
          const Region exposed = peer.expose(kSize, offence.exposed);
          const Region room = peer.expose(kSize, Access::kLocal);
          call(peer, other);
          if (offence.room != 0) peer.post_receive(1, room.memory.first(offence.room));
          suffer(peer, other, exposed);
          if (peer.is_ours()) expect_code(peer, offence.ours_says);
        },
        [&](Peer& peer, Aside& other) {
          answer(peer, other);
          offend(peer, other, offence);
        });
  }
}

class Ends : public SiwTest {};
INSTANTIATE_TEST_SUITE_P(Main, Ends, testing::ValuesIn(main_cases()), name_of);

// What was posted before the end arrives before it (siw does not keep half-closed connections, so
// only this much can be asked of both).
TEST_P(Ends, AfterEverythingPostedHasArrived) {
  constexpr uint32_t kMessages = 100;
  duel(
      [](Peer& peer, Aside& other) {
        const Region out = peer.expose(kMessages * kSize, Access::kLocal);
        call(peer, other);
        other.meet();
        for (uint32_t n = 0; n < kMessages; ++n) {
          fill(out.memory.subspan(n * kSize, kSize), n);
          peer.send(n, out.memory.subspan(n * kSize, kSize), {});
        }
        if (!peer.is_ours()) {
          for (uint32_t n = 0; n < kMessages; ++n) expect_done(peer, Event::Kind::kSent, n);
        }
        peer.finish();
        EXPECT_EQ(drain_to_the_end(peer), peer.is_ours() ? static_cast<int>(kMessages) : 0);
        EXPECT_FALSE(peer.terminate());
      },
      [](Peer& peer, Aside& other) {
        const Region in = peer.expose((kMessages + 1) * kSize, Access::kLocal);
        answer(peer, other);
        for (uint32_t n = 0; n <= kMessages; ++n)
          peer.post_receive(n, in.memory.subspan(n * kSize, kSize));
        other.meet();
        for (uint32_t n = 0; n < kMessages; ++n) expect_done(peer, Event::Kind::kReceived, n);
        for (uint32_t n = 0; n < kMessages; ++n) {
          EXPECT_TRUE(is_filled(in.memory.subspan(n * kSize, kSize), n)) << n;
        }
        // The one receive that is left comes back unused.
        EXPECT_EQ(drain_to_the_end(peer), 0);
        EXPECT_FALSE(peer.terminate());
      });
}

// A process that dies while it sends: the other side learns it, and all its requests come back.
void die(Peer& peer, Aside& other) {
  const Region out = peer.expose(64 * kSize, Access::kLocal);
  other.meet();
  for (uint32_t n = 0; n < 8; ++n) peer.send(n, out.memory, {});
  kill(getpid(), SIGKILL);
}

void survive(Peer& peer, Aside& other) {
  const Region in = peer.expose(16 * 64 * kSize, Access::kLocal);
  for (uint32_t n = 0; n < 16; ++n)
    peer.post_receive(n, in.memory.subspan(n * 64 * kSize, 64 * kSize));
  other.meet();
  EXPECT_LE(drain_to_the_end(peer), 8);
}

TEST_P(Ends, WhenTheActiveSideDies) {
  duel([](Peer& peer, Aside& other) { call(peer, other), die(peer, other); },
       [](Peer& peer, Aside& other) { answer(peer, other), survive(peer, other); }, Death::kActive);
}

TEST_P(Ends, WhenThePassiveSideDies) {
  duel([](Peer& peer, Aside& other) { call(peer, other), survive(peer, other); },
       [](Peer& peer, Aside& other) { answer(peer, other), die(peer, other); }, Death::kPassive);
}

// The network goes away without a word: our side gives up when its caller's time is over, and what
// it leaves is a reset.
TEST_P(Ends, WhenNothingComesAnyMore) {
  const auto lose = [](Peer& peer, Aside& other) {
    if (peer.is_ours()) {
      peer.post_receive(1, peer.expose(kSize, Access::kLocal).memory);
      other.meet();
      EXPECT_EQ(peer.next(kShort).kind, Event::Kind::kTimedOut);
      return;
    }
    const Blackhole network_is_gone;
    other.meet();
    peer.send(1, peer.expose(kSize, Access::kLocal).memory, {});
    drain_to_the_end(peer);
  };
  duel([&](Peer& peer, Aside& other) { call(peer, other), lose(peer, other); },
       [&](Peer& peer, Aside& other) { answer(peer, other), lose(peer, other); });
}

}  // namespace
}  // namespace ddpsock::interop
