// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Initiator and Responder against each other and against hand-made peers. Numbers of traps are
// those of the list of known interoperability traps.
#include "mpa/startup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "mpa/initiator.h"
#include "mpa/responder.h"

namespace ddpsock::mpa {
namespace {

using Octets = std::vector<uint8_t>;
constexpr Time kStart{1'000'000};

static_assert(std::is_trivially_copyable_v<Initiator>);
static_assert(std::is_trivially_copyable_v<Responder>);
// Trap 13: what a half-open connection may cost.
static_assert(sizeof(Initiator) < 2048 && sizeof(Responder) < 2048);

PrivateData private_data(std::string_view text) {
  return *PrivateData::from({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

Octets octets_of(const PrivateData& data) {
  return {data.bytes().begin(), data.bytes().end()};
}

Octets written(const StartupFrame& frame) {
  Octets wire(startup_size(frame), 0xa5);
  EXPECT_TRUE(write_startup(frame, wire));
  return wire;
}

template <typename Machine>
Octets take_output(Machine& machine) {
  const Octets out(machine.output().begin(), machine.output().end());
  if (!out.empty()) machine.sent(out.size(), kStart);
  return out;
}

StartupFrame parsed(const Octets& wire, FrameKind kind) {
  return *StartupFrame::from(*StartupView::over(wire, kind));
}

// An initiator that waits for its Reply.
Initiator asked(const InitiatorConfig& config) {
  Initiator initiator = *Initiator::start(config, kStart);
  take_output(initiator);
  return initiator;
}

Initiator answered(const InitiatorConfig& config, const StartupFrame& reply) {
  Initiator initiator = asked(config);
  const Octets wire = written(reply);
  EXPECT_EQ(initiator.input(wire, kStart), wire.size());
  return initiator;
}

StartupFrame enhanced_reply(Enhanced enhanced) {
  StartupFrame reply;
  reply.kind = FrameKind::kReply;
  reply.enhanced = enhanced;
  return reply;
}

StartupFrame request_with(Enhanced enhanced) {
  StartupFrame request;
  request.enhanced = enhanced;
  return request;
}

// A responder that has read `request`.
Responder asking(const ResponderConfig& config, const StartupFrame& request) {
  Responder responder(config, kStart);
  const Octets wire = written(request);
  EXPECT_EQ(responder.input(wire, kStart), wire.size());
  return responder;
}

// --- Both machines, every combination of what either can want.

TEST(Startup, EveryCombinationAgrees) {
  for (unsigned bits = 0; bits < 3u << 7; ++bits) {
    const auto bit = [bits](unsigned n) { return (bits >> n & 1) != 0; };
    SCOPED_TRACE(bits);
    InitiatorConfig ic;
    ic.revision = static_cast<uint8_t>(bits >> 7);
    ic.wants_crc = bit(0);
    ic.needs_markers = bit(1);
    ic.is_peer_to_peer = bit(2);
    ic.private_data = private_data("from the initiator");
    ResponderConfig rc;
    rc.wants_crc = bit(3);
    rc.needs_markers = bit(4);
    ic.ord = bit(5) ? 40 : 4;
    Acceptance acceptance;
    acceptance.ird = bit(6) ? 40 : 4;
    acceptance.private_data = private_data("from the responder");

    Initiator initiator = *Initiator::start(ic, kStart);
    Responder responder(rc, kStart);
    EXPECT_EQ(initiator.state(), StartupState::kSending);
    EXPECT_EQ(responder.state(), StartupState::kReading);
    for (uint8_t octet : take_output(initiator))
      ASSERT_EQ(responder.input({&octet, 1}, kStart), 1u);
    ASSERT_TRUE(responder.has_request());
    ASSERT_TRUE(responder.accept(acceptance, kStart));
    for (uint8_t octet : take_output(responder))
      ASSERT_EQ(initiator.input({&octet, 1}, kStart), 1u);

    ASSERT_EQ(initiator.state(), StartupState::kAgreed);
    ASSERT_EQ(responder.state(), StartupState::kAgreed);
    const Agreement& i = initiator.agreement();
    const Agreement& r = responder.agreement();
    EXPECT_TRUE(i.is_initiator);
    EXPECT_FALSE(r.is_initiator);
    EXPECT_EQ(i.revision, ic.revision);
    EXPECT_EQ(r.revision, ic.revision);
    // Trap 10: CRC is on if either side wants it.
    EXPECT_EQ(i.has_crc, ic.wants_crc || rc.wants_crc);
    EXPECT_EQ(r.has_crc, i.has_crc);
    // Trap 11: each direction has the Markers that its receiver needs.
    EXPECT_EQ(i.receive_markers, ic.needs_markers);
    EXPECT_EQ(r.send_markers, ic.needs_markers);
    EXPECT_EQ(i.send_markers, rc.needs_markers);
    EXPECT_EQ(r.receive_markers, rc.needs_markers);
    const bool is_enhanced = ic.revision == 2;
    EXPECT_EQ(i.rtr, is_enhanced && ic.is_peer_to_peer ? Rtr::kWrite : Rtr::kNone);
    EXPECT_EQ(r.rtr, i.rtr);
    // Trap 9: what one issues the other serves.
    EXPECT_EQ(i.ord, is_enhanced ? std::min(ic.ord, acceptance.ird) : ic.ord);
    EXPECT_EQ(r.ird, is_enhanced ? i.ord : acceptance.ird);
    EXPECT_EQ(i.ird, 16);
    EXPECT_EQ(r.ord, 16);
    EXPECT_EQ(octets_of(i.private_data), octets_of(acceptance.private_data));
    EXPECT_EQ(octets_of(r.private_data), octets_of(ic.private_data));
    EXPECT_EQ(initiator.deadline(), kNever);
    EXPECT_EQ(responder.deadline(), kNever);
  }
}

TEST(Startup, RejectCarriesPrivateData) {
  for (uint8_t revision : {0, 1, 2}) {
    InitiatorConfig ic;
    ic.revision = revision;
    Initiator initiator = *Initiator::start(ic, kStart);
    Responder responder({}, kStart);
    responder.input(take_output(initiator), kStart);
    ASSERT_TRUE(responder.reject(private_data("full"), kStart));
    EXPECT_EQ(responder.state(), StartupState::kSending) << "the Reply must still go out";
    initiator.input(take_output(responder), kStart);
    ASSERT_EQ(responder.state(), StartupState::kFailed);
    EXPECT_EQ(responder.failure().error, StartupError::kRejected);
    ASSERT_EQ(initiator.state(), StartupState::kFailed);
    EXPECT_EQ(initiator.failure().error, StartupError::kRejected);
    EXPECT_EQ(octets_of(initiator.failure().private_data), octets_of(private_data("full")));
    EXPECT_FALSE(initiator.failure().can_retry_with_revision_1);
    EXPECT_FALSE(initiator.failure().term_code);
  }
}

// --- What goes onto the wire.

// Trap 2: the whole frame in one output, for one write; and a write that was cut short goes on.
TEST(Startup, Trap2FramesAreOnePieceAndPartialWritesGoOn) {
  InitiatorConfig config;
  config.private_data = private_data("hello");
  Initiator initiator = *Initiator::start(config, kStart);
  const Octets whole(initiator.output().begin(), initiator.output().end());
  EXPECT_EQ(whole.size(), 20u + 4 + 5);
  Octets sent;
  while (initiator.state() == StartupState::kSending) {
    sent.push_back(initiator.output()[0]);
    initiator.sent(1, kStart);
  }
  EXPECT_EQ(sent, whole);
  EXPECT_EQ(initiator.state(), StartupState::kReading);
}

// Trap 7 and 11: A, C and D; C flag; never M unless asked. (irdma refuses less, siw refuses M.)
TEST(Startup, Trap7TheRequestOffersWriteAndReadRtr) {
  InitiatorConfig config;
  config.is_peer_to_peer = true;
  Initiator initiator = *Initiator::start(config, kStart);
  const StartupFrame request = parsed(take_output(initiator), FrameKind::kRequest);
  EXPECT_EQ(request.revision, 2);
  EXPECT_TRUE(request.wants_crc);
  EXPECT_FALSE(request.needs_markers);
  EXPECT_EQ(*request.enhanced, (Enhanced{.is_peer_to_peer = true,
                                         .rtr = {.has_write = true, .has_read = true},
                                         .ird = 16,
                                         .ord = 16}));
}

// Trap 8: a Read RTR needs one of our ORD and of the peer's IRD, even if the ULP asked for none.
TEST(Startup, Trap8ReadRtrNeedsADepthOfOne) {
  InitiatorConfig config;
  config.is_peer_to_peer = true;
  config.ord = 0;
  config.rtr_offer = {.has_read = true};
  Initiator initiator = *Initiator::start(config, kStart);
  const Octets wire = take_output(initiator);
  EXPECT_EQ(parsed(wire, FrameKind::kRequest).enhanced->ord, 1);
  Responder responder({}, kStart);
  responder.input(wire, kStart);
  ASSERT_TRUE(responder.accept({.ird = 0, .ord = 0, .private_data = {}}, kStart));
  EXPECT_EQ(initiator.input(take_output(responder), kStart), 24u);
  ASSERT_EQ(initiator.state(), StartupState::kAgreed);
  EXPECT_EQ(initiator.agreement().rtr, Rtr::kRead);
  EXPECT_EQ(initiator.agreement().ord, 1);
  EXPECT_EQ(responder.agreement().ird, 1);

  // The ORD asked for a Read RTR is not kept if the peer chose another.
  InitiatorConfig any = config;
  any.rtr_offer.has_write = true;
  const Initiator wrote = answered(
      any, enhanced_reply({.is_peer_to_peer = true, .rtr = {.has_write = true}, .ird = 16}));
  ASSERT_EQ(wrote.state(), StartupState::kAgreed);
  EXPECT_EQ(wrote.agreement().ord, 0);

  const Initiator refused = answered(
      config, enhanced_reply({.is_peer_to_peer = true, .rtr = {.has_read = true}, .ird = 0}));
  ASSERT_EQ(refused.state(), StartupState::kFailed);
  EXPECT_EQ(refused.failure().term_code, MPA_TERM_INSUFFICIENT_IRD);

  const Initiator open = answered(
      config,
      enhanced_reply({.is_peer_to_peer = true, .rtr = {.has_read = true}, .ird = kNotNegotiated}));
  ASSERT_EQ(open.state(), StartupState::kAgreed);
  EXPECT_EQ(open.agreement().ord, 1);
  Responder unasked = asking(
      {},
      request_with({.is_peer_to_peer = true, .rtr = {.has_read = true}, .ord = kNotNegotiated}));
  ASSERT_TRUE(unasked.accept({.ird = 0}, kStart));
  take_output(unasked);
  EXPECT_EQ(unasked.agreement().ird, 1);
}

// --- Order of octets on the stream.

// Trap 3: nothing may follow the Reply before the responder has had an FPDU.
TEST(Startup, Trap3OctetsAfterTheReply) {
  Octets wire = written(enhanced_reply({.ird = 1, .ord = 1}));
  const size_t size = wire.size();
  wire.push_back(0);
  Initiator strict = asked({});
  EXPECT_EQ(strict.input(wire, kStart), size);
  ASSERT_EQ(strict.state(), StartupState::kFailed);
  EXPECT_EQ(strict.failure().error, StartupError::kTrailingBytes);

  InitiatorConfig config;
  config.may_pipeline = true;
  Initiator pipelined = asked(config);
  EXPECT_EQ(pipelined.input(wire, kStart), size) << "the rest belongs to FPDUs";
  EXPECT_EQ(pipelined.state(), StartupState::kAgreed);
  EXPECT_EQ(pipelined.input(Bytes(wire).subspan(size), kStart), 0u);
}

// Trap 4: the initiator may not send FPDUs before it has the Reply.
TEST(Startup, Trap4OctetsAfterTheRequest) {
  Octets wire = written(request_with({.ird = 1, .ord = 1}));
  const size_t size = wire.size();
  wire.push_back(0);
  Responder at_once({}, kStart);
  EXPECT_EQ(at_once.input(wire, kStart), size);
  ASSERT_EQ(at_once.state(), StartupState::kFailed);
  EXPECT_EQ(at_once.failure().error, StartupError::kTrailingBytes);

  Responder later = asking({}, request_with({}));
  later.input(Bytes(wire).last(1), kStart);
  EXPECT_EQ(later.state(), StartupState::kFailed);

  Responder sending = asking({}, request_with({}));
  ASSERT_TRUE(sending.accept({}, kStart));
  sending.input(Bytes(wire).last(1), kStart);
  EXPECT_EQ(sending.state(), StartupState::kFailed);

  ResponderConfig config;
  config.may_pipeline = true;
  Responder pipelined(config, kStart);
  EXPECT_EQ(pipelined.input(wire, kStart), size);
  EXPECT_TRUE(pipelined.has_request());
  EXPECT_EQ(pipelined.input(Bytes(wire).last(1), kStart), 0u);
  ASSERT_TRUE(pipelined.accept({}, kStart));
  EXPECT_EQ(pipelined.input(Bytes(wire).last(1), kStart), 0u);
  take_output(pipelined);
  EXPECT_EQ(pipelined.state(), StartupState::kAgreed);
}

TEST(Startup, MarkersCannotBeAskedForAfterPipelining) {
  InitiatorConfig config;
  config.may_pipeline = true;
  StartupFrame reply = enhanced_reply({});
  reply.needs_markers = true;
  const Initiator initiator = answered(config, reply);
  ASSERT_EQ(initiator.state(), StartupState::kFailed);
  EXPECT_EQ(initiator.failure().error, StartupError::kMarkersTooLate);
  EXPECT_EQ(initiator.failure().term_code, MPA_TERM_LOCAL_CATASTROPHIC);
}

// --- Revisions.

// Trap 6: revision 2 with S is answered by revision 2 with S, others by their own kind.
TEST(Startup, Trap6TheReplyHasTheRevisionOfTheRequest) {
  for (uint8_t revision : {0, 1, 2}) {
    StartupFrame request;
    request.revision = revision;
    if (revision == 2) request.enhanced = Enhanced{.ird = 3, .ord = 5};
    Responder responder = asking({}, request);
    ASSERT_TRUE(responder.accept({}, kStart));
    const StartupFrame reply = parsed(take_output(responder), FrameKind::kReply);
    EXPECT_EQ(reply.revision, revision);
    EXPECT_EQ(reply.enhanced.has_value(), revision == 2);
  }
  StartupFrame plain;
  plain.revision = 2;
  Responder responder = asking({}, plain);
  ASSERT_TRUE(responder.accept({}, kStart));
  EXPECT_FALSE(parsed(take_output(responder), FrameKind::kReply).enhanced)
      << "the initiator would take the words for private data";
}

TEST(Startup, Trap6AReplyOfRevision1AsksForARetry) {
  StartupFrame reply;
  reply.kind = FrameKind::kReply;
  for (const bool is_rejected : {false, true}) {
    for (uint8_t revision : {0, 1, 2}) {
      reply.revision = revision;
      reply.is_rejected = is_rejected;
      const Initiator initiator = answered({}, reply);
      ASSERT_EQ(initiator.state(), StartupState::kFailed);
      EXPECT_EQ(initiator.failure().error, StartupError::kRevision1Only);
      EXPECT_TRUE(initiator.failure().can_retry_with_revision_1);
    }
  }
  InitiatorConfig fallback;
  fallback.revision = 1;
  reply.is_rejected = false;
  reply.revision = 1;
  EXPECT_EQ(answered(fallback, reply).state(), StartupState::kAgreed);
  reply.revision = 0;
  EXPECT_EQ(answered(fallback, reply).state(), StartupState::kAgreed) << "the OSC stack mixes them";
}

TEST(Startup, Trap6AConnectionClosedInAnswerToRevision2AsksForARetry) {
  for (StreamEnd end : {StreamEnd::kFin, StreamEnd::kReset}) {
    Initiator initiator = asked({});
    initiator.on_end(end);
    ASSERT_EQ(initiator.state(), StartupState::kFailed);
    EXPECT_EQ(initiator.failure().error, StartupError::kClosed);
    EXPECT_TRUE(initiator.failure().can_retry_with_revision_1);

    InitiatorConfig config;
    config.revision = 1;
    Initiator fallback = asked(config);
    fallback.on_end(end);
    EXPECT_FALSE(fallback.failure().can_retry_with_revision_1);
  }
}

TEST(Startup, Trap6AReplyAboveTheRequestIsRefused) {
  InitiatorConfig config;
  config.revision = 1;
  const Initiator initiator = answered(config, enhanced_reply({}));
  ASSERT_EQ(initiator.state(), StartupState::kFailed);
  EXPECT_EQ(initiator.failure().error, StartupError::kUnknownRevision);
  EXPECT_FALSE(initiator.failure().can_retry_with_revision_1);
}

// --- RTR.

// Trap 7: irdma looks at R only after it has found A, an RTR message and depths to its liking.
TEST(Startup, Trap7ARejectionCarriesWordsThatWouldDoForAnAcceptance) {
  for (const bool has_write : {true, false}) {
    const Enhanced asked{.is_peer_to_peer = true,
                         .rtr = {.has_write = has_write, .has_read = true},
                         .ird = 3,
                         .ord = 5};
    Responder responder = asking({}, request_with(asked));
    ASSERT_TRUE(responder.reject({}, kStart));
    const StartupFrame reply = parsed(take_output(responder), FrameKind::kReply);
    EXPECT_TRUE(reply.is_rejected);
    EXPECT_TRUE(reply.enhanced->is_peer_to_peer);
    EXPECT_EQ(reply.enhanced->rtr, (RtrSet{.has_write = has_write, .has_read = !has_write}));
    EXPECT_EQ(reply.enhanced->ird, has_write ? 0 : 1);
    EXPECT_EQ(reply.enhanced->ord, 0);
  }
}

TEST(Startup, Trap11TheTerminateOfAFailedStartHasTheMarkersThatThePeerNeeds) {
  InitiatorConfig config;
  config.is_peer_to_peer = true;
  for (const bool needs_markers : {false, true}) {
    StartupFrame reply = enhanced_reply({.is_peer_to_peer = true, .ird = 1, .ord = 1});
    reply.needs_markers = needs_markers;
    const Initiator initiator = answered(config, reply);
    ASSERT_TRUE(initiator.failure().term_code);
    const Agreement with = initiator.failure().terminate_with();
    EXPECT_EQ(with.send_markers, needs_markers);
    EXPECT_TRUE(with.is_initiator);
    EXPECT_TRUE(with.has_crc);
    EXPECT_EQ(with.rtr, Rtr::kNone);
  }
}

// Trap 7: A is echoed, and exactly one bit is set, one of those offered.
TEST(Startup, Trap7EveryRtrOfferAgainstEveryResponder) {
  for (unsigned offer = 0; offer < 8; ++offer) {
    for (unsigned take = 0; take < 8; ++take) {
      SCOPED_TRACE(testing::Message() << "offer " << offer << " take " << take);
      const RtrSet offered{(offer & 1) != 0, (offer & 2) != 0, (offer & 4) != 0};
      ResponderConfig config;
      config.rtr_accepted = {(take & 1) != 0, (take & 2) != 0, (take & 4) != 0};
      Responder responder = asking(
          config, request_with({.is_peer_to_peer = true, .rtr = offered, .ird = 1, .ord = 1}));
      const unsigned common = offer & take;
      if (responder.has_request()) {
        ASSERT_TRUE(responder.accept({}, kStart));
      }
      const StartupFrame reply = parsed(take_output(responder), FrameKind::kReply);
      EXPECT_TRUE(reply.enhanced->is_peer_to_peer);
      EXPECT_EQ(reply.is_rejected, common == 0);
      if (common == 0) {
        ASSERT_EQ(responder.state(), StartupState::kFailed);
        EXPECT_EQ(responder.failure().error, StartupError::kNoMatchingRtr);
        continue;
      }
      EXPECT_EQ(reply.enhanced->rtr.count(), 1);
      const Rtr rtr = responder.agreement().rtr;
      EXPECT_TRUE(offered.has(rtr));
      EXPECT_TRUE(config.rtr_accepted.has(rtr));
      EXPECT_TRUE(reply.enhanced->rtr.has(rtr));
    }
  }
}

TEST(Startup, Trap7ClientServerRequestsGetNoRtr) {
  Responder responder = asking({}, request_with({.rtr = {.has_write = true}}));
  ASSERT_TRUE(responder.accept({}, kStart));
  const StartupFrame reply = parsed(take_output(responder), FrameKind::kReply);
  EXPECT_FALSE(reply.enhanced->is_peer_to_peer);
  EXPECT_EQ(reply.enhanced->rtr.count(), 0);
  EXPECT_EQ(responder.agreement().rtr, Rtr::kNone);
}

TEST(Startup, Trap7RepliesWithoutOneOfferedRtrAreTerminated) {
  InitiatorConfig config;
  config.is_peer_to_peer = true;
  for (const RtrSet chosen : {RtrSet{}, RtrSet{.has_send = true}, RtrSet{true, true, false},
                              RtrSet{.has_write = true, .has_read = true}}) {
    const Initiator initiator = answered(
        config, enhanced_reply({.is_peer_to_peer = true, .rtr = chosen, .ird = 1, .ord = 1}));
    ASSERT_EQ(initiator.state(), StartupState::kFailed);
    EXPECT_EQ(initiator.failure().error, StartupError::kNoMatchingRtr);
    EXPECT_EQ(initiator.failure().term_code, MPA_TERM_NO_MATCHING_RTR);
  }
  const Initiator no_a =
      answered(config, enhanced_reply({.rtr = {.has_write = true}, .ird = 1, .ord = 1}));
  EXPECT_EQ(no_a.failure().error, StartupError::kNoMatchingRtr);
}

TEST(Startup, AnEmptyOfferIsRefusedBeforeItIsSent) {
  InitiatorConfig config;
  config.is_peer_to_peer = true;
  config.rtr_offer = {};
  EXPECT_EQ(Initiator::start(config, kStart).error(), StartupError::kNoMatchingRtr);
}

// --- IRD and ORD.

// Trap 9: the initiator raises its IRD to the responder's ORD, as far as it can.
TEST(Startup, Trap9TheInitiatorRaisesItsIrd) {
  InitiatorConfig config;
  config.ird = 4;
  config.max_ird = 32;
  const Initiator raised = answered(config, enhanced_reply({.ird = 16, .ord = 32}));
  ASSERT_EQ(raised.state(), StartupState::kAgreed);
  EXPECT_EQ(raised.agreement().ird, 32);

  const Initiator failed = answered(config, enhanced_reply({.ird = 16, .ord = 33}));
  ASSERT_EQ(failed.state(), StartupState::kFailed);
  EXPECT_EQ(failed.failure().error, StartupError::kInsufficientIrd);
  EXPECT_EQ(failed.failure().term_code, MPA_TERM_INSUFFICIENT_IRD);
}

TEST(Startup, Trap9BothSidesShrink) {
  InitiatorConfig config;
  config.ird = 10;
  config.ord = 20;
  const Initiator initiator = answered(config, enhanced_reply({.ird = 3, .ord = 2}));
  ASSERT_EQ(initiator.state(), StartupState::kAgreed);
  EXPECT_EQ(initiator.agreement().ird, 2);
  EXPECT_EQ(initiator.agreement().ord, 3);

  Responder responder = asking({}, request_with({.ird = 3, .ord = 2}));
  ASSERT_TRUE(responder.accept({.ird = 10, .ord = 20, .private_data = {}}, kStart));
  const StartupFrame reply = parsed(take_output(responder), FrameKind::kReply);
  EXPECT_EQ(reply.enhanced->ird, 2);
  EXPECT_EQ(reply.enhanced->ord, 3);
  EXPECT_EQ(responder.agreement().ird, 2);
  EXPECT_EQ(responder.agreement().ord, 3);
}

// Trap 5: 0x3fff takes a direction out of the negotiation; each side keeps its own number.
TEST(Startup, Trap5NotNegotiated) {
  InitiatorConfig config;
  config.ird = 7;
  config.ord = 9;
  const Initiator initiator =
      answered(config, enhanced_reply({.ird = kNotNegotiated, .ord = kNotNegotiated}));
  ASSERT_EQ(initiator.state(), StartupState::kAgreed);
  EXPECT_EQ(initiator.agreement().ird, 7);
  EXPECT_EQ(initiator.agreement().ord, 9);

  Responder responder = asking({}, request_with({.ird = kNotNegotiated, .ord = kNotNegotiated}));
  ASSERT_TRUE(responder.accept({.ird = 7, .ord = 9, .private_data = {}}, kStart));
  const StartupFrame reply = parsed(take_output(responder), FrameKind::kReply);
  EXPECT_EQ(reply.enhanced->ird, kNotNegotiated);
  EXPECT_EQ(reply.enhanced->ord, kNotNegotiated);
  EXPECT_EQ(responder.agreement().ird, 7);
  EXPECT_EQ(responder.agreement().ord, 9);

  // One side only: what the peer serves still bounds what we issue, and the peer's numbers are
  // answered with numbers (siw terminates at 0x3fff).
  Responder silent = asking({}, request_with({.ird = 3, .ord = 5}));
  ASSERT_TRUE(silent.accept({.ird = kNotNegotiated, .ord = kNotNegotiated}, kStart));
  const StartupFrame numbers = parsed(take_output(silent), FrameKind::kReply);
  EXPECT_EQ(numbers.enhanced->ird, 5);
  EXPECT_EQ(numbers.enhanced->ord, 3);
  EXPECT_EQ(silent.agreement().ird, kNotNegotiated);
  EXPECT_EQ(silent.agreement().ord, 3);

  config.ird = 0xffff;
  config.ord = kNotNegotiated;
  Initiator open = *Initiator::start(config, kStart);
  const StartupFrame request = parsed(take_output(open), FrameKind::kRequest);
  EXPECT_EQ(request.enhanced->ird, kNotNegotiated);
  EXPECT_EQ(request.enhanced->ord, kNotNegotiated);
  const Initiator bounded = answered(config, enhanced_reply({.ird = 1, .ord = 9000}));
  ASSERT_EQ(bounded.state(), StartupState::kAgreed);
  EXPECT_EQ(bounded.agreement().ird, kNotNegotiated);
  EXPECT_EQ(bounded.agreement().ord, 1);
}

// --- Private data.

// Trap 1: 512 octets are the RFC's, 508 with the enhanced words; the machines tell before they
// send.
TEST(Startup, Trap1PrivateDataThatDoesNotFit) {
  InitiatorConfig config;
  config.private_data = *PrivateData::from(Octets(509, 1));
  EXPECT_EQ(Initiator::start(config, kStart).error(), StartupError::kPrivateDataTooLong);
  config.revision = 1;
  EXPECT_TRUE(Initiator::start(config, kStart));

  Responder responder = asking({}, request_with({}));
  Acceptance acceptance;
  acceptance.private_data = config.private_data;
  EXPECT_EQ(responder.accept(acceptance, kStart).error(), StartupError::kPrivateDataTooLong);
  EXPECT_EQ(responder.reject(config.private_data, kStart).error(),
            StartupError::kPrivateDataTooLong);
  ASSERT_TRUE(responder.has_request()) << "the ULP may try again with less";
  acceptance.private_data = *PrivateData::from(Octets(508, 1));
  EXPECT_TRUE(responder.accept(acceptance, kStart));
}

// Trap 12: private data is exactly the ULP's, without the enhanced words; irdma hands four stray
// octets on, which ours cannot help, so data on the wire delimits itself.
TEST(Startup, Trap12PrivateDataIsWithoutTheEnhancedWords) {
  StartupFrame reply = enhanced_reply({.ird = 0x0102, .ord = 0x0304});
  const Octets data{9, 8, 7};
  reply.private_data = data;
  InitiatorConfig config;
  config.max_ird = 0x1000;
  const Initiator initiator = answered(config, reply);
  ASSERT_EQ(initiator.state(), StartupState::kAgreed);
  EXPECT_EQ(octets_of(initiator.agreement().private_data), data);
}

// --- Time and ends.

// Trap 13: every state that waits for somebody has a deadline, and a peer that trickles does not
// move it.
TEST(Startup, Trap13Timeouts) {
  const StartupTimeouts defaults;
  EXPECT_EQ(defaults.request, Duration::from_ms(10'000));
  EXPECT_EQ(defaults.reply, Duration::from_ms(5'000));
  const auto at_ms = [](int64_t ms) { return kStart + Duration::from_ms(ms); };

  Initiator initiator = *Initiator::start({}, kStart);
  EXPECT_EQ(initiator.deadline(), at_ms(10'000));
  initiator.sent(initiator.output().size(), at_ms(100));
  EXPECT_EQ(initiator.deadline(), at_ms(5'100));
  const uint8_t first = 'M';
  initiator.input({&first, 1}, at_ms(5'000));
  EXPECT_EQ(initiator.deadline(), at_ms(5'100));
  initiator.on_deadline(at_ms(5'099));
  EXPECT_EQ(initiator.state(), StartupState::kReading);
  initiator.on_deadline(at_ms(5'100));
  ASSERT_EQ(initiator.state(), StartupState::kFailed);
  EXPECT_EQ(initiator.failure().error, StartupError::kTimedOut);
  EXPECT_EQ(initiator.deadline(), kNever);

  Responder responder({}, kStart);
  EXPECT_EQ(responder.deadline(), at_ms(10'000));
  responder.input({&first, 1}, at_ms(9'000));
  EXPECT_EQ(responder.deadline(), at_ms(10'000));
  responder.on_deadline(at_ms(10'000));
  EXPECT_EQ(responder.failure().error, StartupError::kTimedOut);

  Responder deciding({}, kStart);
  deciding.input(written(request_with({})), at_ms(1'000));
  EXPECT_EQ(deciding.deadline(), at_ms(6'000));
  ASSERT_TRUE(deciding.accept({}, at_ms(2'000)));
  EXPECT_EQ(deciding.deadline(), at_ms(6'000)) << "of the Reply on the wire, not of the decision";
  deciding.on_deadline(at_ms(6'000));
  EXPECT_EQ(deciding.state(), StartupState::kFailed);

  Initiator stuck = *Initiator::start({}, kStart);
  stuck.on_deadline(at_ms(10'000));
  EXPECT_EQ(stuck.state(), StartupState::kFailed);
}

TEST(Startup, EveryTruncationOfTheRequest) {
  const Octets wire = written(request_with({.ird = 1, .ord = 1}));
  for (size_t n = 0; n < wire.size(); ++n) {
    Responder responder({}, kStart);
    EXPECT_EQ(responder.input(Bytes(wire).first(n), kStart), n);
    EXPECT_EQ(responder.state(), StartupState::kReading);
    responder.on_end(StreamEnd::kFin);
    ASSERT_EQ(responder.state(), StartupState::kFailed);
    // A health check connects and closes; that is no error.
    EXPECT_EQ(responder.failure().error, n == 0 ? StartupError::kClosed : StartupError::kTruncated);
  }
}

TEST(Startup, EveryTruncationOfTheReply) {
  const Octets wire = written(enhanced_reply({.ird = 1, .ord = 1}));
  for (size_t n = 1; n < wire.size(); ++n) {
    Initiator initiator = asked({});
    EXPECT_EQ(initiator.input(Bytes(wire).first(n), kStart), n);
    EXPECT_EQ(initiator.state(), StartupState::kReading);
    initiator.on_end(StreamEnd::kFin);
    ASSERT_EQ(initiator.state(), StartupState::kFailed);
    EXPECT_EQ(initiator.failure().error, StartupError::kTruncated);
    EXPECT_FALSE(initiator.failure().can_retry_with_revision_1);
  }
}

TEST(Startup, AFinAfterTheRequestStillGetsItsReply) {
  Responder responder = asking({}, request_with({}));
  responder.on_end(StreamEnd::kFin);
  ASSERT_TRUE(responder.has_request());
  ASSERT_TRUE(responder.accept({}, kStart));
  responder.on_end(StreamEnd::kFin);
  take_output(responder);
  EXPECT_EQ(responder.state(), StartupState::kAgreed);

  Responder reset = asking({}, request_with({}));
  reset.on_end(StreamEnd::kReset);
  EXPECT_EQ(reset.state(), StartupState::kFailed);
}

TEST(Startup, PlainPeersAreRecognisedAtTheirFirstOctet) {
  const std::string banner = "220 mail.example ESMTP\r\n";
  const Octets octets(banner.begin(), banner.end());
  Initiator initiator = asked({});
  EXPECT_EQ(initiator.input(octets, kStart), 0u);
  EXPECT_EQ(initiator.failure().error, StartupError::kNotMpa);
  Responder responder({}, kStart);
  EXPECT_EQ(responder.input(octets, kStart), 0u);
  EXPECT_EQ(responder.failure().error, StartupError::kNotMpa);
}

TEST(Startup, MalformedFramesFailAsTheReaderSays) {
  Octets wire = written(request_with({}));
  wire[MPA_REVISION_OFFSET] = 3;
  Responder responder({}, kStart);
  responder.input(wire, kStart);
  EXPECT_EQ(responder.failure().error, StartupError::kUnknownRevision);
}

TEST(Startup, NothingIsTakenOrSentOutOfTurn) {
  Initiator initiator = *Initiator::start({}, kStart);
  const Octets reply = written(enhanced_reply({}));
  EXPECT_EQ(initiator.input(reply, kStart), 0u) << "the Request is not even sent";
  take_output(initiator);
  EXPECT_TRUE(initiator.output().empty());
  initiator.input(reply, kStart);
  ASSERT_EQ(initiator.state(), StartupState::kAgreed);
  initiator.on_end(StreamEnd::kFin);
  initiator.on_deadline(kNever);
  EXPECT_EQ(initiator.state(), StartupState::kAgreed);
}

}  // namespace
}  // namespace ddpsock::mpa
