// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The side of MPA start-up that reads the Request, lets its ULP decide, and sends the Reply. See
// startup.h. A server that also serves other protocols asks sniff_request() before it makes one.
#ifndef DDPSOCK_MPA_RESPONDER_H_
#define DDPSOCK_MPA_RESPONDER_H_

#include <variant>

#include "base/clock.h"
#include "base/result.h"
#include "mpa/startup.h"

namespace ddpsock::mpa {

struct ResponderConfig {
  bool wants_crc = true;
  bool needs_markers = false;  // as for the initiator: leave it
  // What we can take as RTR message; of those offered Write is chosen before Read before Send.
  RtrSet rtr_accepted{.has_send = true, .has_write = true, .has_read = true};
  // FPDUs may follow the Request at once. They are left where they are until the Reply is sent.
  bool may_pipeline = false;
  StartupTimeouts timeouts{};
};

// What the responder's ULP brings to a connection it accepts.
struct Acceptance {
  // Reads we can serve and reads we want to issue: 0 to 0x3ffe, or kNotNegotiated. Lowered to what
  // the initiator asks for and serves.
  uint16_t ird = kDefaultDepth;
  uint16_t ord = kDefaultDepth;
  PrivateData private_data{};
};

class Responder {
 public:
  Responder(const ResponderConfig& config, Time now);

  // A Request that cannot be met (no RTR message in common) is rejected without asking the ULP.
  size_t input(Bytes bytes, Time now);
  Bytes output() const;
  void sent(size_t n, Time now);
  Time deadline() const;
  void on_deadline(Time now);
  // kClosed if nothing had come: a health check that connects and closes is not an error.
  void on_end(StreamEnd end);

  bool has_request() const { return state() == StartupState::kDeciding; }
  // Borrows from the responder until accept() or reject(). REQUIRES: has_request().
  StartupFrame request() const;
  // kPrivateDataTooLong (508 octets fit into an enhanced Reply): nothing happened, call again with
  // less. REQUIRES: has_request().
  Status<StartupError> accept(const Acceptance& acceptance, Time now);
  // Ends in kFailed with kRejected once the Reply is sent. REQUIRES: has_request().
  Status<StartupError> reject(const PrivateData& private_data, Time now);

  StartupState state() const;
  const Agreement& agreement() const { return *std::get_if<Agreement>(&phase_); }
  const StartupFailure& failure() const { return *std::get_if<StartupFailure>(&phase_); }

 private:
  struct Reading {
    StartupReader reader;
    Time deadline;
  };
  struct Deciding {
    StartupReader reader;
    Time deadline;
  };
  struct Sending {
    StartupWriter writer;
    Time deadline;
    std::variant<Agreement, StartupFailure> outcome;
  };

  Status<StartupError> send_rejection(StartupError reason, const PrivateData& private_data);

  ResponderConfig config_;
  std::variant<Reading, Deciding, Sending, Agreement, StartupFailure> phase_;
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_RESPONDER_H_
