// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A hostile peer at start-up, at either end, in any segmentation, that may also end the stream or
// let time pass. Whatever it does, the machine ends in a state that keeps its promises, octets are
// taken once and in order, and a frame that is understood can be written and read again.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "mpa/initiator.h"
#include "mpa/responder.h"

namespace {

using namespace ddpsock;
using namespace ddpsock::mpa;

void require(bool is_kept) {
  if (!is_kept) abort();
}

void check_frame(const StartupFrame& frame) {
  std::array<uint8_t, MPA_MAX_STARTUP_SIZE> wire;
  const auto size = write_startup(frame, wire);
  require(size.has_value());
  const auto view = StartupView::over(Bytes(wire).first(*size), frame.kind);
  require(view.has_value());
  const auto again = StartupFrame::from(*view);
  require(again.has_value());
  require(again->revision == frame.revision && again->enhanced == frame.enhanced);
  require(again->needs_markers == frame.needs_markers && again->wants_crc == frame.wants_crc);
  require(again->is_rejected == frame.is_rejected);
  require(std::ranges::equal(again->private_data, frame.private_data));
}

void check_agreement(const Agreement& agreement, bool is_initiator) {
  require(agreement.is_initiator == is_initiator);
  require(agreement.revision <= MPA_REVISION_ENHANCED);
  require(agreement.revision == MPA_REVISION_ENHANCED || agreement.rtr == Rtr::kNone);
  require(agreement.rtr != Rtr::kRead || (is_initiator ? agreement.ord : agreement.ird) > 0);
  require(agreement.ird <= MPA_DEPTH_MASK && agreement.ord <= MPA_DEPTH_MASK);
}

bool is_over(StartupState state) {
  return state == StartupState::kAgreed || state == StartupState::kFailed;
}

template <typename Machine>
void finish(Machine& machine, bool is_reset) {
  if (!machine.output().empty()) machine.sent(machine.output().size(), Time{0});
  machine.on_end(is_reset ? StreamEnd::kReset : StreamEnd::kFin);
  if (!is_over(machine.state())) {
    require(machine.deadline() != kNever);
    machine.on_deadline(machine.deadline());
  }
  require(is_over(machine.state()) && machine.output().empty() && machine.deadline() == kNever);
}

void run_initiator(uint8_t options, size_t segment, Bytes stream) {
  InitiatorConfig config;
  config.revision = std::min<uint8_t>(options & 3, 2);
  config.is_peer_to_peer = (options & 4) != 0;
  config.may_pipeline = (options & 8) != 0;
  config.ird = (options & 16) != 0 ? kNotNegotiated : 4;
  config.ord = (options & 32) != 0 ? 0 : 9;
  Initiator initiator = *Initiator::start(config, Time{0});
  initiator.sent(initiator.output().size(), Time{0});
  while (!stream.empty() && initiator.state() == StartupState::kReading) {
    const Bytes input = stream.first(std::min(segment, stream.size()));
    const size_t taken = initiator.input(input, Time{0});
    require(taken == input.size() || is_over(initiator.state()));
    stream = stream.subspan(taken);
  }
  require(!is_over(initiator.state()) || initiator.input(stream, Time{0}) == 0);
  finish(initiator, (options & 64) != 0);
  if (initiator.state() == StartupState::kAgreed) check_agreement(initiator.agreement(), true);
}

void run_responder(uint8_t options, size_t segment, Bytes stream) {
  ResponderConfig config;
  config.wants_crc = (options & 1) != 0;
  config.rtr_accepted.has_write = (options & 2) != 0;
  config.may_pipeline = (options & 8) != 0;
  Responder responder(config, Time{0});
  while (!stream.empty() && responder.state() == StartupState::kReading) {
    const Bytes input = stream.first(std::min(segment, stream.size()));
    const size_t taken = responder.input(input, Time{0});
    require(taken == input.size() || responder.state() != StartupState::kReading);
    stream = stream.subspan(taken);
  }
  if (responder.has_request()) {
    check_frame(responder.request());
    const bool is_done = (options & 16) != 0 ? responder.reject({}, Time{0}).has_value()
                                             : responder.accept({}, Time{0}).has_value();
    require(is_done && responder.state() == StartupState::kSending);
  }
  finish(responder, (options & 64) != 0);
  if (responder.state() == StartupState::kAgreed) check_agreement(responder.agreement(), false);
}

}  // namespace

// First octet: options, its top bit the role. Second: segment size. The rest is the peer's stream.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint8_t options = data[0];
  const size_t segment = data[1] + size_t{1};
  const Bytes stream(data + 2, size - 2);
  const Sniff sniffed = sniff_request(stream);
  for (size_t n = 0; n < std::min<size_t>(stream.size(), MPA_KEY_SIZE); ++n)
    require(sniffed != Sniff::kMpaRequest || sniff_request(stream.first(n)) == Sniff::kNeedMore);
  if ((options & 0x80) != 0)
    run_initiator(options, segment, stream);
  else
    run_responder(options, segment, stream);
  return 0;
}
