// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Posting: what is wrong with a work request is said before it is queued. Any thread is here, at
// any time, until take_posted().
#include <algorithm>

#include "rdmap/check_ranges.h"
#include "rdmap/qp.h"

namespace ddpsock::rdmap {
namespace {

Opcode send_opcode(const op::Send& s) {
  if (s.invalidate) return s.is_solicited ? Opcode::kSendSeInvalidate : Opcode::kSendInvalidate;
  return s.is_solicited ? Opcode::kSendSe : Opcode::kSend;
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

// What is accepted has a pin on a Read's sink.
Refusal Qp::check(const SendWr& wr) const {
  const auto payload = [&](std::span<const Bytes> ranges) {
    const Refusal r = check_ranges(ranges);
    if (r != Refusal::kNone || !wr.is_inline) return r;
    return ddp::GatherList(ranges).total() > kMaxInline ? Refusal::kTooLong : Refusal::kNone;
  };
  const auto atomic = [&] { return start_.ord == 0 ? Refusal::kNoReadsAllowed : Refusal::kNone; };
  return std::visit(Overloaded{
                        [&](const op::Send& s) { return payload(s.payload); },
                        [&](const op::Write& w) { return payload(w.payload); },
                        [&](const op::Read& r) {
                          if (start_.ord == 0) return Refusal::kNoReadsAllowed;
                          if (r.length == 0) return Refusal::kNone;
                          const auto sink =
                              stags_.access_and_pin(r.sink_stag, r.sink_to, r.length,
                                                    kLocalWrite | kRemoteWrite, stream());
                          return sink ? Refusal::kNone : Refusal::kBadSink;
                        },
                        [&](const op::FetchAdd&) { return atomic(); },
                        [&](const op::Swap&) { return atomic(); },
                        [&](const op::CmpSwap&) { return atomic(); },
                        [](const auto&) { return Refusal::kNone; },
                    },
                    wr.op);
}

void Qp::fill_payload(SendEntry& e, std::span<const Bytes> ranges, bool is_inline) {
  e.payload = ddp::GatherList(ranges);
  e.length = static_cast<uint32_t>(e.payload.total());
  if (!is_inline) return;
  uint8_t* p = e.body.data();
  for (const Bytes& r : e.payload.ranges()) p = std::copy(r.begin(), r.end(), p);
  use_body(e, e.length);
}

void Qp::use_body(SendEntry& e, uint32_t length) {
  e.payload = {};
  e.payload.append(Bytes(e.body).first(length));
}

void Qp::fill_atomic(SendEntry& e, WorkKind kind, const AtomicRequest& request) {
  e.kind = kind;
  e.opcode = Opcode::kAtomicRequest;
  e.atomic = request;
  e.length = RDMAP_ATOMIC_OPERAND_SIZE;
  e.awaits_response = true;
}

void Qp::fill(SendEntry& e, const SendWr& wr) {
  e = SendEntry{};
  e.id = wr.id;
  e.is_signalled = wr.is_signalled;
  e.has_fence = wr.has_fence;
  constexpr uint64_t kAllBits = ~uint64_t{0};
  std::visit(Overloaded{
                 [&](const op::Send& s) {
                   e.kind = WorkKind::kSend;
                   e.opcode = send_opcode(s);
                   e.stag = s.invalidate.value_or(0);
                   fill_payload(e, s.payload, wr.is_inline);
                 },
                 [&](const op::Write& w) {
                   e.kind = WorkKind::kWrite;
                   e.opcode = Opcode::kWrite;
                   e.stag = w.stag;
                   e.to = w.to;
                   fill_payload(e, w.payload, wr.is_inline);
                 },
                 [&](const op::Read& r) {
                   e.kind = WorkKind::kRead;
                   e.opcode = Opcode::kReadRequest;
                   e.read = {r.sink_stag, r.sink_to, r.length, r.stag, r.to};
                   e.length = r.length;
                   e.awaits_response = true;
                   e.has_pin = r.length != 0;
                 },
                 [&](const op::Immediate& i) {
                   e.kind = WorkKind::kImmediate;
                   e.opcode = i.is_solicited ? Opcode::kImmediateSe : Opcode::kImmediate;
                   e.length = RDMAP_IMMEDIATE_SIZE;
                   base::store_be64(e.body.data(), i.value);
                   use_body(e, RDMAP_IMMEDIATE_SIZE);
                 },
                 [&](const op::FetchAdd& f) {
                   fill_atomic(
                       e, WorkKind::kFetchAdd,
                       {AtomicOp::kFetchAdd, 0, f.stag, f.to, f.add, f.field_tops, 0, kAllBits});
                 },
                 [&](const op::Swap& s) {
                   fill_atomic(e, WorkKind::kSwap,
                               {AtomicOp::kCmpSwap, 0, s.stag, s.to, s.value, kAllBits, 0, 0});
                 },
                 [&](const op::CmpSwap& c) {
                   fill_atomic(e, WorkKind::kCmpSwap,
                               {AtomicOp::kCmpSwap, 0, c.stag, c.to, c.swap, c.swap_mask, c.compare,
                                c.compare_mask});
                 },
                 [&](const op::LocalInvalidate& i) {
                   e.kind = WorkKind::kLocalInvalidate;
                   e.stag = i.stag;
                 },
             },
             wr.op);
}

// Gives up what check() has pinned.
void Qp::drop(std::span<const SendWr> work) {
  for (const SendWr& wr : work) {
    const auto* read = std::get_if<op::Read>(&wr.op);
    if (read != nullptr && read->length != 0) stags_.unpin(read->sink_stag);
  }
}

Posted Qp::post_send(std::span<const SendWr> work) {
  if (state_.load(std::memory_order_acquire) != QpState::kRts) return {0, Refusal::kBadState};
  Posted out;
  const size_t most = std::min<size_t>(work.size(), sq_.room());
  uint32_t good = 0;
  while (good < most && out.reason == Refusal::kNone) {
    out.reason = check(work[good]);
    if (out.reason == Refusal::kNone) ++good;
  }
  if (out.reason == Refusal::kNone && good < work.size()) out.reason = Refusal::kQueueFull;
  const uint32_t slots = send_cq_.reserve(good);
  if (slots < good) out.reason = Refusal::kCqFull;
  const ddp::PostPlaces places = sq_.claim(slots);
  if (places.count < slots) {
    send_cq_.release(slots - places.count);
    out.reason = Refusal::kQueueFull;
  }
  // Who ends the queue pair waits for those that came in time, and for no others.
  const bool is_late = places.count != 0 && state_.load() == QpState::kEnded;
  for (uint32_t i = 0; i < places.count; ++i) {
    SendEntry& e = sq_.at(places, i);
    fill(e, work[i]);
    e.is_void = is_late;
    sq_.publish(places, i);
  }
  drop(work.subspan(places.count, good - places.count));
  if (is_late) return {0, Refusal::kBadState};
  out.accepted = places.count;
  counters_.sends_posted.add_shared(out.accepted);
  return out;
}

Posted Qp::post_recv(std::span<const RecvWr> work) {
  const QpState state = state_.load(std::memory_order_acquire);
  const bool may_post = state == QpState::kRts || state == QpState::kIdle;
  if (!may_post || shared_ != nullptr) return {0, Refusal::kBadState};
  Posted out;
  ddp::ReceiveQueue& queue = queues_[RDMAP_QN_SEND];
  const size_t most = std::min<size_t>(work.size(), queue.room());
  uint32_t good = 0;
  while (good < most && out.reason == Refusal::kNone) {
    out.reason = check_ranges(work[good].buffer);
    if (out.reason == Refusal::kNone) ++good;
  }
  if (out.reason == Refusal::kNone && good < work.size()) out.reason = Refusal::kQueueFull;
  const uint32_t slots = recv_cq_.reserve(good);
  if (slots < good) out.reason = Refusal::kCqFull;
  const ddp::PostPlaces places = queue.claim(slots);
  if (places.count < slots) out.reason = Refusal::kQueueFull;
  const bool is_late = places.count != 0 && state_.load() == QpState::kEnded;
  for (uint32_t i = 0; i < places.count; ++i) {
    if (is_late) {
      queue.fill_without_buffer(places, i);
    } else {
      queue.fill(places, i, work[i].id, ddp::ScatterList(work[i].buffer));
    }
  }
  out.accepted = is_late ? 0 : places.count;
  if (out.accepted < slots) recv_cq_.release(slots - out.accepted);
  if (is_late) return {0, Refusal::kBadState};
  counters_.receives_posted.add_shared(out.accepted);
  return out;
}

void Qp::take_posted() {
  if (sq_.take_in() != 0) run_local_work();
  queues_[RDMAP_QN_SEND].take_in();
  if (state_ == QpState::kEnded || state_ == QpState::kTerminate) flush(false);
}

}  // namespace ddpsock::rdmap
