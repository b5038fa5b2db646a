// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One RDMAP stream seen as a queue pair: RFC 5040, RFC 7306, with the state machine of RDMA verbs.
// Pure protocol: ULPDU headers and events in, ULPDU headers and gather lists out. No clock, no
// lock, no system call; all memory is allocated when the object is made. The engine frames, checks
// the LLP's digest, moves the bytes and holds the lock of rdmap/stag_table.h around every call, but
// not for posting and state(), which any thread may do at any time.
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

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "base/bytes.h"
#include "base/result.h"
#include "ddp/fragments.h"
#include "ddp/post_ring.h"
#include "ddp/receive_queue.h"
#include "ddp/ring.h"
#include "ddp/segment.h"
#include "ddp/segmenter.h"
#include "rdmap/completion_queue.h"
#include "rdmap/message.h"
#include "rdmap/qp_counters.h"
#include "rdmap/shared_receives.h"
#include "rdmap/stag_table.h"
#include "rdmap/state.h"
#include "rdmap/terminate.h"
#include "rdmap/work.h"

namespace ddpsock::rdmap {

// Sizes and identity, fixed for the life of the queue pair.
struct QpAttr {
  uint32_t number = 0;  // for STags bound to one queue pair, and in completions
  uint32_t pd = 0;      // protection domain
  uint32_t send_depth = 64;
  // With shared receives: how many messages ahead of the next to be delivered a segment may belong
  // to, where the LLP reorders them.
  uint32_t recv_depth = 64;
  uint32_t max_ird = 8;  // upper bound of Start::ird
  uint32_t max_ord = 8;  // upper bound of Start::ord
  uint32_t max_fragments = 32;
  ddp::LlpOrder order = ddp::LlpOrder::kInOrder;
  QpCounters* counters = nullptr;  // outlive the queue pair; none: its own
};

// What MPA start-up agreed.
struct Start {
  bool is_initiator = false;
  Rtr rtr = Rtr::kNone;
  uint32_t ird = 0;  // Reads and atomics the peer may have outstanding here
  uint32_t ord = 0;  // Reads and atomics we may have outstanding there
};

enum class LlpEnd : uint8_t {
  kFinBetween,  // the peer's FIN between two FPDUs
  kFinInside,   // its FIN cut an FPDU
  kLost,        // reset, timeout, or closed by the engine
};

// Where one ULPDU's payload goes. Spans stay valid until segment_placed() or segment_spoilt().
struct Placement {
  uint32_t header_length = 0;   // ULPDU bytes before the payload
  uint32_t payload_length = 0;  // ULPDU bytes after the header
  ddp::ScatterList spans;       // payload_length bytes, or none when is_discarded
  bool is_discarded = false;    // read the payload from the LLP and drop it
};

class Qp {
 public:
  // `stags` and the queues must outlive the queue pair; several may share them. `shared`: where it
  // takes its receives, instead of having any posted. REQUIRES: &shared->cq() == &recv_cq.
  Qp(const QpAttr& attr, StagTable& stags, CompletionQueue& send_cq, CompletionQueue& recv_cq,
     SharedReceives* shared = nullptr);
  // Completes nothing: unfinished work just vanishes with its completion slots and pins, and so do
  // receives taken. Call on_llp_end(kLost) first to have it flushed.
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

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
  bool has_late_posts() const { return sq_.has_more() || queues_[RDMAP_QN_SEND].has_more(); }

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
  // Whether next_segment() would yield one.
  bool has_output();
  // The LLP has taken over the `n` oldest segments not yet reported; their memory is not read
  // again. REQUIRES: n <= segments yielded and not reported.
  void segments_sent(uint32_t n);

  // Between messages a Write of no octets goes out: placed nowhere, seen by no ULP, legal always.
  void nudge() { is_nudge_pending_ = state_ == QpState::kRts; }

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
  const TerminateInfo& terminate_info() const { return info_; }
  QpCounters& counters() { return counters_; }
  uint32_t number() const { return attr_.number; }
  StreamId stream() const { return {attr_.number, attr_.pd}; }

