// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reads and atomics of ours that the peer has not answered, oldest first: at most ORD of them, and
// one more for a Read RTR. Knows what each answer may look like, places Read Responses and has a
// buffer for every Atomic Response. In whose name a request went out is the caller's: a number.
#ifndef DDPSOCK_RDMAP_OUTBOUND_REQUESTS_H_
#define DDPSOCK_RDMAP_OUTBOUND_REQUESTS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "ddp/fragments.h"
#include "ddp/receive_queue.h"
#include "ddp/ring.h"
#include "ddp/segment.h"
#include "rdmap/message.h"
#include "rdmap/qp_attr.h"
#include "rdmap/terminate.h"

namespace ddpsock::rdmap {

class OutboundRequests {
 public:
  explicit OutboundRequests(const QpAttr& attr);
  // False when an allocation of the constructor failed: discard the object.
  bool has_memory(const QpAttr& attr) const;

  // `ord`: Start::ord. REQUIRES: ord <= max_ord.
  void start(uint32_t ord) { ord_ = ord; }
  uint32_t ord() const { return ord_; }
  bool is_empty() const { return requests_.is_empty(); }
  bool has_room() const { return requests_.size() < ord_; }

  // The request goes out now. REQUIRES: has_room(), but for the RTR.
  void push_read(uint64_t owner, const ReadRequest& request);
  void push_rtr(const ReadRequest& request);
  // Which request id the peer is to answer with.
  uint32_t push_atomic(uint64_t owner);

  // Which request a segment of a Read Response belongs to; nothing: to one long complete, perhaps,
  // which an LLP that reorders may repeat. Numbers hold until take_answered().
  Result<std::optional<uint32_t>, TermCode> find(const ddp::TaggedHeader& h,
                                                 uint32_t payload) const;
  // Whether all of its payload was placed before. REQUIRES: find() said `i`, payload != 0.
  Result<bool, TermCode> is_duplicate(uint32_t i, const ddp::TaggedHeader& h,
                                      uint32_t payload) const;
  // Its payload is in place. REQUIRES: both said that it may be.
  void note_placed(uint32_t i, const ddp::TaggedHeader& h, uint32_t payload);

  // Where Atomic Responses land.
  ddp::ReceiveQueue& atomic_responses() { return atomic_responses_; }
  // One has been delivered. What the stream fails for, if it answers nothing of ours.
  std::optional<TermCode> note_atomic_response(const ddp::Delivered& d);

  struct Answered {
    std::optional<uint64_t> owner;  // none: the RTR
    uint64_t original;              // atomics: the value found
  };
  // Whether the answer to the oldest is whole.
  bool has_answered() const { return !requests_.is_empty() && requests_.front().is_whole(); }
  // That request: it is no longer outstanding.
  std::optional<Answered> take_answered() {
    if (!has_answered()) return std::nullopt;
    const Request& r = requests_.front();
    const Answered out{r.is_rtr ? std::nullopt : std::optional(r.owner), r.original};
    requests_.pop();
    return out;
  }

 private:
  struct Request {
    uint64_t owner = 0;
    ReadRequest read;
    uint64_t original = 0;  // atomics: the value the peer sent back
    uint32_t request_id = 0;
    uint32_t number = 0;  // in fragments_
    uint32_t prefix = 0;
    bool is_atomic = false;
    bool is_rtr = false;
    bool has_end = false;
    bool is_whole() const { return has_end && prefix == read.length; }
  };

  Request& push();
  MutBytes atomic_buffer(uint64_t cookie) const;

  ddp::Ring<Request> requests_;
  ddp::Fragments fragments_;
  ddp::ReceiveQueue atomic_responses_;
  std::unique_ptr<uint8_t[]> atomic_buffers_;  // max_ord + 1 of RDMAP_ATOMIC_RESPONSE_SIZE
  ddp::LlpOrder order_;
  uint32_t max_ord_;
  uint32_t ord_ = 0;
  uint32_t next_number_ = 0;
  uint32_t next_atomic_buffer_ = 0;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_OUTBOUND_REQUESTS_H_
