// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every operation between two queue pairs wired back to back.
#include <gtest/gtest.h>

#include <array>
#include <new>
#include <numeric>
#include <utility>

#include "rdmap/pair.h"

// The next but so many is refused; below 0: none.
static int refused_allocation = -1;

void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  if (refused_allocation >= 0 && refused_allocation-- == 0) return nullptr;
  return operator new[](size);
}

namespace ddpsock::rdmap::test {
namespace {

std::vector<uint8_t> pattern(size_t n, uint8_t seed = 1) {
  std::vector<uint8_t> v(n);
  std::iota(v.begin(), v.end(), seed);
  return v;
}

TEST(Qp, SendsAMessageOfManySegmentsFromAGatherListIntoAScatterList) {
  Pair p;
  std::vector<uint8_t> in1(1000, 0xa5), in2(9000, 0xa5);
  const std::array<MutBytes, 2> scatter{MutBytes(in1), MutBytes(in2)};
  const RecvWr recv{11, scatter};
  ASSERT_EQ(p.b.qp.post_recv({&recv, 1}).accepted, 1u);
  const std::vector<uint8_t> out = pattern(7001);
  const std::array<Bytes, 3> gather{Bytes(out).first(1), Bytes(out).subspan(1, 5000),
                                    Bytes(out).subspan(5001)};
  ASSERT_EQ(p.a.send({.id = 5, .op = op::Send{.payload = gather}}).accepted, 1u);
  p.run(200);

  const auto received = p.b.receives();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].id, 11u);
  EXPECT_EQ(received[0].length, 7001u);
  EXPECT_EQ(received[0].status, WorkStatus::kOk);
  EXPECT_FALSE(received[0].is_solicited);
  EXPECT_TRUE(std::equal(in1.begin(), in1.end(), out.begin()));
  EXPECT_TRUE(std::equal(out.begin() + 1000, out.end(), in2.begin()));
  EXPECT_EQ(in2[6001], 0xa5);
  const auto sent = p.a.sends();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].id, 5u);
  EXPECT_EQ(p.a.qp.state(), QpState::kRts);
}

TEST(Qp, WritesAndReads) {
  Pair p;
  std::vector<uint8_t> remote(5000, 0), local(5000, 0);
  const uint32_t theirs = p.b.reg(remote, kRemoteWrite | kRemoteRead, 0x1000);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  const std::vector<uint8_t> data = pattern(3000);
  const Bytes range(data);
  p.a.send({.id = 1, .op = op::Write{.payload = {&range, 1}, .stag = theirs, .to = 0x1064}});
  p.a.send({.id = 2, .op = op::Read{ours, 500, 3000, theirs, 0x1064}});
  p.run(400);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), remote.begin() + 100));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), local.begin() + 500));
  EXPECT_EQ(local[499], 0);
  EXPECT_EQ(local[3500], 0);
  const auto done = p.a.sends();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].kind, WorkKind::kWrite);
  EXPECT_EQ(done[1].kind, WorkKind::kRead);
  EXPECT_EQ(done[1].length, 3000u);
}

// The wire format of one message: what `a` puts out for one work request.
std::vector<Ulpdu> wire_of(const SendWr& wr, Endpoint& a) {
  EXPECT_EQ(a.send(wr).accepted, 1u);
  return a.output();
}

struct Lone {
  Lone() { a.qp.start({true, Rtr::kNone, 4, 4}); }
  Endpoint a;
};

TEST(Qp, Trap25EverySendFormHasItsOpcode) {
  Lone l;
  const auto form = [&](bool is_solicited, std::optional<uint32_t> invalidate) {
    return wire_of({.op = op::Send{.is_solicited = is_solicited, .invalidate = invalidate}}, l.a);
  };
  EXPECT_EQ(form(false, {})[0][1], 0x43);
  EXPECT_EQ(form(false, 0x1234)[0][1], 0x44);
  EXPECT_EQ(form(true, {})[0][1], 0x45);
  EXPECT_EQ(form(true, 0x1234)[0][1], 0x46);
}

