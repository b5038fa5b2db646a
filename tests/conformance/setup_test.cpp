// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Making things, limits, full queues, completion events, threads.
#include <sys/eventfd.h>

#include <atomic>
#include <thread>

#include "base/fd.h"
#include "engine/queue/soft_engine.h"
#include "tests/conformance/rig.h"

namespace ddpsock::conformance {
namespace {

using engine::SetupError;

TEST_P(Conformance, FullSendQueueRefuses) {
  Rig rig(GetParam(), {.send_depth = 4});
  std::vector<SendWr> work(6, SendWr{.op = op::Write{}});
  const auto posted = rig.a.qp->send(work);
  EXPECT_EQ(posted.accepted, 4u);
  EXPECT_EQ(posted.reason, Refusal::kQueueFull);
  ASSERT_TRUE(rig.run_until([&] { return rig.a.sent.size() == 4; }));
  EXPECT_EQ(rig.a.qp->send(std::span(work).first(4)).accepted, 4u);
}

TEST_P(Conformance, FullReceiveQueueRefuses) {
  Rig rig(GetParam(), {.recv_depth = 4});
  const std::vector<RecvWr> work(6);
  const auto posted = rig.a.qp->recv(work);
  EXPECT_EQ(posted.accepted, 4u);
  EXPECT_EQ(posted.reason, Refusal::kQueueFull);
}

TEST_P(Conformance, FullCompletionQueueRefusesAndNeverOverflows) {
  Rig rig(GetParam(), {.send_depth = 16, .recv_depth = 16, .cq_depth = 5});
  const std::vector<SendWr> sends(8, SendWr{.op = op::Write{}});
  const auto sent = rig.a.qp->send(sends);
  EXPECT_EQ(sent.accepted, 5u);
  EXPECT_EQ(sent.reason, Refusal::kCqFull);
  // Done, but not polled: the slots are still taken.
  for (int i = 0; i < 20; ++i) rig.a.qp->advance(rig.bench->now(), {});
  EXPECT_EQ(rig.a.qp->send(sends).accepted, 0u);
  rig.a.poll();
  EXPECT_EQ(rig.a.sent.size(), 5u);
  EXPECT_EQ(rig.a.qp->send(sends).accepted, 5u);

  const std::vector<RecvWr> receives(8);
  const auto received = rig.b.qp->recv(receives);
  EXPECT_EQ(received.accepted, 5u);
  EXPECT_EQ(received.reason, Refusal::kCqFull);
}

TEST_P(Conformance, SendsBeforeStartAreRefusedReceivesAreNot) {
  Rig rig(GetParam());
  const auto idle = rig.a.engine->make_qp(
      {.pd = rig.a.pd, .send_cq = rig.a.send_cq.get(), .recv_cq = rig.a.recv_cq.get()});
  ASSERT_TRUE(idle);
  const SendWr send{.op = op::Send{}};
  const RecvWr recv{.id = 4};
  EXPECT_EQ((*idle)->send({&send, 1}).reason, Refusal::kBadState);
  EXPECT_EQ((*idle)->recv({&recv, 1}).accepted, 1u);
  EXPECT_EQ((*idle)->state(), QpState::kIdle);
  EXPECT_EQ((*idle)->advance(rig.bench->now(), {}).deadline, kNever);
  (*idle)->abort(std::nullopt);
  EXPECT_EQ((*idle)->state(), QpState::kEnded);
  rig.a.poll();
  ASSERT_EQ(rig.a.received.size(), 1u);
  EXPECT_EQ(rig.a.received[0].id, 4u);
  EXPECT_EQ(rig.a.received[0].status, WorkStatus::kFlushed);
}

class CountingTap final : public engine::WireTap {
 public:
  void sent(std::span<const Bytes>, Time) override { ++calls; }
  void received(std::span<const Bytes>, Time) override { ++calls; }
  void sent_fin(Time) override { ++calls; }
  void received_fin(Time) override { ++calls; }
  int calls = 0;
};

// Of one connection: engines have such that are carried in other ways.
TEST_P(Conformance, AStartedQueuePairTellsWhatItCan) {
  Rig rig(GetParam());
  CountingTap tap;
  auto attr = engine::QpAttr{
      .pd = rig.a.pd, .send_cq = rig.a.send_cq.get(), .recv_cq = rig.a.recv_cq.get()};
  const auto qp = rig.a.engine->make_qp(attr);
  ASSERT_TRUE(qp);
  engine::Start start = rig.bench->join({}).ends[0];
  start.tap = &tap;
  ASSERT_TRUE((*qp)->start(start));
  const SendWr work{.op = op::Write{}};
  ASSERT_EQ((*qp)->send({&work, 1}).accepted, 1u);
  const auto can = (*qp)->capabilities();
  const engine::Need need = (*qp)->advance(rig.bench->now(), {.is_spinning = true});
  EXPECT_EQ(tap.calls != 0, can.has(Capability::kWireTap) || can.has(Capability::kSegmentTap));
  EXPECT_EQ(need.is_unwatched, start.medium != nullptr);  // in memory
  EXPECT_TRUE(can.has(Capability::kOneSided));
}

TEST_P(Conformance, StartIsRefusedTwiceAndOnNothing) {
  Rig rig(GetParam());
  EXPECT_EQ(rig.a.qp->start(rig.a.start).error(), engine::StartError::kBadState);
  auto idle = rig.a.engine->make_qp({.pd = rig.a.pd,
                                     .send_cq = rig.a.send_cq.get(),
                                     .recv_cq = rig.a.recv_cq.get(),
                                     .max_ird = 2,
                                     .max_ord = 2});
  ASSERT_TRUE(idle);
  engine::Start start = rig.a.start;
  EXPECT_EQ((*idle)->start(start).error(), engine::StartError::kDepths);
  start.lower = engine::LowerLayer{123456};
  EXPECT_EQ((*idle)->start(start).error(), engine::StartError::kBadLowerLayer);
  EXPECT_EQ((*idle)->state(), QpState::kIdle);
}

TEST_P(Conformance, SetupRefusesWhatItCannotDo) {
  Rig rig(GetParam());
  engine::Engine& e = *rig.a.engine;
  EXPECT_EQ(e.make_cq({.depth = 0}).error(), SetupError::kBadArgument);
  EXPECT_EQ(e.make_cq({.depth = e.limits().max_cq_depth + 1}).error(), SetupError::kLimit);
  EXPECT_EQ(e.make_qp({.pd = rig.a.pd}).error(), SetupError::kBadArgument);
  engine::QpAttr attr{
      .pd = rig.a.pd, .send_cq = rig.a.send_cq.get(), .recv_cq = rig.a.recv_cq.get()};
  attr.send_depth = e.limits().max_send_depth + 1;
  EXPECT_EQ(e.make_qp(attr).error(), SetupError::kLimit);
  attr.send_depth = 1;
  attr.pd = engine::Pd{12345};
  EXPECT_EQ(e.make_qp(attr).error(), SetupError::kBadArgument);
  EXPECT_EQ(e.close_pd(rig.a.pd).error(), SetupError::kInUse);

  std::vector<uint8_t> memory(8);
  EXPECT_EQ(e.register_memory({.memory = memory, .rights = {}, .pd = rig.a.pd}).error(),
            engine::RegisterError::kBadRegion);
  EXPECT_EQ(
      e.register_memory({.memory = memory, .rights = rdmap::kRemoteRead, .pd = engine::Pd{777}})
          .error(),
      engine::RegisterError::kBadRegion);
  EXPECT_EQ(e.deregister({.stag = 0x700}).error(), engine::DeregisterError::kUnknown);
  if (!rig.a.has(Capability::kSrq)) {
    EXPECT_EQ(e.make_srq({.pd = rig.a.pd}).error(), SetupError::kUnsupported);
    EXPECT_EQ(e.limits().max_srq_depth, 0u);
  }
}

TEST_P(Conformance, PdsCloseOnceUnused) {
  Rig rig(GetParam());
  engine::Engine& e = *rig.a.engine;
  const engine::Pd pd = *e.open_pd();
  std::vector<uint8_t> memory(8);
  const auto mr = e.register_memory({.memory = memory, .rights = rdmap::kRemoteRead, .pd = pd});
  ASSERT_TRUE(mr);
  EXPECT_EQ(e.close_pd(pd).error(), SetupError::kInUse);
  EXPECT_TRUE(e.deregister(*mr));
  EXPECT_TRUE(e.close_pd(pd));
  EXPECT_EQ(e.close_pd(pd).error(), SetupError::kBadArgument);
}

TEST_P(Conformance, RegionsAreBounded) {
  Rig rig(GetParam());
  std::vector<uint8_t> memory(8);
  for (uint32_t i = 0; i < rig.a.engine->limits().max_regions; ++i) {
    rig.a.reg(memory, rdmap::kRemoteRead);
  }
  EXPECT_EQ(rig.a.engine
                ->register_memory({.memory = memory, .rights = rdmap::kRemoteRead, .pd = rig.a.pd})
                .error(),
            engine::RegisterError::kTableFull);
}

TEST_P(Conformance, TwoQueuePairsShareCompletionQueues) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kSharedCq);
  Rig::Extra& other = rig.add_pair();
  EXPECT_NE(other.a->number(), rig.a.qp->number());
  const auto message = pattern(100);
  std::vector<uint8_t> first(100);
  std::vector<uint8_t> second(100);
  ASSERT_EQ(rig.b.recv(1, first), Refusal::kNone);
  const MutBytes to(second);
  const RecvWr recv{.id = 2, .buffer = {&to, 1}};
  ASSERT_EQ(other.b->recv({&recv, 1}).accepted, 1u);
  const Bytes payload(message);
  const SendWr send{.id = 3, .op = op::Send{.payload = {&payload, 1}}};
  ASSERT_EQ(other.a->send({&send, 1}).accepted, 1u);
  ASSERT_EQ(rig.a.send(4, message), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return rig.b.received.size() == 2 && rig.a.sent.size() == 2; }));
  for (const Completion& c : rig.b.received) {
    EXPECT_EQ(c.qp, c.id == 1 ? rig.b.qp->number() : other.b->number());
  }
  EXPECT_EQ(first, message);
  EXPECT_EQ(second, message);
}

