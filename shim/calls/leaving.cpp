// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/calls/leaving.h"

#include <poll.h>

#include <algorithm>

#include "base/keep_errno.h"
#include "shim/connection.h"
#include "shim/log.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

using engine::PlainReturn;
using State = PlainReturn::State;

// Asking, answering and marking takes no more.
constexpr int kRoundsForOwn = 8;
// Between two looks; a peer on this host answers within a few of the first.
constexpr int64_t kFirstPause = 20'000, kLongestPause = 1'000'000;
// Where a pause takes longer the processors are busy, and the peer has not had its turn either.
constexpr Duration kLongestRound = Duration::from_ms(4);

PlainReturn step_of(int fd, int at, const char* why) {
  constexpr PlainReturn kDone{State::kPlain, ""};
  if (!is_ours(fd)) return kDone;
  SocketUse use(fd);
  if (!use) return kDone;
  if (has_live_stream(use.phase()) && !is_true_entry(use, at)) return kDone;
  switch (use.phase()) {
    case Phase::kMessage:
      return {State::kRefused, "it is in message mode"};
    case Phase::kConnecting:
    case Phase::kCompleting:
      complete_connect(use, at, false);
      if (use.phase() != Phase::kStream && has_live_stream(use.phase()))
        return {State::kPending, "TCP is not established"};
      break;
    default:
      break;
  }
  if (use.phase() != Phase::kStream) return kDone;
  engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  const PlainReturn now = stream.return_to_plain(at);
  if (now.state == State::kPlain && stream.status().state == engine::StreamState::kPlain &&
      use.phase() == Phase::kStream)
    make_plain(*use, at, why);
  return now;
}

// Whose other end is in this process too, perhaps in this very thread, is answered for by nobody
// else.
void let_own_streams_answer() {
  for (int fd = 0; fd < fds_end(); ++fd) {
    if (!is_ours(fd)) continue;
    const SocketUse use(fd);
    if (use && use.phase() == Phase::kStream && is_true_entry(use, fd))
      use->stream.load(std::memory_order_acquire)->is_recv_ready(fd);
  }
}

}  // namespace

Leaving::Leaving(const char* why, bool answers_itself, Duration patience)
    : why_(why),
      patience_(patience),
      deadline_(base::now() + kMostPatience),
      pause_(kFirstPause),
      rounds_(answers_itself ? 0 : kRoundsForOwn) {}

void Leaving::step(int fd, int at) {
  const base::KeepErrno keep;
  const PlainReturn now = step_of(fd, at, why_);
  if (now.state == State::kPlain) return;
  is_done_ = false;
  is_pending_ |= now.state == State::kPending;
  if (now.state == State::kRefused || is_last_)
    log_connection("leave", at, "stream", now.why, why_);
}

bool Leaving::next_round() {
  if (!is_pending_ || is_last_) return false;
  const base::KeepErrno keep;
  if (rounds_++ < kRoundsForOwn) let_own_streams_answer();
  const Time start = base::now();
  const timespec length{.tv_sec = 0, .tv_nsec = pause_};
  real.ppoll(nullptr, 0, &length, nullptr);
  pause_ = std::min(2 * pause_, kLongestPause);
  const Time now = base::now();
  patience_.ns -= std::min(now - start, kLongestRound).ns;
  is_last_ = patience_.ns <= 0 || now >= deadline_;
  is_done_ = true;
  is_pending_ = false;
  return true;
}

void leave_for_urgent_byte(int fd) {
  const base::KeepErrno keep;
  pollfd urgent{fd, POLLPRI, 0};
  if (real.poll(&urgent, 1, 0) == 1 && (urgent.revents & POLLPRI) != 0)
    leave_ddp_mode(fd, "urgent data");
}

bool leave_ddp_mode_everywhere(const char* why) {
  if (!is_any_ours()) return true;
  return leave_ddp_mode_each(
      [](auto visit) {
        for (int fd = 0; fd < fds_end(); ++fd) visit(fd);
      },
      why);
}

}  // namespace ddpsock::shim
