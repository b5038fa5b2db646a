// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/srq.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <new>

#include "base/cancellation.h"
#include "base/sys.h"
#include "message/domain.h"
#include "message/queue.h"

namespace ddpsock::message {

Srq::Srq(Queue& queue) : queue_(queue) {
  queue_.add_reference();
}

Srq::~Srq() {
  srq_.reset();
  queue_.drop_reference();
}

Result<Srq*> Srq::make(Queue& queue, unsigned depth) {
  const auto domain = Domain::get();
  if (!domain) return fail(domain.error());
  engine::Engine& engine = (*domain)->engine();
  if (depth == 0 || depth > engine.limits().max_srq_depth) return fail_errno(EINVAL);
  Srq* made = new (std::nothrow) Srq(queue);
  if (made == nullptr) return fail_errno(ENOMEM);
  made->event_fd_ = move_high(base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!made->event_fd_.is_valid()) {
    delete made;
    return fail_errno(EMFILE);
  }
  auto srq = engine.make_srq(
      {.pd = queue.pd(), .cq = &queue.cq(), .depth = depth, .event_fd = made->event_fd_.get()});
  if (!srq) {
    delete made;
    return fail_errno(ENOMEM);
  }
  made->srq_ = std::move(*srq);
  return made;
}

void Srq::drop_reference() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

int Srq::open_descriptor() const {
  return base::sys.fcntl(event_fd_.get(), F_DUPFD_CLOEXEC, 0);
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

void Srq::destroy() {
  if (!is_foreign()) drop_reference();
}

}  // namespace ddpsock::message
