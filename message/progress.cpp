// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/progress.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/cancellation.h"
#include "message/work.h"

namespace ddpsock::message {
namespace {

// advance() moves megabytes a time; more of them would keep others waiting.
constexpr int kMostAdvances = 8;

}  // namespace

Status<> Progress::begin_on_stream(int fd, engine::OneSidedWay& stream) {
  const Lock held(*this);
  if (endpoint_.phase() != Phase::kIdle) return {};
  if (const auto begun = stream.begin(fd, beside_); !begun) return begun;
  if (const auto opened = watch_.open(fd, true, endpoint_.is_caller_driven() ? nullptr : this);
      !opened) {
    stream.end();
    return opened;
  }
  beside_.begin(stream);
  endpoint_.begin(fd, startup_.plan());
  run(Look::kWhole);
  return {};
}

Status<> Progress::begin(int fd, Startup::Plan plan, bool is_held) {
  const Lock held(*this);
  if (endpoint_.phase() != Phase::kIdle) return fail_errno(EALREADY);
  if (const auto opened = watch_.open(fd, false, endpoint_.is_caller_driven() ? nullptr : this);
      !opened)
    return opened;
  startup_.begin(std::move(plan), is_held);
  endpoint_.begin(fd, startup_.plan());
  run(Look::kWhole);
  return {};
}

void Progress::release() {
  if (!startup_.is_held()) return;
  const Lock held(*this);
  if (startup_.release()) run(Look::kWhole);
}

void Progress::note_posted(unsigned count, bool is_more, bool is_answered) {
  beside_.note_posts(count);
  release();
  if (is_more) {
    is_held_back_.store(true);
    endpoint_.queue().note_held_back();
  } else if (count != 0) {
    push();
  }
  if (is_answered && stream() != nullptr) try_run(Look::kWhole, base::now());
}

Status<> Progress::shut(bool is_abrupt) {
  const Lock held(*this);
  if (endpoint_.phase() != Phase::kRunning) return fail_errno(ENOTCONN);
  if (is_abrupt) {
    endpoint_.qp().abort(std::nullopt);
  } else {
    endpoint_.qp().drain();
  }
  run(Look::kNone);
  return {};
}

uint64_t Progress::leave() {
  uint64_t id = 0;
  {
    const Lock held(*this);
    id = watch_.id();
  }
  watch_.leave(id);
  return id;
}

void Progress::close(uint64_t id, bool is_open) {
  beside_.end();
  if (is_open) endpoint_.queue().remove(*this);
  {
    const Lock held(*this);
    attendance_.set_passable(false);
    endpoint_.close();
    watch_.retire(id);
  }
}

void Progress::abandon() {
  if (stream() != nullptr) watch_.abandon();
}

// A store that others must see in order is a locked instruction. In shared memory they are a good
// part of what a message costs, so that flags are written only where they change.
bool Progress::try_run(Look how, Time now) {
  do {
    if (!mutex_.try_lock()) return false;
    if (is_work_pending_.load()) is_work_pending_.store(false);
    step(now, how);
    arm();
    mutex_.unlock();
    how = Look::kNone;
  } while (is_work_pending_.load());
  return true;
}

int Progress::poll_directly(std::span<ddp_completion> out) {
  if (!attendance_.may_pass() || is_held_back_.load() || endpoint_.queue().inbox().has_any())
    return kAskAsUsual;
  engine::Qp& qp = endpoint_.qp();
  const bool has_news = qp.has_news();
  if (!attendance_.count_pass()) {
    if (!has_news) return kAskAsUsual;
    attendance_.note_look(base::now());
  }
  if (!has_news) return 0;
  if (out.empty() || !mutex_.try_lock()) return kAskAsUsual;
  unsigned count = 0;
  // It may have been closed since, and its descriptor be another's.
  for (bool has_more = endpoint_.phase() == Phase::kRunning; has_more && count < out.size();) {
    const size_t room = std::min(direct_.size(), out.size() - count);
    const uint32_t got = qp.receive_directly(std::span(direct_).first(room));
    for (const engine::Completion& c : std::span(direct_).first(got))
      translate(c, endpoint_, out[count++]);
    has_more = got == room;
  }
  mutex_.unlock();
  return count != 0 ? static_cast<int>(count) : kAskAsUsual;
}

unsigned Progress::send_directly(std::span<const engine::SendWr> work) {
  if (is_held_back_.load() || !mutex_.try_lock()) return 0;
  const unsigned sent =
      endpoint_.phase() == Phase::kRunning ? endpoint_.qp().send_directly(work) : 0;
  mutex_.unlock();
  return sent;
}

// Nothing that is done at once in shared memory needs the time: step() knows the last.
void Progress::push() {
  const Time now = attendance_.is_passable() ? Time{} : base::now();
  if (try_run(Look::kNone, now)) return;
  is_work_pending_.store(true);
  // Who held it may have gone before it could see that.
  try_run(Look::kNone, now);
}

void Progress::look() {
  if (attendance_.is_passing()) return void(try_run(Look::kSpinning, Time{}));
  const Time now = base::now();
  attendance_.note_look(now);
  try_run(Look::kSpinning, now);
}

void Progress::run(Look how) {
  step(base::now(), how);
  arm();
}

void Progress::step(Time now, Look how) {
  // Who was overtaken on the way here must not turn the engine's clock back.
  now = last_step_ = std::max(now, last_step_);
  if (is_held_back_.load()) is_held_back_.store(false);
  if (endpoint_.phase() == Phase::kStarting) {
    const base::Uncancelled whole;
    step_starting(now);
  }
  if (endpoint_.phase() == Phase::kRunning) step_running(now, how);
}

void Progress::step_starting(Time now) {
  const bool is_second_call = startup_.has_fallen_back();
  engine::Qp& qp = endpoint_.qp();
  const auto state = stream() != nullptr
                         ? startup_.advance_on_stream(watch_.fd(), *stream(), qp, need_)
                         : startup_.advance(watch_.fd(), qp, now, need_);
  if (startup_.has_fallen_back() != is_second_call) watch_.take_event();
  switch (state) {
    case Startup::State::kUnderWay:
      return;
    case Startup::State::kRefusing:
      return endpoint_.run();
    case Startup::State::kFailed:
      return end(startup_.error(), startup_.reason());
    case Startup::State::kUp:
      endpoint_.run();
      if (stream() == nullptr) {
        endpoint_.note_up(startup_);
        endpoint_.queue().tell(*this, DDP_ESTABLISHED);
      }
      step_running(now, Look::kWhole);
  }
}

void Progress::step_running(Time now, Look how) {
  const bool may_spin = how == Look::kSpinning && attendance_.may_spin();
  const bool is_among_spins = may_spin && attendance_.take_whole_look();
  // Who posts does not wait for a thread that has the engine: ours tries again. If there is none,
  // it is the caller who moves the bytes.
  const bool may_wait = how != Look::kNone || !watch_.has_thread();
  const uint64_t posts = beside_.posts();
  engine::Qp& qp = endpoint_.qp();
  for (int i = 0; i < kMostAdvances; ++i) {
    const engine::Need need = qp.advance(now, {.may_be_readable = how != Look::kNone,
                                               .may_wait = may_wait,
                                               .is_spinning = may_spin && !is_among_spins,
                                               .is_among_spins = is_among_spins});
    if (need.is_busy) {
      need_.deadline = now;
    } else {
      need_ = need;
    }
    if (need_.deadline > now) break;
    now = base::now();
  }
  attendance_.set_passable(need_.is_unwatched && endpoint_.queue().is_own());
  if (stream() != nullptr)
    beside_.note_advance(posts, need_.deadline > now && !need_.wants_writable);
  // Anything else still reads, or is about to.
  if (need_.wants_readable || qp.state() != engine::QpState::kEnded) return;
  if (startup_.error() != 0) return end(startup_.error(), startup_.reason());
  const engine::TerminateInfo info = qp.terminate_info();
  switch (info.reason) {
    case engine::EndReason::kOrderly:
      return end(0, "closed");
    case engine::EndReason::kTerminateSent:
      return end(EPROTO, rdmap::to_string(info.terminate.code));
    case engine::EndReason::kTerminateReceived:
      return end(EREMOTEIO, rdmap::to_string(info.terminate.code));
    case engine::EndReason::kNone:
    case engine::EndReason::kLlpLost:
      return end(ECONNRESET, "the connection was lost");
  }
}

void Progress::end(int status, const char* reason) {
  endpoint_.end(status, reason);
  need_ = {};
  attendance_.set_passable(false);
  beside_.end();
  watch_.disarm();
  endpoint_.queue().tell(*this, DDP_ENDED);
}

void Progress::arm() {
  need_deadline_ns_.store(need_.deadline.ns, std::memory_order_relaxed);
  const Phase phase = endpoint_.phase();
  if (phase == Phase::kIdle || phase == Phase::kEnded) return watch_.look_at(kNever);
  if (!watch_.has_thread()) {
    // A thread that sleeps on the socket knows what was needed when it went to sleep.
    if (need_.wants_writable && attendance_.is_slept_on()) endpoint_.queue().alarm().ring();
    return;
  }
  if (stream() != nullptr) {
    watch_.arm(EPOLLIN);
    return watch_.look_at(need_.deadline);
  }
  const bool is_left = attendance_.is_left_to_callers();
  if (need_.is_unwatched && !is_left) {
    attendance_.leave_to_callers();
    return watch_.look_at(std::min(need_.deadline, last_step_ + kTick));
  }
  watch_.arm((need_.wants_readable && !is_left ? EPOLLIN : 0u) |
             (need_.wants_writable ? EPOLLOUT : 0u));
  watch_.look_at(is_left ? std::min(need_.deadline, watch_.deadline()) : need_.deadline);
}

void Progress::serve(uint32_t events) {
  watch_.note_served();
  const Time now = base::now();
  const Time due{need_deadline_ns_.load(std::memory_order_relaxed)};
  if (events == 0 && endpoint_.phase() == Phase::kRunning &&
      attendance_.stay_with_callers(due, now)) {
    return;
  }
  const Lock held(*this);
  if (!watch_.has_thread() || endpoint_.phase() == Phase::kEnded) return watch_.look_at(kNever);
  if (events != 0) watch_.take_event();
  const bool is_due = need_.deadline <= now || (events & EPOLLOUT) != 0;
  const bool may_lend = stream() == nullptr && endpoint_.phase() == Phase::kRunning && !is_due;
  if (may_lend && attendance_.is_there(now))
    return attendance_.leave_to_callers(need_.deadline, now);
  attendance_.take_over();
  step(now, Look::kWhole);
  arm();
}

Wakeup Progress::begin_sleep() {
  const Lock held(*this);
  attendance_.begin_sleep();
  const bool is_unwatched = endpoint_.phase() == Phase::kRunning && need_.is_unwatched;
  if (is_unwatched || is_held_back_.load()) run(need_.is_unwatched ? Look::kWhole : Look::kNone);
  const Phase phase = endpoint_.phase();
  if (phase == Phase::kIdle || phase == Phase::kEnded || stream() != nullptr) return {};
  return {.fd = watch_.fd(),
          .events = static_cast<short>((need_.wants_readable ? POLLIN : 0) |
                                       (need_.wants_writable ? POLLOUT : 0)),
          .until = need_.deadline};
}

void Progress::end_sleep() {
  if (!attendance_.end_sleep()) return;
  const Lock held(*this);
  watch_.look_at(base::now());
}

}  // namespace ddpsock::message
