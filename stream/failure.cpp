// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a connection ends early: with the right Terminate (RFC 5040 section 4.8) where one can still
// be sent, a reason kept for DDP_STATUS, and an errno for the program. Nothing else is disturbed.
#include "stream/failure.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "ddp/segment.h"
#include "stream/kernel_socket.h"
#include "stream/leaving.h"
#include "stream/octets.h"
#include "stream/one_sided.h"
#include "stream/raw.h"
#include "stream/watching.h"

namespace ddpsock::engine {

using rdmap::TermCode;

namespace {

constexpr int kMostReadsAtEnd = 1024;

// What is wrong with an untagged segment that is neither stream data nor a Terminate.
TermCode judge(const ddp::UntaggedView& v, uint32_t msn, uint32_t mo) {
  if (v.qn() >= RDMAP_QN_COUNT) return TermCode::ddp(ddp::Error::kInvalidQn);
  if (v.qn() != RDMAP_QN_SEND) return TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE);
  switch (v.rsvd_ulp().control & RDMAP_CTRL_OPCODE_MASK) {
    case RDMAP_OP_SEND_INVALIDATE:
    case RDMAP_OP_SEND_SE_INVALIDATE:
      return TermCode::protection(RDMAP_ECODE_CANNOT_INVALIDATE);
    case RDMAP_OP_SEND:
    case RDMAP_OP_SEND_SE:
      if (v.msn() != msn) return TermCode::ddp(ddp::Error::kMsnRange);
      if (v.mo() != mo) return TermCode::ddp(ddp::Error::kInvalidMo);
      if (v.after_header().size() > UINT32_MAX - mo) return TermCode::ddp(ddp::Error::kTooLong);
      [[fallthrough]];
    default:
      return TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE);
  }
}

}  // namespace

static void send_terminate(Connection& c, int fd, TermCode code, Bytes segment);

int take_control(Connection& c, int fd, Bytes fpdu) {
  if (c.r.is_one_sided.load(std::memory_order_relaxed)) {
    const int e = hand_over(c, fpdu);
    if (e == 0 && is_watched()) tell_received(c, fpdu);
    if (e != EOPNOTSUPP) return e;
  }
  return refuse_control(c, fd, fpdu);
}

int refuse_control(Connection& c, int fd, Bytes fpdu) {
  const uint32_t size = fpdu_size(base::load_be16(fpdu.data()));
  if (fpdu.size() < size || base::load_be16(fpdu.data()) < DDP_TAGGED_HEADER_SIZE)
    return fail_protocol(c, fd, TermCode::ddp(ddp::Error::kLocalCatastrophic), {});
  if (is_watched()) tell_received(c, fpdu.first(size));
  if (c.r.has_crc) {
    c.count_crc();
    if (!ChunkReader::is_intact(fpdu.first(size))) return fail_crc(c, fd);
  }
  const Bytes ulpdu = mpa::ulpdu_of(fpdu.first(size));
  if (is_raw_message(c, fpdu.data())) return take_raw_message(c, fd, ulpdu);
  if (ddp::is_tagged(ulpdu[0])) {
    const auto view = ddp::TaggedView::parse(ulpdu);
    if (!view) return fail_protocol(c, fd, TermCode::ddp(view.error()), ulpdu);
    // A zero-length Write is how a stranger says that it is ready (RFC 6581 section 4).
    if (view->after_header().empty() && view->is_last() &&
        (view->rsvd_ulp() & RDMAP_CTRL_OPCODE_MASK) == RDMAP_OP_WRITE)
      return 0;
    return fail_protocol(c, fd, TermCode::ddp(ddp::Error::kInvalidStag), ulpdu);
  }
  const auto view = ddp::UntaggedView::parse(ulpdu);
  if (!view) return fail_protocol(c, fd, TermCode::ddp(view.error()), ulpdu);
  if (view->qn() == RDMAP_QN_TERMINATE &&
      (view->rsvd_ulp().control & RDMAP_CTRL_OPCODE_MASK) == RDMAP_OP_TERMINATE) {
    const auto t = rdmap::decode_terminate(view->after_header(), rdmap::Phase::kEstablished);
    return fail_lost(c, fd,
                     t ? rdmap::to_string(t->terminate.code) : "a Terminate that cannot be read");
  }
  return fail_protocol(c, fd, judge(*view, c.rx.msn, c.rx.mo), ulpdu);
}

