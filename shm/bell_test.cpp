// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The doorbell protocol in every interleaving of a writer and a reader, store buffers included; and
// that the search does find a lost wakeup once any of the protocol's precautions is taken out.
#include "shm/bell.h"

#include <gtest/gtest.h>

#include <memory>

#include "shm/interleave_testing.h"

namespace ddpsock::engine::shm {
namespace {

enum class Mutation {
  kNone,
  kArmWithoutFence,
  kArmWithoutSecondLook,
  kPublishWithoutFence,
  kBellTakenBeforeArming,
  kNoBell,
};

// A reader in two manners: it sleeps in the kernel until there is a byte to read, as a blocking
// call or a poller does. Bytes are counted, not copied.
struct Model {
  Word tail, armed;
  uint64_t head = 0;
  int kernel_bells = 0;  // unread
  int in_call = 0;       // library calls that are running
  Mutation mutation;
  int messages;

  void reset() {
    tail = armed = Word();
    armed.value = 1;
    head = 0;
    kernel_bells = in_call = 0;
  }

  void enter() { ++in_call; }
  void leave() {
    Interleaver::current->step();
    Interleaver::current->drain();  // the next system call does
    --in_call;
  }
  void ring() {
    Interleaver::current->step();
    Interleaver::current->drain();
    ++kernel_bells;
  }
  void take_bell() {
    Interleaver::current->step();
    Interleaver::current->drain();
    if (kernel_bells > 0) --kernel_bells;
  }

  Publication publish_one(uint64_t at) {
    if (mutation != Mutation::kPublishWithoutFence) return publish(tail, armed, at, at + 1);
    tail.store(at + 1, std::memory_order_release);
    if (armed.load(std::memory_order_acquire) == 0) return Publication::kQuiet;
    return armed.exchange(0, std::memory_order_acq_rel) != 0 ? Publication::kMustRing
                                                             : Publication::kQuiet;
  }
  void write() {
    for (int i = 0; i < messages; ++i) {
      enter();
      if (publish_one(static_cast<uint64_t>(i)) == Publication::kMustRing &&
          mutation != Mutation::kNoBell)
        ring();
      leave();
    }
  }

  uint64_t arm_now() {
    if (mutation == Mutation::kArmWithoutFence) {
      armed.store(1, std::memory_order_release);
      return tail.load(std::memory_order_acquire);
    }
    const uint64_t seen = arm(tail, armed);
    return mutation == Mutation::kArmWithoutSecondLook ? head : seen;
  }
  // One call: takes what there is; if nothing, makes the socket tell the truth.
  void receive() {
    enter();
    const uint64_t seen = tail.load(std::memory_order_acquire);
    if (seen != head) {
      head = seen;
    } else {
      const bool has_stale_bell = kernel_bells > 0;
      if (mutation == Mutation::kBellTakenBeforeArming && has_stale_bell) take_bell();
      if (armed.load(std::memory_order_relaxed) == 0) {
        if (arm_now() != head)
          disarm(armed);
        else if (has_stale_bell && mutation != Mutation::kBellTakenBeforeArming)
          take_bell();
      }
    }
    leave();
  }
  void read() {
    while (head != static_cast<uint64_t>(messages)) {
      Interleaver::current->wait_until([this] { return kernel_bells > 0; });
      receive();
    }
  }

  // The promise: no call is running and bytes lie there, so a bell is unread.
  bool is_sound() const { return in_call > 0 || tail.value == head || kernel_bells > 0; }
};

Interleaver::Outcome explore(Mutation mutation, int messages, bool stop_at_first) {
  const auto interleaver = std::make_unique<Interleaver>();
  Model model;
  model.mutation = mutation;
  model.messages = messages;
  Interleaver::Program program{
      .reset = [&] { model.reset(); },
      .threads = {[&] { model.write(); }, [&] { model.read(); }},
      .is_sound = [&] { return model.is_sound(); },
  };
  return interleaver->explore(program, stop_at_first);
}

TEST(BellModel, NoInterleavingLosesAWakeup) {
  const auto outcome = explore(Mutation::kNone, 2, true);
  EXPECT_EQ(outcome.broken, 0u) << "in run " << outcome.runs;
  EXPECT_GT(outcome.runs, 1000u) << "the search must be a search";
}

class Mutated : public testing::TestWithParam<Mutation> {};
TEST_P(Mutated, IsFoundOut) {
  EXPECT_GT(explore(GetParam(), 2, true).broken, 0u);
}
INSTANTIATE_TEST_SUITE_P(Precautions, Mutated,
                         testing::Values(Mutation::kArmWithoutFence,
                                         Mutation::kArmWithoutSecondLook,
                                         Mutation::kPublishWithoutFence,
                                         Mutation::kBellTakenBeforeArming, Mutation::kNoBell));

// Closing against publishing: what the reader is told is the last is the last.
TEST(CloseModel, NothingIsPublishedAfterIt) {
  const auto interleaver = std::make_unique<Interleaver>();
  Word tail, armed;
  uint64_t sent = 0, last = 0;
  bool has_closed = false;
  Interleaver::Program program{
      .reset =
          [&] {
            tail = armed = Word();
            sent = last = 0;
            has_closed = false;
          },
      .threads = {[&] {
                    for (uint64_t i = 0; i < 3; ++i) {
                      const Publication p = publish(tail, armed, i, i + 1);
                      if (p == Publication::kClosed) return;
                      sent = i + 1;
                    }
                  },
                  [&] {
                    last = close_lane(tail);
                    has_closed = true;
                  }},
      .is_sound = [&] { return !has_closed || (tail.value & ~kClosedBit) == last; },
  };
  const auto outcome = interleaver->explore(program, true);
  EXPECT_EQ(outcome.broken, 0u);
  EXPECT_GT(outcome.runs, 5u);
}

}  // namespace
}  // namespace ddpsock::engine::shm
