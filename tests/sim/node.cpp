// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/sim/node.h"

#include <algorithm>
#include <cstring>

namespace ddpsock::sim {
namespace {

namespace op = engine::op;
using engine::Completion;
using engine::EndReason;
using engine::Mr;
using engine::Refusal;
using engine::WorkStatus;

constexpr uint8_t kCanary = 0xa5;
constexpr uint8_t kGivenBack = 0xee;  // ours again: an engine that still reads it sends this

uint8_t source_byte(int end, size_t i) {
  return static_cast<uint8_t>(static_cast<size_t>(end) * 57 + i * 13 + (i >> 8));
}

std::vector<uint8_t> payload_of(int end, size_t op, uint32_t size) {
  std::vector<uint8_t> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = payload_byte(end, op, i);
  return out;
}

}  // namespace

Guarded::Guarded(size_t size, uint8_t fill) : memory_(size + 2 * kGuard, kCanary) {
  std::fill_n(memory_.begin() + kGuard, size, fill);
}

bool Guarded::is_guard_intact() const {
  const auto is_canary = [](uint8_t x) { return x == kCanary; };
  return std::all_of(memory_.begin(), memory_.begin() + kGuard, is_canary) &&
         std::all_of(memory_.end() - kGuard, memory_.end(), is_canary);
}

Node::Node(int end, const Scenario& scenario, std::unique_ptr<engine::Engine> engine)
    : end_(end),
      scenario_(scenario),
      work_(scenario.work[static_cast<size_t>(end)]),
      peer_work_(scenario.work[static_cast<size_t>(1 - end)]),
      grant_(peer_work_.written + 1),
      source_(peer_work_.read + 1),
      counter_(8),
      expendable_(8),
      sink_(work_.read + 1),
      engine_(std::move(engine)),
      pd_(*engine_->open_pd()),
      sends_(work_.ops.size()) {
  for (size_t i = 0; i < work_.ops.size(); ++i) {
    payloads_.push_back(payload_of(end_, i, work_.ops[i].size));
  }
  for (size_t i = 0; i < peer_work_.ops.size(); ++i) {
    if (peer_work_.ops[i].is_received()) expected_.push_back(i);
  }
  for (size_t i = 0; i < source_.bytes().size(); ++i) source_.bytes()[i] = source_byte(end_, i);
  send_cq_ = *engine_->make_cq({.depth = 64});
  recv_cq_ = *engine_->make_cq({.depth = 64});
  qp_ = *engine_->make_qp({.pd = pd_,
                           .send_cq = send_cq_.get(),
                           .recv_cq = recv_cq_.get(),
                           .send_depth = 16,
                           .recv_depth = 64,
                           .max_ird = scenario.depth,
                           .max_ord = scenario.depth});
  const auto grant = [&](Guarded& g, engine::Rights rights) {
    return *engine_->register_memory({.memory = g.bytes(),
                                      .base_to = reinterpret_cast<uintptr_t>(g.bytes().data()),
                                      .rights = rights,
                                      .pd = pd_});
  };
  grants_ = {.write = grant(grant_, rdmap::kRemoteWrite),
             .read = grant(source_, rdmap::kRemoteRead),
             .counter = grant(counter_, rdmap::kRemoteAtomic),
             .expendable = grant(expendable_, rdmap::kRemoteWrite)};
  sink_mr_ = grant(sink_, rdmap::kLocalWrite);
}

void Node::start(engine::LowerLayer lower) {
  post_receives();
  engine::Start start{.lower = lower};
  start.max_ulpdu = scenario_.max_ulpdu;
  start.agreed.is_initiator = end_ == 0;
  start.agreed.has_crc = scenario_.has_crc;
  start.agreed.send_markers = start.agreed.receive_markers = scenario_.has_markers;
  start.agreed.ird = start.agreed.ord = scenario_.depth;
  start.agreed.rtr = engine::Rtr::kWrite;  // so that both may send
  if (!qp_->start(start)) complain("start refused");
}

void Node::post_receives() {
  size_t count = expected_.size() + 1;  // one more than needed: it must be flushed
  if (end_ == 1) count -= std::min<size_t>(count, 1 + scenario_.missing_receives);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t size = i < expected_.size() ? peer_work_.ops[expected_[i]].size : 10;
    buffers_.emplace_back(size + i % 3);
  }
  receives_.resize(count);
  for (size_t i = 0; i < count;) {
    const MutBytes buffer = buffers_[i].bytes();
    const engine::RecvWr wr{.id = i, .buffer = {&buffer, 1}};
    i += qp_->recv({&wr, 1}).accepted;  // a fault may refuse it; again
  }
}

void Node::post(std::mt19937_64& random) {
  for (uint64_t n = random() % 6; n != 0 && !has_posted_all(); --n) {
    if (!post_one(next_op_, random)) return;
    ++next_op_;
  }
}

