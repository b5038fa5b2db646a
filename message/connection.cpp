// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the program asks of a connection: wishes, posts, waits, and its end. What happens on the
// wire meanwhile: progress.cpp.
#include "message/connection.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <type_traits>

#include "base/cancellation.h"
#include "base/sys.h"
#include "message/lock.h"

namespace ddpsock::message {
namespace {

// A Reply with the enhanced words has room for so much.
constexpr size_t kMostPrivateData = MPA_MAX_PD_LENGTH - 4;
// As the tools do towards peers that may be Linux siw (doc/decisions/0005-nudge.md).
constexpr Duration kNudge = Duration::from_ms(25);

int errno_of_setup(engine::SetupError error) {
  return error == engine::SetupError::kNoMemory ? ENOMEM : EINVAL;
}

}  // namespace

Connection::Connection(Domain& domain, const Settings& settings)
    : domain_(domain), settings_(settings), is_caller_driven_(settings.is_caller_driven) {}

Connection::~Connection() {
  qp_.reset();
  regions_.reset();
  if (record_ != nullptr) record_->release();
}

Result<Connection*> Connection::make(const Settings& settings) {
  const auto domain = Domain::get();
  if (!domain) return fail(domain.error());
  auto* made = new (std::nothrow) Connection(**domain, settings);
  if (made == nullptr) return fail_errno(ENOMEM);
  return made;
}

Result<Connection*> Connection::make_accepted() const {
  const std::lock_guard lock(settings_mutex_);
  const auto made = make(settings_);
  if (made && queue_) (*made)->queue_ = keep(*queue_);
  if (made && srq_) (*made)->srq_ = keep(*srq_);
  return made;
}

// REQUIRES: settings_mutex_.
Status<> Connection::may_change() const {
  if (is_open_.load() || is_begun()) return fail_errno(EBUSY);
  return {};
}

template <typename Change>
Status<> Connection::change(Change change) {
  const std::lock_guard lock(settings_mutex_);
  if (const auto may = may_change(); !may) return may;
  change(settings_);
  return {};
}

Status<> Connection::set_depths(const ddp_depths& depths) {
  const engine::Limits& most = domain_.engine().limits();
  if (depths.send == 0 || depths.send > most.max_send_depth || depths.receive == 0 ||
      depths.receive > most.max_recv_depth || depths.ird > most.max_ird ||
      depths.ord > most.max_ord) {
    return fail_errno(EINVAL);
  }
  return change([&](Settings& s) { s.depths = depths; });
}

Status<> Connection::set_private_data(Bytes data) {
  if (data.size() > kMostPrivateData) return fail_errno(EINVAL);
  const std::lock_guard lock(settings_mutex_);
  const Lock held(*this);
  const bool is_late = is_begun() && !is_held_.load();
  if (is_late) return fail_errno(EBUSY);
  settings_.private_data = *mpa::PrivateData::from(data);
  start_.private_data = settings_.private_data;
  return {};
}

Status<> Connection::set_markers(bool wants_markers) {
  return change([=](Settings& s) { s.wants_markers = wants_markers; });
}

Status<> Connection::set_crc(bool wants_crc) {
  return change([=](Settings& s) { s.wants_crc = wants_crc; });
}

Status<> Connection::set_caller_driven(bool is_caller_driven) {
  return change([=, this](Settings& s) {
    s.is_caller_driven = is_caller_driven;
    is_caller_driven_.store(is_caller_driven);
  });
}

Status<> Connection::set_queue(Queue& queue) {
  const std::lock_guard lock(settings_mutex_);
  if (const auto may = may_change(); !may) return may;
  if (srq_ != nullptr && &srq_->completions() != &queue) return fail_errno(EINVAL);
  queue_ = keep(queue);
  return {};
}

Status<> Connection::set_srq(Srq& srq) {
  const std::lock_guard lock(settings_mutex_);
  if (const auto may = may_change(); !may) return may;
  srq_ = keep(srq);
  queue_ = keep(srq.completions());
  return {};
}

Settings Connection::settings() const {
  const std::lock_guard lock(settings_mutex_);
  return settings_;
}

void Connection::set_spin(Duration spin) {
  const std::lock_guard lock(settings_mutex_);
  settings_.spin = spin;
  if (queue_ != nullptr) queue_->set_spin(spin);
}

Duration Connection::spin() const {
  const std::lock_guard lock(settings_mutex_);
  return queue_ != nullptr ? queue_->spin() : settings_.spin;
}

// Queue pair and queue, at the first call that needs them.
Status<> Connection::open(bool is_on_stream) {
  if (is_open_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(settings_mutex_);
  if (is_open_.load()) return {};
  if (queue_ == nullptr) {
    const auto own = Queue::make_own(domain_, settings_.depths);
    if (!own) return fail(own.error());
    queue_.reset(*own);
    queue_->set_spin(settings_.spin);
  }
  regions_.reset(new (std::nothrow) Regions(domain_.engine()));
  if (!regions_) return fail_errno(ENOMEM);
  // A stream has a record of its own.
  if (record_ == nullptr && !is_on_stream) record_ = engine::MessageRecord::open();
  auto qp = domain_.engine().make_qp({.pd = queue_->pd(),
                                      .send_cq = &queue_->cq(),
                                      .recv_cq = &queue_->cq(),
                                      .counters = const_cast<engine::QpCounters*>(&counters()),
                                      .srq = srq_ != nullptr ? &srq_->receives() : nullptr,
                                      .send_depth = settings_.depths.send,
                                      .recv_depth = settings_.depths.receive,
                                      .max_ird = settings_.depths.ird,
                                      .max_ord = settings_.depths.ord,
                                      .nudge = kNudge});
  if (!qp) return fail_errno(errno_of_setup(qp.error()));
  qp_ = std::move(*qp);
  if (const auto added = queue_->add(*this); !added) {
    qp_.reset();
    return added;
  }
  is_open_.store(true, std::memory_order_release);
  return {};
}

// The socket gets a descriptor of the connection's own, and the thread looks at it.
Status<> Connection::enter(int fd, bool has_edges) {
  const int copy = base::sys.fcntl(fd, F_DUPFD_CLOEXEC, kHighFd);
  socket_.reset(copy >= 0 ? copy : base::sys.fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!socket_.is_valid()) return fail_errno(EMFILE);
  if (has_edges) {
    if (const auto watched = watch_edges(); !watched) return watched;
  }
  if (is_caller_driven()) return {};
  id_ = domain_.enter(*this);
  if (id_ == 0) return fail_errno(ENOMEM);
  return {};
}

Status<> Connection::watch_edges() {
  edges_ = move_high(base::UniqueFd(base::sys.epoll_create1(EPOLL_CLOEXEC)));
  if (!edges_.is_valid()) return fail_errno(EMFILE);
  epoll_event wanted{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = 0}};
  if (base::sys.epoll_ctl(edges_.get(), EPOLL_CTL_ADD, socket_.get(), &wanted) != 0)
    return fail_errno(ENOMEM);
  return {};
}

Status<> Connection::begin_on_stream(int fd, engine::Stream& stream) {
  if (is_begun()) return {};
  if (const auto opened = open(true); !opened) return opened;
  if (const auto started = domain_.start_thread(); !started) return started;
  const Lock held(*this);
  if (is_begun()) return {};
  if (const auto begun = stream.begin_one_sided(fd, *this); !begun) return begun;
  if (const auto entered = enter(fd, true); !entered) {
    stream.end_one_sided();
    return entered;
  }
  stream_ = &stream;
  fd_.store(fd);
  phase_.store(Phase::kStarting);
  step(base::now(), Poll::kWhole);
  arm();
  return {};
}

Status<> Connection::begin(int fd, Role role, bool is_held, Memory memory, bool is_connecting) {
  if (const auto opened = open(); !opened) return opened;
  const Settings settings = this->settings();
  if (!settings.is_caller_driven) {
    if (const auto started = domain_.start_thread(); !started) return started;
  }
  const Lock held(*this);
  if (is_begun()) return fail_errno(EALREADY);
  if (const auto entered = enter(fd); !entered) return entered;
  start_ = settings;
  role_ = role;
  may_fall_back_ = role == Role::kInitiator && !is_held;
  is_connecting_ = is_connecting;
  memory_ = std::move(memory);
  if (record_ != nullptr) {
    record_->note_socket(fd, role == Role::kInitiator);
    record_->note_engine("user", progress(), memory_.why);
  }
  fd_.store(fd);
  is_held_.store(is_held);
  phase_.store(Phase::kStarting);
  step(base::now(), Poll::kWhole);
  arm();
  return {};
}

void Connection::release() {
  if (!is_held_.load()) return;
  const Lock held(*this);
  if (!is_held_.exchange(false)) return;
  step(base::now(), Poll::kWhole);
  arm();
}

int Connection::take_socket_error() {
  look();
  return socket_error_.exchange(0);
}

Status<> Connection::establish(int timeout_ms) {
  if (!is_begun()) return fail_errno(ENOTCONN);
  release();
  if (phase_.load() == Phase::kStarting && stream_ != nullptr) {
    const auto announced = stream_->announce(socket_.get());
    if (!announced && to_int(announced.error()) != EAGAIN) return announced;
  }
  const Time deadline = timeout_ms < 0 ? kNever : base::now() + Duration::from_ms(timeout_ms);
  for (;;) {
    look();
    Alarm::Sleeper sleeper(queue_->alarm());
    if (is_closed()) return fail_errno(EBADF);
    switch (phase_.load()) {
      case Phase::kRunning:
        if (start_error_ != 0) break;
        queue_->inbox().forget_established(*this);
        return {};
      case Phase::kEnded:
        return fail_errno(status().is_up ? EPIPE : end_status());
      default:
        break;
    }
    if (base::now() >= deadline) return fail_errno(EAGAIN);
    if (const auto slept = queue_->sleep(sleeper, deadline, this); !slept) return slept;
  }
}

int Connection::why_refused(engine::Refusal reason) const {
  if (reason != engine::Refusal::kBadState) return errno_of(reason);
  if (is_closed()) return EBADF;
  if (end_status_.load() == EOPNOTSUPP) return EOPNOTSUPP;
  const Phase phase = phase_.load();
  return phase == Phase::kRunning || phase == Phase::kEnded ? EPIPE : ENOTCONN;
}

template <unsigned kMost, typename Work>
void Connection::post_batch(std::span<const Work> work, Accepted& done) {
  constexpr bool kIsReceive = std::is_same_v<Work, ddp_recv_work>;
  using Request = std::conditional_t<kIsReceive, engine::RecvWr, engine::SendWr>;
  std::array<std::conditional_t<kIsReceive, ScatterSlices, GatherSlices>, kMost> slices;
  std::array<Request, kMost> requests;
  unsigned n = 0;
  while (n < std::min<size_t>(work.size(), kMost) && done.why == 0) {
    done.why = read_work(work[n], slices[n], requests[n]);
    if (done.why == 0) ++n;
  }
  if (n == 0) return;
  const std::span<const Request> batch = std::span(requests).first(n);
  engine::Posted posted;
  if constexpr (kIsReceive) {
    posted = qp_->recv(batch);
  } else {
    posted = qp_->send(batch);
  }
  done.count += posted.accepted;
  if (posted.accepted < n) done.why = why_refused(posted.reason);
}

template <typename Work>
Accepted Connection::post_all(std::span<const Work> work) {
  if (const auto opened = open(); !opened) return {.why = to_int(opened.error())};
  Accepted done;
  // One alone, as most are, should not pay for the making of sixteen.
  if (work.size() == 1) {
    post_batch<1>(work, done);
  } else {
    while (done.count < work.size() && done.why == 0)
      post_batch<kBatch>(work.subspan(done.count), done);
  }
  return done;
}

template <typename Work>
Accepted Connection::post_sends(std::span<const Work> work) {
  const Accepted done = post_all(work);
  if (stream_ != nullptr) posts_.fetch_add(done.count);
  if (!is_open_.load(std::memory_order_acquire)) return done;
  release();
  const bool is_more = done.count != 0 && (work[done.count - 1].flags & DDP_MORE) != 0;
  if (is_more && done.why == 0) {
    is_held_back_.store(true);
    queue_->note_held_back();
  } else if (done.count != 0) {
    push();
  }
  // What the program has not read makes way for the answer.
  constexpr bool is_answered =
      !std::is_same_v<Work, ddp_send_work> && !std::is_same_v<Work, ddp_write_work>;
  if (is_answered && stream_ != nullptr) try_run(Poll::kWhole, base::now());
  return done;
}

Accepted Connection::post(std::span<const ddp_send_work> work) {
  if (stream_ != nullptr) return {.why = EOPNOTSUPP};
  return post_sends(work);
}
Accepted Connection::post(std::span<const ddp_write_work> work) {
  return post_sends(work);
}
Accepted Connection::post(std::span<const ddp_read_work> work) {
  return post_sends(work);
}
Accepted Connection::post(std::span<const ddp_atomic_work> work) {
  return post_sends(work);
}

Accepted Connection::post(std::span<const ddp_recv_work> work) {
  if (stream_ != nullptr) return {.why = EOPNOTSUPP};
  if (const auto opened = open(); !opened) return {.why = to_int(opened.error())};
  if (srq_ != nullptr) return {.why = EINVAL};
  return post_all(work);
}

Status<> Connection::shut(bool is_abrupt) {
  const Lock held(*this);
  if (phase_.load() != Phase::kRunning) return fail_errno(ENOTCONN);
  if (is_abrupt) {
    qp_->abort(std::nullopt);
  } else {
    qp_->drain();
  }
  step(base::now(), Poll::kNone);
  arm();
  return {};
}

Result<mpa::PrivateData> Connection::peer_private_data() const {
  const Lock held(*this);
  if (is_up_) return agreement_.private_data;
  const mpa::Responder* responder = handshake_ ? handshake_->responder() : nullptr;
  if (responder == nullptr || !responder->has_request()) return fail_errno(EAGAIN);
  return *mpa::PrivateData::from(responder->request().private_data);
}

ConnectionStatus Connection::status() const {
  const Lock held(*this);
  const Phase phase = phase_.load();
  ConnectionStatus to{.is_begun = phase != Phase::kIdle,
                      .is_starting = phase == Phase::kStarting,
                      .is_up = is_up_,
                      .role = role_,
                      .reason = reason_,
                      .engine = is_up_ && memory_.memory ? "shm" : "user",
                      .memory = memory_.why};
  if (!is_up_) return to;
  to.mpa_revision = agreement_.revision;
  to.has_crc = agreement_.has_crc;
  to.sends_markers = agreement_.send_markers;
  to.receives_markers = agreement_.receive_markers;
  // Below revision 2 nothing is agreed, and each end goes by its own.
  const bool is_agreed = agreement_.ird != mpa::kNotNegotiated;
  to.ird = is_agreed ? agreement_.ird : start_.depths.ird;
  to.ord = agreement_.ord != mpa::kNotNegotiated ? agreement_.ord : start_.depths.ord;
  return to;
}

bool Connection::is_untouched() const {
  const Lock held(*this);
  return phase_.load() == Phase::kIdle || is_untouched_;
}

uint32_t Connection::end_terminate() const {
  if (!qp_) return 0;
  const engine::TerminateInfo info = qp_->terminate_info();
  const bool has_terminate = info.reason == engine::EndReason::kTerminateSent ||
                             info.reason == engine::EndReason::kTerminateReceived;
  return has_terminate ? terminate_word(info.terminate.code) : 0;
}

void Connection::close() {
  const base::Uncancelled whole;
  if (is_closed_.exchange(true)) return;
  if (is_foreign()) {
    // Forking has made this process a holder, too.
    if (record_ != nullptr) record_->release();
    leave_inherited_stream();
    return;
  }
  uint64_t id = 0;
  {
    const Lock held(*this);
    id = id_;
  }
  if (id != 0) domain_.leave(id);
  if (stream_ != nullptr) stream_->end_one_sided();
  if (is_open_.load()) queue_->remove(*this);
  {
    const Lock held(*this);
    if (qp_ && phase_.load() != Phase::kEnded) qp_->abort(std::nullopt);
    may_be_passed_by_.store(false);
    phase_.store(Phase::kEnded);
    fd_.store(-1);
    if (id != 0) {
      domain_.retire(std::move(stream_ != nullptr ? edges_ : socket_), id);
    }
    socket_.reset();
  }
  if (regions_) regions_->clear();
  const std::lock_guard lock(settings_mutex_);
  if (queue_ != nullptr) queue_->alarm().ring();
}

void Connection::leave_inherited_stream() {
  if (stream_ != nullptr) socket_.reset();
}

void Connection::destroy() {
  if (!is_foreign()) delete this;
}

Result<ddp_region> Connection::register_memory(MutBytes memory, unsigned rights) {
  if (const auto opened = open(); !opened) return fail(opened.error());
  return regions_->add(memory, rights, queue_->pd(), qp_->number());
}

Status<> Connection::deregister(uint32_t stag) {
  if (!is_open_.load(std::memory_order_acquire)) return fail_errno(EINVAL);
  if (const auto done = regions_->remove(stag); done || to_int(done.error()) != EBUSY) return done;
  // The peer may have all of its Read while the thread that sent it is still about to say so.
  {
    const Lock held(*this);
  }
  return regions_->remove(stag);
}

Result<unsigned> Connection::poll(std::span<ddp_completion> out) {
  if (is_quiet()) return 0u;
  if (const auto opened = open(); !opened) return fail(opened.error());
  release();
  return queue_->poll(out);
}

Result<unsigned> Connection::wait(std::span<ddp_completion> out, int timeout_ms) {
  if (const auto opened = open(); !opened) return fail(opened.error());
  release();
  return queue_->wait_until_closed(is_closed_, out, timeout_ms);
}

Result<int> Connection::event_fd() {
  if (is_caller_driven()) return fail_errno(EINVAL);
  if (const auto opened = open(); !opened) return fail(opened.error());
  release();
  return queue_->event_fd();
}

}  // namespace ddpsock::message