TEST_P(Conformance, ArmedQueueSignalsOnce) {
  Rig rig(GetParam());
  const base::UniqueFd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const auto cq = rig.b.engine->make_cq({.event_fd = event.get()});
  ASSERT_TRUE(cq);
  auto qp = rig.b.engine->make_qp({.pd = rig.b.pd, .send_cq = cq->get(), .recv_cq = cq->get()});
  ASSERT_TRUE(qp);
  const std::vector<RecvWr> receives(3);
  ASSERT_EQ((*qp)->recv(receives).accepted, 3u);
  const auto is_signalled = [&] {
    eventfd_t count = 0;
    return eventfd_read(event.get(), &count) == 0;
  };
  EXPECT_FALSE(is_signalled());
  (*cq)->arm(engine::Cq::Arm::kSolicited);  // a flushed completion counts
  (*qp)->abort(std::nullopt);
  EXPECT_TRUE(is_signalled());
  EXPECT_FALSE(is_signalled());
}

// A thread that has the engine, and is stopped there, must not stop one that posts.
TEST_P(Conformance, PostingWaitsForNobody) {
  Rig rig(GetParam());
  const std::string_view name = rig.a.engine->name();
  if (name.contains('(')) GTEST_SKIP() << name << " has the engine inside";
  auto& engine = static_cast<engine::SoftEngine&>(*rig.a.engine);
  std::vector<uint8_t> sink(64), source(64);
  const engine::Mr at_a = rig.a.reg(sink, rdmap::kLocalWrite);
  const engine::Mr at_b = rig.b.reg(source, rdmap::kRemoteRead);
  const auto message = pattern(20);
  std::array<uint8_t, 20> room{};
  ASSERT_EQ(rig.b.recv(3, room), Refusal::kNone);
  {
    const std::lock_guard held(engine.mutex());
    EXPECT_EQ(rig.a.send(1, message), Refusal::kNone);
    EXPECT_EQ(rig.a.send({.id = 2,
                          .op = op::Read{.sink_stag = at_a.stag,
                                         .sink_to = at_a.base_to,
                                         .length = 64,
                                         .stag = at_b.stag,
                                         .to = at_b.base_to}}),
              Refusal::kNone);
    EXPECT_EQ(rig.a.recv(4, sink), Refusal::kNone);
    EXPECT_EQ(rig.a.qp->state(), QpState::kRts);
    EXPECT_TRUE(rig.a.qp->advance(rig.bench->now(), {.may_wait = false}).is_busy);
  }
  EXPECT_TRUE(rig.run_until([&] { return rig.a.sent.size() == 2 && rig.b.received.size() == 1; }));
}

