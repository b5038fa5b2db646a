// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The receives of one queue pair, from posting (or from being taken out of those that several queue
// pairs share) to completion. Any thread posts; the rest is the owner's.
#ifndef DDPSOCK_RDMAP_POSTED_RECEIVES_H_
#define DDPSOCK_RDMAP_POSTED_RECEIVES_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "ddp/receive_queue.h"
#include "rdmap/completion_queue.h"
#include "rdmap/qp_attr.h"
#include "rdmap/qp_counters.h"
#include "rdmap/shared_receives.h"
#include "rdmap/stag_table.h"
#include "rdmap/state.h"
#include "rdmap/terminate.h"
#include "rdmap/work.h"

namespace ddpsock::rdmap {

class PostedReceives {
 public:
  // All outlive it. `shared`: where it takes its receives, instead of having any posted.
  PostedReceives(const QpAttr& attr, StagTable& stags, CompletionQueue& cq, SharedReceives* shared,
                 QpCounters& counters);
  // Completes nothing: what is left vanishes with its completion slots.
  ~PostedReceives();

  // In any thread, in kIdle and kRts; `state` as for SendQueue::post().
  Posted post(std::span<const RecvWr> work, const std::atomic<QpState>& state);

  // Where Sends and Immediate Data land.
  ddp::ReceiveQueue& queue() { return queue_; }
  const ddp::ReceiveQueue& queue() const { return queue_; }
  // The first segment of message `msn` chooses its receive, if they are shared. There may be none.
  void choose(uint32_t msn) {
    if (shared_ != nullptr && queue_.wants_buffer(msn)) take_shared(msn);
  }

  // A message has been delivered: its receive completes. What the stream fails for, if it does.
  std::optional<TermCode> complete(const ddp::Delivered& d);
  // The first receive has a message that came whole (direct_way.h): what its queue would have been
  // told. REQUIRES: there is one, untouched.
  Completion complete_direct();
  // Completes the rest as flushed.
  void flush();

 private:
  void take_shared(uint32_t msn);
  Completion completion(uint64_t id) const;
  void push(const Completion& c);

  StagTable& stags_;
  CompletionQueue& cq_;
  QpCounters& counters_;
  SharedReceives* const shared_;
  StreamId stream_;
  ddp::ReceiveQueue queue_;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_POSTED_RECEIVES_H_
