// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The peers of the matrix with their octets changed on the way. Whatever comes: start-up ends, in
// time, and an agreement keeps the rules, as the octets are read by the personas' own reader.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/interop/matrix/exchange.h"

namespace ddpsock::interop {
namespace {

constexpr int kExchanges = 50'000;

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return random_() % n; }
  bool has_changed() const { return has_changed_; }

  std::vector<Octets> change(Octets segment) {
    const size_t count = below(3);
    for (size_t i = 0; i < count && !segment.empty(); ++i) change_once(segment);
    return below(4) == 0 ? cut(segment) : std::vector<Octets>{segment};
  }

 private:
  void change_once(Octets& s) {
    has_changed_ = true;
    // Half of the changes fall on what a start-up frame says of itself.
    const size_t at = below(2) == 0 && s.size() >= 24 ? 16 + below(8) : below(s.size());
    const auto here = s.begin() + static_cast<ptrdiff_t>(at);
    switch (below(6)) {
      case 0:
      case 1:
        s[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 2:
        s[at] = static_cast<uint8_t>(below(256));
        break;
      case 3:
        s.insert(here, 1 + below(5), static_cast<uint8_t>(below(256)));
        break;
      case 4:
        s.erase(here, here + static_cast<ptrdiff_t>(std::min<size_t>(1 + below(5), s.size() - at)));
        break;
      case 5:
        if (s.size() >= 20) s[19] = static_cast<uint8_t>(below(8));
        break;
    }
  }

  std::vector<Octets> cut(const Octets& s) {
    std::vector<Octets> parts;
    for (size_t at = 0; at < s.size();) {
      const size_t n = std::min(1 + below(30), s.size() - at);
      parts.emplace_back(s.begin() + static_cast<ptrdiff_t>(at),
                         s.begin() + static_cast<ptrdiff_t>(at + n));
      at += n;
    }
    return parts;
  }

  std::mt19937 random_;
  bool has_changed_ = false;
};

mpa::Rtr rtr_in(Words words) {
  const int bits =
      ((words.ird & kBitB) != 0) + ((words.ord & kBitC) != 0) + ((words.ord & kBitD) != 0);
  if (bits != 1) return mpa::Rtr::kNone;
  if ((words.ird & kBitB) != 0) return mpa::Rtr::kSend;
  return (words.ord & kBitC) != 0 ? mpa::Rtr::kWrite : mpa::Rtr::kRead;
}

bool has_words(const FrameView& frame) {
  return frame.revision() == 2 && (frame.flags() & kFlagS) != 0;
}

// Rules for both roles: `request` and `reply` as they were on the wire.
void check_common(const mpa::Agreement& a, const FrameView& request, const FrameView& reply) {
  EXPECT_TRUE(request.has_key(kRequestKey));
  EXPECT_TRUE(reply.has_key(kReplyKey));
  EXPECT_LE(request.pd_length(), 512u);
  EXPECT_LE(reply.pd_length(), 512u);
  EXPECT_LE(reply.revision(), request.revision());
  EXPECT_LE(request.revision(), 2);
  EXPECT_EQ(a.revision, reply.revision());
  EXPECT_EQ(reply.flags() & kFlagR, 0);
  EXPECT_EQ(a.has_crc, ((request.flags() | reply.flags()) & kFlagC) != 0);
  EXPECT_EQ(has_words(request), has_words(reply));
  const uint8_t theirs = a.is_initiator ? reply.flags() : request.flags();
  EXPECT_EQ(a.send_markers, (theirs & kFlagM) != 0);
}

void check_words(const mpa::Agreement& a, Words request, Words reply) {
  const bool is_asked = (request.ird & kBitA) != 0;
  if (!is_asked) {
    EXPECT_EQ(a.rtr, mpa::Rtr::kNone);
  } else {
    EXPECT_NE(reply.ird & kBitA, 0);
    ASSERT_NE(a.rtr, mpa::Rtr::kNone);
    EXPECT_EQ(rtr_in(reply), a.rtr) << "exactly one";
    const bool is_offered = (a.rtr == mpa::Rtr::kSend && (request.ird & kBitB) != 0) ||
                            (a.rtr == mpa::Rtr::kWrite && (request.ord & kBitC) != 0) ||
                            (a.rtr == mpa::Rtr::kRead && (request.ord & kBitD) != 0);
    EXPECT_TRUE(is_offered);
  }
  const Words theirs = a.is_initiator ? reply : request;
  const unsigned their_ird = theirs.ird & kDepth;
  const unsigned their_ord = reply.ord & kDepth;
  EXPECT_LE(a.ord, std::max(their_ird, a.rtr == mpa::Rtr::kRead && a.is_initiator ? 1u : 0u));
  if (a.is_initiator && their_ord != kDepth && a.ird != kDepth) {
    EXPECT_GE(a.ird, their_ord);
  }
  if (a.rtr == mpa::Rtr::kRead) {
    EXPECT_GE(a.is_initiator ? a.ord : a.ird, 1);
    EXPECT_NE(reply.ird & kDepth, 0) << "the Read RTR needs a place";
  }
}

// What our responder says is legal by itself.
void check_our_reply(Words request, Words reply) {
  const unsigned asked = request.ord & kDepth;
  const unsigned granted = reply.ird & kDepth;
  const bool is_read = (reply.ord & kBitD) != 0;
  EXPECT_LE(granted, std::max(asked, is_read ? 1u : 0u));
  EXPECT_LE(reply.ord & kDepth, request.ird & kDepth);
}

void check_agreement(const OurEnd& ours, const Transcript& transcript) {
  const mpa::Agreement& a = ours.agreement();
  const FrameView request(a.is_initiator ? transcript.from_ours : transcript.from_peer);
  const FrameView reply(a.is_initiator ? transcript.from_peer : transcript.from_ours);
  ASSERT_TRUE(request.has_header() && request.is_whole());
  ASSERT_TRUE(reply.has_header() && reply.is_whole());
  check_common(a, request, reply);
  if (!has_words(reply)) {
    EXPECT_EQ(a.rtr, mpa::Rtr::kNone);
    return;
  }
  check_words(a, request.words(), reply.words());
  if (!a.is_initiator) check_our_reply(request.words(), reply.words());
}

// With CRCs a message arrives as it was sent or not at all. A peer that believes in an RTR Send
// that was changed into another on the way sends a message of nothing.
void check_heard(OurEnd& ours, const Account& peer) {
  if (!ours.agreement().has_crc) return;
  const bool may_be_empty = peer.agreement.rtr == PeerRtr::kSend;
  for (const std::string& text : ours.heard())
    EXPECT_TRUE(text == kPeerText || (may_be_empty && text.empty())) << text;
}

TEST(Mutation, WhateverComesStartUpEndsAndAgreementsKeepTheRules) {
  int agreed = 0;
  int changed = 0;
  int failed = 0;
  for (int i = 0; i < kExchanges && !testing::Test::HasFailure(); ++i) {
    Mutator mutator(static_cast<uint32_t>(i));
    const Cell& cell = matrix()[mutator.below(matrix().size())];
    SCOPED_TRACE("seed " + std::to_string(i) + ": " + to_text(cell));
    const auto peer = cell.peer.make(role_of_peer(cell.ours), cell.ulp, 0);
    const auto ours = make_ours(cell.ours, 0, kStart);
    Transcript transcript;
    ASSERT_TRUE(exchange(*ours, *peer, transcript, [&](const Octets& segment) {
      return mutator.change(segment);
    })) << "it does not end";
    changed += mutator.has_changed();
    if (ours->state() == mpa::StartupState::kAgreed) {
      ++agreed;
      check_agreement(*ours, transcript);
      check_heard(*ours, peer->account());
    } else {
      ++failed;
    }
  }
  // Both ways were gone often enough to mean something.
  EXPECT_GT(agreed, kExchanges / 5);
  EXPECT_GT(failed, kExchanges / 5);
  EXPECT_GT(changed, kExchanges / 2);
}

}  // namespace
}  // namespace ddpsock::interop
