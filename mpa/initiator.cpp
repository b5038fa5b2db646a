// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/initiator.h"

#include <algorithm>
#include <cassert>

namespace ddpsock::mpa {
namespace {

// A Read as RTR message is a Read like any other: it takes one of our ORD.
uint16_t ord_to_ask(const InitiatorConfig& config) {
  const bool may_read = config.is_peer_to_peer && config.rtr_offer.has_read;
  return may_read ? std::max<uint16_t>(config.ord, 1) : config.ord;
}

StartupFrame request_of(const InitiatorConfig& config) {
  StartupFrame request{.kind = FrameKind::kRequest,
                       .revision = config.revision,
                       .needs_markers = config.needs_markers,
                       .wants_crc = config.wants_crc,
                       .is_rejected = false,
                       .enhanced = std::nullopt,
                       .private_data = config.private_data.bytes()};
  if (config.revision == MPA_REVISION_ENHANCED)
    request.enhanced = {.is_peer_to_peer = config.is_peer_to_peer,
                        .rtr = config.is_peer_to_peer ? config.rtr_offer : RtrSet{},
                        .ird = config.ird,
                        .ord = ord_to_ask(config)};
  return request;
}

Rtr only_one(RtrSet chosen) {
  if (chosen.count() != 1) return Rtr::kNone;
  return chosen.has_send ? Rtr::kSend : chosen.has_write ? Rtr::kWrite : Rtr::kRead;
}

}  // namespace

Result<Initiator, StartupError> Initiator::start(const InitiatorConfig& config, Time now) {
  if (config.revision > MPA_REVISION_ENHANCED) return fail(StartupError::kUnknownRevision);
  if (config.revision == MPA_REVISION_ENHANCED && config.is_peer_to_peer &&
      config.rtr_offer.count() == 0)
    return fail(StartupError::kNoMatchingRtr);
  InitiatorConfig legal = config;
  legal.ird = std::min(config.ird, kNotNegotiated);
  legal.ord = std::min(config.ord, kNotNegotiated);
  const auto writer = StartupWriter::of(request_of(legal));
  if (!writer) return fail(writer.error());
  return Initiator(legal, Sending{*writer, now + config.timeouts.request});
}

size_t Initiator::input(Bytes bytes, Time) {
  Reading* reading = std::get_if<Reading>(&phase_);
  if (reading == nullptr) return 0;
  const auto taken = reading->reader.take(bytes);
  if (taken.error) {
    phase_ = StartupFailure::of(*taken.error);
  } else if (reading->reader.is_complete()) {
    // The frame borrows from the reader, which the next phase replaces.
    const StartupReader reader = reading->reader;
    conclude(reader.frame(), taken.octets < bytes.size());
  }
  return taken.octets;
}

void Initiator::conclude(const StartupFrame& reply, bool has_trailing_bytes) {
  if (auto failure = check(reply, has_trailing_bytes)) {
    failure->private_data = *PrivateData::from(reply.private_data);
    phase_ = *failure;
    return;
  }
  Agreement agreement{.is_initiator = true,
                      .revision = reply.revision,
                      .has_crc = config_.wants_crc || reply.wants_crc,
                      .send_markers = reply.needs_markers,
                      .receive_markers = config_.needs_markers,
                      .ird = config_.ird,
                      .ord = config_.ord,
                      .rtr = Rtr::kNone,
                      .private_data = *PrivateData::from(reply.private_data)};
  std::optional<StartupFailure> failure;
  if (reply.enhanced) {
    failure = agree_on_rtr(*reply.enhanced, agreement);
    if (!failure) failure = agree_on_depths(*reply.enhanced, agreement);
  }
  if (failure) {
    failure->send_markers = reply.needs_markers;
    phase_ = *failure;
  } else {
    phase_ = agreement;
  }
}

// All that is said outside the enhanced words.
std::optional<StartupFailure> Initiator::check(const StartupFrame& reply,
                                               bool has_trailing_bytes) const {
  if (reply.revision > config_.revision) return StartupFailure::of(StartupError::kUnknownRevision);
  if (config_.revision == MPA_REVISION_ENHANCED && !reply.enhanced) {
    StartupFailure failure = StartupFailure::of(StartupError::kRevision1Only);
    failure.can_retry_with_revision_1 = true;
    return failure;
  }
  if (reply.is_rejected) return StartupFailure::of(StartupError::kRejected);
  if (has_trailing_bytes && !config_.may_pipeline)
    return StartupFailure::of(StartupError::kTrailingBytes);
  if (reply.needs_markers && config_.may_pipeline)
    return StartupFailure::of(StartupError::kMarkersTooLate, MPA_TERM_LOCAL_CATASTROPHIC);
  return std::nullopt;
}

std::optional<StartupFailure> Initiator::agree_on_rtr(const Enhanced& reply,
                                                      Agreement& agreement) const {
  if (!config_.is_peer_to_peer) return std::nullopt;
  const Rtr chosen = only_one(reply.rtr);
  if (!reply.is_peer_to_peer || !config_.rtr_offer.has(chosen))
    return StartupFailure::of(StartupError::kNoMatchingRtr, MPA_TERM_NO_MATCHING_RTR);
  agreement.rtr = chosen;
  return std::nullopt;
}

// The peer's ORD meets our IRD and the other way round (RFC 6581 section 9).
std::optional<StartupFailure> Initiator::agree_on_depths(const Enhanced& reply,
                                                         Agreement& agreement) const {
  const auto insufficient =
      StartupFailure::of(StartupError::kInsufficientIrd, MPA_TERM_INSUFFICIENT_IRD);
  if (config_.ird != kNotNegotiated && reply.ord != kNotNegotiated) {
    if (reply.ord > std::max(config_.ird, config_.max_ird)) return insufficient;
    agreement.ird = reply.ord;
  }
  // Reads beyond what the peer serves would end the stream, also if we named no number ourselves.
  agreement.ord = std::min(config_.ord, reply.ird);
  if (agreement.rtr == Rtr::kRead) {
    if (reply.ird == 0) return insufficient;
    agreement.ord = std::max<uint16_t>(agreement.ord, 1);
  }
  return std::nullopt;
}

Bytes Initiator::output() const {
  const Sending* sending = std::get_if<Sending>(&phase_);
  return sending != nullptr ? sending->writer.left() : Bytes{};
}

void Initiator::sent(size_t n, Time now) {
  Sending* sending = std::get_if<Sending>(&phase_);
  assert(sending != nullptr && n <= sending->writer.left().size());
  if (sending->writer.sent(n))
    phase_ = Reading{StartupReader(FrameKind::kReply), now + config_.timeouts.reply};
}

Time Initiator::deadline() const {
  if (const Sending* sending = std::get_if<Sending>(&phase_)) return sending->deadline;
  if (const Reading* reading = std::get_if<Reading>(&phase_)) return reading->deadline;
  return kNever;
}

void Initiator::on_deadline(Time now) {
  if (deadline() != kNever && now >= deadline())
    phase_ = StartupFailure::of(StartupError::kTimedOut);
}

void Initiator::on_end(StreamEnd) {
  StartupFailure failure = StartupFailure::of(StartupError::kClosed);
  if (const Reading* reading = std::get_if<Reading>(&phase_)) {
    if (!reading->reader.is_empty()) failure.error = StartupError::kTruncated;
  } else if (!std::holds_alternative<Sending>(phase_)) {
    return;
  }
  failure.can_retry_with_revision_1 =
      failure.error == StartupError::kClosed && config_.revision == MPA_REVISION_ENHANCED;
  phase_ = failure;
}

StartupState Initiator::state() const {
  constexpr StartupState kStates[] = {StartupState::kSending, StartupState::kReading,
                                      StartupState::kAgreed, StartupState::kFailed};
  return kStates[phase_.index()];
}

}  // namespace ddpsock::mpa
