// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Our side of a connection without a socket: MPA start-up, then the queue pair core over the
// framing that the software engines use, as connect/handshake.h and engine/queue/soft_qp.h put
// them together. Octets and time in, octets out.
#ifndef DDPSOCK_TESTS_INTEROP_MATRIX_OUR_END_H_
#define DDPSOCK_TESTS_INTEROP_MATRIX_OUR_END_H_

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/wire/receiver.h"
#include "engine/wire/transmitter.h"
#include "mpa/initiator.h"
#include "mpa/responder.h"
#include "rdmap/qp.h"

namespace ddpsock::interop {

// What the ULP above our responder says to a Request.
struct Decision {
  mpa::Acceptance acceptance = {};
  bool rejects = false;
};

// Posts a receive or two and one Send of `text` as soon as there is a queue pair.
class OurEnd {
 public:
  // REQUIRES: a config that Initiator::start() takes.
  OurEnd(const mpa::InitiatorConfig& config, std::string text, Time now);
  OurEnd(const mpa::ResponderConfig& config, const Decision& decision, std::string text, Time now);

  void input(Bytes octets, Time now);
  void end(mpa::StreamEnd how, Time now);
  Time deadline() const;
  void on_deadline(Time now);
  // All that is to be sent now, as one write; the LLP takes it at once.
  std::vector<uint8_t> output(Time now);
  // Nothing more will be sent: start-up failed, or the queue pair wants to close.
  bool wants_close() const;

  mpa::StartupState state() const;
  const mpa::Agreement& agreement() const;
  const mpa::StartupFailure& failure() const;
  // Once agreed.
  rdmap::QpState qp_state() const { return qp_->qp.state(); }
  const rdmap::TerminateInfo& terminate_info() const { return qp_->qp.terminate_info(); }
  // Sends received, in order; how many of our own completed.
  std::vector<std::string> heard();
  size_t sends_done();

 private:
  static constexpr uint32_t kReceives = 4;
  static constexpr uint32_t kMaxReads = mpa::kNotNegotiated;

  struct QueuePair {
    explicit QueuePair(const rdmap::QpAttr& attr)
        : stags(1), send_cq(8), recv_cq(8), qp(attr, stags, send_cq, recv_cq) {}
    rdmap::StagTable stags;
    rdmap::CompletionQueue send_cq;
    rdmap::CompletionQueue recv_cq;
    rdmap::Qp qp;
    engine::Transmitter tx;
    engine::Receiver rx;
    std::array<std::array<uint8_t, 64>, kReceives> buffers{};
  };

  void decide(Time now);
  void open_if_agreed();
  void open(const mpa::Agreement& agreement);
  Bytes startup_output() const;

  std::variant<mpa::Initiator, mpa::Responder> startup_;
  Decision decision_;
  std::string text_;
  std::unique_ptr<QueuePair> qp_;
  std::vector<std::string> heard_;
  size_t sends_done_ = 0;
};

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_MATRIX_OUR_END_H_
