// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The sending direction of one stream: which message goes out next, and cutting it. DDP messages
// are not interleaved: what was submitted first goes first, be it a work request or the answer to a
// Read (RFC 5041 section 5.3); but a request that waits for a fence or for ORD never holds up an
// answer, or two ends could wait for each other.
#ifndef DDPSOCK_RDMAP_SEGMENT_OUTPUT_H_
#define DDPSOCK_RDMAP_SEGMENT_OUTPUT_H_

#include <array>
#include <cstdint>

#include "ddp/segment.h"
#include "ddp/segmenter.h"
#include "rdmap/inbound_requests.h"
#include "rdmap/message.h"
#include "rdmap/qp_counters.h"
#include "rdmap/send_queue.h"
#include "rdmap/state.h"
#include "rdmap/terminate.h"

namespace ddpsock::rdmap {

class SegmentOutput {
 public:
  // All outlive it. Messages come from `sends` and `inbound`.
  SegmentOutput(SendQueue& sends, InboundRequests& inbound, QpCounters& counters);

  // The initiator may send at once, and owes the RTR frame first.
  void start(const Start& start);
  // The responder may when it has received (RFC 5044 section 7.1.2).
  void open() { may_send_ = true; }
  bool may_send() const { return may_send_; }
  // Between messages an empty Write.
  void nudge() { is_nudge_pending_ = true; }

  bool has_next() const { return choose() != Source::kNone; }
  // As Qp::next_segment().
  bool next_segment(uint32_t mulpdu, ddp::Segment& out);
  // The stream fails or ends: what has been cut of the message in progress is all that will be.
  void stop();
  // After stop(): this alone still goes out.
  void send_last(const Terminate& t);

  // No message is being cut, nothing that is not a work request or an answer waits, and the LLP has
  // everything.
  bool is_idle() const {
    return source_ == Source::kNone && !is_rtr_pending_ && !is_nudge_pending_ &&
           terminate_size_ == 0 && produced_ == sent_;
  }

  // The header of a message of one segment that goes out beside all this, now, and by note_direct()
  // has (direct_way.h). REQUIRES: is_idle().
  ddp::UntaggedHeader next_header(Opcode op, uint32_t word) const {
    const uint32_t qn = queue_of(op);
    return {.is_last = true,
            .rsvd_ulp = {control_byte(op), word},
            .qn = qn,
            .msn = next_msn_[qn],
            .mo = 0};
  }
  void note_direct(bool is_tagged, uint32_t payload) {
    ++produced_;
    ++sent_;
    if (!is_tagged) ++next_msn_[RDMAP_QN_SEND];
    counters_.segments_sent.add(1);
    counters_.bytes_sent.add(payload);
  }

  // Segments yielded so far, and how many of them the LLP has taken over.
  uint64_t produced() const { return produced_; }
  uint64_t sent() const { return sent_; }
  // REQUIRES: n <= produced() - sent().
  void note_sent(uint32_t n);

 private:
  // What the message being cut came from.
  enum class Source : uint8_t { kNone, kRtr, kNudge, kSendQueue, kResponse, kTerminate };

  Source choose() const;
  void start_message();
  void start_rtr();
  void start_entry(const SendEntry& e);
  void start_response(const Response& r);
  void start_terminate();
  void finish_message();
  ddp::UntaggedHeader untagged_header(Opcode op, uint32_t word = 0);
  void count(const ddp::Segment& s);

  SendQueue& sends_;
  InboundRequests& inbound_;
  QpCounters& counters_;
  ddp::Segmenter message_;  // what is being cut
  Source source_ = Source::kNone;
  Rtr rtr_ = Rtr::kNone;
  bool may_send_ = false;
  bool is_rtr_pending_ = false;
  bool is_nudge_pending_ = false;
  uint32_t terminate_size_ = 0;  // 0: none waits
  uint64_t produced_ = 0;
  uint64_t sent_ = 0;
  std::array<uint32_t, RDMAP_QN_COUNT> next_msn_;
  std::array<uint8_t, RDMAP_READ_REQUEST_SIZE> rtr_body_{};
  std::array<uint8_t, RDMAP_TERM_MAX_SIZE> terminate_body_{};
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_SEGMENT_OUTPUT_H_
