// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reads and atomics of the peer's, at most IRD of them (and a Read RTR where that is 0), from the
// buffer that a request lands in until the LLP has taken over the last segment of its answer.
// Atomics are done when they come; what a Read asks for is sent from where it lies, and pinned
// until then.
#ifndef DDPSOCK_RDMAP_INBOUND_REQUESTS_H_
#define DDPSOCK_RDMAP_INBOUND_REQUESTS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "ddp/receive_queue.h"
#include "ddp/ring.h"
#include "rdmap/message.h"
#include "rdmap/qp_attr.h"
#include "rdmap/stag_table.h"
#include "rdmap/state.h"
#include "rdmap/terminate.h"

namespace ddpsock::rdmap {

// The answer to a Read or atomic of the peer's.
struct Response {
  uint64_t sends_before = 0;  // how many sends of ours had been posted by then
  uint64_t last_segment = 0;  // ordinal of its last segment, once cut
  uint64_t cookie = 0;        // of the request buffer to post again
  ReadRequest read;
  MutBytes source;
  std::array<uint8_t, RDMAP_ATOMIC_RESPONSE_SIZE> body{};
  bool is_atomic = false;
  bool has_pin = false;  // on the source
};

class InboundRequests {
 public:
  // `stags` outlives it.
  InboundRequests(const QpAttr& attr, StagTable& stags);
  ~InboundRequests() { drop(0, true); }
  // False when an allocation of the constructor failed: discard the object.
  bool has_memory(const QpAttr& attr) const;

  // REQUIRES: ird <= max_ird.
  void start(const Start& start);

  // Where requests land.
  ddp::ReceiveQueue& queue() { return queue_; }
  // Whether this one is a Read of no bytes, as a Read RTR is.
  bool is_read_of_nothing(const ddp::Delivered& d) const;

  // What the stream fails for; `read_request` goes into the Terminate, if it is there.
  struct Fault {
    TermCode code;
    Bytes read_request = {};
  };
  // A request has been delivered: it will be answered, after the first `sends_before` sends of
  // ours.
  Result<void, Fault> take(const ddp::Delivered& d, uint64_t sends_before);

  // Answering, oldest first. Segments are named by their ordinals.
  bool is_empty() const { return responses_.is_empty(); }
  // As many answers may be in the LLP's hands as may be waiting: more and the ring would be full.
  bool has_next() const { return next_ < responses_.size() && next_ * 2 < responses_.capacity(); }
  // REQUIRES: has_next().
  const Response& next() const { return responses_[next_]; }
  // next() has been cut, in whole or (the stream fails) as much as will be.
  void finish(uint64_t last_segment);
  void abandon(uint64_t last_segment) { responses_[next_++].last_segment = last_segment; }
  // The LLP has taken over the first `sent` segments.
  void retire(uint64_t sent);
  // The same, and gives up what nobody will cut any more; with `is_forced` also answers that the
  // LLP holds segments of.
  void drop(uint64_t sent, bool is_forced);

 private:
  Result<Response, Fault> answer_read(Bytes body) const;
  Result<Response, Fault> answer_atomic(Bytes body) const;
  void post_buffer(uint64_t cookie);
  MutBytes buffer(uint64_t cookie) const;
  void unpin(const Response& r);

  StagTable& stags_;
  StreamId stream_;
  uint32_t ird_ = 0;
  ddp::ReceiveQueue queue_;
  std::unique_ptr<uint8_t[]> buffers_;  // max_ird + 1 of RDMAP_ATOMIC_REQUEST_SIZE
  ddp::Ring<Response> responses_;
  uint32_t next_ = 0;  // index of the first one not cut
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_INBOUND_REQUESTS_H_