// Whatever is accepted completes, once, before the end is told: also what is posted meanwhile. Long
// batches, so that the end often comes in the midst of one.
TEST_P(Conformance, ThreadsPostWhileItEnds) {
  constexpr uint32_t kBatch = 64;
  for (int round = 0; round < 40; ++round) {
    Rig rig(GetParam(), {.send_depth = 256, .recv_depth = 256, .cq_depth = 4096});
    std::atomic<uint32_t> accepted = 0, going = 0;
    const auto post = [&] {
      std::array<uint8_t, 64> bytes{};
      const Bytes inlined(bytes);
      const MutBytes room(bytes);
      const std::vector<SendWr> sends(
          kBatch, SendWr{.op = op::Write{.payload = {&inlined, 1}}, .is_inline = true});
      const std::vector<RecvWr> receives(kBatch, RecvWr{.buffer = {&room, 1}});
      for (engine::Posted sent, received;
           sent.reason != Refusal::kBadState || received.reason != Refusal::kBadState; ++going) {
        sent = rig.a.qp->send(sends);
        received = rig.a.qp->recv(receives);
        accepted += sent.accepted + received.accepted;
      }
    };
    uint32_t completed = 0;
    {
      std::vector<std::jthread> posters;
      for (int i = 0; i < 2; ++i) posters.emplace_back(post);
      while (going < 2) std::this_thread::yield();
      for (int i = 0; i < round; ++i) rig.step();
      rig.a.qp->abort(std::nullopt);
      rig.a.qp->advance(rig.bench->now(), {});
      ASSERT_EQ(rig.a.qp->state(), QpState::kEnded);
      rig.a.poll();
      completed = static_cast<uint32_t>(rig.a.sent.size() + rig.a.received.size());
    }
    ASSERT_EQ(completed, accepted) << "round " << round;
    rig.a.poll();
    ASSERT_EQ(rig.a.sent.size() + rig.a.received.size(), completed) << "none comes after the end";
  }
}

