// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/departure.h"

#include <errno.h>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "stream/closing.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/kernel_socket.h"
#include "stream/leaving.h"
#include "stream/raw.h"
#include "stream/raw_message.h"
#include "stream/rx.h"
#include "stream/start.h"
#include "stream/turning.h"
#include "stream/tx.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

using Verdict = Fpdu::Verdict;

constexpr Duration kBetweenQuestions = Duration::from_ms(20);
constexpr char kNotAnswered[] = "the peer has not answered";
constexpr char kBusy[] = "another call is at work on the connection";

}  // namespace

static bool try_to_hold(Hold& hold, int fd);
static PlainReturn start_for_departure(Connection& c, int fd);

PlainReturn Departure::fail_or_wait(int error) {
  return error == EAGAIN || error == EINTR ? wait("the kernel has no room")
                                           : refuse("the connection has failed");
}

PlainReturn Departure::step() {
  if (r_.raw.is_rx_plain) return end_marked();
  undelivered_ = undelivered_block_.take(c_.arena.blocks);
  if (undelivered_ == nullptr) return refuse("no memory to look at what is unread");
  switch (look()) {
    case Front::kMark:
      return finish();
    case Front::kEnd:
      if (undelivered_size_ > 0 || rx_.mo != 0)
        return refuse("the peer has ended its stream, of which not all is read");
      repeated_ = 0;
      return finish();
    case Front::kUnfit:
      return refuse("what is unread cannot be sent again");
    case Front::kMore:
      return ask();
  }
  return refuse(kNotAnswered);
}

void Departure::add_undelivered(Bytes bytes) {
  if (undelivered_size_ + bytes.size() <= DDPSOCK_RAW_MAX_RETURNED && !bytes.empty())
    std::memcpy(undelivered_ + undelivered_size_, bytes.data(), bytes.size());
  undelivered_size_ += bytes.size();
}

// In the order in which recv() would deliver.
Departure::Front Departure::look() {
  uint8_t* const data = sight_.take(c_.arena.blocks);
  if (data == nullptr) return Front::kUnfit;
  if (c_.is_beyond_next()) reach_beyond(c_);
  if (!inbox_.beyond.is_empty() || (inbox_.has_beyond() && !c_.is_beyond_next()))
    return Front::kUnfit;
  for (size_t at = 0; at < inbox_.ready.size();) {
    const Bytes bytes = inbox_.ready.at(c_.arena.blocks, at, SIZE_MAX);
    add_undelivered(bytes);
    at += bytes.size();
  }
  add_undelivered(inbox_.front(c_.arena.blocks));
  const Bytes unparsed = inbox_.unparsed(c_.arena.blocks);
  if (!unparsed.empty()) std::memcpy(data, unparsed.data(), unparsed.size());
  size_t size = buffered_ = unparsed.size();
  const size_t kept = (inbox_.has_kept_byte ? 1 : 0) + inbox_.beyond_octets;
  const ssize_t n =
      base::sys.recv(fd_, data + size, Blocks::kBlockSize - size, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && errno != EAGAIN && errno != EINTR) {
    rx_.error = errno;  // the kernel says it once
    return Front::kUnfit;
  }
  if (n > static_cast<ssize_t>(kept)) {
    std::memmove(data + size, data + size + kept, static_cast<size_t>(n) - kept);
    size += static_cast<size_t>(n) - kept;
  }
  const Front front = walk(data, size);
  if (front != Front::kMore) return front;
  if (size + 1 >= Blocks::kBlockSize) return Front::kUnfit;
  const bool is_all = taken_ == size && bytes_queued(fd_) == size + kept - buffered_;
  return is_all && has_peer_ended(fd_) ? Front::kEnd : Front::kMore;
}

