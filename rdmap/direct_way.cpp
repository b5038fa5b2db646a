// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/direct_way.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <variant>

#include "rdmap/send_entry.h"

namespace ddpsock::rdmap {
namespace {

// False: they are too many, or more than `most` bytes.
bool measure(std::span<const Bytes> ranges, uint32_t most, bool is_inline, DirectSegment& to) {
  if (is_inline) most = std::min(most, kMaxInline);
  uint32_t total = 0, count = 0;
  for (const Bytes range : ranges) {
    if (range.size() > most - total) return false;
    total += static_cast<uint32_t>(range.size());
    count += range.empty() ? 0 : 1;
  }
  to.payload = ranges;
  to.payload_length = total;
  return count <= ddp::kMaxSlices;
}

// What is copied in a call that others wait for.
constexpr uint32_t kMostReached = 4u << 20;
// Of what a Read fills either will do.
constexpr Rights kSinkRights = kLocalWrite | kRemoteWrite;

// Eight aligned bytes in one move, as who looks on may rely on; one of the two is shared.
void copy(uint8_t* to, const uint8_t* from, size_t size) {
  if (size != sizeof(uint64_t) || !is_aligned(to) || !is_aligned(from)) {
    std::memcpy(to, from, size);
    return;
  }
  // Before C++26 none to constant memory.
  auto* const source = reinterpret_cast<uint64_t*>(const_cast<uint8_t*>(from));
  const uint64_t word = std::atomic_ref(*source).load(std::memory_order_relaxed);
  std::atomic_ref(*reinterpret_cast<uint64_t*>(to)).store(word, std::memory_order_relaxed);
}

}  // namespace

bool DirectWay::cut(const SendWr& wr, uint32_t mulpdu, DirectSegment& out) {
  if (const auto* send = std::get_if<op::Send>(&wr.op)) [[likely]] {
    out.opcode = send_opcode(*send);
    out.header_length = DDP_UNTAGGED_HEADER_SIZE;
    if (!measure(send->payload, mulpdu - DDP_UNTAGGED_HEADER_SIZE, wr.is_inline, out)) return false;
  } else if (const auto* write = std::get_if<op::Write>(&wr.op)) {
    out.opcode = Opcode::kWrite;
    out.header_length = DDP_TAGGED_HEADER_SIZE;
    if (!measure(write->payload, mulpdu - DDP_TAGGED_HEADER_SIZE, wr.is_inline, out)) return false;
  } else if (const auto* immediate = std::get_if<op::Immediate>(&wr.op)) {
    out.opcode = immediate_opcode(*immediate);
    out.header_length = DDP_UNTAGGED_HEADER_SIZE;
    base::store_be64(immediate_out_.data(), immediate->value);
    out.payload = {&range_out_, 1};
    out.payload_length = RDMAP_IMMEDIATE_SIZE;
  } else {
    return false;
  }
  return !wr.is_signalled || qp_.sends_.reserve_direct();
}

void DirectWay::write_header(const SendWr& wr, const DirectSegment& segment, uint8_t* to) const {
  if (segment.opcode == Opcode::kWrite) [[unlikely]] {
    const auto& write = *std::get_if<op::Write>(&wr.op);
    ddp::write_header(to,
                      ddp::TaggedHeader{true, control_byte(Opcode::kWrite), write.stag, write.to});
    return;
  }
  const auto* send = std::get_if<op::Send>(&wr.op);
  const uint32_t word = send != nullptr ? send->invalidate.value_or(0) : 0;
  ddp::write_header(to, qp_.output_.next_header(segment.opcode, word));
}

// The first of all must go to the peer, which may be waiting for it to send anything.
bool DirectWay::aim_one_sided(const SendWr& wr, Aim& out) const {
  if (!qp_.sends_.has_begun()) return false;
  if (const auto* write = std::get_if<op::Write>(&wr.op)) {
    DirectSegment segment;  // NOLINT: measure() fills it
    if (!measure(write->payload, kMostReached, wr.is_inline, segment)) return false;
    out = {write->stag, segment.payload_length, write->to, kRemoteWrite};
    return out.length != 0;
  }
  if (qp_.sends_.ord() == 0) return false;
  if (const auto* read = std::get_if<op::Read>(&wr.op)) {
    out = {read->stag, read->length, read->to, kRemoteRead};
    return read->length != 0 && read->length <= kMostReached;
  }
  const auto atomic = [&](const auto* op) {
    if (op != nullptr) out = {op->stag, RDMAP_ATOMIC_OPERAND_SIZE, op->to, kRemoteAtomic};
    return op != nullptr;
  };
  return atomic(std::get_if<op::FetchAdd>(&wr.op)) || atomic(std::get_if<op::Swap>(&wr.op)) ||
         atomic(std::get_if<op::CmpSwap>(&wr.op));
}

std::optional<MutBytes> DirectWay::pin_sink(const SendWr& wr) {
  const auto* read = std::get_if<op::Read>(&wr.op);
  if (read == nullptr) return std::nullopt;
  const auto sink = stags_.access_and_pin(read->sink_stag, read->sink_to, read->length, kSinkRights,
                                          qp_.stream());
  return sink ? std::optional(*sink) : std::nullopt;
}

void DirectWay::unpin_sink(const SendWr& wr) {
  stags_.unpin(std::get_if<op::Read>(&wr.op)->sink_stag);
}

bool DirectWay::fill_sink(const op::Read& read, const uint8_t* from, bool has_lock) {
  const auto sink =
      has_lock ? stags_.access(read.sink_stag, read.sink_to, read.length, kSinkRights, qp_.stream())
               : stags_.access_and_pin(read.sink_stag, read.sink_to, read.length, kSinkRights,
                                       qp_.stream());
  if (!sink) return false;
  copy(sink->data(), from, read.length);
  if (!has_lock) stags_.unpin(read.sink_stag);
  return true;
}

bool DirectWay::reach(const SendWr& wr, uint8_t* there, bool has_lock, uint64_t& found) {
  if (const auto* write = std::get_if<op::Write>(&wr.op)) {
    for (const Bytes range : write->payload) {
      if (range.empty()) continue;
      copy(there, range.data(), range.size());
      there += range.size();
    }
  } else if (const auto* read = std::get_if<op::Read>(&wr.op)) {
    return fill_sink(*read, there, has_lock);
  } else if (!is_aligned(there)) {
    return false;
  } else if (const auto* add = std::get_if<op::FetchAdd>(&wr.op)) {
    found = execute(atomic_request(*add), there);
  } else if (const auto* swap = std::get_if<op::Swap>(&wr.op)) {
    found = execute(atomic_request(*swap), there);
  } else {
    found = execute(atomic_request(*std::get_if<op::CmpSwap>(&wr.op)), there);
  }
  return true;
}

void DirectWay::note_reached(const Aim& aim) {
  if (aim.needed == kRemoteWrite) qp_.counters_.bytes_sent.add(aim.length);
  if (aim.needed == kRemoteRead) qp_.counters_.bytes_received.add(aim.length);
  qp_.sends_.note_direct();
}

void DirectWay::complete(const SendWr& wr, const Aim& aim, uint64_t found) {
  qp_.sends_.complete_direct(wr.id, kind_of(wr), aim.length,
                             qp_.is_open() ? WorkStatus::kOk : WorkStatus::kFlushed, found);
}

bool DirectWay::place(Bytes header, uint32_t payload) {
  if (qp_.state() != QpState::kRts || !qp_.input_.is_under_way()) return false;
  payload_ = payload;
  return ddp::is_tagged(header[0]) ? place_write(header, payload) : place_message(header, payload);
}

bool DirectWay::place_message(Bytes header, uint32_t payload) {
  const auto view = ddp::UntaggedView::parse(header);
  if (!view) return false;
  const ddp::UntaggedHeader h = view->value();
  const std::optional<Opcode> op = opcode_of(h.rsvd_ulp.control);
  if (!op || !is_version_known(h.rsvd_ulp.control) || is_tagged(*op) || has_invalidate(*op))
    return false;
  if (h.qn != RDMAP_QN_SEND || queue_of(*op) != RDMAP_QN_SEND || !h.is_last || h.mo != 0)
    return false;
  ddp::ReceiveQueue& queue = qp_.input_.receives().queue();
  queue.take_in();
  const ddp::ScatterList* buffer = queue.untouched_first(h.msn);
  if (buffer == nullptr) return false;
  opcode_ = *op;
  if (is_immediate(*op)) {
    range_ = MutBytes(immediate_in_);
    ranges_ = {&range_, 1};
    return payload == RDMAP_IMMEDIATE_SIZE;
  }
  ranges_ = buffer->ranges();
  return payload <= buffer->total();
}

// A Write of nothing may be to nowhere.
bool DirectWay::place_write(Bytes header, uint32_t payload) {
  const auto view = ddp::TaggedView::parse(header);
  if (!view || payload == 0) return false;
  const ddp::TaggedHeader h = view->value();
  if (opcode_of(h.rsvd_ulp) != Opcode::kWrite || !is_version_known(h.rsvd_ulp)) return false;
  const auto where = stags_.access_and_pin(h.stag, h.to, payload, kRemoteWrite, qp_.stream());
  if (!where) return false;
  opcode_ = Opcode::kWrite;
  stag_ = h.stag;
  range_ = *where;
  ranges_ = {&range_, 1};
  return true;
}

bool DirectWay::finish(Completion& out) {
  qp_.counters_.segments_received.add(1);
  qp_.counters_.bytes_received.add(payload_);
  if (opcode_ == Opcode::kWrite) {
    stags_.unpin(stag_);
    return false;
  }
  out = qp_.input_.receives().complete_direct();
  out.length = payload_;
  out.is_solicited = is_solicited(opcode_);
  if (is_immediate(opcode_)) out.immediate = base::load_be64(immediate_in_.data());
  return true;
}

}  // namespace ddpsock::rdmap
