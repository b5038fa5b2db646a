// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A shared receive queue as a descriptor: receives for the next messages of all connections that
// use it, which complete to one shared Queue.
#ifndef DDPSOCK_MESSAGE_SRQ_H_
#define DDPSOCK_MESSAGE_SRQ_H_

#include <memory>
#include <span>

#include "message/handle.h"
#include "message/queue.h"
#include "message/work.h"

namespace ddpsock::message {

// Completions, and memory of all its connections, are the completion queue's.
class Srq final : public SharedHandle {
 public:
  // EINVAL, ENOMEM, EMFILE. Keeps a reference to `queue`.
  static Result<Srq*> make(Queue& queue, unsigned depth);

  engine::Srq& receives() { return *srq_; }
  Queue& completions() { return *queue_; }

  Accepted post(std::span<const ddp_recv_work> work);
  // The event fd is readable once fewer than `level` are left; unreadable now, unless so it is.
  void set_limit(unsigned level);

  Srq* srq() override { return this; }
  void close() override;

 private:
  explicit Srq(Queue& queue);

  const Kept<Queue> queue_;
  std::unique_ptr<engine::Srq> srq_;  // before the queue it completes to
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_SRQ_H_
