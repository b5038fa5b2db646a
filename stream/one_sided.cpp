// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations of a stream: how a queue pair comes to share its connection, and sending.
// FPDUs of the queue pair lie between chunks, whole, in the order in which the send lease was had.
#include "stream/one_sided.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include <array>

#include "base/keep_errno.h"
#include "base/process.h"
#include "base/sys.h"
#include "ddp/segment.h"
#include "stream/descriptor.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/leaving.h"
#include "stream/sender.h"
#include "stream/start.h"
#include "stream/tx.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

using Outcome = base::Lease::Outcome;

// A send hands over so much, and then lets the queue pair in.
constexpr size_t kPiece = 256 * 1024;
constexpr size_t kPieceSlices = 64;
// The other side is only about to run: the thread that was woken, or the call that has the lease.
constexpr Duration kGiveWay = Duration::from_ms(1);
constexpr size_t kMostPieces = 1024;  // of one sendmsg

constexpr size_t kLeastFpdu = kChunkHeader;
constexpr size_t kMostTerminate = fpdu_size(DDP_UNTAGGED_HEADER_SIZE + RDMAP_TERM_MAX_SIZE);

// The next bytes, or as many as there are.
template <size_t kSize>
std::array<uint8_t, kSize> front_of(IoCursor from) {
  std::array<uint8_t, kSize> bytes{};
  from.get(bytes.data(), std::min(kSize, from.left()));
  return bytes;
}

// RFC 5041 section 4: tagged, or on a queue that a stream does not use. REQUIRES: an FPDU's first
// 20 bytes.
bool is_of_queue_pair(const uint8_t* p) {
  const uint8_t control = p[MPA_ULPDU_LENGTH_SIZE];
  if (ddp::is_tagged(control)) return base::load_be16(p) >= DDP_TAGGED_HEADER_SIZE;
  const auto view = ddp::UntaggedView::parse({p + MPA_ULPDU_LENGTH_SIZE, DDP_UNTAGGED_HEADER_SIZE});
  return view && base::load_be16(p) >= DDP_UNTAGGED_HEADER_SIZE && view->qn() != RDMAP_QN_SEND;
}

bool is_request(const uint8_t* p) {
  const auto view = ddp::UntaggedView::parse({p + MPA_ULPDU_LENGTH_SIZE, DDP_UNTAGGED_HEADER_SIZE});
  return view && view->qn() == RDMAP_QN_READ_REQUEST;
}

bool is_answer(const uint8_t* p) {
  const uint8_t control = p[MPA_ULPDU_LENGTH_SIZE];
  if (ddp::is_tagged(control)) {
    const uint8_t opcode = p[MPA_ULPDU_LENGTH_SIZE + 1] & RDMAP_CTRL_OPCODE_MASK;
    return opcode == RDMAP_OP_READ_RESPONSE && (control & DDP_CTRL_LAST) != 0;
  }
  const auto view = ddp::UntaggedView::parse({p + MPA_ULPDU_LENGTH_SIZE, DDP_UNTAGGED_HEADER_SIZE});
  return view && view->qn() == RDMAP_QN_ATOMIC_RESPONSE;
}

bool is_terminate(const uint8_t* p) {
  const auto view = ddp::UntaggedView::parse({p + MPA_ULPDU_LENGTH_SIZE, DDP_UNTAGGED_HEADER_SIZE});
  return view && base::load_be16(p) >= DDP_UNTAGGED_HEADER_SIZE && view->qn() == RDMAP_QN_TERMINATE;
}

const char* text_of_terminate(Bytes fpdu) {
  const auto t = rdmap::decode_terminate(mpa::ulpdu_of(fpdu).subspan(DDP_UNTAGGED_HEADER_SIZE),
                                         rdmap::Phase::kEstablished);
  return t ? rdmap::to_string(t->terminate.code) : "a Terminate";
}

}  // namespace

static Io send_piece(Connection& c, int number, IoCursor& left, int flags, bool is_further);
static void give_way(Connection& c);

// In a forked child the parent's is none.
OneSided* Connection::queue_pair() const {
  OneSided* found = own_queue_pair.load(std::memory_order_acquire);
  if (found == nullptr) [[likely]]
    return nullptr;
  const bool is_mine =
      queue_pair_generation.load(std::memory_order_relaxed) == base::process_generation();
  return is_mine ? found : nullptr;
}