TEST(Qp, Trap26TheStagToInvalidateRidesInEverySegmentAndIsZeroOtherwise) {
  Lone l;
  const std::string text(500, 'x');
  const Bytes range = bytes_of(text);
  l.a.send({.op = op::Send{.payload = {&range, 1}, .invalidate = 0xdeadbeef}});
  l.a.send({.op = op::Send{.payload = {&range, 1}}});
  const auto out = l.a.output(128);
  ASSERT_EQ(out.size(), 10u);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(ddp::UntaggedView::parse(out[i])->rsvd_ulp().word, i < 5 ? 0xdeadbeefu : 0u);
  }
}

TEST(Qp, Trap26RemoteInvalidateActsOnceAtDelivery) {
  Pair p;
  std::vector<uint8_t> region(100), in(1000);
  const uint32_t stag = p.b.reg(region, kRemoteWrite);
  p.b.recv(1, in);
  const std::string text(300, 'x');
  const Bytes range = bytes_of(text);
  p.a.send({.op = op::Send{.payload = {&range, 1}, .is_solicited = true, .invalidate = stag}});
  const auto out = p.a.output(200);
  ASSERT_EQ(out.size(), 3u);  // RTR, then two segments
  p.b.input(out[0]);
  p.b.input(out[1]);
  EXPECT_TRUE(p.b.stags.access(stag, 0, 1, kRemoteWrite, p.b.qp.stream())) << "not yet delivered";
  p.b.input(out[2]);
  EXPECT_FALSE(p.b.stags.access(stag, 0, 1, kRemoteWrite, p.b.qp.stream()));
  const auto got = p.b.receives();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].invalidated_stag, stag);
  EXPECT_TRUE(got[0].is_solicited);
  EXPECT_EQ(p.b.qp.state(), QpState::kRts);
}

TEST(Qp, Trap27ReadRequestIsOneSegmentOf46Bytes) {
  Lone l;
  std::vector<uint8_t> sink(100);
  const uint32_t stag = l.a.reg(sink, kLocalWrite);
  const auto out = wire_of({.op = op::Read{stag, 10, 20, 0x1234, 0x5678}}, l.a);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].size(), 46u);
  const auto view = ddp::UntaggedView::parse(out[0]);
  EXPECT_EQ(view->qn(), 1u);
  EXPECT_EQ(view->msn(), 1u);
  EXPECT_TRUE(view->is_last());
  EXPECT_EQ(*decode_read_request(view->after_header()),
            (ReadRequest{stag, 10, 20, 0x1234, 0x5678}));
}

TEST(Qp, Trap21EachQueueHasItsOwnMsn) {
  Lone l;
  std::vector<uint8_t> sink(8);
  const uint32_t stag = l.a.reg(sink, kLocalWrite);
  const auto msn = [](const Ulpdu& u) { return ddp::UntaggedView::parse(u)->msn(); };
  EXPECT_EQ(msn(wire_of({.op = op::Send{}}, l.a)[0]), 1u);
  EXPECT_EQ(msn(wire_of({.op = op::Send{}}, l.a)[0]), 2u);
  EXPECT_EQ(msn(wire_of({.op = op::Read{stag, 0, 8, 1, 0}}, l.a)[0]), 1u);
  EXPECT_EQ(msn(wire_of({.op = op::FetchAdd{1, 0, 1, 0}}, l.a)[0]), 2u)
      << "atomics share the Read Request queue";
  EXPECT_EQ(msn(wire_of({.op = op::Immediate{7}}, l.a)[0]), 3u);
}

