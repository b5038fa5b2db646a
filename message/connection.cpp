// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <type_traits>

#include "base/cancellation.h"

namespace ddpsock::message {
namespace {

// A Reply with the enhanced words has room for so much.
constexpr size_t kMostPrivateData = MPA_MAX_PD_LENGTH - 4;

template <typename Work>
constexpr bool kIsReceive = std::is_same_v<Work, ddp_recv_work>;

// The first kMost requests of `work`, as far as they are right, as the engine has them.
template <unsigned kMost, typename Work>
struct Batch {
  explicit Batch(std::span<const Work> work) {
    while (count < std::min<size_t>(work.size(), kMost) && why == 0) {
      why = read_work(work[count], slices[count], requests[count]);
      if (why == 0) ++count;
    }
  }
  auto get() const { return std::span(requests).first(count); }

  using Request = std::conditional_t<kIsReceive<Work>, engine::RecvWr, engine::SendWr>;
  std::array<std::conditional_t<kIsReceive<Work>, ScatterSlices, GatherSlices>, kMost> slices;
  std::array<Request, kMost> requests;
  unsigned count = 0;
  int why = 0;  // errno of the next one, which is not
};

}  // namespace

Connection::Connection(Domain& domain, const Settings& settings)
    : domain_(domain), wishes_(domain, settings), endpoint_(domain) {}

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
  const Progress::Lock held(progress_);
  if (is_begun() && !startup_.is_held()) return fail_errno(EBUSY);
  startup_.set_private_data(own);
  return {};
}

Status<> Connection::settle(bool is_on_stream) {
  return wishes_.settle([&](const Settings& wished, Queue& queue, engine::Srq* receives) {
    // A stream has a record of its own.
    const auto opened = endpoint_.open(wished, queue, receives, !is_on_stream);
    return opened ? queue.add(progress_) : opened;
  });
}

Status<> Connection::open_and_release() {
  if (const auto opened = open(); !opened) return opened;
  progress_.release();
  return {};
}

Status<> Connection::begin_on_stream(int fd, engine::OneSidedWay& stream) {
  if (is_begun()) return {};
  if (const auto opened = open(true); !opened) return opened;
  if (const auto started = domain_.start_thread(); !started) return started;
  return progress_.begin_on_stream(fd, stream);
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
  return progress_.begin(fd, std::move(plan), is_held);
}

int Connection::take_socket_error() {
  progress_.look();
  return startup_.take_socket_error();
}

Status<> Connection::establish(int timeout_ms) {
  if (!is_begun()) return fail_errno(ENOTCONN);
  // It may never have had an endpoint.
  if (is_closed_.load()) return fail_errno(EBADF);
  progress_.release();
  if (endpoint_.phase() == Phase::kStarting && progress_.stream() != nullptr) {
    const auto announced = progress_.stream()->announce(progress_.watch().fd());
    if (!announced && to_int(announced.error()) != EAGAIN) return announced;
  }
  Queue& queue = endpoint_.queue();
  const Time deadline = timeout_ms < 0 ? kNever : base::now() + Duration::from_ms(timeout_ms);
  for (;;) {
    progress_.look();
    Alarm::Sleeper sleeper(queue.alarm());
    if (is_closed_.load()) return fail_errno(EBADF);
    const Phase phase = endpoint_.phase();
    if (phase == Phase::kRunning && startup_.error() == 0) {
      queue.inbox().forget_established(progress_);
      return {};
    }
    if (phase == Phase::kEnded) return fail_errno(status().is_up ? EPIPE : endpoint_.end_status());
    if (base::now() >= deadline) return fail_errno(EAGAIN);
    if (const auto slept = queue.sleep(sleeper, deadline, &progress_); !slept) return slept;
  }
}

int Connection::why_refused(engine::Refusal reason) const {
  if (reason != engine::Refusal::kBadState) return errno_of(reason);
  if (is_closed_.load()) return EBADF;
  if (endpoint_.end_status() == EOPNOTSUPP) return EOPNOTSUPP;
  const Phase phase = endpoint_.phase();
  return phase == Phase::kRunning || phase == Phase::kEnded ? EPIPE : ENOTCONN;
}

template <unsigned kMost, typename Work>
void Connection::post_batch(std::span<const Work> work, Accepted& done) {
  const Batch<kMost, Work> batch(work);
  done.why = batch.why;
  if (batch.count == 0) return;
  engine::Qp& qp = endpoint_.qp();
  engine::Posted posted;
  if constexpr (kIsReceive<Work>) {
    posted = qp.recv(batch.get());
  } else {
    posted = qp.send(batch.get());
  }
  done.count += posted.accepted;
  if (posted.accepted < batch.count) done.why = why_refused(posted.reason);
}

template <typename Work>
Accepted Connection::post(std::span<const Work> work) {
  constexpr bool kIsSend = std::is_same_v<Work, ddp_send_work>;
  constexpr bool kIsWrite = std::is_same_v<Work, ddp_write_work>;
  if ((kIsReceive<Work> || kIsSend) && progress_.stream() != nullptr) return {.why = EOPNOTSUPP};
  if (const auto opened = open(); !opened) return {.why = to_int(opened.error())};
  if (kIsReceive<Work> && wishes_.has_srq()) return {.why = EINVAL};
  Accepted done;
  // One alone, as most are, should not pay for the making of sixteen.
  if (work.size() == 1) {
    post_batch<1>(work, done);
  } else {
    while (done.count < work.size() && done.why == 0)
      post_batch<kBatch>(work.subspan(done.count), done);
  }
  if constexpr (!kIsReceive<Work>) {
    const bool is_more =
        done.why == 0 && done.count != 0 && (work[done.count - 1].flags & DDP_MORE) != 0;
    progress_.note_posted(done.count, is_more, !kIsSend && !kIsWrite);
  }
  return done;
}
template Accepted Connection::post(std::span<const ddp_send_work>);
template Accepted Connection::post(std::span<const ddp_recv_work>);
template Accepted Connection::post(std::span<const ddp_write_work>);
template Accepted Connection::post(std::span<const ddp_read_work>);
template Accepted Connection::post(std::span<const ddp_atomic_work>);

