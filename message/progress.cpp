// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A connection on the wire: start-up, the queue pair's progress, the end, and who looks at the
// socket. The Domain's thread waits for each event once (EPOLLONESHOT). One that comes while the
// program itself is polling or sleeping on the socket is left to it: the connection is lent, and
// the thread only looks now and then whether the program still is (kTick). So a program that polls
// shares its socket with nobody, and one that stops polling to compute is taken over from within
// two ticks.
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/cancellation.h"
#include "base/sys.h"
#include "message/lock.h"

namespace ddpsock::message {
namespace {

constexpr Duration kTick = Duration::from_ms(1);
// A sleeper whom nothing wakes for so many ticks will say itself when it goes.
constexpr uint32_t kMostIdleTicks = 8;
// Polls that find nothing between two that read the clock.
constexpr uint32_t kPasses = 32;
// advance() moves megabytes a time; more of them would keep others waiting.
constexpr int kMostAdvances = 8;

}  // namespace

// A store that others must see in order is a locked instruction. In shared memory they are a good
// part of what a message costs, so that flags are written only where they change.
bool Connection::try_run(Poll how, Time now) {
  do {
    if (!mutex_.try_lock()) return false;
    if (is_work_pending_.load()) is_work_pending_.store(false);
    step(now, how);
    arm();
    mutex_.unlock();
    how = Poll::kNone;
  } while (is_work_pending_.load());
  return true;
}

// Whether a poll would find nothing: told by a few loads, so that a program that asks again and
// again finds a message as soon as it is there. Not always, so that the thread sees that it asks.
bool Connection::is_quiet() {
  if (!may_be_passed_by_.load(std::memory_order_acquire) || is_held_back_.load()) return false;
  if (queue_->alarm().is_driven_by_events()) return false;
  const uint32_t passes = passes_.load(std::memory_order_relaxed) + 1;
  passes_.store(passes, std::memory_order_relaxed);
  return passes % kPasses != 0 && !queue_->inbox().has_any() && !qp_->has_news();
}

// Nothing that is done at once in shared memory needs the time: step() knows the last.
void Connection::push() {
  const Time now = may_be_passed_by_.load(std::memory_order_relaxed) ? Time{} : base::now();
  if (try_run(Poll::kNone, now)) return;
  is_work_pending_.store(true);
  // Who held it may have gone before it could see that.
  try_run(Poll::kNone, now);
}

void Connection::send_held_back() {
  if (is_held_back_.load()) push();
}

void Connection::look() {
  if (may_be_passed_by_.load(std::memory_order_relaxed) &&
      passes_.load(std::memory_order_relaxed) % kPasses != 0)
    return void(try_run(Poll::kSpinning, Time{}));
  const Time now = base::now();
  last_look_ns_.store(now.ns, std::memory_order_relaxed);
  try_run(Poll::kSpinning, now);
}

void Connection::step(Time now, Poll how) {
  // Who was overtaken on the way here must not turn the engine's clock back.
  now = last_step_ = std::max(now, last_step_);
  if (is_held_back_.load()) is_held_back_.store(false);
  if (phase_.load() == Phase::kStarting) {
    const base::Uncancelled whole;
    step_starting(now);
  }
  if (phase_.load() == Phase::kRunning) step_running(now, how);
}

void Connection::wake() {
  is_woken_.store(true);
  domain_.wake_by(Time{});
}

// Called with the stream's receive lease, by the thread that is about to deliver.
void Connection::take_in() {
  const Lock held(*this);
  while (phase_.load() == Phase::kRunning && !arrived.is_done()) step(base::now(), Poll::kWhole);
  arm();
}

// Called with the stream's send lease, by the thread that is about to send.
int Connection::flush() {
  if (sent_up_to_.load() == posts_.load()) return 0;
  const Lock held(*this);
  if (phase_.load() != Phase::kRunning) return 0;
  do {
    step(base::now(), Poll::kNone);
    if (phase_.load() == Phase::kRunning && need_.wants_writable) {
      arm();
      return EAGAIN;
    }
  } while (phase_.load() == Phase::kRunning && sent_up_to_.load() != posts_.load() &&
           need_.deadline <= base::now());
  arm();
  return 0;
}

void Connection::step_starting(Time now) {
  const bool is_second_call = startup_.has_fallen_back();
  const auto state = stream_ != nullptr
                         ? startup_.advance_on_stream(socket_.get(), *stream_, *qp_, need_)
                         : startup_.advance(socket_.get(), *qp_, now, need_);
  if (startup_.has_fallen_back() != is_second_call) armed_ = 0;
  switch (state) {
    case Startup::State::kUnderWay:
      return;
    case Startup::State::kRefusing:
      return phase_.store(Phase::kRunning);
    case Startup::State::kFailed:
      return end(startup_.error(), startup_.reason());
    case Startup::State::kUp:
      phase_.store(Phase::kRunning);
      if (stream_ == nullptr) {
        note_open();
        queue_->tell(*this, DDP_ESTABLISHED);
      }
      step_running(now, Poll::kWhole);
  }
}

void Connection::note_open() {
  if (record_ == nullptr) return;
  const Startup::Plan& plan = startup_.plan();
  // Of a non-blocking connect() the addresses were not known yet, of a second call they are others.
  if (record_->remote.family == 0 || startup_.has_fallen_back())
    record_->note_socket(fd(), plan.role == Role::kInitiator);
  record_->note_engine(plan.memory.memory ? "shm" : "user", progress(), plan.memory.why);
  const mpa::Agreement& agreed = startup_.agreement();
  record_->has_crc.store(agreed.has_crc, std::memory_order_relaxed);
  record_->mpa_revision.store(static_cast<uint8_t>(agreed.revision), std::memory_order_relaxed);
  record_->state.store(engine::MessageRecord::State::kOpen, std::memory_order_release);
}

// Whether somebody looks again before long, although nothing rings: the thread does, once a tick.
// Not while another thread sleeps on the socket, or the program on the event fd.
bool Connection::may_spin() const {
  return id_ != 0 && watchers_.load() == 0 && !queue_->alarm().is_driven_by_events();
}

bool Connection::take_whole_look() {
  return is_whole_look_due_.load(std::memory_order_relaxed) && is_whole_look_due_.exchange(false);
}

void Connection::step_running(Time now, Poll how) {
  const bool is_spinning = how == Poll::kSpinning && may_spin() && !take_whole_look();
  // Who posts does not wait for a thread that has the engine: ours tries again. If there is none,
  // it is the caller who moves the bytes.
  const bool may_wait = how != Poll::kNone || id_ == 0;
  const uint64_t posts = posts_.load();
  for (int i = 0; i < kMostAdvances; ++i) {
    const engine::Need need = qp_->advance(
        now,
        {.may_be_readable = how != Poll::kNone, .may_wait = may_wait, .is_spinning = is_spinning});
    if (need.is_busy) {
      need_.deadline = now;
    } else {
      need_ = need;
    }
    if (need_.deadline > now) break;
    now = base::now();
  }
  may_be_passed_by_.store(need_.is_unwatched && queue_->is_own(), std::memory_order_release);
  if (stream_ != nullptr) {
    if (need_.deadline > now && !need_.wants_writable) sent_up_to_.store(posts);
    arrived.note_done();
  }
  // Anything else still reads, or is about to.
  if (!need_.wants_readable && qp_->state() == engine::QpState::kEnded) end_as_told();
}

void Connection::end_as_told() {
  const engine::TerminateInfo info = qp_->terminate_info();
  if (startup_.error() != 0) return end(startup_.error(), startup_.reason());
  switch (info.reason) {
    case engine::EndReason::kOrderly:
      return end(0, "closed");
    case engine::EndReason::kTerminateSent:
      return end(EPROTO, rdmap::to_string(info.terminate.code));
    case engine::EndReason::kTerminateReceived:
      return end(EREMOTEIO, rdmap::to_string(info.terminate.code));
    case engine::EndReason::kNone:
    case engine::EndReason::kLlpLost:
      break;
  }
  end(ECONNRESET, "the connection was lost");
}

void Connection::end(int status, const char* reason) {
  if (qp_->state() != engine::QpState::kEnded) qp_->abort(std::nullopt);
  reason_ = reason;
  end_status_.store(status);
  if (record_ != nullptr) record_->note_end(status, end_terminate(), reason);
  need_ = {};
  may_be_passed_by_.store(false);
  if (stream_ != nullptr) stream_->end_one_sided();
  if (id_ != 0) domain_.disarm(watched(), id_);
  phase_.store(Phase::kEnded);
  queue_->tell(*this, DDP_ENDED);
}

void Connection::publish(Time deadline) {
  deadline_ns_.store(deadline.ns, std::memory_order_relaxed);
  if (id_ != 0 && deadline != kNever) domain_.wake_by(deadline);
}

void Connection::arm() {
  need_deadline_ns_.store(need_.deadline.ns, std::memory_order_relaxed);
  const Phase phase = phase_.load();
  if (phase == Phase::kIdle || phase == Phase::kEnded || is_closed()) return publish(kNever);
  if (id_ == 0) {
    // A thread that sleeps on the socket knows what was needed when it went to sleep.
    if (need_.wants_writable && watchers_.load() != 0) queue_->alarm().ring();
    return;
  }
  if (stream_ != nullptr) {
    if (armed_ == 0) domain_.arm(edges_.get(), id_, EPOLLIN);
    armed_ = EPOLLIN;
    return publish(need_.deadline);
  }
  if (need_.is_unwatched && !is_left_to_callers_) {
    is_left_to_callers_ = true;
    idle_ticks_ = 0;
    publish(std::min(need_.deadline, last_step_ + kTick));
    return;
  }
  const uint32_t readable = need_.wants_readable && !is_left_to_callers_ ? EPOLLIN : 0u;
  const uint32_t wanted = readable | (need_.wants_writable ? EPOLLOUT : 0u);
  if ((wanted & ~armed_) != 0) {
    domain_.arm(socket_.get(), id_, wanted);
    armed_ = wanted;
  }
  publish(is_left_to_callers_ ? std::min(need_.deadline, deadline()) : need_.deadline);
}

bool Connection::is_driven(Time now) const {
  if (watchers_.load() != 0) return true;
  if (queue_->alarm().is_driven_by_events()) return false;
  return now - Time{last_look_ns_.load(std::memory_order_relaxed)} < kTick;
}

// Whether the program was there since the last tick, or has not been away for long.
bool Connection::is_seen_often() {
  const int64_t look = last_look_ns_.load(std::memory_order_relaxed);
  idle_ticks_ = is_left_to_callers_ && look == seen_look_ns_ ? idle_ticks_ + 1 : 0;
  seen_look_ns_ = look;
  return idle_ticks_ < kMostIdleTicks;
}

void Connection::leave_to_callers(Time now) {
  const bool is_seen = is_seen_often();
  is_left_to_callers_ = true;
  is_whole_look_due_.store(true, std::memory_order_relaxed);
  if (is_seen) return publish(std::min(need_.deadline, now + kTick));
  is_recall_wanted_.store(true);
  publish(need_.deadline);
  if (watchers_.load() == 0 && is_recall_wanted_.exchange(false)) publish(now);
}

// A tick that finds the program still there, as most do, keeps out of its way altogether. A
// deadline that comes to be meanwhile is seen a tick later.
bool Connection::stay_with_callers(Time now) {
  const Time due{need_deadline_ns_.load(std::memory_order_relaxed)};
  if (!is_left_to_callers_ || phase_.load() != Phase::kRunning || due <= now) return false;
  if (!is_driven(now) || !is_seen_often()) return false;
  is_whole_look_due_.store(true, std::memory_order_relaxed);
  deadline_ns_.store(std::min(due, now + kTick).ns, std::memory_order_relaxed);
  domain_.wake_by(std::min(due, now + kTick));
  return true;
}

void Connection::serve(uint32_t events) {
  is_woken_.store(false);
  const Time now = base::now();
  if (events == 0 && stay_with_callers(now)) return;
  const Lock held(*this);
  if (is_closed() || id_ == 0 || phase_.load() == Phase::kEnded) return publish(kNever);
  if (stream_ != nullptr) {
    if (events != 0) {
      armed_ = 0;
      epoll_event edge;
      base::sys.epoll_wait(edges_.get(), &edge, 1, 0);
    }
    step(now, Poll::kWhole);
    return arm();
  }
  if (events != 0) armed_ = 0;
  const bool is_due = need_.deadline <= now || (events & EPOLLOUT) != 0;
  if (phase_.load() == Phase::kRunning && !is_due && is_driven(now)) return leave_to_callers(now);
  is_left_to_callers_ = false;
  is_recall_wanted_.store(false);
  step(now, Poll::kWhole);
  arm();
}

Connection::Wakeup Connection::begin_sleep() {
  const Lock held(*this);
  watchers_.fetch_add(1);
  const bool is_running = phase_.load() == Phase::kRunning;
  if (is_held_back_.load() || (is_running && need_.is_unwatched)) {
    step(base::now(), need_.is_unwatched ? Poll::kWhole : Poll::kNone);
    arm();
  }
  const Phase phase = phase_.load();
  if (phase == Phase::kIdle || phase == Phase::kEnded || stream_ != nullptr) return {};
  return {.fd = socket_.get(),
          .events = static_cast<short>((need_.wants_readable ? POLLIN : 0) |
                                       (need_.wants_writable ? POLLOUT : 0)),
          .until = need_.deadline};
}

void Connection::end_sleep() {
  if (watchers_.fetch_sub(1) != 1) return;
  if (!is_recall_wanted_.exchange(false)) return;
  const Lock held(*this);
  publish(base::now());
}

}  // namespace ddpsock::message