TEST(Qp, Trap28ReadResponsesComeInOrderAndAfterEarlierSends) {
  Pair p;
  std::vector<uint8_t> remote = pattern(600), local(600), in(10);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  p.a.recv(9, in);
  p.a.send({.id = 1, .op = op::Read{ours, 0, 300, theirs, 0}});
  p.a.send({.id = 2, .op = op::Read{ours, 300, 300, theirs, 300}});
  const auto requests = p.a.output();
  p.b.input(requests[0]);
  p.b.send_text(5, "hello");  // submitted before the Requests were delivered
  for (size_t i = 1; i < requests.size(); ++i) p.b.input(requests[i]);
  const auto answers = p.b.output(214);
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers[0][1], 0x43);
  EXPECT_EQ(ddp::TaggedView::parse(answers[1])->to(), 0u);
  EXPECT_EQ(ddp::TaggedView::parse(answers[3])->to(), 300u);
  for (const Ulpdu& u : answers) EXPECT_FALSE(p.a.input(u));
  EXPECT_EQ(local, remote);
  const auto done = p.a.sends();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].id, 1u);
}

TEST(Qp, OrdHoldsReadsBackButNotAnswers) {
  QpAttr attr{.number = 1, .pd = 7};
  Pair p(attr, 1);
  std::vector<uint8_t> remote = pattern(64), local(64), remote2 = pattern(64, 9), local2(64);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  const uint32_t ours2 = p.a.reg(remote2, kRemoteRead), theirs2 = p.b.reg(local2, kLocalWrite);
  p.a.output();  // RTR is out
  for (int i = 0; i < 3; ++i) p.a.send({.op = op::Read{ours, 0, 64, theirs, 0}});
  EXPECT_EQ(p.a.output().size(), 1u) << "one Read outstanding at most";
  EXPECT_FALSE(p.a.qp.has_output());
  // The peer reads from us while our own Reads are held back: it must be answered.
  Ulpdu request(46);
  ddp::write_header(request.data(), ddp::UntaggedHeader{true, {0x41, 0}, 1, 1, 0});
  encode(MutBytes(request).subspan(18), ReadRequest{theirs2, 0, 64, ours2, 0});
  EXPECT_FALSE(p.a.input(request));
  const auto out = p.a.output();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0][1], 0x42);
}

TEST(Qp, ThreeReadsThroughAnOrdOfOne) {
  Pair p(QpAttr{.number = 1, .pd = 7}, 1);
  std::vector<uint8_t> remote = pattern(64), local(192);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  for (uint32_t i = 0; i < 3; ++i) p.a.send({.id = i, .op = op::Read{ours, i * 64, 64, theirs, 0}});
  p.run();
  EXPECT_EQ(p.a.sends().size(), 3u);
  EXPECT_EQ(p.a.qp.state(), QpState::kRts);
}

TEST(Qp, ManyReadsReuseTheRequestBuffers) {
  Pair p(QpAttr{.number = 1, .pd = 7}, 2);
  std::vector<uint8_t> remote = pattern(64), local(64);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  for (uint32_t round = 0; round < 50; ++round) {
    for (int i = 0; i < 5; ++i) p.a.send({.op = op::Read{ours, 0, 64, theirs, 0}});
    p.run();
    ASSERT_EQ(p.a.sends().size(), 5u) << round;
  }
}

TEST(Qp, AFencedRequestWaitsForEarlierReads) {
  Pair p;
  std::vector<uint8_t> remote = pattern(64), local(64), in(10);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead | kRemoteWrite);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  p.b.recv(1, in);
  p.a.output();
  p.a.send({.id = 1, .op = op::Read{ours, 0, 64, theirs, 0}});
  p.a.send({.id = 2, .op = op::Send{}, .has_fence = true});
  const auto first = p.a.output();
  ASSERT_EQ(first.size(), 1u);
  p.run();
  EXPECT_TRUE(p.a.output().empty());
  Pair q;
  q.a.send({.id = 2, .op = op::Send{}, .has_fence = true});
  EXPECT_EQ(q.a.output().size(), 2u) << "nothing to wait for";
}

TEST(Qp, CompletionsComeInTheOrderOfPostingThoughAReadIsSlow) {
  Pair p;
  std::vector<uint8_t> remote = pattern(64), local(64), in(10);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  p.b.recv(1, in);
  p.a.send({.id = 1, .op = op::Read{ours, 0, 64, theirs, 0}});
  p.a.send_text(2, "x");
  const auto out = p.a.output();
  EXPECT_TRUE(p.a.sends().empty()) << "the Send is out, but the Read before it is not answered";
  for (const Ulpdu& u : out) p.b.input(u);
  p.run();
  const auto done = p.a.sends();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].id, 1u);
  EXPECT_EQ(done[1].id, 2u);
}

