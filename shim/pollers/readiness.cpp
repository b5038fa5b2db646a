// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/readiness.h"

#include <algorithm>
#include <climits>

#include "base/wake.h"
#include "shim/connection.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int64_t kLongestSeconds = 1'000'000'000;  // as good as never, and no overflow

// While a connection is young its peer may ask for plain TCP (sshd does before its filter), and ssh
// takes EAGAIN after a poll() for an error. Whoever uses epoll does not.
constexpr uint8_t kEarlyLooks = 32;

// An FPDU that comes in parts is reported in vain now and then, and not again at once.
constexpr int kRoundsAtOnce = 16;
constexpr int kMostDoublings = 2;  // of a millisecond: others are not seen for so long
// The kernel slept in one that took longer.
constexpr Duration kLongRound = Duration::from_ms(20);

// Whoever asks about a non-blocking socket can live with EAGAIN, unless it asked for more than a
// byte.
bool is_promise_needed(const Socket& socket) {
  return !socket.is_nonblocking.load(std::memory_order_relaxed) ||
         socket.receive_low_water.load(std::memory_order_relaxed) > 1;
}

bool is_young(const Socket& socket) {
  return socket.early_looks.load(std::memory_order_relaxed) < kEarlyLooks;
}

void count_look(Socket& socket) {
  const uint8_t looks = socket.early_looks.load(std::memory_order_relaxed);
  if (looks < kEarlyLooks) socket.early_looks.store(looks + 1, std::memory_order_relaxed);
}

}  // namespace

bool needs_correction(int fd, bool is_for_reading) {
  if (needs_watch(fd, is_for_reading)) return true;
  const Socket* socket = socket_at(fd);
  return is_for_reading && socket != nullptr &&
         socket->phase.load(std::memory_order_acquire) == Phase::kStream && is_young(*socket);
}

bool needs_watch(int fd, bool may_withdraw) {
  const Socket* socket = socket_at(fd);
  if (socket == nullptr) return false;
  switch (socket->phase.load(std::memory_order_acquire)) {
    case Phase::kConnecting:
    case Phase::kCompleting:
      return true;
    case Phase::kStream:
      return may_withdraw && is_promise_needed(*socket);
    default:
      return false;
  }
}

bool may_hear_bells(int fd) {
  if (!engine::MemoryPart::is_memory_in_use()) return false;
  const Socket* socket = socket_at(fd);
  if (socket == nullptr || socket->phase.load(std::memory_order_acquire) != Phase::kStream)
    return false;
  const SocketUse use(fd);
  return use && use.phase() == Phase::kStream && is_true_entry(use, fd) &&
         use->stream.load(std::memory_order_acquire)->glance().is_in_memory;
}

bool may_be_full(int fd) {
  const Socket* socket = socket_at(fd);
  return socket != nullptr && !socket->is_nonblocking.load(std::memory_order_relaxed) &&
         may_hear_bells(fd);
}

bool is_room_report_true(int fd) {
  if (!may_be_full(fd)) return true;
  SocketUse use(fd);
  if (!use || use.phase() != Phase::kStream || !is_true_entry(use, fd)) return true;
  return use->stream.load(std::memory_order_acquire)->is_send_ready(fd);
}

bool is_report_true(int fd, bool is_readable) {
  SocketUse use(fd);
  if (!use) return true;
  const Phase phase = use.phase();
  if (phase == Phase::kConnecting || phase == Phase::kCompleting) {
    if (!is_true_entry(use, fd)) return true;
    complete_connect(use, fd, false);
  }
  if (use.phase() != Phase::kStream || !is_readable) return true;
  engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  if (!is_promise_needed(*use) && !is_young(*use) && !stream.glance().is_in_memory) return true;
  if (!is_true_entry(use, fd)) return true;
  count_look(*use);
  return stream.is_recv_ready(fd);
}

short untrue_at_end(int fd) {
  if (!may_hear_bells(fd)) return 0;
  SocketUse use(fd);
  if (!use || use.phase() != Phase::kStream || !is_true_entry(use, fd)) return 0;
  return use->stream.load(std::memory_order_acquire)->untrue_at_end();
}

bool has_kept_error(int fd) {
  if (!is_served(fd)) return false;
  const SocketUse use(fd);
  return use && use.phase() == Phase::kStream && is_true_entry(use, fd) &&
         use->stream.load(std::memory_order_acquire)->has_kept_error();
}

PollDeadline PollDeadline::after_ms(int timeout_ms, const sigset_t* mask) {
  PollDeadline deadline;
  deadline.mask_ = mask;
  if (timeout_ms >= 0) deadline.at_ = base::now() + Duration::from_ms(timeout_ms);
  return deadline;
}

PollDeadline PollDeadline::after(const timespec* timeout, const sigset_t* mask) {
  PollDeadline deadline;
  deadline.mask_ = mask;
  if (timeout != nullptr && timeout->tv_sec < kLongestSeconds)
    deadline.at_ = base::now() + Duration{timeout->tv_sec * kNsPerSecond + timeout->tv_nsec};
  return deadline;
}

int PollDeadline::left_ms() const {
  if (at_ == kNever) return -1;
  return static_cast<int>(std::min<int64_t>((at_ - base::now()).ceil_ms(), INT_MAX));
}

bool PollDeadline::rest_after_vain_round() const {
  if (base::coarse_now() - last_vain_round_ > kLongRound) vain_rounds_ = 0;
  bool is_uninterrupted = true;
  if (vain_rounds_ >= kRoundsAtOnce) {
    Duration rest = Duration::from_ms(1 << std::min(vain_rounds_ - kRoundsAtOnce, kMostDoublings));
    if (at_ != kNever) rest = std::clamp(at_ - base::now(), Duration{}, rest);
    const timespec time{0, rest.ns};
    is_uninterrupted = base::woken(real.ppoll(nullptr, 0, &time, mask_), true) == 0;
  }
  ++vain_rounds_;
  last_vain_round_ = base::coarse_now();
  return is_uninterrupted;
}

timespec* PollDeadline::left(timespec& room) const {
  if (at_ == kNever) return nullptr;
  const int64_t ns = std::max<int64_t>((at_ - base::now()).ns, 0);
  room = {.tv_sec = ns / kNsPerSecond, .tv_nsec = ns % kNsPerSecond};
  return &room;
}

}  // namespace ddpsock::shim
