// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/posted_receives.h"

#include <algorithm>

#include "rdmap/check_ranges.h"
#include "rdmap/message.h"

namespace ddpsock::rdmap {
namespace {

// In order one message is under way at most, and no other has its buffer.
uint32_t receive_slots(const QpAttr& attr, bool is_shared) {
  return is_shared && attr.order == ddp::LlpOrder::kInOrder ? 1 : attr.recv_depth;
}

}  // namespace

PostedReceives::PostedReceives(const QpAttr& attr, StagTable& stags, CompletionQueue& cq,
                               SharedReceives* shared, QpCounters& counters)
    : stags_(stags),
      cq_(cq),
      counters_(counters),
      shared_(shared),
      stream_(attr.stream()),
      queue_(receive_slots(attr, shared != nullptr), attr.max_fragments, attr.order) {}

PostedReceives::~PostedReceives() {
  queue_.take_in();
  while (queue_.take_back()) cq_.release();
}

Posted PostedReceives::post(std::span<const RecvWr> work, const std::atomic<QpState>& state) {
  const QpState now = state.load(std::memory_order_acquire);
  const bool may_post = now == QpState::kRts || now == QpState::kIdle;
  if (!may_post || shared_ != nullptr) return {0, Refusal::kBadState};
  Posted out;
  const size_t most = std::min<size_t>(work.size(), queue_.room());
  uint32_t good = 0;
  while (good < most && out.reason == Refusal::kNone) {
    out.reason = check_ranges(work[good].buffer);
    if (out.reason == Refusal::kNone) ++good;
  }
  if (out.reason == Refusal::kNone && good < work.size()) out.reason = Refusal::kQueueFull;
  const uint32_t slots = cq_.reserve(good);
  if (slots < good) out.reason = Refusal::kCqFull;
  const ddp::PostPlaces places = queue_.claim(slots);
  if (places.count < slots) out.reason = Refusal::kQueueFull;
  const bool is_late = places.count != 0 && state.load() == QpState::kEnded;
  for (uint32_t i = 0; i < places.count; ++i) {
    if (is_late) {
      queue_.fill_without_buffer(places, i);
    } else {
      queue_.fill(places, i, work[i].id, ddp::ScatterList(work[i].buffer));
    }
  }
  out.accepted = is_late ? 0 : places.count;
  if (out.accepted < slots) cq_.release(slots - out.accepted);
  if (is_late) return {0, Refusal::kBadState};
  counters_.receives_posted.add_shared(out.accepted);
  return out;
}

void PostedReceives::take_shared(uint32_t msn) {
  const auto taken = shared_->take();
  if (!taken) return;
  counters_.receives_posted.add_shared(1);
  queue_.assign(msn, taken->id, taken->buffer);
}

std::optional<TermCode> PostedReceives::complete(const ddp::Delivered& d) {
  const Opcode op = *opcode_of(d.rsvd_ulp.control);
  Completion c = completion(d.cookie);
  c.length = d.length;
  c.is_solicited = is_solicited(op);

  std::optional<TermCode> error;
  if (is_immediate(op)) {
    if (d.length != RDMAP_IMMEDIATE_SIZE) error = TermCode::operation(RDMAP_ECODE_UNSPECIFIED);
    c.immediate = base::load_be64(d.aside.data());
  } else if (has_invalidate(op)) {
    if (stags_.invalidate(d.rsvd_ulp.word, stream_)) {
      c.invalidated_stag = d.rsvd_ulp.word;
    } else {
      error = TermCode::protection(RDMAP_ECODE_CANNOT_INVALIDATE);
    }
  }
  if (error) {
    c = completion(d.cookie);
    c.status = WorkStatus::kFlushed;
  }
  push(c);
  return error;
}

Completion PostedReceives::complete_direct() {
  Completion c = completion(queue_.take_first());
  counters_.receives_completed.add(1);
  cq_.release();
  return c;
}

void PostedReceives::flush() {
  queue_.take_in();
  while (const std::optional<uint64_t> id = queue_.take_back()) {
    Completion c = completion(*id);
    c.status = WorkStatus::kFlushed;
    push(c);
  }
}

Completion PostedReceives::completion(uint64_t id) const {
  Completion c;
  c.id = id;
  c.qp = stream_.qp;
  c.kind = WorkKind::kReceive;
  c.is_shared = shared_ != nullptr;
  return c;
}

void PostedReceives::push(const Completion& c) {
  counters_.receives_completed.add(1);
  if (c.status != WorkStatus::kOk) counters_.receives_failed.add(1);
  cq_.push(c);
}

}  // namespace ddpsock::rdmap
