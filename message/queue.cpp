// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/queue.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "base/spin.h"
#include "base/sys.h"
#include "message/progress.h"

namespace ddpsock::message {
namespace {

// A shared queue looks at so many connections itself; with more, only their thread does.
constexpr uint32_t kMostWatched = 16;
// poll(2) counts in an int, and a deadline must be seen whatever the clock does.
constexpr int64_t kLongestSleepMs = 1'000;

}  // namespace

bool LookHabit::is_worth() {
  const uint32_t vain = vain_.load(std::memory_order_relaxed);
  const bool is_worth = vain < kVain || vain == kProbe;
  if (!is_worth) vain_.store(vain + 1, std::memory_order_relaxed);
  return is_worth;
}

void LookHabit::note(bool has_found) {
  const uint32_t vain = vain_.load(std::memory_order_relaxed);
  vain_.store(has_found ? 0 : std::min(vain + 1, kVain), std::memory_order_relaxed);
}

Queue::Queue(Domain& domain, engine::Pd pd) : domain_(domain), pd_(pd), regions_(domain.engine()) {}

Queue::~Queue() {
  cq_.reset();
  regions_.clear();
  if (!is_own()) (void)domain_.engine().close_pd(pd_);
}

Status<> Queue::open(unsigned depth) {
  if (!open_event()) return fail_errno(EMFILE);
  auto cq = domain_.engine().make_cq({.depth = depth, .event_fd = event_fd_.get()});
  if (!cq) return fail_errno(cq.error() == engine::SetupError::kNoMemory ? ENOMEM : EINVAL);
  cq_ = std::move(*cq);
  alarm_.open(event_fd_.get(), *cq_);
  inbox_.open(*cq_);
  return {};
}

Result<Queue*> Queue::make(unsigned depth) {
  const auto domain = Domain::get();
  if (!domain) return fail(domain.error());
  if (depth == 0 || depth > (*domain)->engine().limits().max_cq_depth) return fail_errno(EINVAL);
  const auto pd = (*domain)->engine().open_pd();
  if (!pd) return fail_errno(ENOSPC);
  Kept<Queue> queue(new (std::nothrow) Queue(**domain, *pd));
  if (!queue) {
    (void)(*domain)->engine().close_pd(*pd);
    return fail_errno(ENOMEM);
  }
  if (const auto opened = queue->open(depth); !opened) return fail(opened.error());
  return queue.release();
}

Result<Queue*> Queue::make_own(Domain& domain, const ddp_depths& depths) {
  Kept<Queue> queue(new (std::nothrow) Queue(domain, domain.pd()));
  if (!queue) return fail_errno(ENOMEM);
  if (const auto opened = queue->open(depths.send + depths.receive); !opened)
    return fail(opened.error());
  return queue.release();
}

void Queue::close() {
  is_closed_.store(true);
  alarm_.ring();
}

Status<> Queue::add(Progress& c) {
  const std::lock_guard list(list_mutex_);
  if (!inbox_.add(c)) return fail_errno(ENOMEM);
  if (is_own()) own_ = &c;
  return {};
}

void Queue::remove(Progress& c) {
  const std::lock_guard list(list_mutex_);
  inbox_.remove(c);
}

void Queue::tell(Progress& c, ddp_kind kind) {
  inbox_.note(c, kind);
  alarm_.ring();
}

Result<ddp_region> Queue::register_memory(MutBytes memory, unsigned rights) {
  return regions_.add(memory, rights, pd_, engine::kAnyQp);
}

Status<> Queue::deregister(uint32_t stag) {
  return regions_.remove(stag);
}

Result<ddp_region> Queue::allocate(size_t length, unsigned rights) {
  return regions_.allocate(length, rights, pd_, engine::kAnyQp);
}

Status<> Queue::free(uint32_t stag) {
  return regions_.free(stag);
}

Status<> Queue::take_back(uint32_t stag) {
  return regions_.take_back(stag);
}

unsigned Queue::take(std::span<ddp_completion> out) {
  const unsigned n = inbox_.take(out);
  if (n == out.size()) alarm_.pass_on();
  return n;
}

// Also of the connections that nobody but their thread looks at.
void Queue::send_held_back() {
  if (!has_held_back_.load(std::memory_order_relaxed) || !has_held_back_.exchange(false)) return;
  const std::lock_guard list(list_mutex_);
  inbox_.connections().visit([](Progress& c) { c.send_held_back(); });
}

bool Queue::is_look_due() {
  if (own_ != nullptr) return own_->is_look_due();
  return found_.fetch_add(1, std::memory_order_relaxed) % kFoundInARow == kFoundInARow - 1;
}

// Looks at the connections; unless somebody else is just doing that.
unsigned Queue::drive(std::span<ddp_completion> out) {
  if (own_ != nullptr) {
    own_->look();
  } else {
    const std::unique_lock list(list_mutex_, std::try_to_lock);
    if (!list) return take(out);
    const bool is_few = inbox_.connections().size() <= kMostWatched;
    inbox_.connections().visit([is_few](Progress& c) {
      if (is_few || c.endpoint().is_caller_driven()) c.look();
    });
  }
  return inbox_.has_any() ? take(out) : 0;
}

Result<unsigned> Queue::poll(std::span<ddp_completion> out) {
  if (out.empty()) return 0u;
  send_held_back();
  unsigned n = 0;
  if (inbox_.has_any() && !is_look_due()) n = take(out);
  if (n == 0) n = drive(out);
  if (n != 0 || !alarm_.is_driven_by_events()) return n;
  alarm_.rearm();
  return take(out);
}

Result<unsigned> Queue::wait_until_closed(const std::atomic<bool>& is_closed,
                                          std::span<ddp_completion> out, int timeout_ms) {
  if (out.empty()) return fail_errno(EINVAL);
  send_held_back();
  const Time start = base::now();
  const Time deadline = timeout_ms < 0 ? kNever : start + Duration::from_ms(timeout_ms);
  const Time spin_end = start + spin();
  bool may_look = deadline <= start || spin_end > start || habit_.is_worth();
  for (bool is_first = true;; is_first = false) {
    const unsigned n = may_look ? poll(out).value_or(0) : take(out);
    if (is_first && may_look) habit_.note(n != 0);
    may_look = true;
    if (n != 0) return n;
    if (is_closed.load()) return fail_errno(EBADF);
    if (is_own() && inbox_.has_told_end()) return fail_errno(EPIPE);
    const Time now = base::now();
    if (now >= deadline) return 0u;
    if (now < spin_end) {
      base::Spin::relax();
      continue;
    }
    Alarm::Sleeper sleeper(alarm_);
    if (const unsigned found = take(out); found != 0) return found;
    if (is_closed.load()) return fail_errno(EBADF);
    if (const auto slept = sleep(sleeper, deadline); !slept) return fail(slept.error());
  }
}

// The connections that a thread sleeps on itself, until it wakes or is cancelled.
class Queue::Sleep {
 public:
  Sleep(Queue& queue, Progress* only);
  ~Sleep();
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;

