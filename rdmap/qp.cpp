// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/qp.h"

#include <cassert>
#include <new>

namespace ddpsock::rdmap {
namespace {

// One more than asked for: an agreed Read RTR needs a place although IRD or ORD is 0.
constexpr uint32_t with_rtr(uint32_t reads) {
  return reads + 1;
}

// Answers in the hands of the LLP, and as many still to be cut.
constexpr uint32_t response_slots(uint32_t ird) {
  return 2 * with_rtr(ird);
}

std::unique_ptr<uint8_t[]> make_buffers(uint32_t count, uint32_t size) {
  return std::unique_ptr<uint8_t[]>(new (std::nothrow) uint8_t[size_t{count} * size]);
}

// In order one message is under way at most, and no other has its buffer.
uint32_t receive_slots(const QpAttr& attr, bool is_shared) {
  return is_shared && attr.order == ddp::LlpOrder::kInOrder ? 1 : attr.recv_depth;
}

}  // namespace

Qp::Qp(const QpAttr& attr, StagTable& stags, CompletionQueue& send_cq, CompletionQueue& recv_cq,
       SharedReceives* shared)
    : attr_(attr),
      counters_(attr.counters != nullptr ? *attr.counters : own_counters_),
      stags_(stags),
      send_cq_(send_cq),
      recv_cq_(recv_cq),
      shared_(shared),
      sq_(attr.send_depth),
      responses_(response_slots(attr.max_ird)),
      queues_{
          ddp::ReceiveQueue(receive_slots(attr, shared != nullptr), attr.max_fragments, attr.order),
          ddp::ReceiveQueue(with_rtr(attr.max_ird), attr.max_fragments, attr.order),
          ddp::ReceiveQueue(1, attr.max_fragments, attr.order),
          ddp::ReceiveQueue(with_rtr(attr.max_ord), attr.max_fragments, attr.order)},
      request_buffers_(make_buffers(with_rtr(attr.max_ird), RDMAP_ATOMIC_REQUEST_SIZE)),
      answer_buffers_(make_buffers(with_rtr(attr.max_ord), RDMAP_ATOMIC_RESPONSE_SIZE)),
      reads_(with_rtr(attr.max_ord)),
      read_fragments_(attr.max_fragments) {
  next_msn_.fill(DDP_FIRST_MSN);
}

bool Qp::has_memory() const {
  for (const ddp::ReceiveQueue& q : queues_) {
    if (!q.has_memory()) return false;
  }
  return sq_.has_memory_for(attr_.send_depth) &&
         responses_.has_memory_for(response_slots(attr_.max_ird)) && request_buffers_ &&
         answer_buffers_ && reads_.has_memory_for(with_rtr(attr_.max_ord)) &&
         read_fragments_.capacity() >= attr_.max_fragments;
}

Qp::~Qp() {
  drop_responses(true);
  if (open_ && open_->pinned) stags_.unpin(*open_->pinned);
  sq_.take_in();
  for (uint32_t i = 0; i < sq_.size(); ++i) {
    if (sq_[i].has_pin) stags_.unpin(sq_[i].read.sink_stag);
    send_cq_.release();
  }
  queues_[RDMAP_QN_SEND].take_in();
  while (queues_[RDMAP_QN_SEND].take_back()) recv_cq_.release();
}

void Qp::start(const Start& start) {
  assert(state_ == QpState::kIdle && start.ird <= attr_.max_ird && start.ord <= attr_.max_ord);
  start_ = start;
  may_send_ = start.is_initiator;
  is_rtr_awaited_ = !start.is_initiator && start.rtr != Rtr::kNone;
  is_rtr_pending_ = start.is_initiator && start.rtr != Rtr::kNone;

  // cxgb4 and irdma send a Read RTR also where revision 1 of MPA could agree on none.
  const bool may_be_rtr =
      start.rtr == Rtr::kRead || (!start.is_initiator && start.rtr == Rtr::kNone);
  const uint32_t requests = start.ird == 0 && may_be_rtr ? 1 : start.ird;
  for (uint32_t i = 0; i < requests; ++i) post_request_buffer(i);
  ddp::ScatterList terminate;
  terminate.append(MutBytes(terminate_buffer_));
  queues_[RDMAP_QN_TERMINATE].post(0, terminate);
  // From here on other threads post.
  state_ = QpState::kRts;
}

void Qp::post_request_buffer(uint64_t cookie) {
  ddp::ScatterList buffer;
  buffer.append(request_buffer(cookie));
  queues_[RDMAP_QN_READ_REQUEST].post(cookie, buffer);
}

}  // namespace ddpsock::rdmap
