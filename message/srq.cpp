// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/srq.h"

#include <cerrno>
#include <new>

#include "base/cancellation.h"
#include "message/domain.h"

namespace ddpsock::message {

Srq::Srq(Queue& queue) : queue_(keep(queue)) {}

Result<Srq*> Srq::make(Queue& queue, unsigned depth) {
  const auto domain = Domain::get();
  if (!domain) return fail(domain.error());
  engine::Engine& engine = (*domain)->engine();
  if (depth == 0 || depth > engine.limits().max_srq_depth) return fail_errno(EINVAL);
  Kept<Srq> made(new (std::nothrow) Srq(queue));
  if (!made) return fail_errno(ENOMEM);
  if (!made->open_event()) return fail_errno(EMFILE);
  auto srq = engine.make_srq(
      {.pd = queue.pd(), .cq = &queue.cq(), .depth = depth, .event_fd = made->event_fd_.get()});
  if (!srq) return fail_errno(ENOMEM);
  made->srq_ = std::move(*srq);
  return made.release();
}

Accepted Srq::post(std::span<const ddp_recv_work> work) {
  Accepted done;
  for (const ddp_recv_work& wanted : work) {
    ScatterSlices slices;
    engine::RecvWr request;
    done.why = read_work(wanted, slices, request);
    if (done.why == 0) done.why = errno_of(srq_->recv({&request, 1}).reason);
    if (done.why != 0) break;
    ++done.count;
  }
  return done;
}

void Srq::set_limit(unsigned level) {
  base::drain_event(event_fd_.get());
  srq_->set_limit(level);
}

void Srq::close() {
  const base::Uncancelled whole;
  if (!is_foreign()) srq_->close();
}

}  // namespace ddpsock::message