int fail_protocol(Connection& c, int fd, TermCode code, Bytes segment) {
  send_terminate(c, fd, code, segment);
  end_connection(c, fd, rdmap::to_string(code));
  return EPROTO;
}

int fail_crc(Connection& c, int fd) {
  return fail_protocol(c, fd, TermCode::mpa(RDMAP_ECODE_MPA_CRC), {});
}

int fail_lost(Connection& c, int fd, const char* why) {
  end_connection(c, fd, why);
  return ECONNRESET;
}

int fail_cut(Connection& c, int fd) {
  // A reset may have come behind an end, which is where the stream was cut then; and where this end
  // has ended too, an end looks the same.
  // What is kept will be told, once.
  const bool is_told = c.r.is_loss_told.load(std::memory_order_relaxed) ||
                       is_told_once(c.tx.error) || is_told_once(c.r.fault);
  if (is_told && !c.tx.is_shut && has_been_reset(fd)) return 0;
  return fail_lost(c, fd, "the peer's stream ended inside an FPDU");
}

int fail_refused(Connection& c, int fd, int error, const char* why) {
  end_connection(c, fd, why);
  return error;
}

// Best effort, and never into the middle of an FPDU or before our start-up frame.
static void send_terminate(Connection& c, int fd, TermCode code, Bytes segment) {
  if (c.tx.lease.try_acquire() != base::Lease::Outcome::kAcquired) return;
  const bool are_fpdus_read = c.r.memory.sending.load(std::memory_order_relaxed) != Way::kMemory;
  if (c.tx.is_started && c.tx.tail_block == Blocks::kNoBlock && are_fpdus_read) {
    rdmap::Terminate t{};
    t.code = code;
    if (segment.size() >= DDP_TAGGED_HEADER_SIZE) {
      const size_t header = std::min<size_t>(ddp::header_size(segment[0]), segment.size());
      t.segment_length = static_cast<uint16_t>(segment.size());
      t.ddp_header_length = static_cast<uint8_t>(header);
      std::copy_n(segment.begin(), header, t.ddp_header.begin());
    }
    uint8_t frame[fpdu_size(DDP_UNTAGGED_HEADER_SIZE + RDMAP_TERM_MAX_SIZE)];
    const auto body = rdmap::encode(MutBytes(frame).subspan(kChunkHeader, RDMAP_TERM_MAX_SIZE), t);
    const auto ulpdu = static_cast<uint16_t>(DDP_UNTAGGED_HEADER_SIZE + body.value_or(0));
    ddp::write_header(mpa::write_header(frame, ulpdu),
                      ddp::UntaggedHeader{.is_last = true,
                                          .rsvd_ulp = {RDMAP_CTRL_IETF | RDMAP_OP_TERMINATE, 0},
                                          .qn = RDMAP_QN_TERMINATE,
                                          .msn = RDMAP_TERM_MSN,
                                          .mo = 0});
    mpa::finish_fpdu(MutBytes(frame).first(fpdu_size(ulpdu)), ulpdu, c.r.has_crc);
    const ssize_t n = base::sys.send(fd, frame, fpdu_size(ulpdu), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0 && is_watched()) tell_sent(c, Bytes(frame).first(fpdu_size(ulpdu)));
  }
  c.tx.lease.release();
}

void end_connection(Connection& c, int fd, const char* why) {
  const int saved = errno;
  c.r.note_failure(why);
  if (is_watched()) tell_event(c, Observer::Event::kFailed, why);
  c.r.state.store(StreamState::kFailed, std::memory_order_release);
  fail_in_memory(c);
  base::sys.shutdown(fd, SHUT_WR);
  // Unread bytes would turn our close into a reset, and a reset can destroy the Terminate in the
  // peer's queue; and a peer that waits for room would wait on, because a socket that does not read
  // any more opens no window. Bounded: a peer that keeps sending gets its reset.
  for (int i = 0; i < kMostReadsAtEnd; ++i)
    if (discard_octets(fd, kMostFiller, MSG_DONTWAIT) <= 0) break;
  base::sys.shutdown(fd, SHUT_RD);
  if (OneSided* q = c.queue_pair(); q != nullptr) q->wake();
  errno = saved;
}

}  // namespace ddpsock::engine
