// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/inbound_requests.h"

#include <algorithm>
#include <new>
#include <optional>

namespace ddpsock::rdmap {
namespace {

// Answers in the hands of the LLP, and as many still to be cut.
constexpr uint32_t response_slots(uint32_t ird) {
  return 2 * with_rtr(ird);
}

bool is_read(const ddp::Delivered& d) {
  return opcode_of(d.rsvd_ulp.control) == Opcode::kReadRequest;
}

}  // namespace

InboundRequests::InboundRequests(const QpAttr& attr, StagTable& stags)
    : stags_(stags),
      stream_(attr.stream()),
      queue_(with_rtr(attr.max_ird), attr.max_fragments, attr.order),
      buffers_(new(std::nothrow)
                   uint8_t[size_t{with_rtr(attr.max_ird)} * RDMAP_ATOMIC_REQUEST_SIZE]),
      responses_(response_slots(attr.max_ird)) {}

bool InboundRequests::has_memory(const QpAttr& attr) const {
  return queue_.has_memory() && buffers_ && responses_.has_memory_for(response_slots(attr.max_ird));
}

void InboundRequests::start(const Start& start) {
  ird_ = start.ird;
  // cxgb4 and irdma send a Read RTR also where revision 1 of MPA could agree on none.
  const bool may_be_rtr =
      start.rtr == Rtr::kRead || (!start.is_initiator && start.rtr == Rtr::kNone);
  const uint32_t requests = start.ird == 0 && may_be_rtr ? 1 : start.ird;
  for (uint32_t i = 0; i < requests; ++i) post_buffer(i);
}

MutBytes InboundRequests::buffer(uint64_t cookie) const {
  return {&buffers_[cookie * RDMAP_ATOMIC_REQUEST_SIZE], RDMAP_ATOMIC_REQUEST_SIZE};
}

void InboundRequests::post_buffer(uint64_t cookie) {
  ddp::ScatterList list;
  list.append(buffer(cookie));
  queue_.post(cookie, list);
}

bool InboundRequests::is_read_of_nothing(const ddp::Delivered& d) const {
  if (!is_read(d)) return false;
  const auto request = decode_read_request(Bytes(buffer(d.cookie)).first(d.length));
  return request && request->length == 0;
}

Result<void, InboundRequests::Fault> InboundRequests::take(const ddp::Delivered& d,
                                                           uint64_t sends_before) {
  // Without IRD the one buffer there is only for a Read RTR.
  if (ird_ == 0 && !is_read_of_nothing(d)) {
    return fail(Fault{TermCode::ddp(ddp::Error::kNoBuffer)});
  }
  const Bytes body = Bytes(buffer(d.cookie)).first(d.length);
  const Result<Response, Fault> r = is_read(d) ? answer_read(body) : answer_atomic(body);
  if (!r) return fail(r.error());
  Response& slot = responses_.push();
  slot = *r;
  slot.cookie = d.cookie;
  slot.sends_before = sends_before;
  return {};
}

Result<Response, InboundRequests::Fault> InboundRequests::answer_read(Bytes body) const {
  const std::optional<ReadRequest> request = decode_read_request(body);
  if (!request) return fail(Fault{TermCode::operation(RDMAP_ECODE_UNSPECIFIED)});
  Response r;
  r.read = *request;
  // RFC 5040 section 5.2.1: the source of a Read of no bytes is not validated.
  if (request->length != 0) {
    const auto source = stags_.access(request->source_stag, request->source_to, request->length,
                                      kRemoteRead, stream_);
    if (!source) return fail(Fault{to_rdmap(source.error()), body});
    r.source = *source;
    r.has_pin = true;
    stags_.pin(request->source_stag);
  }
  return r;
}

Result<Response, InboundRequests::Fault> InboundRequests::answer_atomic(Bytes body) const {
  const std::optional<AtomicRequest> request = decode_atomic_request(body);
  if (!request) {
    const bool is_whole = body.size() == RDMAP_ATOMIC_REQUEST_SIZE;
    return fail(Fault{
        TermCode::operation(is_whole ? RDMAP_ECODE_UNEXPECTED_OPCODE : RDMAP_ECODE_UNSPECIFIED)});
  }
  const auto target =
      stags_.access(request->stag, request->to, RDMAP_ATOMIC_OPERAND_SIZE, kRemoteAtomic, stream_);
  if (!target) return fail(Fault{to_rdmap(target.error())});
  if (!is_aligned(target->data())) {  // RFC 7306 section 8.2
    return fail(Fault{TermCode::operation(RDMAP_ECODE_CATASTROPHIC_STREAM)});
  }
  Response r;
  r.is_atomic = true;
  encode(MutBytes(r.body), AtomicResponse{request->request_id, execute(*request, target->data())});
  return r;
}

void InboundRequests::finish(uint64_t last_segment) {
  Response& r = responses_[next_++];
  r.last_segment = last_segment;
  // From here on the peer may ask again: its count of what is outstanding drops when it has the
  // answer.
  if (ird_ != 0) post_buffer(r.cookie);
}

void InboundRequests::unpin(const Response& r) {
  if (r.has_pin) stags_.unpin(r.read.source_stag);
}

void InboundRequests::retire(uint64_t sent) {
  while (next_ != 0 && responses_.front().last_segment <= sent) {
    unpin(responses_.front());
    responses_.pop();
    --next_;
  }
}

void InboundRequests::drop(uint64_t sent, bool is_forced) {
  retire(sent);
  while (responses_.size() > (is_forced ? 0 : next_)) {
    unpin(responses_[responses_.size() - 1]);
    responses_.pop_newest();
  }
  next_ = std::min(next_, responses_.size());
}

}  // namespace ddpsock::rdmap
