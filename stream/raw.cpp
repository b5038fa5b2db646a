// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The way back to plain TCP (doc/stream-protocol.md, "Raw"): the messages, and what the side does
// that is asked. A direction is plain behind its marker. Whoever reads a marker and has sent none
// sends one. Who asks says how far it has looked and returns what its program has not read; the
// other marks only if it has sent nothing since, and says those bytes again behind its marker. So
// nothing is lost or comes twice, whether or not the side that asked gives up meanwhile.
#include "stream/raw.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "base/keep_errno.h"
#include "base/socket_option.h"
#include "base/sys.h"
#include "ddp/segment.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/lanes.h"
#include "stream/leaving.h"
#include "stream/memory_start.h"
#include "stream/raw_message.h"
#include "stream/rx.h"
#include "stream/sender.h"
#include "stream/tx.h"
#include "stream/watching.h"

namespace ddpsock::engine {

using rdmap::TermCode;

namespace {

constexpr uint32_t kHead = kChunkHeader + DDPSOCK_RAW_SIZE;
// What the kernel may charge for so many bytes.
constexpr size_t charge_for(size_t bytes) {
  return 2 * bytes + 4096;
}

uint8_t* write_raw_header(uint8_t* p, uint32_t ulpdu, uint32_t msn) {
  p = mpa::write_header(p, static_cast<uint16_t>(ulpdu));
  return ddp::write_header(p,
                           ddp::UntaggedHeader{.is_last = true,
                                               .rsvd_ulp = {RDMAP_CTRL_IETF | RDMAP_OP_SEND_SE, 0},
                                               .qn = RDMAP_QN_SEND,
                                               .msn = msn,
                                               .mo = 0});
}

// What the program has sent may lie unacknowledged, and what asks or answers would wait behind it:
// for 40 ms, where the peer has nothing to send (Nagle), or for the program (cork).
void push(int fd) {
  for (const int option : {TCP_NODELAY, TCP_CORK}) {
    const int pushing = option == TCP_NODELAY ? 1 : 0;
    const int value = base::socket_option(fd, IPPROTO_TCP, option).value_or(pushing);
    if (value == pushing) continue;
    base::set_socket_option(fd, IPPROTO_TCP, option, pushing);
    base::set_socket_option(fd, IPPROTO_TCP, option, value);
  }
}

}  // namespace

static int take_mark(Connection& c, int fd, uint32_t repeated);
static stream::MemoryOffer offer_in(const RawMessage& message);

bool is_raw_message(const Connection& c, const uint8_t* fpdu) {
  if (!c.speaks_raw()) return false;
  const auto view =
      ddp::UntaggedView::parse({fpdu + MPA_ULPDU_LENGTH_SIZE, DDP_UNTAGGED_HEADER_SIZE});
  return view && view->qn() == RDMAP_QN_SEND &&
         (view->rsvd_ulp().control & RDMAP_CTRL_OPCODE_MASK) == RDMAP_OP_SEND_SE;
}

int take_raw_message(Connection& c, int fd, Bytes ulpdu) {
  const auto message = decode_raw(ulpdu, c.rx.msn);
  const bool is_mark = message && message->kind == DDPSOCK_RAW_MARK;
  const bool is_offer = message && message->kind == DDPSOCK_RAW_OFFER;
  if (!message || c.rx.mo != 0 || (is_offer && c.r.role != Role::kResponder) ||
      (is_mark && (message->number > c.r.raw.asked_bytes || c.r.is_one_sided)))
    return fail_protocol(c, fd, TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE), ulpdu);
  ++c.rx.msn;
  note_fpdu_read(c);
  c.r.received.fpdus.add(1);
  if (is_mark) return take_mark(c, fd, message->number);
  if (is_offer) {
    note_invitation(c, offer_in(*message));
    return 0;
  }
  Hold hold(c, c.tx.lease);
  if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0) answer_raw(c, fd, *message);
  return 0;
}

static stream::MemoryOffer offer_in(const RawMessage& message) {
  stream::MemoryOffer offer{.pid = message.number, .fd = base::load_be32(message.rest.data())};
  std::copy_n(message.rest.begin() + sizeof offer.fd, offer.secret.size(), offer.secret.begin());
  return offer;
}

// Has the peer seen all we have sent, but for what is of this protocol itself?
static bool has_all_been_seen(const Connection& c, uint32_t msn_seen) {
  if (msn_seen == c.tx.msn) return true;
  const RawState& raw = c.r.raw;
  return raw.control_end == c.tx.msn &&
         msn_seen - raw.control_begin <= raw.control_end - raw.control_begin;
}

void answer_raw(Connection& c, int fd, const RawMessage& question) {
  if (c.r.is_one_sided || c.r.raw.is_tx_plain || !c.tx.is_started || c.tx.is_shut) return;
  if (c.is_state(StreamState::kFailed) || !has_all_been_seen(c, question.number)) return;
  if (c.tx.tail_block != Blocks::kNoBlock) {
    if (const int e = flush_tail(c, fd, false); e != 0) return keep_send_error(c, e);
  }
  // It closes our lane before it asks.
  if (c.r.memory.sending == Way::kMemory) {
    if (c.is_sending_beyond_reach() || !OutLane(c)->is_closed()) return;
    leave_as_writer(c, fd);
  }
  keep_error(c, send_mark(c, fd, question.rest));
}

