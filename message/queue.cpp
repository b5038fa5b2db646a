// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/queue.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "base/cancellation.h"
#include "base/spin.h"
#include "base/sys.h"
#include "message/connection.h"

namespace ddpsock::message {
namespace {

// A shared queue looks at so many connections itself; with more, only their thread does.
constexpr uint32_t kMostWatched = 16;
// poll(2) counts in an int, and a deadline must be seen whatever the clock does.
constexpr int64_t kLongestSleepMs = 1'000;
constexpr uint32_t kLeastTable = 4;

// Numbers are handed out one after the other.
uint32_t hash(uint32_t qp) {
  return qp * 0x9e37'79b1u;
}

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

void QpTable::place(Connection& c) {
  uint32_t at = hash(c.qp_number()) & (room_ - 1);
  while (slots_[at] != nullptr) at = (at + 1) & (room_ - 1);
  slots_[at] = &c;
}

bool QpTable::insert(Connection& c) {
  if (2 * (size_ + 1) > room_) {
    const uint32_t more = std::max(kLeastTable, room_ * 2);
    std::unique_ptr<Connection*[]> slots(new (std::nothrow) Connection* [more] {});
    if (!slots) return false;
    const uint32_t before = room_;
    std::swap(slots_, slots);
    room_ = more;
    for (uint32_t i = 0; i < before; ++i)
      if (slots[i] != nullptr) place(*slots[i]);
  }
  place(c);
  ++size_;
  return true;
}

void QpTable::erase(const Connection& c) {
  if (room_ == 0) return;
  uint32_t at = hash(c.qp_number()) & (room_ - 1);
  while (slots_[at] != nullptr && slots_[at] != &c) at = (at + 1) & (room_ - 1);
  if (slots_[at] == nullptr) return;
  slots_[at] = nullptr;
  --size_;
  // Those behind it may have been pushed there by it.
  for (at = (at + 1) & (room_ - 1); slots_[at] != nullptr; at = (at + 1) & (room_ - 1)) {
    Connection* moved = slots_[at];
    slots_[at] = nullptr;
    place(*moved);
  }
}

Connection* QpTable::find(uint32_t qp) const {
  if (room_ == 0) return nullptr;
  for (uint32_t at = hash(qp) & (room_ - 1); slots_[at] != nullptr; at = (at + 1) & (room_ - 1))
    if (slots_[at]->qp_number() == qp) return slots_[at];
  return nullptr;
}

Queue::Queue(Domain& domain, engine::Pd pd, bool is_shared)
    : domain_(domain), pd_(pd), is_shared_(is_shared), regions_(domain.engine()) {}

Queue::~Queue() {
  cq_.reset();
  regions_.clear();
  if (is_shared_) (void)domain_.engine().close_pd(pd_);
}

Status<> Queue::open(unsigned depth) {
  event_fd_ = move_high(base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!event_fd_.is_valid()) return fail_errno(EMFILE);
  auto cq = domain_.engine().make_cq({.depth = depth, .event_fd = event_fd_.get()});
  if (!cq) return fail_errno(cq.error() == engine::SetupError::kNoMemory ? ENOMEM : EINVAL);
  cq_ = std::move(*cq);
  return {};
}

Result<Queue*> Queue::make(unsigned depth) {
  const auto domain = Domain::get();
  if (!domain) return fail(domain.error());
  if (depth == 0 || depth > (*domain)->engine().limits().max_cq_depth) return fail_errno(EINVAL);
  const auto pd = (*domain)->engine().open_pd();
  if (!pd) return fail_errno(ENOSPC);
  Queue* queue = new (std::nothrow) Queue(**domain, *pd, true);
  if (queue == nullptr) {
    (void)(*domain)->engine().close_pd(*pd);
    return fail_errno(ENOMEM);
  }
  if (const auto opened = queue->open(depth); !opened) {
    delete queue;
    return fail(opened.error());
  }
  return queue;
}

Result<Queue*> Queue::make_own(Domain& domain, const ddp_depths& depths) {
  Queue* queue = new (std::nothrow) Queue(domain, domain.pd(), false);
  if (queue == nullptr) return fail_errno(ENOMEM);
  if (const auto opened = queue->open(depths.send + depths.receive); !opened) {
    delete queue;
    return fail(opened.error());
  }
  return queue;
}

void Queue::drop_reference() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

int Queue::open_descriptor() const {
  return base::sys.fcntl(event_fd_.get(), F_DUPFD_CLOEXEC, 0);
}

void Queue::close() {
  is_closed_.store(true);
  wake();
}

Status<> Queue::add(Connection& c) {
  const std::lock_guard list(list_mutex_);
  const std::lock_guard lock(mutex_);
  if (!connections_.insert(c)) return fail_errno(ENOMEM);
  if (is_own()) own_ = &c;
  return {};
}

void Queue::remove(Connection& c) {
  const std::lock_guard list(list_mutex_);
  const std::lock_guard lock(mutex_);
  connections_.erase(c);
  for (Connection** at = &first_event_; *at != nullptr; at = &(*at)->event.next) {
    if (*at != &c) continue;
    *at = c.event.next;
    break;
  }
  // A call that still runs may find it established or ended now.
  c.event = {.is_removed = true};
}

// REQUIRES: mutex_, as all that touches events.
void Queue::link(Connection& c) {
  if (c.event.is_listed || c.event.is_removed) return;
  c.event.is_listed = true;
  c.event.next = first_event_;
  first_event_ = &c;
  has_event_.store(true, std::memory_order_relaxed);
}

void Queue::unlink_idle() {
  for (Connection** at = &first_event_; *at != nullptr;) {
    Connection& c = **at;
    if (c.event.is_established || c.event.is_ended) {
      at = &c.event.next;
      continue;
    }
    *at = c.event.next;
    c.event.next = nullptr;
    c.event.is_listed = false;
  }
  has_event_.store(first_event_ != nullptr, std::memory_order_relaxed);
}

void Queue::note_established(Connection& c) {
  {
    const std::lock_guard lock(mutex_);
    c.event.is_established = true;
    link(c);
  }
  wake();
}

void Queue::note_ended(Connection& c) {
  {
    const std::lock_guard lock(mutex_);
    c.event.is_ended = c.event.is_over = true;
    link(c);
  }
  wake();
}

void Queue::forget_established(Connection& c) {
  const std::lock_guard lock(mutex_);
  c.event.is_established = false;
  unlink_idle();
}

void Queue::wake() {
  if (sleepers_.load() != 0 || is_event_wanted_.load()) base::raise_event(event_fd_.get());
}

Queue::Sleeper::Sleeper(Queue& queue) : queue_(queue) {
  queue_.sleepers_.fetch_add(1);
  queue_.cq_->arm(engine::Cq::Arm::kAny);
}

Queue::Sleeper::~Sleeper() {
  const bool is_last = queue_.sleepers_.fetch_sub(1) == 1;
  // The signal that ended this sleep may have been the one that others were to be woken by.
  if (!is_last) queue_.cq_->arm(engine::Cq::Arm::kAny);
  if (!is_last || queue_.is_event_wanted_.load()) return;
  queue_.cq_->arm(engine::Cq::Arm::kOff);
  // One that has begun meanwhile; its own arm() may have come before this.
  if (queue_.sleepers_.load() != 0 || queue_.is_event_wanted_.load()) {
    queue_.cq_->arm(engine::Cq::Arm::kAny);
    base::raise_event(queue_.event_fd_.get());
  }
}

void Queue::Sleeper::drain() {
  base::drain_event(queue_.event_fd_.get());
}

Result<ddp_region> Queue::register_memory(MutBytes memory, unsigned rights) {
  return regions_.add(memory, rights, pd_, engine::kAnyQp);
}

Status<> Queue::deregister(uint32_t stag) {
  return regions_.remove(stag);
}

unsigned Queue::take_established(std::span<ddp_completion> out) {
  unsigned n = 0;
  for (Connection* c = first_event_; c != nullptr && n < out.size(); c = c->event.next) {
    if (!c->event.is_established) continue;
    c->event.is_established = false;
    out[n] = {};
    out[n].fd = c->fd();
    out[n++].kind = DDP_ESTABLISHED;
  }
  return n;
}

unsigned Queue::take_ended(std::span<ddp_completion> out) {
  unsigned n = 0;
  for (Connection* c = first_event_; c != nullptr && n < out.size(); c = c->event.next) {
    if (!c->event.is_ended || c->event.is_established) continue;
    c->event.is_ended = false;
    out[n] = {};
    out[n].fd = c->fd();
    out[n].kind = DDP_ENDED;
    out[n].status = c->end_status();
    out[n++].terminate = c->end_terminate();
  }
  return n;
}

void Queue::translate(const engine::Completion& from, Connection& c, ddp_completion& to) const {
  to = {};
  to.cookie = from.id;
  to.fd = c.fd();
  to.kind = kind_of(from.kind);
  to.bytes = from.length;
  to.value = from.immediate.value_or(from.original);
  if (from.is_solicited) to.flags |= DDP_SOLICITED;
  if (from.immediate) to.flags |= DDP_IMMEDIATE;
  if (from.invalidated_stag) {
    to.flags |= DDP_INVALIDATE;
    to.stag = *from.invalidated_stag;
  }
  if (from.status == engine::WorkStatus::kOk) return;
  to.status = ECANCELED;
  to.terminate = c.end_terminate();
}

// A shared receive of a connection that the program has closed: its buffer is the program's again.
void Queue::give_back(const engine::Completion& from, ddp_completion& to) {
  to = {};
  to.cookie = from.id;
  to.fd = -1;
  to.kind = DDP_RECEIVED;
  to.status = ECANCELED;
}

unsigned Queue::take_work(std::span<ddp_completion> out) {
  unsigned n = 0;
  while (n < out.size()) {
    const size_t room = std::min(raw_.size(), out.size() - n);
    const uint32_t got = cq_->poll(std::span(raw_).first(room));
    for (uint32_t i = 0; i < got; ++i) {
      if (Connection* c = connections_.find(raw_[i].qp)) {
        translate(raw_[i], *c, out[n++]);
      } else if (raw_[i].is_shared) {
        give_back(raw_[i], out[n++]);
      }
    }
    if (got < room) break;
  }
  return n;
}

unsigned Queue::take(std::span<ddp_completion> out) {
  const std::lock_guard lock(mutex_);
  const bool has_events = first_event_ != nullptr;
  unsigned n = has_events ? take_established(out) : 0;
  n += take_work(out.subspan(n));
  if (has_events) {
    // An end is told after all of its connection's work, which was in the queue before it.
    n += take_ended(out.subspan(n));
    unlink_idle();
  }
  // One signal may have been for several completions, and another thread may have seen it.
  if (n == out.size() && sleepers_.load() != 0) base::raise_event(event_fd_.get());
  return n;
}

// Also of the connections that nobody but their thread looks at.
void Queue::send_held_back() {
  if (!has_held_back_.load(std::memory_order_relaxed) || !has_held_back_.exchange(false)) return;
  const std::lock_guard list(list_mutex_);
  connections_.visit([](Connection& c) { c.send_held_back(); });
}

// Looks at the connections; unless somebody else is just doing that.
unsigned Queue::drive(std::span<ddp_completion> out) {
  if (own_ != nullptr) {
    own_->look();
  } else {
    const std::unique_lock list(list_mutex_, std::try_to_lock);
    if (!list) return take(out);
    const bool is_few = connections_.size() <= kMostWatched;
    connections_.visit([is_few](Connection& c) {
      if (is_few || c.is_caller_driven()) c.look();
    });
  }
  return has_any() ? take(out) : 0;
}

Result<unsigned> Queue::poll(std::span<ddp_completion> out) {
  if (out.empty()) return 0u;
  send_held_back();
  unsigned n = has_any() ? take(out) : 0;
  if (n == 0) n = drive(out);
  if (n != 0 || !is_event_wanted_.load(std::memory_order_relaxed)) return n;
  base::drain_event(event_fd_.get());
  cq_->arm(engine::Cq::Arm::kAny);
  return take(out);
}

bool Queue::has_ended() const {
  if (is_shared_) return false;
  const std::lock_guard lock(mutex_);
  bool has_ended = false;
  connections_.visit(
      [&](const Connection& c) { has_ended = c.event.is_over && !c.event.is_ended; });
  return has_ended;
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
    if (has_ended()) return fail_errno(EPIPE);
    const Time now = base::now();
    if (now >= deadline) return 0u;
    if (now < spin_end) {
      base::Spin::relax();
      continue;
    }
    Sleeper sleeper(*this);
    if (const unsigned found = take(out); found != 0) return found;
    if (is_closed.load()) return fail_errno(EBADF);
    if (const auto slept = sleep(sleeper, deadline); !slept) return fail(slept.error());
  }
}

// The connections that a thread sleeps on itself, until it wakes or is cancelled.
class Queue::Sleep {
 public:
  explicit Sleep(Queue& queue);
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
  Queue& queue_;
  std::array<Connection*, kMost> connections_;
};

Queue::Sleep::Sleep(Queue& queue) : queue_(queue) {
  const std::lock_guard list(queue_.list_mutex_);
  const bool is_few = queue_.connections_.size() <= kMost;
  queue_.connections_.visit([&](Connection& c) {
    if (!is_few && !c.is_caller_driven()) return;
    if (count == kMost) {
      is_whole = false;
      return;
    }
    const Connection::Wakeup wakeup = c.begin_sleep();
    connections_[count++] = &c;
    fds[count] = {.fd = wakeup.fd, .events = wakeup.events, .revents = 0};
    until = std::min(until, wakeup.until);
  });
}

Queue::Sleep::~Sleep() {
  const std::lock_guard list(queue_.list_mutex_);
  for (size_t i = 0; i < count; ++i) {
    bool is_there = false;
    queue_.connections_.visit(
        [&](const Connection& c) { is_there = is_there || &c == connections_[i]; });
    if (is_there) connections_[i]->end_sleep();
  }
}

// Until something may have come, or a connection has something to do.
Status<> Queue::sleep(Sleeper& sleeper, Time deadline) {
  Sleep asleep(*this);
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

Result<int> Queue::event_fd() {
  is_event_wanted_.store(true);
  cq_->arm(engine::Cq::Arm::kAny);
  // What came before it was armed.
  base::raise_event(event_fd_.get());
  return event_fd_.get();
}

}  // namespace ddpsock::message