TEST(Qp, AWorkRequestCompletesWhenTheLlpHasTakenItsLastSegment) {
  Lone l;
  const std::string text(300, 'x');
  l.a.send_text(1, text);
  ddp::Segment s;
  ASSERT_TRUE(l.a.qp.next_segment(218, s));
  ASSERT_TRUE(l.a.qp.next_segment(218, s));
  EXPECT_FALSE(l.a.qp.next_segment(218, s));
  l.a.qp.segments_sent(1);
  EXPECT_TRUE(l.a.sends().empty());
  l.a.qp.segments_sent(1);
  EXPECT_EQ(l.a.sends().size(), 1u);
}

TEST(Qp, UnsignalledWorkIsSilentAndInlineWorkIsCopied) {
  Pair p;
  std::vector<uint8_t> in(64);
  p.b.recv(1, in);
  {
    const std::string gone = "inline payload";
    const Bytes range = bytes_of(gone);
    EXPECT_EQ(p.a.send({.id = 1,
                        .op = op::Send{.payload = {&range, 1}},
                        .is_signalled = false,
                        .is_inline = true})
                  .accepted,
              1u);
  }
  p.run();
  EXPECT_TRUE(p.a.sends().empty());
  ASSERT_EQ(p.b.receives().size(), 1u);
  EXPECT_EQ(std::string(in.begin(), in.begin() + 14), "inline payload");
}

TEST(Qp, ImmediateDataConsumesAReceiveAndCarriesEightBytes) {
  Pair p;
  std::vector<uint8_t> in(64, 0xa5);
  p.b.recv(1, in);
  p.b.recv(2, {});
  p.a.send({.op = op::Immediate{0x1122334455667788, false}});
  p.a.send({.op = op::Immediate{42, true}});
  const auto out = p.a.output();
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[1][1], 0x48);
  EXPECT_EQ(out[2][1], 0x49);
  EXPECT_EQ(out[1].size(), 26u);
  EXPECT_EQ(out[1][18], 0x11) << "most significant byte first";
  for (const Ulpdu& u : out) p.b.input(u);
  const auto got = p.b.receives();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].immediate, 0x1122334455667788u);
  EXPECT_FALSE(got[0].is_solicited);
  EXPECT_EQ(got[1].immediate, 42u);
  EXPECT_TRUE(got[1].is_solicited);
  EXPECT_TRUE(std::ranges::all_of(in, [](uint8_t b) { return b == 0xa5; }));
}

TEST(Qp, Trap32AtomicsAreExecutedOnceAndReturnTheOldValue) {
  Pair p;
  alignas(8) std::array<uint64_t, 2> words{100, 7};
  MutBytes memory(reinterpret_cast<uint8_t*>(words.data()), sizeof words);
  const uint32_t stag = p.b.reg(memory, kRemoteAtomic, 0x1000);
  p.a.send({.id = 1, .op = op::FetchAdd{stag, 0x1000, 5, 0}});
  p.a.send({.id = 2, .op = op::CmpSwap{.stag = stag, .to = 0x1008, .compare = 7, .swap = 9}});
  p.a.send({.id = 3, .op = op::CmpSwap{.stag = stag, .to = 0x1008, .compare = 7, .swap = 11}});
  p.a.send({.id = 4, .op = op::Swap{stag, 0x1000, 1}});
  p.run();
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[1], 9u);
  const auto done = p.a.sends();
  ASSERT_EQ(done.size(), 4u);
  EXPECT_EQ(done[0].original, 100u);
  EXPECT_EQ(done[1].original, 7u);
  EXPECT_EQ(done[2].original, 9u);
  EXPECT_EQ(done[3].original, 105u);
  EXPECT_EQ(done[3].kind, WorkKind::kSwap);
}

