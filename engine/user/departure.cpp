// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/departure.h"

#include <errno.h>
#include <poll.h>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "engine/user/chunk_reader.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"

namespace ddpsock::engine {
namespace {

using Verdict = Fpdu::Verdict;

constexpr Duration kBetweenQuestions = Duration::from_ms(20);
constexpr char kNotAnswered[] = "the peer has not answered";
constexpr char kBusy[] = "another call is at work on the connection";

}  // namespace

PlainReturn UserStream::Departure::fail_or_wait(int error) {
  return error == EAGAIN || error == EINTR ? wait("the kernel has no room")
                                           : refuse("the connection has failed");
}

PlainReturn UserStream::Departure::step() {
  if (r_.raw.is_rx_plain) return end_marked();
  undelivered_ = undelivered_block_.take(s_.arena_);
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

void UserStream::Departure::add_undelivered(Bytes bytes) {
  if (undelivered_size_ + bytes.size() <= DDPSOCK_RAW_MAX_RETURNED && !bytes.empty())
    std::memcpy(undelivered_ + undelivered_size_, bytes.data(), bytes.size());
  undelivered_size_ += bytes.size();
}

// In the order in which recv() would deliver.
UserStream::Departure::Front UserStream::Departure::look() {
  uint8_t* const data = sight_.take(s_.arena_);
  if (data == nullptr) return Front::kUnfit;
  if (s_.is_beyond_next()) s_.reach_beyond();
  if (!inbox_.beyond.is_empty()) return Front::kUnfit;
  for (size_t at = 0; at < inbox_.ready.size();) {
    const Bytes bytes = inbox_.ready.at(s_.arena_, at, SIZE_MAX);
    add_undelivered(bytes);
    at += bytes.size();
  }
  add_undelivered(inbox_.front(s_.arena_));
  const Bytes unparsed = inbox_.unparsed(s_.arena_);
  if (!unparsed.empty()) std::memcpy(data, unparsed.data(), unparsed.size());
  size_t size = buffered_ = unparsed.size();
  const size_t kept = (inbox_.has_kept_byte ? 1 : 0) + inbox_.beyond_octets;
  const ssize_t n =
      base::sys.recv(fd_, data + size, Arena::kBlockSize - size, MSG_PEEK | MSG_DONTWAIT);
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
  if (size + 1 >= Arena::kBlockSize) return Front::kUnfit;
  const bool is_all = taken_ == size && bytes_queued(fd_) == size + kept - buffered_;
  return is_all && is_ready_now(fd_, POLLRDHUP) ? Front::kEnd : Front::kMore;
}

UserStream::Departure::Front UserStream::Departure::walk(const uint8_t* data, size_t size) {
  ChunkReader reader = s_.reader();
  for (;;) {
    next_msn_ = reader.msn();
    const Bytes left(data + taken_, size - taken_);
    Fpdu fpdu = reader.look(left);
    if (fpdu.is(Verdict::kNoHeader) || fpdu.is(Verdict::kPartial)) return Front::kMore;
    if (fpdu.is(Verdict::kChunk)) {
      add_undelivered(left.subspan(kChunkHeader, fpdu.payload));
    } else {
      const Bytes whole = left.first(std::min<size_t>(fpdu.size, left.size()));
      if (!fpdu.is(Verdict::kControl) || !s_.is_raw_message(left.data()) ||
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
      peer_asks_ = message;
    }
    taken_ += fpdu.size;
    reader.take(fpdu);
  }
}

PlainReturn UserStream::Departure::ask() {
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
    const int e = s_.send_raw_message(fd_, DDPSOCK_RAW_ASK, next_msn_, {undelivered_, size}, {});
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
void UserStream::Departure::answer() {
  if (peer_asks_) s_.answer_raw(fd_, *peer_asks_);
}

// The peer's marker, or its FIN, is the next thing behind what is undelivered.
PlainReturn UserStream::Departure::finish() {
  if (undelivered_size_ > repeated_)
    return refuse("not all that came is read, and the peer does not send it again");
  if (repeated_ > r_.raw.asked_bytes)
    return refuse("the peer says again what nobody has asked for");
  answer();
  if (!r_.raw.is_tx_plain && !tx_.is_shut) {
    if (const int e = s_.send_mark(fd_, {}); e != 0) return fail_or_wait(e);
  }
  uint8_t* unused = undelivered_;
  const size_t queued =
      taken_ - std::min(taken_, buffered_) + (inbox_.has_kept_byte ? 1 : 0) + inbox_.beyond_octets;
  if (queued > 0 && base::sys.recv(fd_, unused, queued, MSG_DONTWAIT | MSG_TRUNC) !=
                        static_cast<ssize_t>(queued)) {
    s_.fail_lost(fd_, "bytes known to be queued are gone");
    return refuse("the connection has failed");
  }
  inbox_.clear(s_.arena_);
  rx_.msn = next_msn_;
  r_.raw.skip = repeated_ - static_cast<uint32_t>(undelivered_size_);
  r_.raw.is_rx_plain.store(true, std::memory_order_release);
  s_.note_turning();
  return end_marked();
}

PlainReturn UserStream::Departure::end_marked() {
  if (!r_.raw.is_tx_plain && !tx_.is_shut) {
    if (const int e = s_.send_mark(fd_, {}); e != 0) return fail_or_wait(e);
  }
  Io io{};
  if (!s_.pass_over_what_is_there(fd_, io)) return wait(kNotAnswered);
  if (inbox_.has_bytes() || inbox_.has_beyond()) return refuse("not all that came is read");
  if (!s_.become_plain(fd_)) return wait("the kernel has no room");
  return {State::kPlain, ""};
}

PlainReturn UserStream::return_to_plain(int fd) {
  using State = PlainReturn::State;
  const base::KeepErrno keep;
  if (is_state(StreamState::kPlain) || is_state(StreamState::kFailed)) return {State::kPlain, ""};
  // A vfork child's numbers are not its parent's: nothing of this one goes to another socket.
  if (!is_my_cookie(fd)) return {State::kPlain, ""};
  if (r_.is_one_sided) return {State::kRefused, "it has one-sided operations"};
  static constexpr char kCannot[] = "the peer's library cannot return to plain TCP";
  if (rx_.is_started && !speaks_raw()) return {State::kRefused, kCannot};
  leave_memory(fd);
  if (is_in_memory()) return {State::kPending, kBusy};
  Hold receive(*this, rx_.lease);
  if (!try_to_hold(receive, fd)) return {State::kPending, kBusy};
  if (is_sending_beyond_reach() || (is_beyond_reach() && go_on_beyond_memory() != 0))
    return {State::kRefused, "its bytes lie in memory that this process has not mapped"};
  if (!rx_.is_started) {
    const PlainReturn started = start_for_departure(fd);
    if (!rx_.is_started || started.state != State::kPending) return started;
  }
  if (!speaks_raw()) return {State::kRefused, kCannot};
  Hold send(*this, tx_.lease);
  if (!try_to_hold(send, fd)) return {State::kPending, kBusy};
  if (!tx_.is_started && send_start_frame(fd, MSG_NOSIGNAL | MSG_DONTWAIT) != 0)
    return {State::kPending, "the kernel has no room"};
  if (tx_.tail_block != Arena::kNoBlock && flush_tail(fd, false) != 0)
    return {State::kPending, "the kernel has no room"};
  if (is_state(StreamState::kPlain) || is_state(StreamState::kFailed)) return {State::kPlain, ""};
  return Departure(*this, fd).step();
}

// False: somebody has it, or has died with it in the middle of something.
bool UserStream::try_to_hold(Hold& hold, int fd) {
  switch (hold.attempt()) {
    case base::Lease::Outcome::kAcquired:
      return true;
    case base::Lease::Outcome::kInherited:
      return hold.inherit(fd) == 0;
    default:
      return false;
  }
}

// kPending: start-up is over, or the peer's frame is not there yet. REQUIRES: the receive lease.
PlainReturn UserStream::start_for_departure(int fd) {
  using State = PlainReturn::State;
  if (r_.peer == Peer::kUnknown) {
    // Nothing was said: whoever gets it may speak first.
    if (sniff(fd, MSG_DONTWAIT) != 0 && decide(fd, Peer::kPlain) != 0) return {State::kPlain, ""};
  }
  const int e = start_receiving(fd, MSG_DONTWAIT);
  if (e == EAGAIN && !tx_.is_started) {
    Hold send(*this, tx_.lease);
    if (!try_to_hold(send, fd)) return {State::kPending, kBusy};
    if (!tx_.is_started) send_start_frame(fd, MSG_NOSIGNAL | MSG_DONTWAIT, Frame::kHurried);
  }
  switch (e) {
    case 0:
    case EAGAIN:
      return {State::kPending, "the peer has not begun"};
    case kEndOfStream:
      // It has closed: who only ends its stream begins it first (shutdown()).
      set_kernel_low_water(fd, rx_.low_water);
      r_.state.store(StreamState::kPlain, std::memory_order_release);
      return {State::kPlain, ""};
    case EPROTOTYPE:
      return {State::kPlain, ""};
    default:
      return {State::kRefused, "the connection has failed during start-up"};
  }
}

}  // namespace ddpsock::engine
