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
    : domain_(domain), wishes_(domain, settings) {}

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
  const auto made = make({});
  if (made) wishes_.share((*made)->wishes_);
  return made;
}

Status<> Connection::set_private_data(Bytes data) {
  if (data.size() > kMostPrivateData) return fail_errno(EINVAL);
  const mpa::PrivateData own = *mpa::PrivateData::from(data);
  wishes_.set_private_data(own);
  const Lock held(*this);
  if (is_begun() && !startup_.is_held()) return fail_errno(EBUSY);
  startup_.set_private_data(own);
  return {};
}

Status<> Connection::settle(bool is_on_stream) {
  return wishes_.settle([&](const Settings& wished, Queue& queue,
                            engine::Srq* receives) -> Status<> {
    queue_ = &queue;
    is_caller_driven_ = wished.is_caller_driven;
    regions_.reset(new (std::nothrow) Regions(domain_.engine()));
    if (!regions_) return fail_errno(ENOMEM);
    // A stream has a record of its own.
    if (record_ == nullptr && !is_on_stream) record_ = engine::MessageRecord::open();
    auto qp = domain_.engine().make_qp({.pd = queue.pd(),
                                        .send_cq = &queue.cq(),
                                        .recv_cq = &queue.cq(),
                                        .counters = const_cast<engine::QpCounters*>(&counters()),
                                        .srq = receives,
                                        .send_depth = wished.depths.send,
                                        .recv_depth = wished.depths.receive,
                                        .max_ird = wished.depths.ird,
                                        .max_ord = wished.depths.ord,
                                        .nudge = kNudge});
    if (!qp) return fail_errno(errno_of_setup(qp.error()));
    qp_ = std::move(*qp);
    return queue.add(*this);
  });
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
  Startup::Plan plan{.role = role,
                     .settings = wishes_.settings(),
                     .memory = std::move(memory),
                     .may_fall_back = role == Role::kInitiator && !is_held,
                     .is_connecting = is_connecting};
  if (!plan.settings.is_caller_driven) {
    if (const auto started = domain_.start_thread(); !started) return started;
  }
  const Lock held(*this);
  if (is_begun()) return fail_errno(EALREADY);
  if (const auto entered = enter(fd); !entered) return entered;
  startup_.begin(std::move(plan), is_held);
  if (record_ != nullptr) {
    record_->note_socket(fd, role == Role::kInitiator);
    record_->note_engine("user", progress(), startup_.plan().memory.why);
  }
  fd_.store(fd);
  phase_.store(Phase::kStarting);
  step(base::now(), Poll::kWhole);
  arm();
  return {};
}

void Connection::release() {
  if (!startup_.is_held()) return;
  const Lock held(*this);
  if (!startup_.release()) return;
  step(base::now(), Poll::kWhole);
  arm();
}

int Connection::take_socket_error() {
  look();
  return startup_.take_socket_error();
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
        if (startup_.error() != 0) break;
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
Accepted Connection::post(std::span<const Work> work) {
  constexpr bool kIsReceive = std::is_same_v<Work, ddp_recv_work>;
  constexpr bool kIsSend = std::is_same_v<Work, ddp_send_work>;
  constexpr bool kIsWrite = std::is_same_v<Work, ddp_write_work>;
  if ((kIsReceive || kIsSend) && stream_ != nullptr) return {.why = EOPNOTSUPP};
  if (const auto opened = open(); !opened) return {.why = to_int(opened.error())};
  if (kIsReceive && wishes_.has_srq()) return {.why = EINVAL};
  Accepted done;
  // One alone, as most are, should not pay for the making of sixteen.
  if (work.size() == 1) {
    post_batch<1>(work, done);
  } else {
    while (done.count < work.size() && done.why == 0)
      post_batch<kBatch>(work.subspan(done.count), done);
  }
  if constexpr (!kIsReceive) {
    if (stream_ != nullptr) posts_.fetch_add(done.count);
    release();
    const bool is_more = done.count != 0 && (work[done.count - 1].flags & DDP_MORE) != 0;
    if (is_more && done.why == 0) {
      is_held_back_.store(true);
      queue_->note_held_back();
    } else if (done.count != 0) {
      push();
    }
    // What the program has not read makes way for the answer.
    if (!kIsSend && !kIsWrite && stream_ != nullptr) try_run(Poll::kWhole, base::now());
  }
  return done;
}
template Accepted Connection::post(std::span<const ddp_send_work>);
template Accepted Connection::post(std::span<const ddp_recv_work>);
template Accepted Connection::post(std::span<const ddp_write_work>);
template Accepted Connection::post(std::span<const ddp_read_work>);
template Accepted Connection::post(std::span<const ddp_atomic_work>);

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
  return startup_.peer_private_data();
}

ConnectionStatus Connection::status() const {
  const Lock held(*this);
  const Startup::Plan& plan = startup_.plan();
  const Phase phase = phase_.load();
  ConnectionStatus to{.is_begun = phase != Phase::kIdle,
                      .is_starting = phase == Phase::kStarting,
                      .is_up = startup_.is_up(),
                      .role = plan.role,
                      .reason = startup_.error() != 0 ? startup_.reason() : reason_,
                      .engine = startup_.is_up() && plan.memory.memory ? "shm" : "user",
                      .memory = plan.memory.why,
                      .progress = is_begun() ? progress() : ""};
  if (!to.is_up) return to;
  to.agreement = startup_.agreement();
  // Below revision 2 nothing is agreed, and each end goes by its own.
  const auto agreed = [](uint32_t depth, uint32_t own) {
    return depth != mpa::kNotNegotiated ? depth : own;
  };
  to.ird = agreed(to.agreement.ird, plan.settings.depths.ird);
  to.ord = agreed(to.agreement.ord, plan.settings.depths.ord);
  return to;
}

bool Connection::is_untouched() const {
  const Lock held(*this);
  return !is_begun() || startup_.is_untouched();
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
  if (wishes_.is_settled()) queue_->remove(*this);
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
  wishes_.ring();
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
  if (!wishes_.is_settled()) return fail_errno(EINVAL);
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
  if (wishes_.settings().is_caller_driven) return fail_errno(EINVAL);
  if (const auto opened = open(); !opened) return fail(opened.error());
  release();
  return queue_->event_fd();
}

}  // namespace ddpsock::message
