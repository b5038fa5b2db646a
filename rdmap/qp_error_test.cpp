// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every way a peer can be wrong, and the Terminate it is told so with: built by the victim, carried
// as bytes, decoded by a real queue pair at the other end.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "rdmap/pair.h"

namespace ddpsock::rdmap::test {
namespace {

constexpr uint64_t kBase = 0x1000;
constexpr size_t kRegion = 256;

Ulpdu untagged(uint8_t control, uint32_t qn, uint32_t msn, uint32_t mo, size_t payload,
               bool is_last = true, uint32_t word = 0) {
  Ulpdu u(DDP_UNTAGGED_HEADER_SIZE + payload, 0x5a);
  ddp::write_header(u.data(), ddp::UntaggedHeader{is_last, {control, word}, qn, msn, mo});
  return u;
}

Ulpdu tagged(uint8_t control, uint32_t stag, uint64_t to, size_t payload, bool is_last = true) {
  Ulpdu u(DDP_TAGGED_HEADER_SIZE + payload, 0x5a);
  ddp::write_header(u.data(), ddp::TaggedHeader{is_last, control, stag, to});
  return u;
}

template <typename Body>
Ulpdu with_body(uint8_t control, uint32_t qn, uint32_t msn, const Body& body) {
  std::array<uint8_t, RDMAP_ATOMIC_REQUEST_SIZE> bytes{};
  const size_t n = *encode(MutBytes(bytes), body);
  Ulpdu u = untagged(control, qn, msn, 0, n);
  std::copy_n(bytes.begin(), n, u.begin() + DDP_UNTAGGED_HEADER_SIZE);
  return u;
}

// `b` is the victim, with two receives of 100 bytes, a region of every right, one that may only be
// read, one of another domain and one bound to another queue pair. `a` is the peer who is told.
struct Scene {
  Scene() : p(QpAttr{.number = 1, .pd = 7}, 2, Rtr::kNone) {
    for (auto& m : receives) {
      m.fill(0xa5);
      p.b.recv(1, m);
    }
    const Rights all = kRemoteRead | kRemoteWrite | kRemoteAtomic | kLocalWrite;
    stag = p.b.reg(region, all, kBase);
    read_only = p.b.reg(region, kRemoteRead, kBase);
    foreign = *p.b.stags.register_region({{kBase, region}, all, 8, kAnyQp});
    bound = *p.b.stags.register_region({{kBase, region}, all, 7, 99});
    EXPECT_FALSE(p.b.input(tagged(0x40, 0, 0, 0))) << "opens the responder's way";
  }

  // Feeds the frames; the last must fail. What the peer then learns.
  TerminateInfo fail(const std::vector<Ulpdu>& frames) {
    for (const Ulpdu& u : frames) p.b.input(u);
    EXPECT_EQ(p.b.qp.state(), QpState::kTerminate);
    EXPECT_EQ(p.b.qp.terminate_info().reason, EndReason::kTerminateSent);
    EXPECT_FALSE(p.b.qp.wants_close());
    // DDP drops silently whatever follows.
    EXPECT_FALSE(p.b.input(untagged(0x43, 0, 1, 0, 5)));
    const auto out = p.b.output();
    EXPECT_EQ(out.size(), 1u);
    EXPECT_TRUE(p.b.qp.wants_close());
    p.b.send_text(1, "no more");
    EXPECT_FALSE(p.b.qp.has_output());
    if (out.empty()) return {};
    const auto h = ddp::UntaggedView::parse(out[0])->value();
    EXPECT_EQ(h, (ddp::UntaggedHeader{true, {0x47, 0}, 2, 1, 0})) << "trap 30";
    EXPECT_FALSE(p.a.input(out[0]));
    EXPECT_EQ(p.a.qp.state(), QpState::kTerminate);
    EXPECT_EQ(p.a.qp.terminate_info().reason, EndReason::kTerminateReceived);
    EXPECT_FALSE(p.a.qp.has_output());
    return p.a.qp.terminate_info();
  }