Departure::Front Departure::walk(const uint8_t* data, size_t size) {
  ChunkReader reader = c_.reader();
  for (;;) {
    next_msn_ = reader.msn();
    const Bytes left(data + taken_, size - taken_);
    Fpdu fpdu = reader.look(left);
    if (fpdu.is(Verdict::kNoHeader) || fpdu.is(Verdict::kPartial)) return Front::kMore;
    if (fpdu.is(Verdict::kChunk)) {
      add_undelivered(left.subspan(kChunkHeader, fpdu.payload));
    } else {
      const Bytes whole = left.first(std::min<size_t>(fpdu.size, left.size()));
      if (!fpdu.is(Verdict::kControl) || !is_raw_message(c_, left.data()) ||
          (r_.has_crc && !ChunkReader::is_intact(whole)))
        return Front::kUnfit;
      const auto message = decode_raw(mpa::ulpdu_of(whole), next_msn_);
      if (!message || fpdu.mo != 0) return Front::kUnfit;
      fpdu.msn = ++next_msn_;
      if (message->kind == DDPSOCK_RAW_MARK) {
        repeated_ = message->number;
        taken_ += fpdu.size;
        return Front::kMark;
      }
      if (message->kind == DDPSOCK_RAW_ASK) peer_asks_ = message;
    }
    taken_ += fpdu.size;
    reader.take(fpdu);
  }
}

PlainReturn Departure::ask() {
  RawState& raw = r_.raw;
  const auto size = static_cast<uint32_t>(undelivered_size_);
  if (size > DDPSOCK_RAW_MAX_RETURNED || size + DDPSOCK_RAW_SIZE > r_.max_payload)
    return refuse("more is unread than can be sent again");
  if (tx_.is_shut) return refuse("this side has ended its stream");
  const bool is_news = !raw.has_asked || raw.asked_msn != next_msn_;
  // What the peer could not answer when it came it has not kept.
  const Time now = base::now();
  const bool is_due = is_news || now - raw.asked_at >= kBetweenQuestions;
  if (is_due && !raw.is_tx_plain) {
    const int e = send_raw_message(c_, fd_, DDPSOCK_RAW_ASK, next_msn_, {undelivered_, size}, {});
    if (e != 0) return fail_or_wait(e);
    raw.has_asked = true;
    raw.asked_at = now;
    raw.asked_msn = next_msn_;
    raw.asked_bytes = std::max(raw.asked_bytes, size);
  }
  answer();
  return wait(kNotAnswered);
}

// Of two that ask each other.
void Departure::answer() {
  if (peer_asks_) answer_raw(c_, fd_, *peer_asks_);
}

// The peer's marker, or its FIN, is the next thing behind what is undelivered.
PlainReturn Departure::finish() {
  if (undelivered_size_ > repeated_)
    return refuse("not all that came is read, and the peer does not send it again");
  if (repeated_ > r_.raw.asked_bytes)
    return refuse("the peer says again what nobody has asked for");
  answer();
  if (!r_.raw.is_tx_plain && !tx_.is_shut) {
    if (const int e = send_mark(c_, fd_, {}); e != 0) return fail_or_wait(e);
  }
  uint8_t* unused = undelivered_;
  const size_t queued =
      taken_ - std::min(taken_, buffered_) + (inbox_.has_kept_byte ? 1 : 0) + inbox_.beyond_octets;
  if (queued > 0 && base::sys.recv(fd_, unused, queued, MSG_DONTWAIT | MSG_TRUNC) !=
                        static_cast<ssize_t>(queued)) {
    fail_lost(c_, fd_, "bytes known to be queued are gone");
    return refuse("the connection has failed");
  }
  inbox_.clear(c_.arena.blocks);
  rx_.msn = next_msn_;
  r_.raw.skip = repeated_ - static_cast<uint32_t>(undelivered_size_);
  r_.raw.is_rx_plain.store(true, std::memory_order_release);
  note_turning(c_);
  return end_marked();
}

PlainReturn Departure::end_marked() {
  if (!r_.raw.is_tx_plain && !tx_.is_shut) {
    if (const int e = send_mark(c_, fd_, {}); e != 0) return fail_or_wait(e);
  }
  Io io{};
  if (!pass_over_what_is_there(c_, fd_, io)) return wait(kNotAnswered);
  if (inbox_.has_bytes() || inbox_.has_beyond()) return refuse("not all that came is read");
  if (!become_plain(c_, fd_)) return wait("the kernel has no room");
  return {State::kPlain, ""};
}