 private:
  // One posted send work request. Its address does not change while it is queued.
  struct SendEntry {
    enum class Stage : uint8_t { kWaiting, kStarted, kProduced };
    uint64_t id = 0;
    uint64_t last_segment = 0;  // ordinal of its last segment, once kProduced
    uint32_t length = 0;
    uint32_t stag = 0;  // Write: the peer's; LocalInvalidate: ours; Send: the one to invalidate
    uint64_t to = 0;
    Opcode opcode = Opcode::kSend;
    WorkKind kind = WorkKind::kSend;
    WorkStatus status = WorkStatus::kOk;
    Stage stage = Stage::kWaiting;
    bool is_signalled = false;
    bool has_fence = false;
    bool is_void = false;  // was refused after all
    bool awaits_response = false;
    bool has_pin = false;                    // Read: on the sink
    uint64_t original = 0;                   // atomics: the value the peer sent back
    ReadRequest read;                        // Read
    AtomicRequest atomic;                    // atomics
    std::array<uint8_t, kMaxInline> body{};  // inline payload or RDMAP header
    ddp::GatherList payload;
  };

  // A Read or atomic of ours that the peer has not answered.
  struct Outstanding {
    uint64_t entry = 0;  // ordinal of the SendEntry
    ReadRequest read;
    uint32_t request_id = 0;
    uint32_t number = 0;  // in fragments_
    uint32_t prefix = 0;
    bool is_atomic = false;
    bool is_rtr = false;
    bool has_end = false;
    bool is_whole() const { return has_end && prefix == read.length; }
  };

  // The answer to a Read or atomic of the peer's.
  struct Response {
    uint64_t sends_before = 0;  // how many sends of ours had been posted by then
    uint64_t last_segment = 0;
    uint64_t cookie = 0;  // of the request buffer to post again
    ReadRequest read;
    MutBytes source;
    std::array<uint8_t, RDMAP_ATOMIC_RESPONSE_SIZE> body{};
    bool is_atomic = false;
    bool has_pin = false;  // on the source
  };

  // The segment between place() and segment_placed().
  struct OpenSegment {
    enum class Kind : uint8_t { kUntagged, kRtrSend, kWrite, kReadResponse, kDiscarded };
    Kind kind = Kind::kDiscarded;
    ddp::UntaggedHeader untagged;
    ddp::TaggedHeader tagged;
    uint32_t read = 0;  // index in reads_
    uint32_t payload_length = 0;
    bool is_duplicate = false;
    std::optional<uint32_t> pinned;
  };

  enum class Source : uint8_t { kNone, kRtr, kNudge, kSendQueue, kResponse };