bool Node::post_one(size_t index, std::mt19937_64& random) {
  const Op& o = work_.ops[index];
  const Bytes all(payloads_[index]);
  const size_t cut = all.empty() ? 0 : random() % all.size();
  const std::array<Bytes, 2> payload = {all.first(cut), all.subspan(cut)};
  engine::SendWr wr{.id = index,
                    .op = op::Immediate{},
                    .is_signalled = o.is_signalled,
                    .has_fence = o.has_fence,
                    .is_inline = o.is_inline};
  switch (o.kind) {
    case Kind::kSend:
      wr.op = op::Send{.payload = payload, .is_solicited = o.is_solicited};
      break;
    case Kind::kImmediate:
      wr.op = op::Immediate{.value = index, .is_solicited = o.is_solicited};
      break;
    case Kind::kWrite:
      wr.op = op::Write{
          .payload = payload, .stag = peer_.write.stag, .to = peer_.write.base_to + o.offset};
      break;
    case Kind::kRead:
      wr.op = op::Read{.sink_stag = sink_mr_.stag,
                       .sink_to = sink_mr_.base_to + o.offset,
                       .length = o.size,
                       .stag = peer_.read.stag,
                       .to = peer_.read.base_to + o.offset};
      break;
    case Kind::kFetchAdd:
      wr.op = op::FetchAdd{.stag = peer_.counter.stag, .to = peer_.counter.base_to, .add = 1};
      break;
    case Kind::kInvalidate:
      wr.op = op::Send{.is_solicited = o.is_solicited, .invalidate = peer_.expendable.stag};
      break;
  }
  return qp_->send({&wr, 1}).accepted == 1;
}

void Node::poll() {
  std::array<Completion, 8> batch;
  while (const uint32_t n = send_cq_->poll(batch)) {
    for (const Completion& c : std::span(batch).first(n)) note(c);
  }
  while (const uint32_t n = recv_cq_->poll(batch)) {
    for (const Completion& c : std::span(batch).first(n)) note_receive(c);
  }
}

void Node::complain(const std::string& what) {
  if (complaint_.empty()) complaint_ = what;
}

void Node::note(const Completion& c) {
  if (c.id >= next_op_) return complain("completion of a request never accepted");
  if (c.id < next_send_completion_) return complain("send completions out of order or doubled");
  // Silent successes may lie between.
  for (size_t i = next_send_completion_; i < c.id; ++i) {
    if (work_.ops[i].is_signalled) return complain("a signalled request was passed over");
    sends_[i].fate = Fate::kOk;
  }
  for (size_t i = next_send_completion_; i <= c.id; ++i) {
    std::fill(payloads_[i].begin(), payloads_[i].end(), kGivenBack);
  }
  next_send_completion_ = c.id + 1;
  Record& r = sends_[c.id];
  ++r.completions;
  r.original = c.original;
  r.fate = c.status == WorkStatus::kOk ? Fate::kOk : Fate::kFailed;
  if (r.fate == Fate::kOk && !work_.ops[c.id].is_signalled) {
    complain("an unsignalled success was reported");
  }
}

void Node::note_receive(const Completion& c) {
  if (c.id >= receives_.size()) return complain("completion of a receive never posted");
  Record& r = receives_[c.id];
  if (r.completions++ != 0) return complain("a receive completed twice");
  if (c.id != 0 && receives_[c.id - 1].completions == 0) {
    return complain("receives completed out of order");
  }
  if (c.status != WorkStatus::kOk) {
    r.fate = Fate::kFailed;
    std::fill(buffers_[c.id].bytes().begin(), buffers_[c.id].bytes().end(), kGivenBack);
    return;
  }
  if (c.id != 0 && receives_[c.id - 1].fate != Fate::kOk) {
    complain("a message was delivered after a flush");
  }
  r.fate = Fate::kOk;
  if (c.id >= expected_.size()) {
    if (!scenario_.has_silent_damage()) complain("a message was delivered that nobody sent");
    return;
  }
  ++received_ok_;
  if (!scenario_.has_silent_damage()) check_message(c.id, c);
}

void Node::check_message(size_t index, const Completion& c) {
  const size_t number = expected_[index];
  const Op& sent = peer_work_.ops[number];
  if (c.is_solicited != sent.is_solicited) complain("solicited was lost or made up");
  switch (sent.kind) {
    case Kind::kImmediate:
      if (c.immediate != number) complain("wrong immediate");
      return;
    case Kind::kInvalidate:
      if (c.invalidated_stag != grants_.expendable.stag) complain("wrong STag invalidated");
      return;
    default:
      break;
  }
  if (c.length != sent.size) complain("wrong length");
  const Bytes got = buffers_[index].bytes().first(sent.size);
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != payload_byte(1 - end_, number, i)) return complain("wrong byte delivered");
  }
}

