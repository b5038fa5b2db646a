// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receives that several queue pairs draw from, in the order of posting: whichever of their streams
// has the first segment of a message next takes the oldest. What is taken is the queue pair's and
// no longer counted here. Every receive keeps its place in the one completion queue that it can
// complete to. Locking is the owner's, as for StagTable; but any thread posts without it.
#ifndef DDPSOCK_RDMAP_SHARED_RECEIVES_H_
#define DDPSOCK_RDMAP_SHARED_RECEIVES_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "ddp/post_ring.h"
#include "ddp/slices.h"
#include "rdmap/completion_queue.h"
#include "rdmap/work.h"

namespace ddpsock::rdmap {

class SharedReceives {
 public:
  // `cq` outlives it, and is the receive queue's of all queue pairs that take from it.
  SharedReceives(uint32_t depth, CompletionQueue& cq) : cq_(cq), entries_(depth), depth_(depth) {}
  ~SharedReceives() { close(); }
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;
  bool has_memory() const { return entries_.has_memory_for(depth_); }

  // In any thread.
  Posted post(std::span<const RecvWr> work);
  uint32_t size() {
    entries_.take_in();
    return entries_.size();
  }
  const CompletionQueue& cq() const { return cq_; }

  // Wants to be told once fewer than `level` are left; at once, if so it is. 0: never. One-shot:
  // take_event() is true once after it happened.
  void set_limit(uint32_t level) {
    limit_ = level;
    note_size();
  }
  bool take_event() {
    const bool had = has_event_;
    has_event_ = false;
    return had;
  }

  // Refuses posts from now on. What nobody has taken vanishes with its completion slots.
  void close();

  struct Receive {
    uint64_t id = 0;
    ddp::ScatterList buffer;
  };
  // The oldest, for a queue pair, which owes its completion.
  std::optional<Receive> take();

 private:
  void note_size();

  CompletionQueue& cq_;
  ddp::PostRing<Receive> entries_;
  uint32_t depth_;
  uint32_t limit_ = 0;
  bool has_event_ = false;
  std::atomic<bool> is_closed_{false};
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_SHARED_RECEIVES_H_
