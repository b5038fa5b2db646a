// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What has come for the program from the connections of one queue: the engine's completions, and
// begin and end of each connection, which the engine has no completions for.
#ifndef DDPSOCK_MESSAGE_INBOX_H_
#define DDPSOCK_MESSAGE_INBOX_H_

#include <array>
#include <atomic>
#include <mutex>
#include <span>

#include "base/result.h"
#include "ddpsock/ddpsock.h"
#include "engine/engine.h"
#include "message/qp_table.h"

namespace ddpsock::message {

class Progress;

// Of one connection, for its Inbox alone.
struct Event {
  Progress* next = nullptr;
  bool is_listed = false, is_established = false, is_ended = false;
  bool is_over = false;     // the end has been noted; stays
  bool is_removed = false;  // nothing more is to be told of it
};

// Any thread, once open.
class Inbox {
 public:
  // Borrowed.
  void open(engine::Cq& cq) { cq_ = &cq; }
  // False: take() would find nothing that is there already. Without a lock.
  bool has_any() const { return cq_->has_any() || has_event_.load(std::memory_order_relaxed); }
  unsigned take(std::span<ddp_completion> out);

  // REQUIRES: the queue's list lock, as all that reads connections(). False: no memory.
  bool add(Progress& c);
  // Completions of it that nobody has taken are dropped from now on.
  void remove(Progress& c);
  const QpTable<Progress>& connections() const { return connections_; }

  // DDP_ESTABLISHED or DDP_ENDED: once each.
  void note(Progress& c, ddp_kind kind);
  // Somebody has told the program otherwise.
  void forget_established(Progress& c);
  // All have, and the program has been told. REQUIRES: one connection, or none.
  bool has_told_end() const;

 private:
  void link(Progress& c);
  void unlink_idle();
  unsigned take_events(ddp_kind kind, std::span<ddp_completion> out);
  unsigned take_work(std::span<ddp_completion> out);

  engine::Cq* cq_ = nullptr;
  mutable std::mutex mutex_;       // after a connection's lock
  QpTable<Progress> connections_;  // changed with the list lock, too
  // Here, because sixteen of them take longer to make than to ask for.
  std::array<engine::Completion, 16> raw_;
  Progress* first_event_ = nullptr;     // those with something to tell
  std::atomic<bool> has_event_{false};  // the same, for who does not hold mutex_
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_INBOX_H_
