// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The receiving direction of one stream: where the payload of each ULPDU goes, and what becomes of
// it once it is there. Says what the stream fails for; ending it is the queue pair's.
#ifndef DDPSOCK_RDMAP_SEGMENT_INPUT_H_
#define DDPSOCK_RDMAP_SEGMENT_INPUT_H_

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "ddp/receive_queue.h"
#include "ddp/segment.h"
#include "rdmap/arrived_header.h"
#include "rdmap/inbound_requests.h"
#include "rdmap/message.h"
#include "rdmap/posted_receives.h"
#include "rdmap/qp_attr.h"
#include "rdmap/qp_counters.h"
#include "rdmap/send_queue.h"
#include "rdmap/stag_table.h"
#include "rdmap/state.h"
#include "rdmap/terminate.h"

namespace ddpsock::rdmap {

// Where one ULPDU's payload goes. Spans stay valid until segment_placed() or segment_spoilt().
struct Placement {
  uint32_t header_length = 0;   // ULPDU bytes before the payload
  uint32_t payload_length = 0;  // ULPDU bytes after the header
  ddp::ScatterList spans;       // payload_length bytes, or none when is_discarded
  bool is_discarded = false;    // read the payload from the LLP and drop it
};

// The segment between place() and close().
struct OpenSegment {
  enum class Kind : uint8_t { kUntagged, kRtrSend, kWrite, kReadResponse, kDiscarded };
  Kind kind = Kind::kDiscarded;
  ddp::UntaggedHeader untagged;
  ddp::TaggedHeader tagged;
  uint32_t read = 0;  // kReadResponse: by OutboundRequests::find()
  uint32_t payload_length = 0;
  bool is_duplicate = false;
  std::optional<uint32_t> pinned;
};

class SegmentInput {
 public:
  // All outlive it. Answers of the peer's are looked up in `sends`, its requests go to `inbound`;
  // `shared`: as for PostedReceives.
  SegmentInput(const QpAttr& attr, StagTable& stags, CompletionQueue& recv_cq,
               SharedReceives* shared, QpCounters& counters, SendQueue& sends,
               InboundRequests& inbound);
  ~SegmentInput() { drop_open(); }
  // False when an allocation of the constructor failed: discard the object.
  bool has_memory() const { return receives_.queue().has_memory() && terminates_.has_memory(); }

  void start(const Start& start);

  PostedReceives& receives() { return receives_; }
  const PostedReceives& receives() const { return receives_; }

  // As Qp::place(), of a stream that has not failed.
  Result<Placement, TermCode> place(Bytes header, uint32_t ulpdu_length);
  // The same, of one that has: it is not looked at.
  Placement discard(Bytes header, uint32_t ulpdu_length);

  bool is_open() const { return open_.has_value(); }
  // Between two segments of an RDMAP stream whose start-up is over, as one that came has shown.
  bool is_under_way() const { return has_traffic_ && !is_rtr_awaited_ && !open_; }
  // The payload is there, as the LLP sent it. Notes it and delivers what is whole by that, unless
  // the stream `has_failed` meanwhile. True: it fails by that, and `how` says why. REQUIRES:
  // is_open().
  bool close(bool has_failed, TerminateInfo& how);
  // The payload will not be there.
  void drop_open();

  // Whether some bytes of an untagged message not yet whole have been placed.
  bool has_partial();

  // How the stream fails for an error in the ULPDU placed last, which may be a Read Request.
  TerminateInfo blame(TermCode code, Bytes read_request = {}) const;

 private:
  ddp::ReceiveQueue& queue(uint32_t qn);
  Placement discard(uint32_t header, uint32_t payload);
  Result<Placement, TermCode> place_write(const ddp::TaggedHeader& h, uint32_t payload);
  Result<Placement, TermCode> place_read_response(const ddp::TaggedHeader& h, uint32_t payload);
  Result<Placement, TermCode> place_untagged(const ddp::UntaggedHeader& h, uint32_t payload);
  bool is_rtr_send(Opcode op, const ddp::UntaggedHeader& h, uint32_t payload) const;
  bool deliver(uint32_t qn, ddp::ReceiveQueue& from, TerminateInfo& how);
  TerminateInfo decode(const ddp::Delivered& d) const;
  void count(const OpenSegment& s);

  StagTable& stags_;
  QpCounters& counters_;
  SendQueue& sends_;
  InboundRequests& inbound_;
  StreamId stream_;
  Rtr rtr_ = Rtr::kNone;
  bool is_rtr_awaited_ = false;
  bool has_traffic_ = false;  // something besides the RTR frame came
  PostedReceives receives_;
  ddp::ReceiveQueue terminates_;
  std::array<uint8_t, RDMAP_TERM_MAX_SIZE> terminate_buffer_{};
  std::optional<OpenSegment> open_;
  ArrivedHeader last_;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_SEGMENT_INPUT_H_
