// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The short way through a queue pair, for an LLP that takes a segment whole as soon as it is asked
// and loses nothing: a Send, Immediate Data or Write of one segment goes out without an entry in
// the send queue, and comes in without an open placement; and one-sided work on memory of the
// peer's that lies here, too, is done without a segment. It is for the common case alone: whatever
// would have to wait, be cut, be answered or be refused is left to Qp, whose state it shares; so
// both may be mixed at any time, and what a peer or the program sees is the same.
//
// Without the lock that stag_table.h speaks of, but for what is said to need it: in one thread at a
// time, and not while another is in the queue pair's own calls (posting excepted).
#ifndef DDPSOCK_RDMAP_DIRECT_WAY_H_
#define DDPSOCK_RDMAP_DIRECT_WAY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "ddp/segment.h"
#include "rdmap/message.h"
#include "rdmap/qp.h"

namespace ddpsock::rdmap {

// A message as the one segment that carries it. Its payload lies where the request says.
struct DirectSegment {
  Opcode opcode;
  uint32_t header_length;  // of DDP
  uint32_t payload_length;
  std::span<const Bytes> payload;
};

// What of the peer's memory a request is about.
struct Aim {
  uint32_t stag;
  uint32_t length;
  uint64_t to;
  Rights needed;
};

class DirectWay {
 public:
  // Both outlive it. `stags`: those of `qp`.
  DirectWay(Qp& qp, StagTable& stags) : qp_(qp), stags_(stags) {}

  // Whether what is posted now would go out next: nothing is queued, under way or owed to the peer.
  bool may_send() const {
    return qp_.state() == QpState::kRts && qp_.output_.may_send() && qp_.output_.is_idle() &&
           qp_.sends_.is_drained() && qp_.inbound_.is_empty();
  }
  // `wr` as a segment of at most `mulpdu` octets. False: it is no such request, or not right. What
  // is signalled has a place for its completion from here on. REQUIRES: may_send().
  [[nodiscard]] bool cut(const SendWr& wr, uint32_t mulpdu, DirectSegment& out);
  // Its header, straight to where the LLP wants it.
  void write_header(const SendWr& wr, const DirectSegment& segment, uint8_t* to) const;
  // What cut() made of `wr` is the LLP's, and its payload the poster's again.
  void note_sent(const DirectSegment& segment) {
    qp_.output_.note_direct(is_tagged(segment.opcode), segment.payload_length);
    qp_.sends_.note_direct();
  }
  // ... so that it is complete, as its queue is told now. With the lock. REQUIRES: `wr` is
  // signalled.
  void complete(const SendWr& wr, const DirectSegment& segment) {
    qp_.sends_.complete_direct(wr.id, kind_of(wr), segment.payload_length, WorkStatus::kOk, 0);
  }

  // One-sided work that the peer need not take part in, because its memory lies here, too. What it
  // wants of that. False: it is no such work, too long to be done in one call, or not right.
  // REQUIRES: may_send().
  [[nodiscard]] bool aim(const SendWr& wr, Aim& out) const {
    const bool is_message = kind_of(wr) == WorkKind::kSend || kind_of(wr) == WorkKind::kImmediate;
    return !is_message && aim_one_sided(wr, out);
  }
  // Does it; `found`: by an atomic. False: it cannot be done so, and has not been. REQUIRES: aim()
  // said `aim`, which is `there`; the peer has placed all that was sent before.
  // `has_lock`: nothing of ours is deregistered meanwhile.
  [[nodiscard]] bool reach(const SendWr& wr, uint8_t* there, bool has_lock, uint64_t& found);
  // Where a Read wants what it reads, of memory that does not lie here; stays ours until
  // unpin_sink(). Nothing: it is no such work, or not right. REQUIRES: as reach().
  [[nodiscard]] std::optional<MutBytes> pin_sink(const SendWr& wr);
  void unpin_sink(const SendWr& wr);
  // It counts as sent and done. Until then it may yet go another way, unless it is an atomic.
  void note_reached(const Aim& aim);
  // A place for its completion, followed by complete() or by release().
  [[nodiscard]] bool reserve() { return qp_.sends_.reserve_direct(); }
  void release() { qp_.sends_.release_direct(); }
  // With the lock. As flushed if the stream has failed by now.
  void complete(const SendWr& wr, const Aim& aim, uint64_t found);

  // Where the payload of a segment goes: room for it or for more, in this order. False: it is for
  // Qp to place. REQUIRES: all that came before has been placed; `header` is whole.
  [[nodiscard]] bool place(Bytes header, uint32_t payload);
  std::span<const MutBytes> placement() const { return ranges_; }
  // The payload is there. True: a receive is complete by that, and `out` says so instead of its
  // queue. REQUIRES: place() has said where.
  bool finish(Completion& out);

 private:
  bool aim_one_sided(const SendWr& wr, Aim& out) const;
  bool fill_sink(const op::Read& read, const uint8_t* from, bool has_lock);
  bool place_message(Bytes header, uint32_t payload);
  bool place_write(Bytes header, uint32_t payload);

  Qp& qp_;
  StagTable& stags_;
  std::array<uint8_t, RDMAP_IMMEDIATE_SIZE> immediate_out_{}, immediate_in_{};
  Bytes range_out_{immediate_out_};
  // Of the segment that is placed.
  Opcode opcode_ = Opcode::kSend;
  uint32_t payload_ = 0;
  uint32_t stag_ = 0;
  std::span<const MutBytes> ranges_;
  MutBytes range_;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_DIRECT_WAY_H_
