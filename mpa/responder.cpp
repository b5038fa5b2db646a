// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/responder.h"

#include <algorithm>
#include <cassert>

namespace ddpsock::mpa {
namespace {

// RFC 6581 section 6: exactly one of those offered. Write needs nothing of us; Read takes one of
// our IRD; Send needs the queue pair to swallow a message that no receive was posted for.
Rtr choose(RtrSet offered, RtrSet accepted) {
  for (Rtr rtr : {Rtr::kWrite, Rtr::kRead, Rtr::kSend})
    if (offered.has(rtr) && accepted.has(rtr)) return rtr;
  return Rtr::kNone;
}

RtrSet set_of(Rtr rtr) {
  return {.has_send = rtr == Rtr::kSend,
          .has_write = rtr == Rtr::kWrite,
          .has_read = rtr == Rtr::kRead};
}

// What we answer in one direction, given what the peer says of it. A direction that the peer does
// not negotiate stays out of it; a number is answered by a number even if we have none, because
// siw takes 0x3fff for one and terminates.
uint16_t meet(uint16_t ours, uint16_t theirs) {
  return theirs == kNotNegotiated ? kNotNegotiated : std::min(ours, theirs);
}

Enhanced answer(const Enhanced& request, const Acceptance& acceptance, Rtr rtr) {
  Enhanced reply{.is_peer_to_peer = request.is_peer_to_peer,
                 .rtr = set_of(rtr),
                 .ird = meet(acceptance.ird, request.ord),
                 .ord = meet(acceptance.ord, request.ird)};
  if (rtr == Rtr::kRead) reply.ird = std::max<uint16_t>(reply.ird, 1);
  return reply;
}

Rtr rtr_for(const StartupFrame& request, const ResponderConfig& config) {
  const bool is_needed = request.enhanced && request.enhanced->is_peer_to_peer;
  return is_needed ? choose(request.enhanced->rtr, config.rtr_accepted) : Rtr::kNone;
}

}  // namespace

Responder::Responder(const ResponderConfig& config, Time now)
    : config_(config),
      phase_(Reading{StartupReader(FrameKind::kRequest), now + config.timeouts.request}) {}

size_t Responder::input(Bytes bytes, Time now) {
  Reading* reading = std::get_if<Reading>(&phase_);
  if (reading == nullptr) {
    const bool is_exchange_over =
        state() == StartupState::kAgreed || state() == StartupState::kFailed;
    if (!bytes.empty() && !is_exchange_over && !config_.may_pipeline)
      phase_ = StartupFailure::of(StartupError::kTrailingBytes);
    return 0;
  }
  const auto taken = reading->reader.take(bytes);
  if (taken.error) {
    phase_ = StartupFailure::of(*taken.error);
  } else if (reading->reader.is_complete()) {
    if (taken.octets < bytes.size() && !config_.may_pipeline) {
      phase_ = StartupFailure::of(StartupError::kTrailingBytes);
      return taken.octets;
    }
    // By way of a copy: the variant would destroy what it is assigned from.
    const Deciding deciding{reading->reader, now + config_.timeouts.reply};
    phase_ = deciding;
    const StartupFrame frame = request();
    const bool needs_rtr = frame.enhanced && frame.enhanced->is_peer_to_peer;
    if (needs_rtr && rtr_for(frame, config_) == Rtr::kNone)
      (void)send_rejection(StartupError::kNoMatchingRtr, {});
  }
  return taken.octets;
}

StartupFrame Responder::request() const {
  assert(has_request());
  return std::get_if<Deciding>(&phase_)->reader.frame();
}

Status<StartupError> Responder::accept(const Acceptance& wanted, Time) {
  Acceptance acceptance = wanted;
  acceptance.ird = std::min(wanted.ird, kNotNegotiated);
  acceptance.ord = std::min(wanted.ord, kNotNegotiated);
  const StartupFrame request = this->request();
  StartupFrame reply{.kind = FrameKind::kReply,
                     .revision = request.revision,
                     .needs_markers = config_.needs_markers,
                     .wants_crc = config_.wants_crc || request.wants_crc,
                     .is_rejected = false,
                     .enhanced = std::nullopt,
                     .private_data = acceptance.private_data.bytes()};
  Agreement agreement{.is_initiator = false,
                      .revision = request.revision,
                      .has_crc = reply.wants_crc,
                      .send_markers = request.needs_markers,
                      .receive_markers = config_.needs_markers,
                      .ird = acceptance.ird,
                      .ord = acceptance.ord,
                      .rtr = rtr_for(request, config_),
                      .private_data = *PrivateData::from(request.private_data)};
  if (request.enhanced) {
    reply.enhanced = answer(*request.enhanced, acceptance, agreement.rtr);
    const bool has_ird = acceptance.ird != kNotNegotiated && reply.enhanced->ird != kNotNegotiated;
    if (has_ird) agreement.ird = reply.enhanced->ird;
    // Reads beyond what the peer serves would end the stream, also if we named no number ourselves.
    agreement.ord = std::min(acceptance.ord, request.enhanced->ird);
    if (agreement.rtr == Rtr::kRead) agreement.ird = std::max<uint16_t>(agreement.ird, 1);
  }
  const auto writer = StartupWriter::of(reply);
  if (!writer) return fail(writer.error());
  phase_ = Sending{*writer, deadline(), agreement};
  return {};
}

Status<StartupError> Responder::reject(const PrivateData& private_data, Time) {
  return send_rejection(StartupError::kRejected, private_data);
}

Status<StartupError> Responder::send_rejection(StartupError reason,
                                               const PrivateData& private_data) {
  const StartupFrame request = this->request();
  StartupFrame reply{.kind = FrameKind::kReply,
                     .revision = request.revision,
                     .needs_markers = false,
                     .wants_crc = config_.wants_crc || request.wants_crc,
                     .is_rejected = true,
                     .enhanced = std::nullopt,
                     .private_data = private_data.bytes()};
  // As if it were accepted: irdma looks at R only after it has found A, an RTR message it offered
  // and depths that fit.
  if (request.enhanced) {
    const Acceptance nothing{.ird = 0, .ord = 0, .private_data = {}};
    reply.enhanced = answer(*request.enhanced, nothing, rtr_for(request, config_));
  }
  const auto writer = StartupWriter::of(reply);
  if (!writer) return fail(writer.error());
  phase_ = Sending{*writer, deadline(), StartupFailure::of(reason)};
  return {};
}

Bytes Responder::output() const {
  const Sending* sending = std::get_if<Sending>(&phase_);
  return sending != nullptr ? sending->writer.left() : Bytes{};
}

void Responder::sent(size_t n, Time) {
  Sending* sending = std::get_if<Sending>(&phase_);
  assert(sending != nullptr && n <= sending->writer.left().size());
  if (!sending->writer.sent(n)) return;
  const auto outcome = sending->outcome;
  if (const Agreement* agreement = std::get_if<Agreement>(&outcome))
    phase_ = *agreement;
  else
    phase_ = *std::get_if<StartupFailure>(&outcome);
}

Time Responder::deadline() const {
  if (const Reading* reading = std::get_if<Reading>(&phase_)) return reading->deadline;
  if (const Deciding* deciding = std::get_if<Deciding>(&phase_)) return deciding->deadline;
  if (const Sending* sending = std::get_if<Sending>(&phase_)) return sending->deadline;
  return kNever;
}

void Responder::on_deadline(Time now) {
  if (deadline() != kNever && now >= deadline())
    phase_ = StartupFailure::of(StartupError::kTimedOut);
}

void Responder::on_end(StreamEnd end) {
  if (const Reading* reading = std::get_if<Reading>(&phase_)) {
    const bool is_empty = reading->reader.is_empty();
    phase_ = StartupFailure::of(is_empty ? StartupError::kClosed : StartupError::kTruncated);
    return;
  }
  // A FIN after the Request only says that the peer will send no more; a Reply still reaches it.
  const bool is_waiting = state() == StartupState::kDeciding || state() == StartupState::kSending;
  if (is_waiting && end == StreamEnd::kReset) phase_ = StartupFailure::of(StartupError::kClosed);
}

StartupState Responder::state() const {
  constexpr StartupState kStates[] = {StartupState::kReading, StartupState::kDeciding,
                                      StartupState::kSending, StartupState::kAgreed,
                                      StartupState::kFailed};
  return kStates[phase_.index()];
}

}  // namespace ddpsock::mpa
