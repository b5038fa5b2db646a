// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A shared receive queue as a descriptor: receives for the next messages of all connections that
// use it, which complete to one shared Queue.
#ifndef DDPSOCK_MESSAGE_SRQ_H_
#define DDPSOCK_MESSAGE_SRQ_H_

#include <atomic>
#include <memory>
#include <span>

#include "base/fd.h"
#include "message/handle.h"
#include "message/work.h"

namespace ddpsock::message {

// Completions, and memory of all its connections, are the completion queue's.
class Srq final : public Handle {
 public:
  // EINVAL, ENOMEM, EMFILE. Keeps a reference to `queue`, and counts one of its own.
  static Result<Srq*> make(Queue& queue, unsigned depth);

  void add_reference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop_reference();

  engine::Srq& receives() { return *srq_; }
  Queue& completions() { return queue_; }
  // The program's: readable once fewer receives are left than set_limit() said. -1: no descriptors.
  int open_descriptor() const;

  Accepted post(std::span<const ddp_recv_work> work);
  // Makes the descriptor unreadable, unless fewer are left already.
  void set_limit(unsigned level);

  Srq* srq() override { return this; }
  void close() override;
  void destroy() override;

 private:
  explicit Srq(Queue& queue);
  ~Srq() override;

  Queue& queue_;
  std::atomic<uint32_t> references_{1};
  base::UniqueFd event_fd_;
  std::unique_ptr<engine::Srq> srq_;
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_SRQ_H_