TEST_P(Conformance, ThreadsPostWhileOneAdvancesAndOnePolls) {
  constexpr uint32_t kPosters = 3;
  constexpr uint32_t kEach = 500;
  Rig rig(GetParam(), {.send_depth = 64, .recv_depth = 64, .cq_depth = 512});
  std::array<uint8_t, 64> sink{};
  std::atomic<bool> is_done = false;
  std::atomic<uint32_t> credits = 0;  // receives posted and not yet used up by a send
  std::atomic<uint32_t> received = 0;
  const auto post_receives = [&] {
    while (!is_done) {
      if (rig.b.recv(1, sink) == Refusal::kNone) {
        ++credits;
      } else {
        std::this_thread::yield();
      }
    }
  };
  const auto take_credit = [&] {
    uint32_t seen = credits;
    while (seen != 0 && !credits.compare_exchange_weak(seen, seen - 1)) {
    }
    return seen != 0;
  };
  const auto post_sends = [&] {
    static constexpr std::array<uint8_t, 32> kMessage{1, 2, 3};
    for (uint32_t i = 0; i < kEach && !is_done; ++i) {
      while (!take_credit() && !is_done) std::this_thread::yield();
      while (rig.a.send(i, kMessage) != Refusal::kNone && !is_done) std::this_thread::yield();
    }
  };
  const auto advance = [&] {
    while (!is_done) {
      const Time now = base::now();
      rig.a.qp->advance(now, {});
      rig.b.qp->advance(now, {});
    }
  };
  const auto poll = [&] {
    std::array<Completion, 8> batch;
    while (received < kPosters * kEach && rig.b.qp->state() == QpState::kRts) {
      received += rig.b.recv_cq->poll(batch);
      rig.a.send_cq->poll(batch);
    }
    is_done = true;
  };
  std::vector<std::thread> threads;
  threads.emplace_back(advance);
  threads.emplace_back(advance);  // the second finds it busy
  threads.emplace_back(post_receives);
  threads.emplace_back(poll);
  for (uint32_t i = 0; i < kPosters; ++i) threads.emplace_back(post_sends);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(received, kPosters * kEach) << describe(rig.b.qp->terminate_info());
}

}  // namespace
}  // namespace ddpsock::conformance
