// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/endpoint.h"

#include <algorithm>
#include <cerrno>

#include "base/sys.h"
#include "connect/wait.h"
#include "engine/user/user_engine.h"

namespace ddpsock::iwarp {
namespace {

// Longer than a peer that is awake takes to answer, shorter than a person notices.
constexpr Duration kNudge = Duration::from_ms(25);
constexpr Duration kTerminateTime = Duration::from_ms(2'000);

std::unexpected<Error> fail_setup(const char* what) {
  return fail_with(std::string("no memory, or beyond the engine's limits: ") + what);
}

// A socket that is connecting.
Result<base::UniqueFd, Error> call(const Address& to, const std::optional<Address>& source) {
  base::UniqueFd fd(base::sys.socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_valid()) return fail_with("making a socket", errno);
  if (source && bind(fd.get(), source->get(), source->size) != 0)
    return fail_with("binding the source address", errno);
  const bool is_calling =
      base::sys.connect(fd.get(), to.get(), to.size) == 0 || errno == EINPROGRESS || errno == EINTR;
  if (!is_calling) return fail_with("connecting", errno);
  return fd;
}

}  // namespace

Result<std::unique_ptr<Endpoint>, Error> Endpoint::make(const EndpointAttr& attr) {
  std::unique_ptr<Endpoint> made(new Endpoint(attr));
  made->engine_ = engine::open_user_message_engine();
  if (!made->engine_) return fail_setup("the engine");
  const auto pd = made->engine_->open_pd();
  if (!pd) return fail_setup("a protection domain");
  made->pd_ = *pd;
  // One queue for both, with room for everything that can be posted.
  auto cq = made->engine_->make_cq({.depth = attr.send_depth + attr.recv_depth});
  if (!cq) return fail_setup("a completion queue");
  made->cq_ = std::move(*cq);
  auto qp = made->engine_->make_qp({.pd = made->pd_,
                                    .send_cq = made->cq_.get(),
                                    .recv_cq = made->cq_.get(),
                                    .send_depth = attr.send_depth,
                                    .recv_depth = attr.recv_depth,
                                    .max_ird = attr.max_ird,
                                    .max_ord = attr.max_ord,
                                    .nudge = kNudge});
  if (!qp) return fail_setup("a queue pair");
  made->qp_ = std::move(*qp);
  return made;
}

Endpoint::~Endpoint() {
  if (qp_ && fd_.is_valid() && !has_ended()) cut();
}

Result<engine::Mr, Error> Endpoint::register_memory(MutBytes memory, engine::Rights rights) {
  auto mr = engine_->register_memory({.memory = memory,
                                      .base_to = reinterpret_cast<uint64_t>(memory.data()),
                                      .rights = rights,
                                      .pd = pd_});
  if (!mr) return fail_setup("a memory region");
  return *mr;
}

Status<Error> Endpoint::connect(const Address& to, const ConnectAttr& attr) {
  auto fd = call(to, attr.source);
  if (!fd) return fail(fd.error());
  connecting::Call wish{.startup = attr.startup,
                        .may_fall_back = attr.may_fall_back,
                        .is_connecting = true,
                        .tcp_timeout = attr.tcp_timeout};
  wish.startup.max_ird = std::min(wish.startup.max_ird, attr_.max_ird);
  connecting::Handshake handshake(fd->get(), wish);
  handshake.run();
  return start(std::move(*fd), handshake);
}

Status<Error> Endpoint::start(base::UniqueFd fd, const connecting::Handshake& handshake) {
  if (handshake.tcp_error() != 0) return fail_with("connecting", handshake.tcp_error());
  const bool has_failed = handshake.state() == mpa::StartupState::kFailed;
  if (has_failed && !handshake.failure().term_code) return fail_with(handshake.failure());
  connecting::Memory none;
  const auto started = handshake.start(*qp_, none, attr_.max_ulpdu);
  if (started) fd_ = std::move(fd);
  // Until it has been advanced nobody knows what it waits for; the peer may have begun already.
  need_ = {.deadline = base::now()};
  if (has_failed) {
    if (started) wait_for_end(base::now() + kTerminateTime);
    return fail_with(handshake.failure());
  }
  if (!started) {
    const bool is_lost = started.error() == engine::StartError::kBadLowerLayer;
    return fail_with(is_lost ? "starting: the connection was lost"
                             : "starting: no memory, or IRD or ORD beyond the queue pair's");
  }
  agreement_ = handshake.agreement();
  return {};
}

uint32_t Endpoint::post(std::span<const engine::SendWr> work) {
  const engine::Posted posted = qp_->send(work);
  refusal_ = posted.reason;
  return posted.accepted;
}

bool Endpoint::post(const engine::RecvWr& work) {
  refusal_ = qp_->recv({&work, 1}).reason;
  return refusal_ == engine::Refusal::kNone;
}

void Endpoint::advance(engine::Budget budget) {
  need_ = qp_->advance(base::now(), budget);
}

uint32_t Endpoint::poll(std::span<engine::Completion> out) {
  advance({});
  return cq_->poll(out);
}

void Endpoint::rest(Time deadline) {
  const bool is_asking = attr_.is_spinning && !need_.wants_writable;
  if (is_asking || has_ended() || need_.deadline <= base::now()) return;
  const connecting::Wish wish{fd_.get(), need_};
  connecting::wait_for({&wish, 1}, deadline);
}

std::optional<engine::Completion> Endpoint::next_completion(Time deadline) {
  engine::Completion completion;
  if (cq_->poll({&completion, 1}) == 1) return completion;
  while (!has_ended()) {
    if (poll({&completion, 1}) == 1) return completion;
    if (base::now() >= deadline) return std::nullopt;
    rest(deadline);
  }
  return std::nullopt;
}

void Endpoint::flush() {
  advance({.may_be_readable = false});
}

std::string Endpoint::describe_end() const {
  const engine::TerminateInfo info = qp_->terminate_info();
  switch (info.reason) {
    case engine::EndReason::kNone:
      return "still connected";
    case engine::EndReason::kOrderly:
      return "closed";
    case engine::EndReason::kTerminateSent:
      return std::string("ended with a Terminate of ours: ") + to_string(info.terminate.code);
    case engine::EndReason::kTerminateReceived:
      return std::string("ended by the peer's Terminate: ") + to_string(info.terminate.code);
    case engine::EndReason::kLlpLost:
      return "the TCP connection was lost";
  }
  return "?";
}

bool Endpoint::close(Time deadline) {
  qp_->drain();
  return wait_for_end(deadline);
}

bool Endpoint::wait_for_end(Time deadline) {
  while (!has_ended()) {
    advance({});
    if (has_ended()) break;
    if (base::now() >= deadline) return false;
    rest(deadline);
  }
  return true;
}

void Endpoint::cut() {
  // Disconnecting sends a RST; the shutdown of abort() alone would send a FIN.
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  base::sys.connect(fd_.get(), &nowhere, sizeof nowhere);
  qp_->abort(std::nullopt);
}

}  // namespace ddpsock::iwarp
