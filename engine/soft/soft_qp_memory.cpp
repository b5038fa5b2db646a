// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A queue pair whose segments travel in memory shared with the peer. The Channel beside it carries
// bells: an FPDU each that says nothing (a Write of no octets), so that the wire stays iWARP for
// whoever looks at it; what comes there is counted for nothing and thrown away. And it carries the
// end: when the peer has closed it, or is gone, what lies in the memory is still taken.
#include <algorithm>
#include <array>
#include <cerrno>

#include "engine/soft/soft_qp.h"
#include "mpa/fpdu.h"
#include "rdmap/message.h"

namespace ddpsock::engine {
namespace {

// How many bells are thrown away in one system call.
constexpr size_t kWireRead = 4096;
// A peer that has closed its direction and takes nothing may be gone: so often the wire is asked.
constexpr Duration kDoubt = Duration::from_ms(10);

constexpr size_t kBellSize = mpa::fpdu_size(DDP_TAGGED_HEADER_SIZE);
constexpr uint32_t kAnyStag = 1;

std::array<uint8_t, kBellSize> make_bell() {
  std::array<uint8_t, kBellSize> bell{};
  uint8_t* ulpdu = mpa::write_header(bell.data(), DDP_TAGGED_HEADER_SIZE);
  ddp::write_header(
      ulpdu, ddp::TaggedHeader{true, rdmap::control_byte(rdmap::Opcode::kWrite), kAnyStag, 0});
  mpa::finish_fpdu(bell, DDP_TAGGED_HEADER_SIZE, true);
  return bell;
}

}  // namespace

Need SoftQp::advance_in_memory(Time now, Budget budget) {
  Lock lock = engine_.lock(budget.may_wait);
  if (!lock) return {.is_busy = true, .deadline = now};
  if (is_advancing_) return {.is_busy = true};
  if (core_->state() == QpState::kEnded) return {};
  core_->take_posted();
  is_advancing_ = true;
  if (budget.may_be_readable) {
    is_watched_ = !budget.is_spinning;
    if (!is_watched_) link_->unwatch();
  }
  Turn received = Turn::kIdle;
  if (budget.may_be_readable) {
    const bool is_wire_looked_at = is_watched_ && !is_fin_received_;
    received = is_wire_looked_at ? look_at_wire(lock, now, budget.bytes)
                                 : link_->receive(*core_, lock, budget.bytes);
  }
  const bool may_send = received != Turn::kLost && core_->state() != QpState::kEnded;
  const Turn sent = may_send ? transmit_to_memory(lock, now, budget) : Turn::kIdle;
  finish(lock, now, received == Turn::kLost || sent == Turn::kLost);
  signal(lock);
  const bool is_in_doubt = is_fin_received_ && link_->has_unread();
  Need n = need(now, received, sent);
  n.wants_writable = false;
  n.is_unwatched = !is_watched_;
  if (is_in_doubt) n.deadline = std::min(n.deadline, now + kDoubt);
  is_unsettled_.store(sent != Turn::kIdle || n.deadline != kNever || link_->awaits_peer(),
                      std::memory_order_relaxed);
  return n;
}

bool SoftQp::has_news() const {
  return !is_in_memory_.load(std::memory_order_acquire) ||
         is_unsettled_.load(std::memory_order_relaxed) || link_->has_record();
}

// The end is the end of the wire, but what was written to the memory before comes first.
Turn SoftQp::look_at_wire(Lock& lock, Time now, uint32_t budget) {
  std::array<uint8_t, kWireRead> bells;  // NOLINT: deliberately not cleared
  const MutBytes room(bells);
  lock.unlock();
  Result<size_t> n = receive_from_channel({&room, 1}, now);
  lock.lock();
  const bool is_lost = !n && to_int(n.error()) != EAGAIN;
  const bool has_more_wire = n && *n == room.size();
  is_fin_received_ = n && *n == 0;
  const bool is_over = is_lost || is_fin_received_;
  Turn turn = Turn::kIdle;
  do {
    turn = link_->receive(*core_, lock, budget);
  } while (is_over && turn == Turn::kMore);
  if (turn == Turn::kLost || is_lost) return Turn::kLost;
  if (is_fin_received_) end(lock, rdmap::LlpEnd::kFinBetween);
  return has_more_wire ? Turn::kMore : turn;
}

Turn SoftQp::transmit_to_memory(Lock& lock, Time now, Budget budget) {
  Turn turn = link_->transmit(*core_, lock, max_ulpdu_, budget.bytes);
  if (turn == Turn::kLost) return turn;
  bool must_ring = link_->take_bell(is_watched_);
  if (is_watched_) {
    // Who only sends has had a bell for what came since, or will.
    const bool has_come = budget.may_be_readable && !link_->watch();
    const bool waits = turn == Turn::kBlocked || link_->awaits_peer();
    const bool has_room = waits && !link_->watch_room();
    if (has_come || has_room) turn = Turn::kMore;
  }
  // Whether a peer that has said its last word still reads, only a bell can tell.
  must_ring = must_ring || (is_fin_received_ && link_->has_unread());
  if (!must_ring) return turn;
  const std::array<uint8_t, kBellSize> fpdu = make_bell();
  const Bytes bell(fpdu);
  lock.unlock();
  const Result<size_t> n = send_to_channel({&bell, 1}, now);
  lock.lock();
  // A wire that takes no more holds bells enough.
  return n || to_int(n.error()) == EAGAIN ? turn : Turn::kLost;
}

}  // namespace ddpsock::engine