PlainReturn return_to_plain(Connection& c, int fd) {
  using State = PlainReturn::State;
  const base::KeepErrno keep;
  if (c.is_state(StreamState::kPlain) || c.is_state(StreamState::kFailed))
    return {State::kPlain, ""};
  // A vfork child's numbers are not its parent's: nothing of this one goes to another socket.
  if (!is_my_cookie(c, fd)) return {State::kPlain, ""};
  if (c.r.is_one_sided) return {State::kRefused, "it has one-sided operations"};
  static constexpr char kCannot[] = "the peer's library cannot return to plain TCP";
  if (c.rx.is_started && !c.speaks_raw()) return {State::kRefused, kCannot};
  leave_memory(c, fd);
  if (c.is_in_memory()) return {State::kPending, kBusy};
  Hold receive(c, c.rx.lease);
  if (!try_to_hold(receive, fd)) return {State::kPending, kBusy};
  if (c.is_sending_beyond_reach() || (c.is_beyond_reach() && go_on_beyond_memory(c) != 0))
    return {State::kRefused, "its bytes lie in memory that this process has not mapped"};
  if (!c.rx.is_started) {
    const PlainReturn started = start_for_departure(c, fd);
    if (!c.rx.is_started || started.state != State::kPending) return started;
  }
  if (!c.speaks_raw()) return {State::kRefused, kCannot};
  Hold send(c, c.tx.lease);
  if (!try_to_hold(send, fd)) return {State::kPending, kBusy};
  if (!c.tx.is_started && send_start_frame(c, fd, MSG_NOSIGNAL | MSG_DONTWAIT) != 0)
    return {State::kPending, "the kernel has no room"};
  if (c.tx.tail_block != Blocks::kNoBlock) {
    const int e = flush_tail(c, fd, false);
    keep_send_error(c, e);
    if (e != 0) return {State::kPending, "the kernel has no room"};
  }
  if (c.is_state(StreamState::kPlain) || c.is_state(StreamState::kFailed))
    return {State::kPlain, ""};
  return Departure(c, fd).step();
}

// False: somebody has it, or has died with it in the middle of something.
static bool try_to_hold(Hold& hold, int fd) {
  switch (hold.attempt()) {
    case base::Lease::Outcome::kAcquired:
      return true;
    case base::Lease::Outcome::kInherited:
      return hold.inherit(fd) == 0;
    default:
      return false;
  }
}

// There is nobody to ask.
static PlainReturn be_plain_unasked(Connection& c, int fd) {
  set_kernel_low_water(fd, c.rx.low_water);
  c.r.state.store(StreamState::kPlain, std::memory_order_release);
  if (is_watched()) tell_event(c, Observer::Event::kPlain, "the peer had not begun");
  return {PlainReturn::State::kPlain, ""};
}

// kPending: start-up is over, or the peer's frame is not there yet. REQUIRES: the receive lease.
static PlainReturn start_for_departure(Connection& c, int fd) {
  using State = PlainReturn::State;
  // The kernel says it once, and is to say it to the program.
  if (has_error(fd) && has_peer_ended(fd) && bytes_queued(fd) == 0 && !c.inbox.has_bytes())
    return be_plain_unasked(c, fd);
  if (c.r.peer == Peer::kUnknown) {
    // Nothing was said: whoever gets it may speak first.
    if (sniff(c, fd, MSG_DONTWAIT) != 0 && decide(c, fd, Peer::kPlain) != 0)
      return {State::kPlain, ""};
  }
  const int e = start_receiving(c, fd, MSG_DONTWAIT);
  if (e == EAGAIN && !c.tx.is_started) {
    Hold send(c, c.tx.lease);
    if (!try_to_hold(send, fd)) return {State::kPending, kBusy};
    if (!c.tx.is_started)
      send_start_frame(c, fd, MSG_NOSIGNAL | MSG_DONTWAIT, StartFrame::kHurried);
  }
  switch (e) {
    case 0:
    case EAGAIN:
      return {State::kPending, "the peer has not begun"};
    case kEndOfStream:
      if (!has_peer_ended(fd)) return {State::kRefused, "this side reads no more"};
      // It has closed: who only ends its stream begins it first (shutdown()).
      return be_plain_unasked(c, fd);
    case EPROTOTYPE:
      return {State::kPlain, ""};
    default:
      keep_error(c, e);  // the kernel says it once
      return {State::kRefused, "the connection has failed during start-up"};
  }
}

}  // namespace ddpsock::engine