std::string Node::check_ledger() const {
  if (!has_ended()) return "did not end";
  // Successes after the last completion are silent; failures never are.
  for (size_t i = 0; i < next_op_; ++i) {
    const bool is_told = sends_[i].completions != 0;
    if (sends_[i].completions > 1) return "a request completed twice";
    if (!is_told && work_.ops[i].is_signalled) return "a signalled request never completed";
  }
  for (const Record& r : receives_) {
    if (r.completions != 1) return "a receive never completed";
  }
  return "";
}

std::string Node::check_memory(const Node& peer) const {
  const auto all = {&grant_, &source_, &counter_, &expendable_, &sink_};
  for (const Guarded* g : all) {
    if (!g->is_guard_intact()) return "memory outside a region was touched";
  }
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Bytes buffer = buffers_[i].bytes();
    if (!buffers_[i].is_guard_intact()) return "memory outside a receive buffer was touched";
    if (receives_[i].fate == Fate::kFailed &&
        std::any_of(buffer.begin(), buffer.end(), [](uint8_t x) { return x != kGivenBack; })) {
      return "a receive buffer was written after it was given back";
    }
  }
  for (size_t i = 0; i < source_.bytes().size(); ++i) {
    if (source_.bytes()[i] != source_byte(end_, i)) return "memory granted for reading was written";
  }
  if (scenario_.has_silent_damage()) return "";
  // What a Write placed is right where it counts as done, and nothing else was placed.
  for (size_t i = 0; i < peer_work_.ops.size(); ++i) {
    const Op& o = peer_work_.ops[i];
    if (o.kind != Kind::kWrite || i < peer.next_op_) continue;
    const Bytes slot = grant_.bytes().subspan(o.offset, o.size);
    if (std::any_of(slot.begin(), slot.end(), [](uint8_t x) { return x != 0; })) {
      return "a Write that was never posted has placed bytes";
    }
  }
  return "";
}

// Only for healthy scenarios.
std::string Node::check_success(const Node& peer) const {
  if (qp_->terminate_info().reason != EndReason::kOrderly) return "did not end orderly";
  if (!has_posted_all()) return "not everything was posted";
  if (!has_received_all()) return "not everything was received";
  uint64_t adds = 0;
  for (size_t i = 0; i < work_.ops.size(); ++i) {
    const Op& o = work_.ops[i];
    if (sends_[i].fate == Fate::kFailed) return "a request failed";
    if (o.kind == Kind::kRead) {
      for (size_t k = o.offset; k < o.offset + o.size; ++k) {
        if (sink_.bytes()[k] != source_byte(peer.end_, k)) return "a Read brought a wrong byte";
      }
    } else if (o.kind == Kind::kFetchAdd) {
      if (o.is_signalled && sends_[i].original != adds) return "a FetchAdd found a wrong value";
      ++adds;
    } else if (o.kind == Kind::kWrite) {
      const Bytes slot = peer.grant_.bytes().subspan(o.offset, o.size);
      for (size_t k = 0; k < slot.size(); ++k) {
        if (slot[k] != payload_byte(end_, i, k)) return "a Write placed a wrong byte";
      }
    }
  }
  uint64_t counted = 0;
  std::memcpy(&counted, peer.counter_.bytes().data(), sizeof counted);
  return counted == adds ? "" : "the peer's counter is wrong";
}

std::string Node::verdict(const Node& peer) const {
  std::string found = complaint_;
  if (found.empty()) found = check_ledger();
  if (found.empty()) found = check_memory(peer);
  if (found.empty() && scenario_.is_healthy()) found = check_success(peer);
  return found.empty() ? "" : (end_ == 0 ? "initiator: " : "responder: ") + found;
}

std::string Node::story() const {
  std::string out;
  const auto info = qp_->terminate_info();
  out += "  posted " + std::to_string(next_op_) + " of " + std::to_string(work_.ops.size()) +
         ", received " + std::to_string(received_ok_) + " of " + std::to_string(expected_.size()) +
         ", state " + std::to_string(static_cast<int>(qp_->state())) + ", end reason " +
         std::to_string(static_cast<int>(info.reason)) + " (" +
         rdmap::to_string(info.terminate.code) + ")\n";
  for (size_t i = 0; i < work_.ops.size(); ++i) {
    static constexpr const char* kFates[] = {"pending", "ok", "FAILED"};
    out += "    " + std::to_string(i) + " " + describe(work_.ops[i]) + ": " +
           (i < next_op_ ? kFates[static_cast<size_t>(sends_[i].fate)] : "not posted") + "\n";
  }
  return out;
}

}  // namespace ddpsock::sim
