// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whole messages, in order: receives complete, requests are answered, answers complete our own
// work.
#include <algorithm>
#include <atomic>
#include <utility>

#include "rdmap/qp.h"

namespace ddpsock::rdmap {
namespace {

// RFC 7306 section 5.3: atomic against every other stream, and here against the program's own
// threads. REQUIRES: `memory` is 8 aligned bytes.
uint64_t execute(const AtomicRequest& r, MutBytes memory) {
  const std::atomic_ref<uint64_t> target(*reinterpret_cast<uint64_t*>(memory.data()));
  uint64_t original = target.load(std::memory_order_acquire);
  while (!target.compare_exchange_weak(original, apply(r, original), std::memory_order_acq_rel)) {
  }
  return original;
}

bool is_aligned(MutBytes memory) {
  return reinterpret_cast<uintptr_t>(memory.data()) % RDMAP_ATOMIC_OPERAND_SIZE == 0;
}

bool is_read_of_nothing(Bytes body) {
  const std::optional<ReadRequest> request = decode_read_request(body);
  return request && request->length == 0;
}

}  // namespace

void Qp::deliver_untagged(uint32_t qn) {
  while (is_open()) {
    const std::optional<ddp::Delivered> d = queues_[qn].deliver();
    if (!d) return;
    switch (qn) {
      case RDMAP_QN_SEND:
        deliver_receive(*d);
        break;
      case RDMAP_QN_READ_REQUEST:
        deliver_request(*d);
        break;
      case RDMAP_QN_TERMINATE:
        deliver_terminate(*d);
        break;
      case RDMAP_QN_ATOMIC_RESPONSE:
        deliver_atomic_response(*d);
        break;
    }
  }
}

void Qp::deliver_receive(const ddp::Delivered& d) {
  has_traffic_ = true;
  const Opcode op = *opcode_of(d.rsvd_ulp.control);
  Completion c = receive_completion(d.cookie);
  c.length = d.length;
  c.is_solicited = is_solicited(op);

  std::optional<TermCode> error;
  if (is_immediate(op)) {
    if (d.length != RDMAP_IMMEDIATE_SIZE) error = TermCode::operation(RDMAP_ECODE_UNSPECIFIED);
    c.immediate = base::load_be64(d.aside.data());
  } else if (has_invalidate(op)) {
    if (stags_.invalidate(d.rsvd_ulp.word, stream())) {
      c.invalidated_stag = d.rsvd_ulp.word;
    } else {
      error = TermCode::protection(RDMAP_ECODE_CANNOT_INVALIDATE);
    }
  }
  if (error) {
    c = receive_completion(d.cookie);
    c.status = WorkStatus::kFlushed;
  }
  complete_receive(c);
  if (error) fail_segment(*error);
}

void Qp::deliver_request(const ddp::Delivered& d) {
  const Bytes body = Bytes(request_buffer(d.cookie)).first(d.length);
  const bool is_read = opcode_of(d.rsvd_ulp.control) == Opcode::kReadRequest;
  // Without IRD the one buffer there is only for a Read RTR.
  if (start_.ird == 0 && !(is_read && is_read_of_nothing(body))) {
    fail_segment(TermCode::ddp(ddp::Error::kNoBuffer));
    return;
  }
  if (is_read) {
    deliver_read_request(d, body);
  } else {
    deliver_atomic_request(d, body);
  }
}

void Qp::push_response(const ddp::Delivered& d, Response&& r) {
  r.cookie = d.cookie;
  r.sends_before = sq_.head() + sq_.size();
  responses_.push() = std::move(r);
}

void Qp::deliver_read_request(const ddp::Delivered& d, Bytes body) {
  const std::optional<ReadRequest> request = decode_read_request(body);
  if (!request) {
    fail_segment(TermCode::operation(RDMAP_ECODE_UNSPECIFIED));
    return;
  }
  has_traffic_ = has_traffic_ || !is_rtr_awaited_ || request->length != 0;
  Response r;
  r.read = *request;
  // RFC 5040 section 5.2.1: the source of a Read of no bytes is not validated.
  if (request->length != 0) {
    const auto source = stags_.access(request->source_stag, request->source_to, request->length,
                                      kRemoteRead, stream());
    if (!source) {
      fail_segment(to_rdmap(source.error()), body);
      return;
    }
    r.source = *source;
    r.has_pin = true;
    stags_.pin(request->source_stag);
  }
  push_response(d, std::move(r));
}

void Qp::deliver_atomic_request(const ddp::Delivered& d, Bytes body) {
  has_traffic_ = true;
  const std::optional<AtomicRequest> request = decode_atomic_request(body);
  if (!request) {
    const bool is_whole = body.size() == RDMAP_ATOMIC_REQUEST_SIZE;
    fail_segment(
        TermCode::operation(is_whole ? RDMAP_ECODE_UNEXPECTED_OPCODE : RDMAP_ECODE_UNSPECIFIED));
    return;
  }
  const auto target =
      stags_.access(request->stag, request->to, RDMAP_ATOMIC_OPERAND_SIZE, kRemoteAtomic, stream());
  if (!target) {
    fail_segment(to_rdmap(target.error()));
    return;
  }
  if (!is_aligned(*target)) {  // RFC 7306 section 8.2
    fail_segment(TermCode::operation(RDMAP_ECODE_CATASTROPHIC_STREAM));
    return;
  }
  Response r;
  r.is_atomic = true;
  encode(MutBytes(r.body), AtomicResponse{request->request_id, execute(*request, *target)});
  push_response(d, std::move(r));
}

void Qp::deliver_atomic_response(const ddp::Delivered& d) {
  has_traffic_ = true;
  const auto answer = decode_atomic_response(Bytes(answer_buffer(d.cookie)).first(d.length));
  for (uint32_t i = 0; answer && i < reads_.size(); ++i) {
    Outstanding& o = reads_[i];
    if (!o.is_atomic || o.has_end) continue;
    if (o.request_id != answer->request_id) break;
    o.has_end = true;
    sq_[static_cast<uint32_t>(o.entry - sq_.head())].original = answer->value;
    deliver_reads();
    return;
  }
  fail_segment(TermCode::operation(RDMAP_ECODE_UNSPECIFIED));
}

void Qp::deliver_reads() {
  while (!reads_.is_empty() && reads_.front().is_whole()) {
    const Outstanding& o = reads_.front();
    if (!o.is_rtr) sq_[static_cast<uint32_t>(o.entry - sq_.head())].awaits_response = false;
    reads_.pop();
  }
  run_local_work();
  retire();
}

void Qp::deliver_terminate(const ddp::Delivered& d) {
  const Phase phase = has_traffic_ ? Phase::kEstablished : Phase::kStartUp;
  const auto decoded = decode_terminate(Bytes(terminate_buffer_).first(d.length), phase);
  if (decoded) info_.is_swapped = decoded->is_swapped;
  enter_terminate(decoded ? decoded->terminate : Terminate{}, EndReason::kTerminateReceived);
}

}  // namespace ddpsock::rdmap
