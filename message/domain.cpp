// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/domain.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <string_view>

#include "base/process.h"
#include "base/sys.h"
#include "engine/observer.h"
#include "engine/user/user_engine.h"
#include "message/progress.h"

namespace ddpsock::message {
namespace {

constexpr uint32_t kMaxRegions = 8192;
// advance() keeps 32 KB of received bytes and as much of lists on the stack.
constexpr size_t kStackSize = 512 * 1024;
// Each time it looks at connections that are due.
constexpr size_t kDueAtOnce = 64;
constexpr int kEventsAtOnce = 64;
constexpr uint32_t kFirstSlots = 64;
constexpr int kRetryMs = 10;

constinit std::atomic<Domain*> the_domain{nullptr};
[[gnu::tls_model("initial-exec")]] constinit thread_local bool is_progress_thread = false;

// DDPSOCK_PROGRESS; what it does not say, and what is refused, is as if it were not there.
Poller::Kind wished_poller() {
  const char* text = secure_getenv("DDPSOCK_PROGRESS");
  const std::string_view wished = text != nullptr ? text : "";
  if (wished == "epoll") return Poller::Kind::kEpoll;
  return wished == "io_uring" ? Poller::Kind::kUring : Poller::Kind::kAny;
}

}  // namespace

Domain::Domain(std::unique_ptr<engine::Engine> engine, engine::Pd pd)
    : engine_(std::move(engine)), pd_(pd), generation_(base::process_generation()) {}

Result<Domain*> Domain::get() {
  Domain* found = the_domain.load(std::memory_order_acquire);
  if (found != nullptr && found->generation_ == base::process_generation()) return found;
  if (!base::process_init()) return fail_errno(ENOMEM);
  auto engine = engine::open_user_message_engine({.max_regions = kMaxRegions});
  if (engine && engine::is_observed.load()) engine = engine::observer->around(std::move(engine));
  if (!engine) return fail_errno(ENOMEM);
  const auto pd = engine->open_pd();
  if (!pd) return fail_errno(ENOMEM);
  auto* made = new (std::nothrow) Domain(std::move(engine), *pd);
  if (made == nullptr) return fail_errno(ENOMEM);
  if (the_domain.compare_exchange_strong(found, made)) {
    if (found == nullptr) pthread_atfork(nullptr, nullptr, in_child);
    return made;
  }
  delete made;
  return found;
}

Status<> Domain::start_thread() {
  const std::lock_guard lock(mutex_);
  if (has_thread_) return {};
  if (!poller_) poller_ = Poller::make(wished_poller());
  if (!poller_) return fail_errno(EMFILE);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackSize);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, run_thread, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    poller_.reset();  // of which nobody knows yet
    return fail_errno(error);
  }
  pthread_setname_np(thread, "ddpsock");
  has_thread_ = true;
  return {};
}

const char* Domain::poller_name() const {
  return poller_ ? poller_->name() : "";
}

// A program that closes what it has not opened (closefrom) closes these, too; the numbers may be
// its own by now. Connections that it still has are served by new ones.
void Domain::replace_descriptors() {
  if (!poller_->reopen()) {
    base::sys.poll(nullptr, 0, kRetryMs);
    return;
  }
  for (uint32_t i = 0;; ++i) {
    uint64_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      if (i == slot_count_) return;
      if (slots_[i].connection != nullptr) id = make_id(slots_[i].serial, i);
    }
    if (id != 0) serve(id, EPOLLHUP);
  }
}

void* Domain::run_thread(void* domain) {
  is_progress_thread = true;
  static_cast<Domain*>(domain)->run();
}

void Domain::run() {
  poller_->adopt();
  for (;;) {
    std::array<Poller::Ready, kEventsAtOnce> ready;
    const auto count = poller_->wait(ready, Time{earliest_.load()});
    if (!count) replace_descriptors();
    for (const Poller::Ready& one : std::span(ready).first(count.value_or(0))) {
      if (one.events == Poller::kRetired) {
        free_slot(one.id);
      } else {
        serve(one.id, one.events);
      }
    }
    if (base::now().ns >= earliest_.load()) serve_deadlines();
  }
}

void Domain::serve(uint64_t id, uint32_t events) {
  Progress* c = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const Slot& slot = slots_[slot_of(id)];
    if (slot.serial != serial_of(id) || slot.connection == nullptr) return;
    c = slot.connection;
    serving_.store(id);
  }
  c->serve(events);
  serving_.store(0);
}

void Domain::serve_deadlines() {
  earliest_.store(kNever.ns);
  const Time now = base::now();
  uint64_t due[kDueAtOnce];
  size_t count = 0;
  int64_t earliest = kNever.ns;
  {
    const std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < slot_count_; ++i) {
      if (slots_[i].connection == nullptr) continue;
      const Time at = slots_[i].connection->watch().deadline();
      if (at <= now && count < kDueAtOnce) {
        due[count++] = make_id(slots_[i].serial, i);
      } else {
        earliest = std::min(earliest, at.ns);
      }
    }
  }
  if (earliest != kNever.ns) wake_by(Time{earliest});
  for (size_t i = 0; i < count; ++i) serve(due[i], 0);
}

bool Domain::grow() {
  const uint32_t more = slot_count_ == 0 ? kFirstSlots : slot_count_ * 2;
  std::unique_ptr<Slot[]> slots(new (std::nothrow) Slot[more]);
  if (!slots || !poller_->reserve(more)) return false;
  std::copy_n(slots_.get(), slot_count_, slots.get());
  slots_ = std::move(slots);
  slot_count_ = more;
  return true;
}

uint64_t Domain::enter(Progress& c) {
  const std::lock_guard lock(mutex_);
  uint32_t at = 0;
  while (at < slot_count_ && slots_[at].serial != 0) ++at;
  if (at == slot_count_ && !grow()) return 0;
  if (++last_serial_ == 0) ++last_serial_;  // so that no id is 0
  slots_[at] = {.connection = &c, .serial = last_serial_};
  return make_id(last_serial_, at);
}

void Domain::leave(uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    slots_[slot_of(id)].connection = nullptr;
  }
  // What the thread does there never blocks.
  while (serving_.load() == id) sched_yield();
}

void Domain::retire(base::UniqueFd fd, uint64_t id) {
  if (poller_->retire(std::move(fd), id)) free_slot(id);
}

void Domain::free_slot(uint64_t id) {
  const std::lock_guard lock(mutex_);
  slots_[slot_of(id)] = {};
}

// What fork has copied is as it was at one moment, and no other thread is here.
void Domain::in_child() {
  const Domain* inherited = the_domain.load(std::memory_order_acquire);
  if (inherited == nullptr) return;
  for (uint32_t i = 0; i < inherited->slot_count_; ++i) {
    Progress* c = inherited->slots_[i].connection;
    if (c != nullptr) c->abandon();
  }
}

void Domain::wake_by(Time at) {
  int64_t earliest = earliest_.load();
  do {
    if (at.ns >= earliest) return;
  } while (!earliest_.compare_exchange_weak(earliest, at.ns));
  if (!is_progress_thread) poller_->wake();
}

}  // namespace ddpsock::message
