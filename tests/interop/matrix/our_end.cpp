// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/matrix/our_end.h"

#include <utility>

#include "rdmap/format.h"

namespace ddpsock::interop {
namespace {

constexpr uint32_t kMulpdu = 1024;

}  // namespace

OurEnd::OurEnd(const mpa::InitiatorConfig& config, std::string text, Time now)
    : startup_(*mpa::Initiator::start(config, now)), text_(std::move(text)) {}

OurEnd::OurEnd(const mpa::ResponderConfig& config, const Decision& decision, std::string text,
               Time now)
    : startup_(mpa::Responder(config, now)), decision_(decision), text_(std::move(text)) {}

mpa::StartupState OurEnd::state() const {
  return std::visit([](const auto& s) { return s.state(); }, startup_);
}
const mpa::Agreement& OurEnd::agreement() const {
  return std::visit([](const auto& s) -> const mpa::Agreement& { return s.agreement(); }, startup_);
}
const mpa::StartupFailure& OurEnd::failure() const {
  return std::visit([](const auto& s) -> const mpa::StartupFailure& { return s.failure(); },
                    startup_);
}

void OurEnd::input(Bytes octets, Time now) {
  while (!octets.empty() && !qp_) {
    const size_t taken = std::visit([&](auto& s) { return s.input(octets, now); }, startup_);
    octets = octets.subspan(taken);
    decide(now);
    open_if_agreed();
    if (taken == 0) break;
  }
  if (qp_ && !octets.empty()) qp_->rx.consume(qp_->qp, octets);
}

void OurEnd::decide(Time now) {
  mpa::Responder* responder = std::get_if<mpa::Responder>(&startup_);
  if (responder == nullptr || !responder->has_request()) return;
  if (decision_.rejects)
    (void)responder->reject(decision_.acceptance.private_data, now);
  else
    (void)responder->accept(decision_.acceptance, now);
}

void OurEnd::open_if_agreed() {
  if (qp_) return;
  if (state() == mpa::StartupState::kAgreed) open(agreement());
  // What RFC 6581 section 7 asks for, by the means that send every other Terminate.
  if (state() == mpa::StartupState::kFailed && failure().term_code) {
    open(failure().terminate_with());
    qp_->qp.terminate(rdmap::TermCode::mpa(*failure().term_code));
  }
}

void OurEnd::open(const mpa::Agreement& agreed) {
  const auto known = [](uint16_t depth) { return depth == mpa::kNotNegotiated ? 16u : depth; };
  const uint32_t ird = known(agreed.ird);
  const uint32_t ord = known(agreed.ord);
  qp_ = std::make_unique<QueuePair>(
      rdmap::QpAttr{.send_depth = 4, .recv_depth = kReceives, .max_ird = ird, .max_ord = ord});
  for (uint32_t i = 0; i < kReceives; ++i) {
    const MutBytes buffer(qp_->buffers[i]);
    const rdmap::RecvWr work{.id = i, .buffer = {&buffer, 1}};
    qp_->qp.post_recv({&work, 1});
  }
  qp_->tx.configure(agreed.has_crc, agreed.send_markers);
  qp_->rx.configure(agreed.has_crc, agreed.receive_markers);
  qp_->qp.start({agreed.is_initiator, static_cast<rdmap::Rtr>(agreed.rtr), ird, ord});
  const Bytes text(reinterpret_cast<const uint8_t*>(text_.data()), text_.size());
  const rdmap::SendWr work{.op = rdmap::op::Send{.payload = {&text, 1}}};
  qp_->qp.post_send({&work, 1});
}

Bytes OurEnd::startup_output() const {
  return std::visit([](const auto& s) { return s.output(); }, startup_);
}

std::vector<uint8_t> OurEnd::output(Time now) {
  std::vector<uint8_t> out(startup_output().begin(), startup_output().end());
  if (!out.empty()) {
    std::visit([&](auto& s) { s.sent(out.size(), now); }, startup_);
    open_if_agreed();
    return out;
  }
  while (qp_ && qp_->tx.gather(qp_->qp, kMulpdu, 1u << 20)) {
    qp_->tx.frame();
    size_t sent = 0;
    for (const Bytes& piece : qp_->tx.pieces()) {
      out.insert(out.end(), piece.begin(), piece.end());
      sent += piece.size();
    }
    qp_->qp.segments_sent(qp_->tx.taken(sent));
  }
  return out;
}

void OurEnd::end(mpa::StreamEnd how, Time) {
  if (qp_) {
    const rdmap::LlpEnd at = qp_->rx.end(qp_->qp);
    qp_->qp.on_llp_end(how == mpa::StreamEnd::kFin ? at : rdmap::LlpEnd::kLost);
    return;
  }
  std::visit([how](auto& s) { s.on_end(how); }, startup_);
}

Time OurEnd::deadline() const {
  return std::visit([](const auto& s) { return s.deadline(); }, startup_);
}
void OurEnd::on_deadline(Time now) {
  std::visit([now](auto& s) { s.on_deadline(now); }, startup_);
}

bool OurEnd::wants_close() const {
  if (qp_) return qp_->qp.wants_close();
  return state() == mpa::StartupState::kFailed;
}

std::vector<std::string> OurEnd::heard() {
  std::array<rdmap::Completion, 8> done;
  const uint32_t n = qp_ ? qp_->recv_cq.poll(done) : 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (done[i].status != rdmap::WorkStatus::kOk) continue;
    const auto& buffer = qp_->buffers[done[i].id];
    heard_.emplace_back(buffer.begin(), buffer.begin() + done[i].length);
  }
  return heard_;
}

size_t OurEnd::sends_done() {
  std::array<rdmap::Completion, 8> done;
  const uint32_t n = qp_ ? qp_->send_cq.poll(done) : 0;
  for (uint32_t i = 0; i < n; ++i) sends_done_ += done[i].status == rdmap::WorkStatus::kOk;
  return sends_done_;
}

}  // namespace ddpsock::interop
