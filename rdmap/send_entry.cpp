// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/send_entry.h"

#include <algorithm>
#include <variant>

#include "rdmap/check_ranges.h"

namespace ddpsock::rdmap {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};

void use_body(SendEntry& e, uint32_t length) {
  e.payload = {};
  e.payload.append(Bytes(e.body).first(length));
}

void fill_payload(SendEntry& e, std::span<const Bytes> ranges, bool is_inline) {
  e.payload = ddp::GatherList(ranges);
  e.length = static_cast<uint32_t>(e.payload.total());
  if (!is_inline) return;
  uint8_t* p = e.body.data();
  for (const Bytes& r : e.payload.ranges()) p = std::copy(r.begin(), r.end(), p);
  use_body(e, e.length);
}

void fill_atomic(SendEntry& e, const AtomicRequest& request) {
  e.opcode = Opcode::kAtomicRequest;
  e.atomic = request;
  e.length = RDMAP_ATOMIC_OPERAND_SIZE;
  e.awaits_response = true;
}

constexpr uint64_t kAllBits = ~uint64_t{0};

}  // namespace

AtomicRequest atomic_request(const op::FetchAdd& f) {
  return {AtomicOp::kFetchAdd, 0, f.stag, f.to, f.add, f.field_tops, 0, kAllBits};
}
AtomicRequest atomic_request(const op::Swap& s) {
  return {AtomicOp::kCmpSwap, 0, s.stag, s.to, s.value, kAllBits, 0, 0};
}
AtomicRequest atomic_request(const op::CmpSwap& c) {
  return {AtomicOp::kCmpSwap, 0, c.stag, c.to, c.swap, c.swap_mask, c.compare, c.compare_mask};
}

Refusal admit(const SendWr& wr, uint32_t ord, StagTable& stags, StreamId stream) {
  const auto payload = [&](std::span<const Bytes> ranges) {
    const Refusal r = check_ranges(ranges);
    if (r != Refusal::kNone || !wr.is_inline) return r;
    return ddp::GatherList(ranges).total() > kMaxInline ? Refusal::kTooLong : Refusal::kNone;
  };
  const auto atomic = [&] { return ord == 0 ? Refusal::kNoReadsAllowed : Refusal::kNone; };
  return std::visit(Overloaded{
                        [&](const op::Send& s) { return payload(s.payload); },
                        [&](const op::Write& w) { return payload(w.payload); },
                        [&](const op::Read& r) {
                          if (ord == 0) return Refusal::kNoReadsAllowed;
                          if (r.length == 0) return Refusal::kNone;
                          const auto sink = stags.access_and_pin(
                              r.sink_stag, r.sink_to, r.length, kLocalWrite | kRemoteWrite, stream);
                          return sink ? Refusal::kNone : Refusal::kBadSink;
                        },
                        [&](const op::FetchAdd&) { return atomic(); },
                        [&](const op::Swap&) { return atomic(); },
                        [&](const op::CmpSwap&) { return atomic(); },
                        [](const auto&) { return Refusal::kNone; },
                    },
                    wr.op);
}

void dismiss(std::span<const SendWr> work, StagTable& stags) {
  for (const SendWr& wr : work) {
    const auto* read = std::get_if<op::Read>(&wr.op);
    if (read != nullptr && read->length != 0) stags.unpin(read->sink_stag);
  }
}

void fill(SendEntry& e, const SendWr& wr) {
  e = SendEntry{};
  e.id = wr.id;
  e.kind = kind_of(wr);
  e.is_signalled = wr.is_signalled;
  e.has_fence = wr.has_fence;
  std::visit(Overloaded{
                 [&](const op::Send& s) {
                   e.opcode = send_opcode(s);
                   e.stag = s.invalidate.value_or(0);
                   fill_payload(e, s.payload, wr.is_inline);
                 },
                 [&](const op::Write& w) {
                   e.opcode = Opcode::kWrite;
                   e.stag = w.stag;
                   e.to = w.to;
                   fill_payload(e, w.payload, wr.is_inline);
                 },
                 [&](const op::Read& r) {
                   e.opcode = Opcode::kReadRequest;
                   e.read = {r.sink_stag, r.sink_to, r.length, r.stag, r.to};
                   e.length = r.length;
                   e.awaits_response = true;
                   e.has_pin = r.length != 0;
                 },
                 [&](const op::Immediate& i) {
                   e.opcode = immediate_opcode(i);
                   e.length = RDMAP_IMMEDIATE_SIZE;
                   base::store_be64(e.body.data(), i.value);
                   use_body(e, RDMAP_IMMEDIATE_SIZE);
                 },
                 [&](const op::FetchAdd& f) { fill_atomic(e, atomic_request(f)); },
                 [&](const op::Swap& s) { fill_atomic(e, atomic_request(s)); },
                 [&](const op::CmpSwap& c) { fill_atomic(e, atomic_request(c)); },
                 [&](const op::LocalInvalidate& i) { e.stag = i.stag; },
             },
             wr.op);
}

void encode_request(SendEntry& e) {
  const MutBytes body(e.body);
  use_body(e, static_cast<uint32_t>(e.kind == WorkKind::kRead ? *encode(body, e.read)
                                                              : *encode(body, e.atomic)));
}

}  // namespace ddpsock::rdmap