TEST(Qp, ReadsAndAtomicsInterleaveThroughManyRounds) {
  Pair p(QpAttr{.number = 1, .pd = 7}, 3);
  alignas(8) uint64_t word = 0;
  MutBytes memory(reinterpret_cast<uint8_t*>(&word), sizeof word);
  std::vector<uint8_t> local(8);
  const uint32_t theirs = p.b.reg(memory, kRemoteAtomic | kRemoteRead);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  for (uint64_t round = 0; round < 40; ++round) {
    p.a.send({.op = op::FetchAdd{theirs, 0, 1, 0}});
    p.a.send({.op = op::Read{ours, 0, 8, theirs, 0}});
    p.a.send({.op = op::FetchAdd{theirs, 0, 1, 0}});
    p.run();
    const auto done = p.a.sends();
    ASSERT_EQ(done.size(), 3u);
    EXPECT_EQ(done[2].original, 2 * round + 1);
  }
  EXPECT_EQ(word, 80u);
}

TEST(Qp, LocalInvalidateTakesEffectInItsTurn) {
  Pair p;
  std::vector<uint8_t> remote = pattern(64), local(64);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  p.a.output();
  p.a.send({.id = 1, .op = op::Read{ours, 0, 64, theirs, 0}});
  p.a.send({.id = 2, .op = op::LocalInvalidate{ours}, .has_fence = true});
  p.a.output();
  EXPECT_TRUE(p.a.stags.access(ours, 0, 1, kLocalWrite, p.a.qp.stream()));
  Pair q;
  const uint32_t gone = q.a.reg(local, kLocalWrite);
  q.a.send({.id = 3, .op = op::LocalInvalidate{gone}});
  q.a.send({.id = 4, .op = op::LocalInvalidate{gone}});
  const auto done = q.a.sends();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WorkStatus::kOk);
  EXPECT_EQ(done[1].status, WorkStatus::kLocalError) << "invalid already";
}

// Who moves segments may see what another thread has posted since take_posted().
TEST(Qp, LocalWorkThatWasSeenWhileSegmentsMoveIsDoneAllTheSame) {
  Pair p;
  std::vector<uint8_t> local(64);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  p.a.output();  // the RTR frame
  p.a.qp.take_posted();
  const SendWr wr{.id = 1, .op = op::LocalInvalidate{ours}};
  ASSERT_EQ(p.a.qp.post_send({&wr, 1}).accepted, 1u);
  EXPECT_FALSE(p.a.qp.has_output());
  EXPECT_TRUE(p.a.qp.has_local_work()) << "so that somebody comes back";
  p.a.qp.take_posted();
  EXPECT_EQ(p.a.sends().size(), 1u);
  EXPECT_FALSE(p.a.qp.has_local_work());
  EXPECT_FALSE(p.a.stags.access(ours, 0, 1, kLocalWrite, p.a.qp.stream()));
}

// Of what its maker discards for want of memory nothing is looked at.
TEST(Qp, OneWithoutMemoryGoesQuietly) {
  StagTable stags(1);
  CompletionQueue cq(8);
  int failed = 0;
  for (int nth = 0; nth < 100; ++nth) {
    refused_allocation = nth;
    const bool has_memory = Qp({.send_depth = 4}, stags, cq, cq).has_memory();
    if (std::exchange(refused_allocation, -1) >= 0) {
      EXPECT_TRUE(has_memory);
      break;
    }
    EXPECT_FALSE(has_memory) << "allocation " << nth;
    ++failed;
  }
  EXPECT_GT(failed, 5);
  refused_allocation = 0;
  EXPECT_FALSE(SharedReceives(4, cq).has_memory());
}

TEST(Qp, FencedLocalInvalidateAfterAReadCompletes) {
  Pair p;
  std::vector<uint8_t> remote = pattern(64), local(64);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  p.a.send({.id = 1, .op = op::Read{ours, 0, 64, theirs, 0}});
  p.a.send({.id = 2, .op = op::LocalInvalidate{ours}, .has_fence = true});
  p.run();
  const auto done = p.a.sends();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[1].status, WorkStatus::kOk);
  EXPECT_EQ(local, remote);
  EXPECT_FALSE(p.a.stags.access(ours, 0, 1, kLocalWrite, p.a.qp.stream()));
}

