// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Posting: what is wrong with a work request is said before it is queued.
#include <algorithm>
#include <limits>

#include "rdmap/qp.h"

namespace ddpsock::rdmap {
namespace {

template <typename Range>
Refusal check_ranges(std::span<const Range> ranges) {
  uint64_t total = 0;
  uint32_t count = 0;
  for (const Range& r : ranges) {
    total += r.size();
    if (r.size() > std::numeric_limits<uint32_t>::max() ||
        total > std::numeric_limits<uint32_t>::max()) {
      return Refusal::kTooLong;
    }
    if (!r.empty()) ++count;
  }
  return count > ddp::kMaxSlices ? Refusal::kTooManySlices : Refusal::kNone;
}

Opcode send_opcode(const op::Send& s) {
  if (s.invalidate) return s.is_solicited ? Opcode::kSendSeInvalidate : Opcode::kSendInvalidate;
  return s.is_solicited ? Opcode::kSendSe : Opcode::kSend;
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

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
                          const auto sink = stags_.access(r.sink_stag, r.sink_to, r.length,
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
  e.stamp = ++stamp_;
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
                   if (e.has_pin) stags_.pin(r.sink_stag);
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

Posted Qp::post_send(std::span<const SendWr> work) {
  Posted out;
  for (const SendWr& wr : work) {
    out.reason = state_ != QpState::kRts ? Refusal::kBadState
                 : sq_.is_full()         ? Refusal::kQueueFull
                                         : check(wr);
    if (out.reason == Refusal::kNone && !send_cq_.reserve()) out.reason = Refusal::kCqFull;
    if (out.reason != Refusal::kNone) break;
    fill(sq_.push(), wr);
    ++out.accepted;
  }
  run_local_work();
  return out;
}

Posted Qp::post_recv(std::span<const RecvWr> work) {
  Posted out;
  ddp::ReceiveQueue& queue = queues_[RDMAP_QN_SEND];
  for (const RecvWr& wr : work) {
    out.reason = state_ != QpState::kRts && state_ != QpState::kIdle ? Refusal::kBadState
                 : queue.posted() == queue.capacity()                ? Refusal::kQueueFull
                                                                     : check_ranges(wr.buffer);
    if (out.reason == Refusal::kNone && !recv_cq_.reserve()) out.reason = Refusal::kCqFull;
    if (out.reason != Refusal::kNone) break;
    queue.post(wr.id, ddp::ScatterList(wr.buffer));
    ++out.accepted;
  }
  return out;
}

}  // namespace ddpsock::rdmap
