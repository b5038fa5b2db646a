// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The send queue of one queue pair: work requests from posting to completion, in order. Any thread
// posts; the rest is the owner's. Segments are named by their ordinals: a request is complete when
// the LLP has taken over its last one and the peer has answered, if it must.
#ifndef DDPSOCK_RDMAP_SEND_QUEUE_H_
#define DDPSOCK_RDMAP_SEND_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <span>

#include "ddp/post_ring.h"
#include "rdmap/completion_queue.h"
#include "rdmap/outbound_requests.h"
#include "rdmap/qp_attr.h"
#include "rdmap/qp_counters.h"
#include "rdmap/send_entry.h"
#include "rdmap/stag_table.h"
#include "rdmap/state.h"
#include "rdmap/work.h"

namespace ddpsock::rdmap {

class SendQueue {
 public:
  // All outlive it.
  SendQueue(const QpAttr& attr, StagTable& stags, CompletionQueue& cq, QpCounters& counters);
  // Completes nothing: what is left vanishes with its completion slots and pins.
  ~SendQueue();
  // False when an allocation of the constructor failed: discard the object.
  bool has_memory(const QpAttr& attr) const;

  // In any thread, and only in kRts. `state` is asked again once a place has been claimed, so that
  // what is accepted is either done or flushed.
  Posted post(std::span<const SendWr> work, const std::atomic<QpState>& state);
  // Whether somebody is still posting, or has and take_in() did not see it.
  bool has_more() const { return entries_.has_more(); }

  // Takes notice of what was posted.
  void take_in() { entries_.take_in(); }
  // How many requests it has ever taken notice of.
  uint64_t taken_in() const { return entries_.head() + entries_.size(); }

  // Those of its requests that wait for the peer, and the Read RTR.
  OutboundRequests& outbound() { return outbound_; }

  bool is_empty() const { return entries_.is_empty(); }
  // Nothing posted, nothing outstanding.
  bool is_drained() const { return entries_.is_idle() && outbound_.is_empty(); }
  // Whether the peer must still answer something, be it asked or not.
  bool has_unanswered() const;
  // Whether any has ever been started.
  bool has_begun() const { return has_begun_; }

  // Cutting, oldest first. Whether the next one may go out: a fence, ORD or local work stops it.
  bool can_start() const {
    if (next_ == entries_.size()) return false;
    const SendEntry& e = entries_[next_];
    if (e.is_local()) return false;  // run_local_work() does it
    if (e.has_fence && !outbound_.is_empty()) return false;
    return !e.awaits_response || outbound_.has_room();
  }
  // How many came before it.
  uint64_t next_ordinal() const { return entries_.head() + next_; }
  // It goes out now. REQUIRES: can_start().
  const SendEntry& start();
  // It has been cut, in whole or (kFlushed: the stream fails) as much as will be.
  void finish(uint64_t last_segment, WorkStatus status = WorkStatus::kOk);

  // Whether what is next sends nothing, and may be done.
  bool has_local_work() const {
    if (next_ == entries_.size()) return false;
    const SendEntry& e = entries_[next_];
    return e.is_local() && (!e.has_fence || outbound_.is_empty());
  }
  // Does that, and all that follows and is alike, then retire(). `produced`: the last segment cut
  // so far.
  void run_local_work(uint64_t produced, uint64_t sent);
  // Takes notice of what the peer has answered; whether it has.
  bool take_answers() { return outbound_.has_answered() && take_whole_answers(); }
  // Completes what is complete, now that the LLP has taken over the first `sent` segments.
  void retire(uint64_t sent);
  // What goes out beside the queue (direct_way.h). reserve_direct(): in any thread; false: there is
  // no place for its completion.
  [[nodiscard]] bool reserve_direct() { return cq_.reserve() == 1; }
  void note_direct() {
    has_begun_ = true;
    counters_.sends_direct.add(1);
  }
  void release_direct() { cq_.release(); }
  void complete_direct(uint64_t id, WorkKind kind, uint32_t length, WorkStatus status,
                       uint64_t original);
  // What Start::ord said.
  uint32_t ord() const { return outbound_.ord(); }
  // Completes everything, as flushed where it is not complete, up to the first request that the LLP
  // holds segments of; with `is_forced` that too.
  void flush(uint64_t sent, bool is_forced);

 private:
  bool take_whole_answers();
  void complete(const SendEntry& e, WorkStatus status);

  StagTable& stags_;
  CompletionQueue& cq_;
  QpCounters& counters_;
  StreamId stream_;
  ddp::PostRing<SendEntry> entries_;
  uint32_t next_ = 0;  // index of the first entry not cut
  bool has_begun_ = false;
  OutboundRequests outbound_;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_SEND_QUEUE_H_