  // qp_post.cpp
  Refusal check(const SendWr& wr) const;
  void drop(std::span<const SendWr> work);
  void fill(SendEntry& e, const SendWr& wr);
  static void fill_payload(SendEntry& e, std::span<const Bytes> ranges, bool is_inline);
  static void fill_atomic(SendEntry& e, WorkKind kind, const AtomicRequest& request);
  static void use_body(SendEntry& e, uint32_t length);
  // qp.cpp
  void post_request_buffer(uint64_t cookie);
  MutBytes request_buffer(uint64_t cookie) const {
    return {&request_buffers_[cookie * RDMAP_ATOMIC_REQUEST_SIZE], RDMAP_ATOMIC_REQUEST_SIZE};
  }
  MutBytes answer_buffer(uint64_t cookie) const {
    return {&answer_buffers_[cookie * RDMAP_ATOMIC_RESPONSE_SIZE], RDMAP_ATOMIC_RESPONSE_SIZE};
  }
  // qp_input.cpp
  Result<Placement, TermCode> place_tagged(const ddp::TaggedView& view, uint32_t payload);
  Result<Placement, TermCode> place_untagged(const ddp::UntaggedView& view, uint32_t payload);
  Result<Placement, TermCode> place_write(const ddp::TaggedHeader& h, uint32_t payload);
  Result<Placement, TermCode> place_read_response(const ddp::TaggedHeader& h, uint32_t payload);
  Result<uint32_t, TermCode> read_for(const ddp::TaggedHeader& h, uint32_t payload) const;
  Placement discard(uint32_t header, uint32_t payload);
  void take_shared(const ddp::UntaggedHeader& h);
  bool is_rtr_send(Opcode op, const ddp::UntaggedHeader& h, uint32_t payload) const;
  void note_read_response(const OpenSegment& s);
  // qp_deliver.cpp
  void deliver_untagged(uint32_t qn);
  void deliver_receive(const ddp::Delivered& d);
  void deliver_request(const ddp::Delivered& d);
  void deliver_read_request(const ddp::Delivered& d, Bytes body);
  void deliver_atomic_request(const ddp::Delivered& d, Bytes body);
  void deliver_atomic_response(const ddp::Delivered& d);
  void push_response(const ddp::Delivered& d, Response&& r);
  void deliver_terminate(const ddp::Delivered& d);
  void deliver_reads();
  // qp_output.cpp
  Source choose() const;
  bool can_start_entry() const;
  void start_rtr();
  bool is_drained() const;
  void run_local_work();
  void start_entry();
  void expect_response(SendEntry& e);
  void start_response();
  void finish_message();
  void start_terminate();
  ddp::UntaggedHeader untagged_header(Opcode op, uint32_t word = 0);
  // qp_end.cpp
  std::unexpected<TermCode> fail_segment(TermCode code, Bytes read_request = {});
  void take_last_header(Bytes header, uint32_t ulpdu_length);
  void enter_terminate(const Terminate& t, EndReason reason);
  void retire();
  void retire_responses();
  void drop_responses(bool is_forced);
  void abandon_message();
  void complete(const SendEntry& e, WorkStatus status);
  void complete_receive(const Completion& c);
  void count_sent(const ddp::Segment& s);
  void count_received(const OpenSegment& s);
  Completion receive_completion(uint64_t id) const;
  void flush_receives();
  void flush_sends(bool is_forced);
  void flush(bool is_forced);
  void end(EndReason reason);
  void end_if_drained();
  bool has_partial_receive() const;
  bool has_unanswerable_work() const;
  bool has_unsendable_work() const { return !may_send_ && !sq_.is_empty(); }
  bool is_open() const { return state_ == QpState::kRts || state_ == QpState::kClosing; }

  QpAttr attr_;
  QpCounters own_counters_;
  QpCounters& counters_;
  StagTable& stags_;
  CompletionQueue& send_cq_;
  CompletionQueue& recv_cq_;
  SharedReceives* const shared_;

  std::atomic<QpState> state_{QpState::kIdle};
  TerminateInfo info_;
  Start start_;

  // Sending.
  ddp::PostRing<SendEntry> sq_;
  uint32_t sq_next_ = 0;  // index of the first entry not started
  ddp::Ring<Response> responses_;
  uint32_t responses_next_ = 0;  // index of the first one not started
  ddp::Segmenter message_;       // what is being cut
  Source source_ = Source::kNone;
  uint64_t produced_ = 0;  // segments yielded
  uint64_t sent_ = 0;      // segments the LLP has taken over
  std::array<uint32_t, RDMAP_QN_COUNT> next_msn_;
  bool may_send_ = false;
  bool is_rtr_pending_ = false;
  bool is_nudge_pending_ = false;
  bool is_terminate_pending_ = false;
  bool has_peer_closed_ = false;
  std::array<uint8_t, RDMAP_READ_REQUEST_SIZE> rtr_body_{};
  std::array<uint8_t, RDMAP_TERM_MAX_SIZE> terminate_body_{};

  // Receiving.
  std::array<ddp::ReceiveQueue, RDMAP_QN_COUNT> queues_;
  std::unique_ptr<uint8_t[]> request_buffers_;  // max_ird + 1 of RDMAP_ATOMIC_REQUEST_SIZE
  std::unique_ptr<uint8_t[]> answer_buffers_;   // max_ord of RDMAP_ATOMIC_RESPONSE_SIZE
  std::array<uint8_t, RDMAP_TERM_MAX_SIZE> terminate_buffer_{};
  uint32_t next_answer_buffer_ = 0;
  ddp::Ring<Outstanding> reads_;
  ddp::Fragments read_fragments_;
  uint32_t next_read_number_ = 0;
  std::optional<OpenSegment> open_;
  std::array<uint8_t, DDP_MAX_HEADER_SIZE> last_header_{};  // of the segment that came last
  uint32_t last_header_length_ = 0;
  uint32_t last_ulpdu_length_ = 0;
  bool has_traffic_ = false;  // something besides the RTR frame was exchanged
  bool is_rtr_awaited_ = false;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_QP_H_