Status<> begin_one_sided(Connection& c, int fd, OneSided& queue_pair) {
  const base::KeepErrno keep;
  if (c.is_turned()) return fail_errno(EOPNOTSUPP);
  if (c.r.peer == Peer::kUnknown && !c.rx.is_started) return fail_errno(ENOTCONN);
  if (c.rx.is_started && (c.r.peer_features & DDPSOCK_FEATURE_ONE_SIDED) == 0)
    return fail_errno(EOPNOTSUPP);
  if (!queue_pair.arrived.open()) return fail_errno(ENOMEM);
  const uint32_t me = c.arena.family.my_name();
  if (me == 0) return fail_errno(ENOMEM);
  // One that is dead, or has executed this program, has none any more.
  uint32_t owner = 0;
  while (!c.r.one_sided_owner.compare_exchange_strong(owner, me)) {
    const bool has_one =
        owner == me ? c.queue_pair() != nullptr : !c.arena.family.is_dead(owner, 0);
    if (has_one) return fail_errno(EOPNOTSUPP);
  }
  c.unanswered.store(0);
  c.queue_pair_generation.store(base::process_generation(), std::memory_order_relaxed);
  c.own_queue_pair.store(&queue_pair, std::memory_order_release);
  leave_memory(c, fd);
  c.r.is_one_sided.store(true);
  return {};
}

void end_one_sided(Connection& c) {
  if (c.queue_pair() == nullptr) return;
  c.own_queue_pair.store(nullptr, std::memory_order_release);
  uint32_t me = c.arena.family.my_name();
  c.r.one_sided_owner.compare_exchange_strong(me, 0);
}

Result<bool> one_sided_crc(Connection& c, int fd) {
  const base::KeepErrno keep;
  if (!c.rx.is_started) {
    Hold hold(c, c.rx.lease);
    if (hold.attempt() != Outcome::kAcquired) return fail_errno(EAGAIN);
    // An error of the socket's is the program's to hear of.
    if (!c.rx.is_started && bytes_queued(fd) == 0)
      return fail_errno(is_ready_now(fd, POLLRDHUP) ? ECONNRESET : EAGAIN);
    const int e = c.rx.is_started ? 0 : start_receiving(c, fd, MSG_DONTWAIT);
    if (e == EPROTOTYPE) return fail_errno(EOPNOTSUPP);
    if (e != 0) return fail_errno(e == kEndOfStream ? ECONNRESET : e);
  }
  if (c.is_state(StreamState::kFailed)) return fail_errno(ECONNRESET);
  if ((c.r.peer_features & DDPSOCK_FEATURE_ONE_SIDED) == 0) return fail_errno(EOPNOTSUPP);
  return c.r.has_crc.load();
}