TEST(Qp, Trap22ZeroLengthSendConsumesAReceive) {
  Pair p;
  std::vector<uint8_t> in(10);
  p.b.recv(1, in);
  p.a.send({.op = op::Send{}});
  p.run();
  const auto got = p.b.receives();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].length, 0u);
}

TEST(Qp, ZeroLengthWriteAndReadCheckNothing) {
  Pair p;
  p.a.send({.id = 1, .op = op::Write{.stag = 0xffff'ffff, .to = ~uint64_t{0}}});
  p.a.send({.id = 2, .op = op::Read{0xffff'ffff, 5, 0, 0xeeee'eeee, 6}});
  p.run();
  EXPECT_EQ(p.a.sends().size(), 2u);
  EXPECT_EQ(p.b.qp.state(), QpState::kRts);
}

TEST(Qp, PostsAPrefixAndSaysWhyNotTheRest) {
  Endpoint e(QpAttr{.number = 1, .pd = 7, .send_depth = 4, .recv_depth = 2}, 3);
  std::array<SendWr, 6> work;
  Posted r = e.qp.post_send(work);
  EXPECT_EQ(r.accepted, 0u);
  EXPECT_EQ(r.reason, Refusal::kBadState) << "not connected";
  e.qp.start({true, Rtr::kNone, 0, 0});
  r = e.qp.post_send(work);
  EXPECT_EQ(r.accepted, 3u);
  EXPECT_EQ(r.reason, Refusal::kCqFull);
  std::array<RecvWr, 3> recvs;
  r = e.qp.post_recv(recvs);
  EXPECT_EQ(r.accepted, 2u);
  EXPECT_EQ(r.reason, Refusal::kQueueFull);
  e.output();
  EXPECT_EQ(e.sends().size(), 3u);

  Endpoint f(QpAttr{.number = 1, .pd = 7, .send_depth = 4});
  f.qp.start({true, Rtr::kNone, 0, 0});
  EXPECT_EQ(f.qp.post_send(work).reason, Refusal::kQueueFull);
  EXPECT_EQ(f.qp.post_send(work).accepted, 0u);
}

TEST(Qp, RefusesWorkThatCannotBe) {
  Endpoint e;
  e.qp.start({true, Rtr::kNone, 0, 0});
  EXPECT_EQ(e.send({.op = op::FetchAdd{}}).reason, Refusal::kNoReadsAllowed);
  EXPECT_EQ(e.send({.op = op::Read{}}).reason, Refusal::kNoReadsAllowed);
  Lone l;
  std::vector<uint8_t> sink(10);
  const uint32_t readable = l.a.reg(sink, kRemoteRead);
  const uint32_t writable = l.a.reg(sink, kRemoteWrite);
  EXPECT_EQ(l.a.send({.op = op::Read{readable, 0, 10, 1, 0}}).reason, Refusal::kBadSink);
  EXPECT_EQ(l.a.send({.op = op::Read{writable, 0, 11, 1, 0}}).reason, Refusal::kBadSink);
  EXPECT_EQ(l.a.send({.op = op::Read{writable, 0, 10, 1, 0}}).accepted, 1u) << "trap 29";
  const std::vector<uint8_t> big(65);
  const Bytes range(big);
  EXPECT_EQ(l.a.send({.op = op::Send{.payload = {&range, 1}}, .is_inline = true}).reason,
            Refusal::kTooLong);
  const std::vector<Bytes> many(9, range);
  EXPECT_EQ(l.a.send({.op = op::Send{.payload = many}}).reason, Refusal::kTooManySlices);
}

TEST(Qp, AReadPinsItsSinkAndAnAnswerItsSource) {
  Pair p;
  std::vector<uint8_t> remote = pattern(64), local(64);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  p.a.send({.op = op::Read{ours, 0, 64, theirs, 0}});
  for (const Ulpdu& u : p.a.output()) p.b.input(u);
  ddp::Segment s;
  ASSERT_TRUE(p.b.qp.next_segment(kMulpdu, s));
  EXPECT_EQ(p.b.stags.deregister(theirs).error(), DeregisterError::kInUse);
  const Ulpdu answer = Endpoint::flatten(s);
  p.b.qp.segments_sent(1);
  EXPECT_TRUE(p.b.stags.deregister(theirs));
  EXPECT_FALSE(p.a.input(answer));
  EXPECT_TRUE(p.a.stags.deregister(ours));
}

TEST(Qp, DeregisteringTheSinkWaitsForTheRead) {
  Pair p;
  std::vector<uint8_t> remote = pattern(3000), local(3000);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  p.a.send({.id = 1, .op = op::Read{ours, 0, 3000, theirs, 0}});
  EXPECT_EQ(p.a.stags.deregister(ours).error(), DeregisterError::kInUse);
  EXPECT_EQ(p.a.send({.id = 2, .op = op::Read{ours, 0, 8, theirs, 0}}).reason, Refusal::kBadSink);
  p.run(1000);
  EXPECT_EQ(p.a.qp.state(), QpState::kRts);
  const auto done = p.a.sends();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WorkStatus::kOk);
  EXPECT_EQ(local, remote);
  EXPECT_TRUE(p.a.stags.deregister(ours));
}

// Only the Read may: the peer's Writes to the region are new work.
TEST(Qp, ASinkThatLeavesIsClosedToThePeer) {
  Pair p;
  std::vector<uint8_t> remote = pattern(8), local(8);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kRemoteWrite);
  p.b.send({.op = op::Write{}});  // the way for a responder's is open
  p.a.output();
  p.a.send({.id = 1, .op = op::Read{ours, 0, 8, theirs, 0}});
  EXPECT_EQ(p.a.stags.deregister(ours).error(), DeregisterError::kInUse);
  for (const Ulpdu& u : p.a.output()) p.b.input(u);
  const Bytes payload(remote);
  p.b.send({.op = op::Write{.payload = {&payload, 1}, .stag = ours, .to = 0}});
  std::optional<TermCode> error;
  for (const Ulpdu& u : p.b.output()) {
    if (const auto e = p.a.input(u)) error = e;
  }
  EXPECT_EQ(error, TermCode::ddp(ddp::Error::kInvalidStag));
}

TEST(Qp, Trap28AnAnswerComesBeforeALaterSend) {
  Pair p;
  std::vector<uint8_t> remote = pattern(64), local(64), in(10);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  p.a.send({.op = op::Read{ours, 0, 64, theirs, 0}});
  for (const Ulpdu& u : p.a.output()) p.b.input(u);
  p.b.send_text(1, "later");
  const auto out = p.b.output();
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0][1], 0x42);
  EXPECT_EQ(out[1][1], 0x43);
}

