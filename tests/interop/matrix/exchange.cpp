// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/matrix/exchange.h"

namespace ddpsock::interop {
namespace {

constexpr int kMaxRounds = 4000;  // a split frame takes one an octet

bool is_starting_up(const OurEnd& ours) {
  return ours.state() != mpa::StartupState::kAgreed && ours.state() != mpa::StartupState::kFailed;
}

void append(Octets& to, const Octets& octets) {
  to.insert(to.end(), octets.begin(), octets.end());
}

class Connection {
 public:
  Connection(OurEnd& ours, Persona& peer, Transcript& transcript, const Way& way)
      : ours_(ours), peer_(peer), transcript_(transcript), way_(way) {}

  // One turn each. Whether anything was said.
  bool turn(Time now) {
    bool is_moving = false;
    for (Octets out = ours_.output(now); !out.empty(); out = ours_.output(now)) {
      append(transcript_.from_ours, out);
      peer_.input(out);
      is_moving = true;
    }
    if (ours_.wants_close() && !has_closed_) {
      has_closed_ = is_moving = true;
      peer_.ended();
    }
    for (const Octets& segment : peer_.take_segments()) {
      for (const Octets& part : way_ ? way_(segment) : std::vector<Octets>{segment})
        carry(part, now);
      is_moving = true;
    }
    if (peer_.hangup() != Hangup::kNo && !has_hung_up_) {
      has_hung_up_ = is_moving = true;
      const bool is_reset = peer_.hangup() == Hangup::kReset;
      ours_.end(is_reset ? mpa::StreamEnd::kReset : mpa::StreamEnd::kFin, now);
    }
    return is_moving;
  }

 private:
  void carry(const Octets& segment, Time now) {
    append(transcript_.from_peer, segment);
    if (!has_closed_) ours_.input(segment, now);
  }

  OurEnd& ours_;
  Persona& peer_;
  Transcript& transcript_;
  const Way& way_;
  bool has_closed_ = false;
  bool has_hung_up_ = false;
};

}  // namespace

std::unique_ptr<OurEnd> make_ours(const Ours& ours, int call, Time now) {
  if (const Calling* calling = std::get_if<Calling>(&ours)) {
    mpa::InitiatorConfig config = calling->config;
    if (call > 0) config.revision = MPA_REVISION_IETF;
    return std::make_unique<OurEnd>(config, kOurText, now);
  }
  const Answering& answering = std::get<Answering>(ours);
  return std::make_unique<OurEnd>(answering.config, answering.decision, kOurText, now);
}

Role role_of_peer(const Ours& ours) {
  return std::holds_alternative<Calling>(ours) ? Role::kResponder : Role::kInitiator;
}

bool exchange(OurEnd& ours, Persona& peer, Transcript& transcript, const Way& way) {
  Time now = kStart;
  Connection connection(ours, peer, transcript, way);
  peer.connected();
  for (int round = 0; round < kMaxRounds; ++round) {
    if (connection.turn(now)) continue;
    if (!is_starting_up(ours)) return true;
    if (ours.deadline() == kNever) return false;
    now = ours.deadline();
    ours.on_deadline(now);
  }
  return false;
}

Outcome run(const Cell& cell) {
  Outcome outcome;
  Transcript unused;
  for (bool is_again = true; is_again && outcome.calls < 3;) {
    outcome.peer = cell.peer.make(role_of_peer(cell.ours), cell.ulp, outcome.calls);
    outcome.ours = make_ours(cell.ours, outcome.calls, kStart);
    outcome.has_ended = exchange(*outcome.ours, *outcome.peer, unused);
    ++outcome.calls;
    is_again = outcome.ours->state() == mpa::StartupState::kFailed &&
               outcome.ours->failure().can_retry_with_revision_1;
  }
  return outcome;
}

}  // namespace ddpsock::interop
