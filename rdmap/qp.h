// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One RDMAP stream seen as a queue pair: RFC 5040, RFC 7306, with the state machine of RDMA verbs.
// Pure protocol: ULPDU headers and events in, ULPDU headers and gather lists out. No clock, no
// lock, no system call; all memory is allocated when the object is made. The engine frames, checks
// the LLP's digest, moves the bytes and holds the lock of rdmap/stag_table.h around every call, but
// not for posting and state(), which any thread may do at any time, nor for direct_way.h.
//
// Receiving, for each ULPDU in turn:
//   1. place(header, length) names the memory its payload goes to;
//   2. the engine brings the payload there (reading straight from the socket if it likes) and
//   checks the
//      digest;
//   3. segment_placed() if it was right: only now anything is recorded, delivered or completed;
//      segment_spoilt() and terminate(TermCode::mpa(RDMAP_ECODE_MPA_CRC)) if not: bytes may have
//      been written, but nothing of that ULPDU is delivered.
//
// Sending: next_segment() yields ULPDUs until it has no more; segments_sent(n) reports how many of
// them, oldest first, the LLP has taken over. Work requests complete then, and memory they named is
// free then.
#ifndef DDPSOCK_RDMAP_QP_H_
#define DDPSOCK_RDMAP_QP_H_

#include <atomic>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "ddp/segmenter.h"
#include "rdmap/completion_queue.h"
#include "rdmap/inbound_requests.h"
#include "rdmap/qp_attr.h"
#include "rdmap/qp_counters.h"
#include "rdmap/segment_input.h"
#include "rdmap/segment_output.h"
#include "rdmap/send_queue.h"
#include "rdmap/shared_receives.h"
#include "rdmap/stag_table.h"
#include "rdmap/state.h"
#include "rdmap/terminate.h"
#include "rdmap/work.h"

namespace ddpsock::rdmap {

enum class LlpEnd : uint8_t {
  kFinBetween,  // the peer's FIN between two FPDUs
  kFinInside,   // its FIN cut an FPDU
  kLost,        // reset, timeout, or closed by the engine
};

// Destroying one completes nothing: unfinished work just vanishes with its completion slots and
// pins, and so do receives taken. Call on_llp_end(kLost) first to have it flushed. Neither copied
// nor moved.
class Qp {
 public:
  // `stags` and the queues must outlive the queue pair; several may share them. `shared`: where it
  // takes its receives, instead of having any posted. REQUIRES: &shared->cq() == &recv_cq.
  Qp(const QpAttr& attr, StagTable& stags, CompletionQueue& send_cq, CompletionQueue& recv_cq,
     SharedReceives* shared = nullptr);
  // False when an allocation of the constructor failed: discard the object.
  bool has_memory() const;

  // kIdle -> kRts. The initiator sends its RTR frame first, if one was agreed; the responder sends
  // nothing before it has received (RFC 5044 section 7.1.2). A Read RTR, agreed or (from the
  // initiator, where nothing was agreed) not, raises an IRD or ORD of 0 to 1 for that frame alone.
  // REQUIRES: ird <= max_ird, ord <= max_ord.
  void start(const Start& start);

  // Posting, in any thread: never waits for another. The ranges lists are borrowed for the call.
  // See Refusal for what the caller does about each.
  Posted post_send(std::span<const SendWr> work);
  Posted post_recv(std::span<const RecvWr> work);
  // Takes notice of what was posted. The calls below do so themselves where they depend on it, but
  // work that sends nothing is done here.
  void take_posted();
  // Once ended: whether a thread that was let in before is still posting. take_posted() flushes
  // what it posts.
  bool has_late_posts() const { return sends_.has_more() || input_.receives().queue().has_more(); }

  // `header`: the first bytes of a ULPDU, at least ddp::header_size(first byte) unless the ULPDU is
  // shorter; `ulpdu_length`: all of it. An error means that the stream has failed: the Terminate to
  // send is waiting in next_segment(), and nothing more of this ULPDU is wanted. After a failure
  // every further ULPDU is discarded (RFC 5041 section 7.1). REQUIRES: no placement is open.
  Result<Placement, TermCode> place(Bytes header, uint32_t ulpdu_length);
  // Ends the open placement. Delivering may find an error in its turn (an STag that cannot be
  // invalidated, a Read of memory not ours to give): state() tells.
  void segment_placed();
  void segment_spoilt();

  // The next ULPDU to send, or false. `mulpdu` may change from call to call; at least 128.
  bool next_segment(uint32_t mulpdu, ddp::Segment& out);
  // Whether next_segment() would yield one. Takes notice of what was posted, but does no work that
  // sends nothing.
  bool has_output();
  // Whether there is such work for take_posted(), which needs nothing of the LLP.
  bool has_local_work() const { return sends_.has_local_work() && is_open(); }
  // The LLP has taken over the `n` oldest segments not yet reported; their memory is not read
  // again. REQUIRES: n <= segments yielded and not reported.
  void segments_sent(uint32_t n);

  // Between messages a Write of no octets goes out: placed nowhere, seen by no ULP, legal always.
  void nudge() {
    if (state_ == QpState::kRts) output_.nudge();
  }

  // Graceful end: no new work; wants_close() once all posted sends are out and all Reads answered.
  void close();
  // Abortive end by ours: a Terminate without headers (RFC 5040 section 7.1 case 1), then
  // wants_close().
  void terminate(TermCode code);
  // The LLP ended. kFinBetween leaves the sending direction open while sends are posted; everything
  // else flushes at once: by then the engine must have stopped using all segments and placements.
  void on_llp_end(LlpEnd how);
  // Nothing more will be sent: shut the LLP down for writing, read to its end, close (RFC 5044
  // section 7.1.4). Never true with a Terminate unsent.
  bool wants_close() const;

  QpState state() const { return state_; }
  // Neither failed nor ended.
  bool is_open() const { return state_ == QpState::kRts || state_ == QpState::kClosing; }
  const TerminateInfo& terminate_info() const { return info_; }
  QpCounters& counters() { return counters_; }
  uint32_t number() const { return attr_.number; }
  StreamId stream() const { return attr_.stream(); }

 private:
  friend class DirectWay;

  bool is_drained() const;
  // The stream has failed as info_ says. REQUIRES: is_open().
  void enter_terminate();
  // Completes all that the LLP does not hold, or with `is_forced` all there is.
  void flush(bool is_forced);
  void end(EndReason reason);
  void end_if_drained();

  QpAttr attr_;
  QpCounters own_counters_;
  QpCounters& counters_;
  std::atomic<QpState> state_{QpState::kIdle};
  bool has_peer_closed_ = false;
  TerminateInfo info_;
  SendQueue sends_;
  InboundRequests inbound_;
  SegmentInput input_;
  SegmentOutput output_;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_QP_H_
