// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The side of MPA start-up that sends the Request and reads the Reply. See startup.h.
#ifndef DDPSOCK_MPA_INITIATOR_H_
#define DDPSOCK_MPA_INITIATOR_H_

#include <variant>

#include "base/clock.h"
#include "base/result.h"
#include "mpa/startup.h"

namespace ddpsock::mpa {

struct InitiatorConfig {
  // 2 offers the enhanced set-up; 1 is the fallback for old peers, 0 for RDMAC ones.
  uint8_t revision = MPA_REVISION_ENHANCED;
  bool wants_crc = true;
  // Ask the peer to send Markers. Never needed by this project, and siw rejects it.
  bool needs_markers = false;
  // Revision 2: the responder may send first, once it has our RTR message. Offers `rtr_offer`,
  // which must not be empty then. Write and Read is what all known peers can work with.
  bool is_peer_to_peer = false;
  RtrSet rtr_offer{.has_send = false, .has_write = true, .has_read = true};
  // Reads we serve and reads we issue: 0 to 0x3ffe, or kNotNegotiated.
  uint16_t ird = kDefaultDepth;
  uint16_t ord = kDefaultDepth;
  uint16_t max_ird = 128;  // as far as `ird` can be raised to meet the responder's ORD
  // FPDUs may follow the Request at once, and the Reply at once. Only between peers known to allow
  // it: others treat it as a protocol error. Until the Reply is there FPDUs are sent with a right
  // CRC and without Markers; that fits every agreement but one with Markers, which fails
  // (kMarkersTooLate).
  bool may_pipeline = false;
  PrivateData private_data{};
  StartupTimeouts timeouts{};
};

class Initiator {
 public:
  // kPrivateDataTooLong (508 octets fit in with revision 2), kUnknownRevision, kNoMatchingRtr (an
  // empty offer): the caller's bugs, told before anything is sent.
  static Result<Initiator, StartupError> start(const InitiatorConfig& config, Time now);

  size_t input(Bytes bytes, Time now);
  Bytes output() const;
  void sent(size_t n, Time now);
  Time deadline() const;
  void on_deadline(Time now);
  // A connection that is closed in answer to a Request of revision 2 can be retried.
  void on_end(StreamEnd end);

  StartupState state() const;
  const Agreement& agreement() const { return *std::get_if<Agreement>(&phase_); }
  const StartupFailure& failure() const { return *std::get_if<StartupFailure>(&phase_); }

 private:
  struct Sending {
    StartupWriter writer;
    Time deadline;
  };
  struct Reading {
    StartupReader reader;
    Time deadline;
  };
  Initiator(const InitiatorConfig& config, const Sending& sending)
      : config_(config), phase_(sending) {}

  void conclude(const StartupFrame& reply, bool has_trailing_bytes);
  std::optional<StartupFailure> check(const StartupFrame& reply, bool has_trailing_bytes) const;
  std::optional<StartupFailure> agree_on_rtr(const Enhanced& reply, Agreement& agreement) const;
  std::optional<StartupFailure> agree_on_depths(const Enhanced& reply, Agreement& agreement) const;

  InitiatorConfig config_;
  std::variant<Sending, Reading, Agreement, StartupFailure> phase_;
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_INITIATOR_H_