int send_mark(Connection& c, int fd, Bytes repeated) {
  close_lanes(c, fd, true);
  const auto number = static_cast<uint32_t>(repeated.size());
  if (const int e = send_raw_message(c, fd, DDPSOCK_RAW_MARK, number, {}, repeated); e != 0)
    return e;
  c.r.raw.is_tx_plain.store(true, std::memory_order_release);
  note_turning(c);
  return 0;
}

int send_memory_offer(Connection& c, int fd, const stream::MemoryOffer& offer) {
  std::array<uint8_t, DDPSOCK_RAW_OFFER_SIZE> body;
  std::ranges::copy(offer.secret, base::store_be32(body.data(), offer.fd));
  return send_raw_message(c, fd, DDPSOCK_RAW_OFFER, offer.pid, body, {}, MSG_MORE);
}

int send_raw_message(Connection& c, int fd, uint32_t kind, uint32_t number, Bytes body,
                     Bytes behind, int flags) {
  const auto ulpdu =
      static_cast<uint32_t>(DDP_UNTAGGED_HEADER_SIZE + DDPSOCK_RAW_SIZE + body.size());
  const size_t total = fpdu_size(ulpdu) + behind.size();
  const bool has_room = send_memory(fd).free() >= charge_for(total) ||
                        (total <= Sender::kMinAllowance && is_ready_now(fd, POLLOUT));
  if (!has_room) return EAGAIN;
  uint8_t head[kHead], trailer[kMaxTrailer];
  uint8_t* p = write_raw_header(head, ulpdu, c.tx.msn);
  base::store_be32(base::store_be32(p, kind), number);
  uint32_t crc = 0;
  if (c.r.has_crc) crc = base::crc32c_extend(base::crc32c({head, kHead}), body);
  const auto pad = static_cast<uint32_t>(mpa::pad_size(ulpdu));
  write_trailer(trailer, pad, crc, c.r.has_crc);
  iovec parts[] = {{head, kHead},
                   {const_cast<uint8_t*>(body.data()), body.size()},
                   {trailer, pad + MPA_CRC_SIZE},
                   {const_cast<uint8_t*>(behind.data()), behind.size()}};
  msghdr m{};
  m.msg_iov = parts;
  m.msg_iovlen = std::size(parts);
  c.tx.credit = 0;
  const ssize_t n = without_cancellation(
      [&] { return base::sys.sendmsg(fd, &m, flags | MSG_DONTWAIT | MSG_NOSIGNAL); });
  if (n < 0) return errno;
  RawState& raw = c.r.raw;
  if (raw.control_end != c.tx.msn) raw.control_begin = c.tx.msn;
  raw.control_end = ++c.tx.msn;
  c.r.sent.fpdus.add(1);
  if (is_watched()) {
    const std::array<Bytes, 3> fpdu = {Bytes(head), body, Bytes(trailer).first(pad + MPA_CRC_SIZE)};
    tell_sent_pieces(c, fpdu);
  }
  if ((flags & MSG_MORE) == 0) push(fd);
  if (static_cast<size_t>(n) == total) return 0;
  // Against all accounts; what has begun must go on.
  IoCursor rest({parts, std::size(parts)});
  rest.skip(static_cast<size_t>(n));
  return keep_tail(c, fd, rest, rest.left());
}

void note_turning(Connection& c) {
  StreamState open = StreamState::kOpen;
  c.r.state.compare_exchange_strong(open, StreamState::kTurning);
}

// REQUIRES: the receive lease.
static int take_mark(Connection& c, int fd, uint32_t repeated) {
  // Before it marks, the peer has left the memory and we have read what lay in it.
  if (close_lanes(c, fd)) {
    if (const int e = empty_lane(c, fd); e != 0) return e;
    reach_beyond(c);
  }
  c.r.raw.skip = repeated;
  c.r.raw.is_rx_plain.store(true, std::memory_order_release);
  note_turning(c);
  // If not now, then with the next call that sends.
  Hold hold(c, c.tx.lease);
  if (!c.r.raw.is_tx_plain && hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0 &&
      !c.r.raw.is_tx_plain && !c.tx.is_shut && c.tx.tail_block == Blocks::kNoBlock)
    keep_error(c, send_mark(c, fd, {}));
  return EPROTOTYPE;
}

bool become_plain(Connection& c, int fd) {
  if (fd < 0) return false;
  const bool is_tx_over = c.r.raw.is_tx_plain || c.tx.is_shut;
  if (!c.r.raw.is_rx_plain || !is_tx_over || c.r.raw.skip > 0 || c.inbox.has_bytes() ||
      c.inbox.has_beyond() || c.tx.tail_block != Blocks::kNoBlock)
    return false;
  c.inbox.clear(c.arena.blocks);
  const base::KeepErrno keep;
  if (c.rx.has_queue_hints) base::set_socket_option(fd, IPPROTO_TCP, TCP_INQ, 0);
  if (const int low_water = c.rx.low_water; low_water > 1) set_kernel_low_water(fd, low_water);
  StreamState turning = StreamState::kTurning;
  const bool is_turned = c.r.state.compare_exchange_strong(turning, StreamState::kPlain);
  if (is_turned && is_watched())
    tell_event(c, Observer::Event::kPlain, "both ends have agreed to it");
  return c.is_state(StreamState::kPlain);
}

}  // namespace ddpsock::engine
