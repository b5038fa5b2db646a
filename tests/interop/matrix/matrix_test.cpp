// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Walks the handshake matrix.
#include "tests/interop/matrix/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ddpsock::interop {
namespace {

Octets octets_of(const mpa::PrivateData& data) {
  return {data.bytes().begin(), data.bytes().end()};
}

PeerRtr as_peer_rtr(mpa::Rtr rtr) {
  switch (rtr) {
    case mpa::Rtr::kNone:
      return PeerRtr::kNone;
    case mpa::Rtr::kSend:
      return PeerRtr::kSend;
    case mpa::Rtr::kWrite:
      return PeerRtr::kWrite;
    case mpa::Rtr::kRead:
      return PeerRtr::kRead;
  }
  return PeerRtr::kNone;
}

bool starts_with(const Octets& whole, const Octets& front) {
  return whole.size() >= front.size() && std::equal(front.begin(), front.end(), whole.begin());
}

Octets our_private_data(const Cell& cell) {
  if (const Calling* calling = std::get_if<Calling>(&cell.ours))
    return octets_of(calling->config.private_data);
  return octets_of(std::get<Answering>(cell.ours).decision.acceptance.private_data);
}

class Matrix : public testing::TestWithParam<size_t> {};

void check_agreement(const mpa::Agreement& agreement, const Agrees& expected) {
  EXPECT_EQ(agreement.revision, expected.revision);
  EXPECT_EQ(agreement.has_crc, expected.has_crc);
  EXPECT_EQ(agreement.rtr, expected.rtr);
  EXPECT_EQ(agreement.ird, expected.ird);
  EXPECT_EQ(agreement.ord, expected.ord);
  EXPECT_EQ(agreement.send_markers, expected.send_markers);
  EXPECT_EQ(agreement.receive_markers, expected.receive_markers);
}

// Both sides believe the same.
void check_peer(const Account& peer, const mpa::Agreement& ours) {
  EXPECT_EQ(peer.agreement.has_crc, ours.has_crc);
  EXPECT_EQ(peer.agreement.wants_markers, ours.send_markers);
  EXPECT_EQ(peer.agreement.sends_markers, ours.receive_markers);
  const bool is_unagreed_rtr = ours.revision < 2;
  if (!is_unagreed_rtr) {
    EXPECT_EQ(peer.agreement.rtr, as_peer_rtr(ours.rtr));
  }
}

void check_talk(Outcome& outcome) {
  const Account& peer = outcome.peer->account();
  EXPECT_EQ(outcome.ours->qp_state(), rdmap::QpState::kRts);
  EXPECT_EQ(outcome.ours->heard(), std::vector<std::string>{kPeerText});
  EXPECT_EQ(outcome.ours->sends_done(), 1u);
  EXPECT_EQ(peer.heard, std::vector<std::string>{kOurText});
  EXPECT_EQ(peer.stream_error, "");
  EXPECT_EQ(peer.unfinished_octets, 0u);
  EXPECT_FALSE(peer.was_spoken_to_early);
  EXPECT_FALSE(peer.terminate);
  const bool has_sent_read =
      !outcome.ours->agreement().is_initiator && peer.agreement.rtr == PeerRtr::kRead;
  EXPECT_EQ(peer.has_read_response, has_sent_read);
}

void check_then(const Cell& cell, Outcome& outcome) {
  switch (cell.then) {
    case Then::kTalks:
      return check_talk(outcome);
    case Then::kPeerLeaves:
      EXPECT_TRUE(outcome.ours->heard().empty());
      EXPECT_EQ(outcome.ours->qp_state(), rdmap::QpState::kEnded);
      return;
    case Then::kPeerTerminates: {
      const rdmap::TerminateInfo& info = outcome.ours->terminate_info();
      EXPECT_EQ(info.reason, rdmap::EndReason::kTerminateReceived);
      EXPECT_EQ(info.terminate.code,
                rdmap::TermCode::mpa(static_cast<uint8_t>(cell.peer_term_code)));
      EXPECT_TRUE(outcome.ours->heard().empty());
      return;
    }
    case Then::kNothingHeard:
      EXPECT_TRUE(outcome.ours->heard().empty());
      outcome.ours->end(mpa::StreamEnd::kFin, Time{});
      EXPECT_TRUE(outcome.ours->heard().empty());
      EXPECT_EQ(outcome.ours->qp_state(), rdmap::QpState::kEnded);
      EXPECT_EQ(outcome.ours->terminate_info().reason, rdmap::EndReason::kLlpLost);
      return;
  }
}

TEST_P(Matrix, Cell) {
  const Cell& cell = matrix()[GetParam()];
  SCOPED_TRACE(to_text(cell));
  Outcome outcome = run(cell);
  ASSERT_TRUE(outcome.has_ended) << "it would wait for ever";
  const Account& peer = outcome.peer->account();
  EXPECT_EQ(outcome.calls, cell.has_fallen_back ? 2 : 1);
  EXPECT_EQ(peer.verdict, cell.verdict);
  if (const Agrees* expected = std::get_if<Agrees>(&cell.outcome)) {
    ASSERT_EQ(outcome.ours->state(), mpa::StartupState::kAgreed);
    check_agreement(outcome.ours->agreement(), *expected);
    if (cell.then == Then::kTalks) {
      check_peer(peer, outcome.ours->agreement());
      EXPECT_TRUE(starts_with(peer.private_data, our_private_data(cell)) ||
                  peer.private_data.empty());
      EXPECT_EQ(octets_of(outcome.ours->agreement().private_data), cell.ulp.private_data);
    }
    check_then(cell, outcome);
    return;
  }
  const Fails& expected = std::get<Fails>(cell.outcome);
  ASSERT_EQ(outcome.ours->state(), mpa::StartupState::kFailed);
  EXPECT_EQ(mpa::to_text(outcome.ours->failure().error), mpa::to_text(expected.error));
  ASSERT_EQ(peer.terminate.has_value(), expected.term_code.has_value());
  if (expected.term_code) {
    EXPECT_EQ(peer.terminate->layer, 2);
    EXPECT_EQ(peer.terminate->type, 0);
    EXPECT_EQ(peer.terminate->code, *expected.term_code);
    EXPECT_EQ(peer.stream_error, "");
  }
  if (cell.verdict.starts_with("rejects: its ULP")) {
    EXPECT_EQ(octets_of(outcome.ours->failure().private_data), cell.ulp.private_data);
  }
  if (cell.verdict == "rejected" && expected.error == mpa::StartupError::kRejected) {
    EXPECT_TRUE(starts_with(peer.private_data, our_private_data(cell)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Matrix, testing::Range<size_t>(0, matrix().size()));

TEST(MatrixTable, EveryRowIsThereOnceAndHasAReason) {
  std::set<std::string> seen;
  for (const Cell& cell : matrix()) {
    const std::string ulp = std::to_string(cell.ulp.ird) + " " + std::to_string(cell.ulp.ord) +
                            " " + std::to_string(cell.ulp.private_data.size()) +
                            (cell.ulp.rejects ? " rejects" : "");
    EXPECT_TRUE(seen.insert(to_text(cell) + ", " + ulp).second) << to_text(cell);
    EXPECT_FALSE(cell.reason.empty()) << to_text(cell);
  }
}

}  // namespace
}  // namespace ddpsock::interop