  // Its own descriptor may be put at the front.
  static constexpr size_t kMost = kMostWatched;
  std::array<pollfd, kMost + 1> fds;
  size_t count = 0;
  Time until = kNever;
  bool is_whole = true;  // false: there are connections that only their caller moves besides

 private:
  void begin(Progress& c);

  Queue& queue_;
  std::array<uint32_t, kMost> numbers_;
};

Queue::Sleep::Sleep(Queue& queue, Progress* only) : queue_(queue) {
  const std::lock_guard list(queue_.list_mutex_);
  if (only != nullptr) {
    begin(*only);
    return;
  }
  const auto& connections = queue_.inbox_.connections();
  const bool is_few = connections.size() <= kMost;
  connections.visit([&](Progress& c) {
    if (is_few || c.endpoint().is_caller_driven()) begin(c);
  });
}

void Queue::Sleep::begin(Progress& c) {
  if (count == kMost) {
    is_whole = false;
    return;
  }
  const Wakeup wakeup = c.begin_sleep();
  numbers_[count++] = c.qp_number();
  fds[count] = {.fd = wakeup.fd, .events = wakeup.events, .revents = 0};
  until = std::min(until, wakeup.until);
}

Queue::Sleep::~Sleep() {
  const std::lock_guard list(queue_.list_mutex_);
  for (const uint32_t number : std::span(numbers_).first(count))
    if (Progress* c = queue_.inbox_.connections().find(number)) c->end_sleep();
}

Status<> Queue::sleep(Alarm::Sleeper& sleeper, Time deadline, Progress* only) {
  Sleep asleep(*this, only);
  asleep.fds[0] = {.fd = sleeper.fd(), .events = POLLIN, .revents = 0};
  const Time until = std::min(deadline, asleep.until);
  // Too many to sleep on: look often.
  const int64_t longest = asleep.is_whole ? kLongestSleepMs : 1;
  const int64_t left =
      until == kNever ? longest : std::min((until - base::now()).ceil_ms(), longest);
  const int ready = base::sys.poll(asleep.fds.data(), asleep.count + 1, static_cast<int>(left));
  if (ready < 0) return fail_errno(errno);
  if ((asleep.fds[0].revents & POLLIN) != 0) sleeper.drain();
  return {};
}

}  // namespace ddpsock::message