TEST(Qp, AnswersInTheHandsOfTheLlpAreBounded) {
  QpAttr attr{.number = 1, .pd = 7, .max_ird = 2, .max_ord = 8};
  Endpoint a(attr), b(attr);
  a.qp.start({true, Rtr::kNone, 2, 2});
  b.qp.start({false, Rtr::kNone, 2, 2});
  std::vector<uint8_t> remote = pattern(8), local(8);
  const uint32_t theirs = b.reg(remote, kRemoteRead), ours = a.reg(local, kLocalWrite);
  uint32_t unsent = 0;
  for (int i = 0; i < 20; ++i) {
    a.send({.op = op::Read{ours, 0, 8, theirs, 0}});
    for (const Ulpdu& u : a.output()) ASSERT_FALSE(b.input(u));
    ddp::Segment s;
    while (b.qp.next_segment(kMulpdu, s)) {
      ++unsent;
      ASSERT_FALSE(a.input(Endpoint::flatten(s)));
    }
  }
  EXPECT_EQ(unsent, 3u) << "the LLP has not said that it took any";
  EXPECT_EQ(b.qp.state(), QpState::kRts);
  b.qp.segments_sent(unsent);
  EXPECT_TRUE(b.qp.has_output());
}

}  // namespace
}  // namespace ddpsock::rdmap::test