  void expect(const std::vector<Ulpdu>& frames, TermCode code) {
    const TerminateInfo info = fail(frames);
    EXPECT_EQ(info.terminate.code, code)
        << to_string(info.terminate.code) << " instead of " << to_string(code);
    const bool has_headers = code.etype != 0;
    EXPECT_EQ(info.terminate.ddp_header_length != 0, has_headers);
    if (has_headers) {
      EXPECT_EQ(info.terminate.segment_length, frames.back().size());
      EXPECT_TRUE(std::equal(info.terminate.ddp_header.begin(),
                             info.terminate.ddp_header.begin() + info.terminate.ddp_header_length,
                             frames.back().begin()));
    }
  }
  void expect(const Ulpdu& frame, TermCode code) { expect(std::vector<Ulpdu>{frame}, code); }
  void expect(const Ulpdu& frame, ddp::Error e) { expect(frame, TermCode::ddp(e)); }

  Pair p;
  std::array<std::array<uint8_t, 100>, 2> receives;
  alignas(8) std::array<uint8_t, kRegion> region{};
  uint32_t stag, read_only, foreign, bound;
};

constexpr TermCode kUnexpectedOpcode = TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE);
constexpr TermCode kUnspecified = TermCode::operation(RDMAP_ECODE_UNSPECIFIED);

TEST(QpError, AUlpduShorterThanItsHeader) {
  for (size_t n : {0u, 1u, 13u, 17u}) {
    Ulpdu u = n == 13 ? tagged(0x40, 1, 0, 0) : untagged(0x43, 0, 1, 0, 0);
    u.resize(n);
    Scene().expect(u, ddp::Error::kLocalCatastrophic);
  }
}

TEST(QpError, DdpVersion) {
  Scene s;
  Ulpdu u = tagged(0x40, s.stag, kBase, 4);
  u[0] = 0xc2;
  s.expect(u, ddp::Error::kTaggedVersion);
  u = untagged(0x43, 0, 1, 0, 4);
  u[0] = 0x40;
  Scene().expect(u, ddp::Error::kUntaggedVersion);
}

TEST(QpError, Trap19ReservedBitsAreNoError) {
  Scene s;
  Ulpdu u = untagged(0x73, 0, 1, 0, 4);
  u[0] = 0x7d;
  EXPECT_FALSE(s.p.b.input(u));
  EXPECT_EQ(s.p.b.receives().size(), 1u);
}

TEST(QpError, RdmapVersion) {
  Scene().expect(untagged(0x83, 0, 1, 0, 4), TermCode::operation(RDMAP_ECODE_VERSION));
  Scene s;
  s.expect(tagged(0xc0, s.stag, kBase, 4), TermCode::operation(RDMAP_ECODE_VERSION));
}

TEST(QpError, UndefinedOpcodesAndTheWrongBufferModel) {
  for (uint8_t op = 0x4c; op <= 0x4f; ++op) {
    Scene().expect(untagged(op, 0, 1, 0, 4), kUnexpectedOpcode);
    Scene().expect(tagged(op, 1, 0, 4), kUnexpectedOpcode);
  }
  for (uint8_t op : {0x40, 0x42}) Scene().expect(untagged(op, 0, 1, 0, 4), kUnexpectedOpcode);
  for (uint8_t op : {0x41, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b}) {
    Scene().expect(tagged(op, 1, 0, 4), kUnexpectedOpcode);
  }
}

TEST(QpError, QueueNumbers) {
  Scene().expect(untagged(0x43, 4, 1, 0, 4), ddp::Error::kInvalidQn);
  Scene().expect(untagged(0x43, 0xffffffff, 1, 0, 4), ddp::Error::kInvalidQn);
  Scene().expect(untagged(0x43, 1, 1, 0, 4), ddp::Error::kInvalidQn);
  Scene().expect(untagged(0x41, 0, 1, 0, 28), ddp::Error::kInvalidQn);
  Scene().expect(untagged(0x47, 0, 1, 0, 4), ddp::Error::kInvalidQn);
  Scene().expect(untagged(0x4b, 1, 1, 0, 12), ddp::Error::kInvalidQn);
}

TEST(QpError, Trap22NoReceivePosted) {
  Scene().expect(
      {untagged(0x43, 0, 1, 0, 4), untagged(0x43, 0, 2, 0, 4), untagged(0x43, 0, 3, 0, 4)},
      TermCode::ddp(ddp::Error::kNoBuffer));
}

TEST(QpError, Trap21MsnOutOfRange) {
  Scene().expect(untagged(0x43, 0, 0, 0, 4), ddp::Error::kMsnRange);
  Scene().expect(untagged(0x43, 0, 2, 0, 4), ddp::Error::kMsnRange);
  Scene().expect({untagged(0x43, 0, 1, 0, 4), untagged(0x43, 0, 1, 0, 4)},
                 TermCode::ddp(ddp::Error::kMsnRange));
}

TEST(QpError, MessageOffsets) {
  Scene().expect(untagged(0x43, 0, 1, 101, 1), ddp::Error::kInvalidMo);
  Scene().expect(untagged(0x43, 0, 1, 0, 101), ddp::Error::kTooLong);
  Scene().expect(untagged(0x43, 0, 1, 100, 1), ddp::Error::kTooLong);
  Scene().expect(untagged(0x43, 0, 1, 4, 4), ddp::Error::kInvalidMo);
  Scene().expect({untagged(0x43, 0, 1, 0, 4, false), untagged(0x43, 0, 1, 2, 4)},
                 TermCode::ddp(ddp::Error::kInvalidMo));
}

TEST(QpError, ASegmentOfAnotherKindInsideAMessage) {
  Scene().expect({untagged(0x43, 0, 1, 0, 4, false), untagged(0x45, 0, 1, 4, 4)},
                 kUnexpectedOpcode);
  Scene s;
  s.expect({untagged(0x44, 0, 1, 0, 4, false, s.stag), untagged(0x44, 0, 1, 4, 4, true, s.bound)},
           kUnexpectedOpcode);
}

TEST(QpError, Trap23WritesOutsideWhatWasGranted) {
  const auto write = [](auto stag_of, uint64_t to, size_t n, ddp::Error e) {
    Scene s;
    s.expect(tagged(0x40, stag_of(s), to, n), e);
    for (uint8_t b : s.region) ASSERT_EQ(b, 0) << "memory was touched";
  };
  const auto good = [](Scene& s) { return s.stag; };
  write([](Scene& s) { return s.stag ^ 1; }, kBase, 4, ddp::Error::kInvalidStag);
  write([](Scene&) { return 0xffffff00u; }, kBase, 4, ddp::Error::kInvalidStag);
  write([](Scene& s) { return s.read_only; }, kBase, 4, ddp::Error::kInvalidStag);
  write([](Scene& s) { return s.foreign; }, kBase, 4, ddp::Error::kStagNotAssociated);
  write([](Scene& s) { return s.bound; }, kBase, 4, ddp::Error::kStagNotAssociated);
  write(good, kBase - 1, 4, ddp::Error::kBaseOrBounds);
  write(good, kBase + kRegion - 3, 4, ddp::Error::kBaseOrBounds);
  write(good, ~uint64_t{0} - 2, 4, ddp::Error::kToWrap);
}

ReadRequest read_of(uint32_t stag, uint64_t to, uint32_t n) {
  return {0x100, 0, n, stag, to};
}

TEST(QpError, Trap27ReadsOfWhatIsNotGrantedCarryAllHeadersBack) {
  const auto read = [](auto stag_of, uint64_t to, uint32_t n, uint8_t code) {
    Scene s;
    const Ulpdu frame = with_body(0x41, 1, 1, read_of(stag_of(s), to, n));
    s.expect(frame, TermCode::protection(code));
    const Terminate& t = s.p.a.qp.terminate_info().terminate;
    EXPECT_TRUE(t.has_read_request);
    EXPECT_TRUE(std::equal(t.read_request.begin(), t.read_request.end(), frame.begin() + 18));
  };
  const auto good = [](Scene& s) { return s.stag; };
  read([](Scene& s) { return s.stag ^ 1; }, kBase, 4, RDMAP_ECODE_INVALID_STAG);
  read([](Scene& s) { return s.foreign; }, kBase, 4, RDMAP_ECODE_STAG_NOT_ASSOCIATED);
  read([](Scene& s) { return s.p.b.reg(s.region, kRemoteWrite, kBase); }, kBase, 4,
       RDMAP_ECODE_ACCESS_RIGHTS);
  read(good, kBase + 1, kRegion, RDMAP_ECODE_BASE_BOUNDS);
  read(good, ~uint64_t{0}, 2, RDMAP_ECODE_TO_WRAP);
}

TEST(QpError, RequestsOfTheWrongLength) {
  Scene().expect(untagged(0x41, 1, 1, 0, 27), kUnspecified);
  Scene().expect(untagged(0x41, 1, 1, 0, 29), ddp::Error::kTooLong);
  Scene().expect(untagged(0x4a, 1, 1, 0, 51), kUnspecified);
  Scene().expect(untagged(0x4a, 1, 1, 0, 53), ddp::Error::kTooLong);
  Scene().expect(untagged(0x48, 0, 1, 0, 7), kUnspecified);
  Scene().expect(untagged(0x48, 0, 1, 0, 9), ddp::Error::kTooLong);
}

TEST(QpError, Trap28MoreReadsThanIrd) {
  Scene s;
  std::vector<Ulpdu> frames;
  for (uint32_t i = 1; i <= 3; ++i)
    frames.push_back(with_body(0x41, 1, i, read_of(s.stag, kBase, 4)));
  s.expect(frames, TermCode::ddp(ddp::Error::kNoBuffer));
}

TEST(QpError, Trap32Atomics) {
  const auto atomic = [](auto stag_of, uint64_t to) {
    Scene s;
    AtomicRequest r;
    r.stag = stag_of(s);
    r.to = to;
    r.data = 1;
    TermCode code = s.fail({with_body(0x4a, 1, 1, r)}).terminate.code;
    for (uint8_t b : s.region) EXPECT_EQ(b, 0) << "memory was modified";
    EXPECT_FALSE(s.p.a.qp.terminate_info().terminate.has_read_request);
    return code;
  };
  const auto good = [](Scene& s) { return s.stag; };
  EXPECT_EQ(atomic(good, kBase + 4), TermCode::operation(RDMAP_ECODE_CATASTROPHIC_STREAM));
  EXPECT_EQ(atomic(good, kBase + kRegion), TermCode::protection(RDMAP_ECODE_BASE_BOUNDS));
  EXPECT_EQ(atomic(good, ~uint64_t{7}), TermCode::protection(RDMAP_ECODE_TO_WRAP));
  EXPECT_EQ(atomic([](Scene& s) { return s.read_only; }, kBase),
            TermCode::protection(RDMAP_ECODE_ACCESS_RIGHTS));
  EXPECT_EQ(atomic([](Scene& s) { return s.foreign; }, kBase),
            TermCode::protection(RDMAP_ECODE_STAG_NOT_ASSOCIATED));
  EXPECT_EQ(atomic([](Scene& s) { return s.stag ^ 1; }, kBase),
            TermCode::protection(RDMAP_ECODE_INVALID_STAG));

  Scene s;
  Ulpdu reserved = with_body(0x4a, 1, 1, AtomicRequest{.stag = s.stag, .to = kBase});
  reserved[DDP_UNTAGGED_HEADER_SIZE + 3] = RDMAP_AOP_RESERVED;
  s.expect(reserved, kUnexpectedOpcode);
}

TEST(QpError, Trap26StagsThatCannotBeInvalidated) {
  const auto invalidate = [](auto stag_of) {
    Scene s;
    s.expect(untagged(0x44, 0, 1, 0, 4, true, stag_of(s)),
             TermCode::protection(RDMAP_ECODE_CANNOT_INVALIDATE));
    // The receive it consumed is flushed, not delivered.
    const auto got = s.p.b.receives();
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(got[0].status, WorkStatus::kFlushed);
  };
  invalidate([](Scene& s) { return s.stag ^ 1; });
  invalidate([](Scene& s) { return s.foreign; });
  invalidate([](Scene&) { return 0u; });
}

TEST(QpError, AnswersNobodyAskedFor) {
  Scene s;
  s.expect(tagged(0x42, s.stag, kBase, 4), kUnexpectedOpcode);
  Scene().expect(tagged(0x42, 0, 0, 0), kUnexpectedOpcode);
  Scene().expect(untagged(0x4b, 3, 1, 0, 12), ddp::Error::kNoBuffer);
}

TEST(QpError, Trap23ReadResponsesMustMatchSinkOffsetAndLength) {
  const auto answer = [](const std::function<std::vector<Ulpdu>(uint32_t)>& frames, ddp::Error e) {
    Scene s;
    const uint32_t sink = s.p.b.reg(s.region, kLocalWrite, kBase);
    s.p.b.send({.op = op::Read{sink, kBase + 8, 100, 1, 0}});
    s.p.b.output();
    s.expect(frames(sink), TermCode::ddp(e));
  };
  using Frames = std::vector<Ulpdu>;
  answer([](uint32_t k) { return Frames{tagged(0x42, k ^ 1, kBase + 8, 100)}; },
         ddp::Error::kInvalidStag);
  answer([](uint32_t k) { return Frames{tagged(0x42, k, kBase + 7, 100)}; },
         ddp::Error::kBaseOrBounds);
  answer([](uint32_t k) { return Frames{tagged(0x42, k, kBase + 8, 101)}; },
         ddp::Error::kBaseOrBounds);
  answer([](uint32_t k) { return Frames{tagged(0x42, k, kBase + 8, 99, true)}; },
         ddp::Error::kBaseOrBounds);
  answer([](uint32_t k) { return Frames{tagged(0x42, k, kBase + 8, 100, false)}; },
         ddp::Error::kBaseOrBounds);
  answer([](uint32_t k) { return Frames{tagged(0x42, k, kBase + 58, 50, true)}; },
         ddp::Error::kBaseOrBounds);
  answer([](uint32_t k) { return Frames{tagged(0x42, k, kBase + 8, 0, true)}; },
         ddp::Error::kBaseOrBounds);
  answer(
      [](uint32_t k) {
        return Frames{tagged(0x42, k, kBase + 8, 50, false), tagged(0x42, k, kBase + 8, 50, false)};
      },
      ddp::Error::kBaseOrBounds);
}

TEST(QpError, AReadSinkInvalidatedMeanwhile) {
  Scene s;
  const uint32_t sink = s.p.b.reg(s.region, kLocalWrite, kBase);
  s.p.b.send({.op = op::Read{sink, kBase, 100, 1, 0}});
  s.p.b.output();
  ASSERT_TRUE(s.p.b.stags.invalidate(sink, s.p.b.qp.stream()));
  s.expect(tagged(0x42, sink, kBase, 100), ddp::Error::kInvalidStag);
}

TEST(QpError, AtomicResponsesMustMatchTheRequest) {
  const auto answer = [](const AtomicResponse& r, size_t cut, TermCode code) {
    Scene s;
    s.p.b.send({.op = op::FetchAdd{1, 0, 1, 0}});
    s.p.b.output();
    Ulpdu u = with_body(0x4b, 3, 1, r);
    u.resize(u.size() - cut);
    s.expect(u, code);
  };
  answer({1234, 0}, 0, kUnspecified);
  answer({0, 0}, 1, kUnspecified);
}

TEST(QpError, OnlyTheFirstErrorIsReported) {
  Scene s;
  s.p.b.input(untagged(0x43, 7, 1, 0, 4));
  s.p.b.input(tagged(0x40, 0xffffff00, 0, 4));
  s.p.b.qp.terminate(TermCode::mpa(RDMAP_ECODE_MPA_CRC));
  EXPECT_EQ(s.p.b.qp.terminate_info().terminate.code, TermCode::ddp(ddp::Error::kInvalidQn));
}

TEST(QpError, ABadFirstFpduIsAnsweredThoughTheResponderHasNotSentYet) {
  Pair p;
  EXPECT_TRUE(p.b.input(untagged(0x43, 9, 1, 0, 0)));
  EXPECT_EQ(p.b.output().size(), 1u);
}

TEST(QpError, ACrcErrorIsALlpTerminateWithoutHeadersAndDeliversNothing) {
  Scene s;
  const Ulpdu u = untagged(0x43, 0, 1, 0, 10);
  ASSERT_TRUE(s.p.b.qp.place(u, static_cast<uint32_t>(u.size())));
  s.p.b.qp.segment_spoilt();
  s.p.b.qp.terminate(TermCode::mpa(RDMAP_ECODE_MPA_CRC));
  for (const Completion& c : s.p.b.receives()) EXPECT_EQ(c.status, WorkStatus::kFlushed);
  const auto out = s.p.b.output();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(Ulpdu(out[0].begin() + 18, out[0].end()), (Ulpdu{0x20, 0x02, 0, 0}));
}

TEST(QpError, ASpoiltSegmentMayBeFollowedByAGoodOne) {
  Scene s;
  const Ulpdu u = untagged(0x43, 0, 1, 0, 10);
  ASSERT_TRUE(s.p.b.qp.place(u, static_cast<uint32_t>(u.size())));
  s.p.b.qp.segment_spoilt();
  EXPECT_TRUE(s.p.b.receives().empty());
  EXPECT_FALSE(s.p.b.input(u));
  EXPECT_EQ(s.p.b.receives().size(), 1u);
}

TEST(QpError, Trap30ReceivedTerminatesInBothFormsAndBroken) {
  const auto receive = [](const std::vector<uint8_t>& body, bool is_established) {
    Pair p;
    p.a.output();
    if (is_established) {
      p.a.send_text(1, "x");
      p.a.output();
    }
    Ulpdu u = untagged(0x47, 2, 1, 0, body.size());
    std::copy(body.begin(), body.end(), u.begin() + 18);
    EXPECT_FALSE(p.a.input(u));
    EXPECT_EQ(p.a.qp.terminate_info().reason, EndReason::kTerminateReceived);
    return p.a.qp.terminate_info();
  };
  EXPECT_EQ(receive({0x12, 0x05, 0, 0}, true).terminate.code, TermCode::ddp(ddp::Error::kTooLong));
  const TerminateInfo siw = receive({0x21, 0x05, 0x01, 0, 0, 99}, true);
  EXPECT_EQ(siw.terminate.code, TermCode::ddp(ddp::Error::kTooLong));
  EXPECT_TRUE(siw.is_swapped);
  EXPECT_EQ(siw.terminate.segment_length, 99);
  EXPECT_EQ(receive({0x20, 0x06, 0, 0}, false).terminate.code, TermCode::mpa(RDMAP_ECODE_MPA_IRD));
  EXPECT_EQ(receive({0x20, 0x06, 0, 0}, true).terminate.code, kUnexpectedOpcode);
  EXPECT_EQ(receive({0x20}, true).terminate.code, TermCode{}) << "too short to say";
}

TEST(QpError, Trap8AReadRtrDoesNotRaiseAnIrdOfZeroForLaterReads) {
  Pair p(QpAttr{.number = 1, .pd = 7}, 0, Rtr::kRead);
  p.run();
  EXPECT_FALSE(p.b.qp.has_output());
  const auto error = p.b.input(with_body(0x41, 1, 2, ReadRequest{}));
  EXPECT_EQ(error, TermCode::ddp(ddp::Error::kNoBuffer));
}

TEST(QpError, TooManyGapsAreALocalErrorWithoutHeaders) {
  Endpoint b(QpAttr{.number = 1, .pd = 7, .max_fragments = 2, .order = ddp::LlpOrder::kAnyOrder});
  b.qp.start({false, Rtr::kNone, 0, 0});
  std::vector<uint8_t> in(100);
  b.recv(1, in);
  EXPECT_FALSE(b.input(untagged(0x43, 0, 1, 10, 1, false)));
  EXPECT_FALSE(b.input(untagged(0x43, 0, 1, 20, 1, false)));
  EXPECT_TRUE(b.input(untagged(0x43, 0, 1, 30, 1, false)));
  const auto out = b.output();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(Ulpdu(out[0].begin() + 18, out[0].end()), (Ulpdu{0x10, 0x00, 0, 0}));
}

TEST(QpError, EveryTruncationOfEveryFrameFailsOrIsAShorterMessage) {
  const std::vector<Ulpdu> frames = {tagged(0x40, 1, 0, 4),
                                     untagged(0x43, 0, 1, 0, 4),
                                     with_body(0x41, 1, 1, ReadRequest{}),
                                     with_body(0x4a, 1, 1, AtomicRequest{}),
                                     untagged(0x48, 0, 1, 0, 8),
                                     untagged(0x47, 2, 1, 0, 52)};
  for (const Ulpdu& frame : frames) {
    for (size_t n = 0; n < frame.size(); ++n) {
      Scene s;
      const Ulpdu cut(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(n));
      const auto error = s.p.b.input(cut);
      if (n < ddp::header_size(frame[0])) {
        EXPECT_EQ(error, TermCode::ddp(ddp::Error::kLocalCatastrophic)) << n;
      }
      for (uint8_t b : s.region) ASSERT_EQ(b, 0);
    }
  }
}

}  // namespace
}  // namespace ddpsock::rdmap::test