Status<> announce(Connection& c, int fd) {
  const base::KeepErrno keep;
  if (c.tx.is_started) return {};
  if (const int e = prepare_to_send(c, fd, MSG_DONTWAIT); e != 0) return fail_errno(e);
  Hold hold(c, c.tx.lease);
  if (const int e = hold.take(fd, Hold::kSend, MSG_DONTWAIT); e != 0) return fail_errno(e);
  if (c.tx.is_started || c.is_state(StreamState::kFailed)) return {};
  const int e = send_start_frame(c, fd, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (e != 0) return fail_errno(e);
  return {};
}

// A lease is free again that the queue pair's thread had found taken.
void wake_waiting(Connection& c, bool is_send) {
  std::atomic<bool>& is_wanted = is_send ? c.tx.is_wanted : c.rx.is_wanted;
  if (!is_wanted.load()) return;
  OneSided* q = c.queue_pair();
  if (q == nullptr) return;
  is_wanted.store(false);
  q->wake();
}

Offered offer_fpdu(Connection& c, Bytes fpdu) {
  if (!is_of_queue_pair(fpdu.data())) return Offered::kUnasked;
  OneSided* q = c.queue_pair();
  if (q == nullptr) {
    const uint32_t owner = c.r.one_sided_owner.load();
    const bool is_foreign =
        owner != 0 && owner != c.arena.family.my_name() && !c.arena.family.is_dead(owner, 0);
    return is_foreign ? Offered::kForeign : Offered::kUnasked;
  }
  if (!q->arrived.push(fpdu)) return Offered::kNoRoom;
  if (is_answer(fpdu.data())) c.unanswered.fetch_sub(1);
  // It ends the stream, too.
  return is_terminate(fpdu.data()) ? Offered::kUnasked : Offered::kTaken;
}

// For a receive call that has begun before the stream was drained. 0; EOPNOTSUPP: not for the queue
// pair; EAGAIN: another process's, or the queue pair takes none now.
int hand_over(Connection& c, Bytes fpdu) {
  const uint32_t size = fpdu_size(base::load_be16(fpdu.data()));
  if (fpdu.size() < size) return EOPNOTSUPP;
  for (;;) {
    const Offered offered = offer_fpdu(c, fpdu.first(size));
    OneSided* const q = c.queue_pair();
    if (q != nullptr) q->take_in();
    if (c.is_state(StreamState::kFailed)) return ECONNRESET;
    if (offered == Offered::kTaken) return 0;
    if (offered == Offered::kUnasked) return EOPNOTSUPP;
    if (offered == Offered::kForeign || (q != nullptr && !q->arrived.is_done())) return EAGAIN;
  }
}

Result<size_t> send_fpdus(Connection& c, int fd, std::span<const Bytes> from) {
  const base::KeepErrno keep;
  Hold hold(c, c.tx.lease);
  c.tx.is_wanted.store(true);
  switch (hold.attempt()) {
    case Outcome::kBusy:
    case Outcome::kInterrupted:
      return fail_errno(EBUSY);
    case Outcome::kInherited:
      if (const int e = hold.inherit(fd); e != 0) return fail_errno(e);
      break;
    case Outcome::kAcquired:
    case Outcome::kHeldByMe:  // OneSided::flush()
      break;
  }
  c.tx.is_wanted.store(false);
  if (c.is_state(StreamState::kFailed) || c.tx.is_shut) return fail_errno(EPIPE);
  if (const int e = send_on_wire_again(c, fd); e != 0) return fail_errno(e);
  if (!c.tx.is_started) {
    if (const int e = start_sending(c, fd, MSG_DONTWAIT | MSG_NOSIGNAL); e != 0)
      return fail_errno(e);
  }
  if (c.tx.tail_block != Blocks::kNoBlock) {
    const int e = flush_tail(c, fd, false);
    keep_send_error(c, e);
    if (e != 0) return fail_errno(e);
  }
  std::array<iovec, kMostPieces> list;
  size_t count = 0;
  for (Bytes r : from) {
    if (count == list.size()) break;
    list[count++] = {const_cast<uint8_t*>(r.data()), r.size()};
  }
  return Sender(c, fd, std::span(list).first(count), MSG_DONTWAIT | MSG_NOSIGNAL).send_fpdus();
}

Result<size_t> Sender::send_fpdus() {
  const size_t allowed = allowance(from_.left());
  if (allowed == 0) return fail_errno(EAGAIN);
  // Whole ones only; the list may end inside one.
  size_t fits = 0;
  for (IoCursor ahead = from_; ahead.left() >= kLeastFpdu;) {
    const size_t size = fpdu_size(base::load_be16(front_of<kLeastFpdu>(ahead).data()));
    if (size > ahead.left() || (fits > 0 && fits + size > allowed)) break;
    ahead.skip(size);
    fits += size;
  }
  if (fits == 0) return fail_errno(EINVAL);
  std::array<iovec, kMostPieces> list;
  size_t covered = fits;
  IoCursor ahead = from_;
  msghdr m{};
  m.msg_iov = list.data();
  m.msg_iovlen = ahead.slice(list, covered);
  const ssize_t n =
      without_cancellation([&] { return base::sys.sendmsg(fd_, &m, flags_ | MSG_DONTWAIT); });
  if (n < 0) {
    tx_.credit = 0;
    if (errno != EAGAIN && errno != EPIPE) c_.r.fault.store(errno);  // the kernel says it once
    return fail_errno(errno);
  }
  spend(fits);
  return note_fpdus(static_cast<size_t>(n));
}

static void tell_fpdu(Connection& c, IoCursor from, size_t size) {
  std::array<iovec, 64> list;
  std::array<Bytes, list.size()> pieces;
  size_t covered = size;
  const size_t used = from.slice(list, covered);
  for (size_t i = 0; i < used; ++i)
    pieces[i] = {static_cast<const uint8_t*>(list[i].iov_base), list[i].iov_len};
  if (covered == size) tell_sent_pieces(c, std::span(pieces).first(used));
}

// The kernel took `taken` bytes. Where that ends inside an FPDU, against all accounts, its rest is
// kept. How many bytes count as sent.
Result<size_t> Sender::note_fpdus(size_t taken) {
  size_t counted = 0;
  const char* terminate = nullptr;
  IoCursor ahead = from_;
  while (counted < taken) {
    const auto header = front_of<kLeastFpdu>(ahead);
    const size_t size = fpdu_size(base::load_be16(header.data()));
    if (is_request(header.data())) c_.unanswered.fetch_add(1);
    if (is_terminate(header.data()) && size <= kMostTerminate)
      terminate = text_of_terminate(Bytes(front_of<kMostTerminate>(ahead)).first(size));
    if (is_watched()) tell_fpdu(c_, ahead, size);
    ahead.skip(size);
    counted += size;
  }
  if (counted > taken) {
    tx_.credit = 0;
    from_.skip(taken);
    keep_tail(from_, counted - taken);
    keep_send_error(c_, error_);
    if (error_ != 0 && error_ != EAGAIN) return fail_errno(error_);
  }
  if (terminate != nullptr) {
    c_.r.fault.store(EPROTO);
    end_connection(c_, fd_, terminate);
  }
  return counted;
}

Io send_one_sided(Connection& c, int fd, std::span<const iovec> from, int flags) {
  IoCursor left(from);
  size_t sent = 0;
  for (;;) {
    const size_t before = left.left();
    const bool is_further = sent > 0;
    const Io io = send_piece(c, fd, left, flags | (is_further ? MSG_NOSIGNAL : 0), is_further);
    sent += before - left.left();
    if (!io.is_ok() && sent == 0) return io;
    if (!io.is_ok() || left.left() == 0) return Io::ok(static_cast<ssize_t>(sent));
    give_way(c);
    if ((fd = still_named(c, fd)) < 0) return Io::ok(static_cast<ssize_t>(sent));
  }
}

// One piece, after what was posted before it.
static Io send_piece(Connection& c, int number, IoCursor& left, int flags, bool is_further) {
  Descriptor fd(c, number);
  Hold hold(c, c.tx.lease);
  if (const int e = hold.take(fd, Hold::kSend, flags); e != 0) return Io::fail(e);
  // What comes behind a piece is for the next call to tell.
  if (is_further && (c.tx.error != 0 || c.is_state(StreamState::kFailed))) return Io::fail(EPIPE);
  if (const int e = tell_send_error(c, fd, flags); e != 0) return Io::fail(e);
  if (c.is_state(StreamState::kFailed)) return broken_pipe(fd, flags);
  if (!c.tx.is_started) {
    if (const int e = start_sending(c, fd, flags); e != 0) return Io::fail(e);
  }
  if (const int e = send_on_wire_again(c, fd); e != 0) return Io::fail(e);
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
  if (const int e = flush_before_send(c, fd, flags); e != 0) {
    if (is_further) keep_behind_part(c, e);
    return Io::fail(e);
  }
  std::optional<Time> deadline;
  for (OneSided* q = c.queue_pair(); q != nullptr && !c.tx.is_shut && q->flush() == EAGAIN;) {
    if (!may_wait) return Io::fail(EAGAIN);
    if (const int e = await_room(c, fd, deadline, false); e != 0) return Io::fail(e);
  }
  std::array<iovec, kPieceSlices> list;
  size_t size = std::min(left.left(), kPiece);
  IoCursor ahead = left;
  const size_t count = ahead.slice(list, size);
  const Io io = Sender(c, fd, std::span(list).first(count), flags).run();
  if (!io.is_ok()) {
    if (is_further) keep_behind_part(c, io.error);
    return io;
  }
  left.skip(static_cast<size_t>(io.count));
  return static_cast<size_t>(io.count) < size ? Io::fail(EAGAIN) : io;
}

static void give_way(Connection& c) {
  const Time end = base::now() + kGiveWay;
  while (c.tx.is_wanted.load() && base::now() < end) sched_yield();
}

}  // namespace ddpsock::engine
