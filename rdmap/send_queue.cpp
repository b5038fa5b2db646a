// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/send_queue.h"

#include <algorithm>

namespace ddpsock::rdmap {

SendQueue::SendQueue(const QpAttr& attr, StagTable& stags, CompletionQueue& cq,
                     QpCounters& counters)
    : stags_(stags),
      cq_(cq),
      counters_(counters),
      stream_(attr.stream()),
      entries_(attr.send_depth),
      outbound_(attr) {}

SendQueue::~SendQueue() {
  entries_.take_in();
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].has_pin) stags_.unpin(entries_[i].read.sink_stag);
    cq_.release();
  }
}

bool SendQueue::has_memory(const QpAttr& attr) const {
  return entries_.has_memory_for(attr.send_depth) && outbound_.has_memory(attr);
}

Posted SendQueue::post(std::span<const SendWr> work, const std::atomic<QpState>& state) {
  if (state.load(std::memory_order_acquire) != QpState::kRts) return {0, Refusal::kBadState};
  Posted out;
  const size_t most = std::min<size_t>(work.size(), entries_.room());
  uint32_t good = 0;
  while (good < most && out.reason == Refusal::kNone) {
    out.reason = admit(work[good], outbound_.ord(), stags_, stream_);
    if (out.reason == Refusal::kNone) ++good;
  }
  if (out.reason == Refusal::kNone && good < work.size()) out.reason = Refusal::kQueueFull;
  const uint32_t slots = cq_.reserve(good);
  if (slots < good) out.reason = Refusal::kCqFull;
  const ddp::PostPlaces places = entries_.claim(slots);
  if (places.count < slots) {
    cq_.release(slots - places.count);
    out.reason = Refusal::kQueueFull;
  }
  // Who ends the queue pair waits for those that came in time, and for no others.
  const bool is_late = places.count != 0 && state.load() == QpState::kEnded;
  for (uint32_t i = 0; i < places.count; ++i) {
    SendEntry& e = entries_.at(places, i);
    fill(e, work[i]);
    e.is_void = is_late;
    entries_.publish(places, i);
  }
  if (places.count < good) [[unlikely]]
    dismiss(work.subspan(places.count, good - places.count), stags_);
  if (is_late) return {0, Refusal::kBadState};
  out.accepted = places.count;
  counters_.sends_posted.add_shared(out.accepted);
  return out;
}

void SendQueue::complete_direct(uint64_t id, WorkKind kind, uint32_t length, WorkStatus status,
                                uint64_t original) {
  Completion c;
  c.id = id;
  c.qp = stream_.qp;
  c.kind = kind;
  c.length = length;
  c.status = status;
  c.original = original;
  cq_.push(c);
}

bool SendQueue::has_unanswered() const {
  bool is_found = !outbound_.is_empty();
  for (uint32_t i = 0; i < entries_.size() && !is_found; ++i)
    is_found = entries_[i].awaits_response;
  return is_found;
}

const SendEntry& SendQueue::start() {
  has_begun_ = true;
  SendEntry& e = entries_[next_];
  e.stage = SendEntry::Stage::kStarted;
  if (!e.awaits_response) return e;
  if (e.kind == WorkKind::kRead) {
    outbound_.push_read(next_ordinal(), e.read);
  } else {
    e.atomic.request_id = outbound_.push_atomic(next_ordinal());
  }
  encode_request(e);
  return e;
}

void SendQueue::finish(uint64_t last_segment, WorkStatus status) {
  SendEntry& e = entries_[next_++];
  e.stage = SendEntry::Stage::kProduced;
  e.last_segment = last_segment;
  e.status = status;
}

void SendQueue::run_local_work(uint64_t produced, uint64_t sent) {
  while (has_local_work()) {
    const bool is_done = stags_.invalidate(entries_[next_].stag, stream_).has_value();
    finish(produced, is_done ? WorkStatus::kOk : WorkStatus::kLocalError);
  }
  retire(sent);
}

bool SendQueue::take_whole_answers() {
  bool has_any = false;
  while (const auto answered = outbound_.take_answered()) {
    has_any = true;
    if (!answered->owner) continue;
    SendEntry& e = entries_[static_cast<uint32_t>(*answered->owner - entries_.head())];
    e.awaits_response = false;
    e.original = answered->original;
  }
  return has_any;
}

void SendQueue::retire(uint64_t sent) {
  while (!entries_.is_empty()) {
    const SendEntry& e = entries_.front();
    if (e.stage != SendEntry::Stage::kProduced || e.last_segment > sent || e.awaits_response) {
      return;
    }
    complete(e, e.status);
    entries_.pop();
    --next_;
  }
}

void SendQueue::flush(uint64_t sent, bool is_forced) {
  entries_.take_in();
  while (!entries_.is_empty()) {
    const SendEntry& e = entries_.front();
    const bool is_produced = e.stage == SendEntry::Stage::kProduced;
    const bool is_held = is_produced && e.last_segment > sent;
    if (is_held && !is_forced) return;
    const bool is_done = is_produced && !is_held && !e.awaits_response;
    complete(e, is_done ? e.status : WorkStatus::kFlushed);
    entries_.pop();
    if (next_ != 0) --next_;
  }
}

void SendQueue::complete(const SendEntry& e, WorkStatus status) {
  if (e.has_pin) stags_.unpin(e.read.sink_stag);
  if (e.is_void) {
    cq_.release();
    return;
  }
  counters_.sends_completed.add(1);
  if (status != WorkStatus::kOk) counters_.sends_failed.add(1);
  if (status == WorkStatus::kOk && !e.is_signalled) {
    cq_.release();
    return;
  }
  Completion c;
  c.id = e.id;
  c.qp = stream_.qp;
  c.kind = e.kind;
  c.status = status;
  c.length = e.length;
  c.original = e.original;
  cq_.push(c);
}

}  // namespace ddpsock::rdmap