template <unsigned kMost, typename Work>
unsigned Connection::post_batch_directly(std::span<const Work> work) {
  const Batch<kMost, Work> batch(work);
  if constexpr (kIsReceive<Work>) {
    return endpoint_.qp().recv(batch.get()).accepted;
  } else {
    return progress_.send_directly(batch.get());
  }
}

template <typename Work>
unsigned Connection::post_directly(std::span<const Work> work) {
  if (!endpoint_.is_direct() || (kIsReceive<Work> && wishes_.has_srq())) return 0;
  if (work.size() == 1) return post_batch_directly<1>(work);
  unsigned done = 0;
  for (unsigned n = kBatch; n == kBatch && done < work.size(); done += n)
    n = post_batch_directly<kBatch>(work.subspan(done));
  return done;
}
template unsigned Connection::post_directly(std::span<const ddp_send_work>);
template unsigned Connection::post_directly(std::span<const ddp_recv_work>);
template unsigned Connection::post_directly(std::span<const ddp_write_work>);
template unsigned Connection::post_directly(std::span<const ddp_read_work>);
template unsigned Connection::post_directly(std::span<const ddp_atomic_work>);

Status<> Connection::shut(bool is_abrupt) {
  return is_begun() ? progress_.shut(is_abrupt) : fail_errno(ENOTCONN);
}

Result<mpa::PrivateData> Connection::peer_private_data() const {
  const Progress::Lock held(progress_);
  return startup_.peer_private_data();
}

ConnectionStatus Connection::status() const {
  const Progress::Lock held(progress_);
  const Startup::Plan& plan = startup_.plan();
  const Phase phase = endpoint_.phase();
  ConnectionStatus to{.is_begun = phase != Phase::kIdle,
                      .is_starting = phase == Phase::kStarting,
                      .is_up = startup_.is_up(),
                      .role = plan.role,
                      .reason = startup_.error() != 0 ? startup_.reason() : endpoint_.reason(),
                      .engine = startup_.is_up() && plan.memory.memory ? "shm" : "user",
                      .memory = plan.memory.why,
                      .progress = is_begun() ? endpoint_.progress() : ""};
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
  const Progress::Lock held(progress_);
  return !is_begun() || startup_.is_untouched();
}

void Connection::close() {
  const base::Uncancelled whole;
  if (is_closed_.exchange(true)) return;
  if (is_foreign()) {
    // Forking has made this process a holder, too.
    endpoint_.abandon();
    return progress_.abandon();
  }
  const uint64_t id = progress_.leave();
  progress_.close(id, wishes_.is_settled());
  endpoint_.regions().clear();
  wishes_.ring();
}

void Connection::destroy() {
  if (!is_foreign()) delete this;
}

Result<ddp_region> Connection::register_memory(MutBytes memory, unsigned rights) {
  if (const auto opened = open(); !opened) return fail(opened.error());
  return endpoint_.regions().add(memory, rights, endpoint_.queue().pd(), progress_.qp_number());
}

Result<ddp_region> Connection::allocate(size_t length, unsigned rights) {
  if (const auto opened = open(); !opened) return fail(opened.error());
  const auto made =
      endpoint_.regions().allocate(length, rights, endpoint_.queue().pd(), progress_.qp_number());
  // The peer is told of it where bytes are moved; nothing is to be taken here.
  if (made && endpoint_.phase() == Phase::kRunning) progress_.push();
  return made;
}

Status<> Connection::deregister(uint32_t stag) {
  return end_region([=](Regions& regions) { return regions.remove(stag); });
}
Status<> Connection::free(uint32_t stag) {
  return end_region([=](Regions& regions) { return regions.free(stag); });
}
Status<> Connection::take_back(uint32_t stag) {
  return end_region([=](Regions& regions) { return regions.take_back(stag); });
}

template <typename End>
Status<> Connection::end_region(End end) {
  if (!wishes_.is_settled()) return fail_errno(EINVAL);
  if (const auto done = end(endpoint_.regions()); done || to_int(done.error()) != EBUSY)
    return done;
  // The peer may have all of its Read while the thread that sent it is still about to say so.
  {
    const Progress::Lock held(progress_);
  }
  return end(endpoint_.regions());
}

Result<unsigned> Connection::poll(std::span<ddp_completion> out) {
  if (const auto opened = open_and_release(); !opened) return fail(opened.error());
  return endpoint_.queue().poll(out);
}

Result<unsigned> Connection::wait(std::span<ddp_completion> out, int timeout_ms) {
  if (const auto opened = open_and_release(); !opened) return fail(opened.error());
  return endpoint_.queue().wait_until_closed(is_closed_, out, timeout_ms);
}

Result<int> Connection::event_fd() {
  if (wishes_.settings().is_caller_driven) return fail_errno(EINVAL);
  if (const auto opened = open_and_release(); !opened) return fail(opened.error());
  return endpoint_.queue().event_fd();
}

}  // namespace ddpsock::message
