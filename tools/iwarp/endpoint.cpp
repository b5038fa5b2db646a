// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/endpoint.h"

#include <algorithm>
#include <array>

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

}  // namespace

Result<std::unique_ptr<Endpoint>, Error> Endpoint::make(engine::QpAttr attr, uint32_t max_ulpdu) {
  std::unique_ptr<Endpoint> made(new Endpoint);
  made->engine_ = engine::open_user_message_engine();
  if (!made->engine_) return fail_setup("the engine");
  const auto pd = made->engine_->open_pd();
  if (!pd) return fail_setup("a protection domain");
  // One queue for both, with room for everything that can be posted.
  auto cq = made->engine_->make_cq({.depth = attr.send_depth + attr.recv_depth});
  if (!cq) return fail_setup("a completion queue");
  made->cq_ = std::move(*cq);
  attr.pd = *pd;
  attr.send_cq = attr.recv_cq = made->cq_.get();
  attr.nudge = kNudge;
  auto qp = made->engine_->make_qp(attr);
  if (!qp) return fail_setup("a queue pair");
  made->qp_ = std::move(*qp);
  made->attr_ = attr;
  made->max_ulpdu_ = max_ulpdu;
  return made;
}

Endpoint::~Endpoint() {
  if (!fd_.is_valid() || has_ended()) return;
  // Disconnecting sends a RST; the shutdown of abort() alone would send a FIN.
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  base::sys.connect(fd_.get(), &nowhere, sizeof nowhere);
  qp_->abort(std::nullopt);
}

Result<engine::Mr, Error> Endpoint::register_memory(MutBytes memory, engine::Rights rights) {
  auto mr = engine_->register_memory({.memory = memory,
                                      .base_to = reinterpret_cast<uint64_t>(memory.data()),
                                      .rights = rights,
                                      .pd = attr_.pd});
  if (!mr) return fail_setup("a memory region");
  return *mr;
}

Status<Error> Endpoint::connect(const Address& to, connecting::Call wish,
                                const std::optional<Address>& source) {
  auto fd = call(to, source);
  if (!fd) return fail(fd.error());
  fd_ = std::move(*fd);
  wish.is_connecting = true;
  if (wish.startup.max_ird > attr_.max_ird)
    wish.startup.max_ird = static_cast<uint16_t>(attr_.max_ird);
  handshake_.emplace(fd_.get(), wish).run();
  return start();
}

Status<Error> Endpoint::hear(base::UniqueFd fd, const mpa::ResponderConfig& config) {
  fd_ = std::move(fd);
  handshake_.emplace(fd_.get(), mpa::Responder(config, base::now()));
  return handshake_->run() == mpa::StartupState::kDeciding ? Status<Error>{} : start();
}

Status<Error> Endpoint::answer(const Status<mpa::StartupError>& decision) {
  if (!decision) return fail_with(mpa::StartupFailure::of(decision.error()));
  handshake_->run();
  return start();
}

Status<Error> Endpoint::start() {
  const auto started = handshake_->start(*qp_, max_ulpdu_);
  // Until it has been advanced nobody knows what it waits for; the peer may have begun already.
  need_ = {.deadline = base::now()};
  const bool has_failed = handshake_->state() == mpa::StartupState::kFailed;
  if (started && has_failed) wait_for_end(base::now() + kTerminateTime);
  if (!started) fd_.reset();
  if (handshake_->tcp_error() != 0) return fail_with("connecting", handshake_->tcp_error());
  if (has_failed) return fail_with(handshake_->failure());
  if (started) return {};
  const bool is_lost = started.error() == engine::StartError::kBadLowerLayer;
  return fail_with(is_lost ? "starting: the connection was lost"
                           : "starting: no memory, or IRD or ORD beyond the queue pair's");
}

uint32_t Endpoint::poll(std::span<engine::Completion> out) {
  advance({});
  return cq_->poll(out);
}

bool Endpoint::rest(Time deadline) {
  const Time now = base::now();
  if (now >= deadline) return false;
  if (need_.deadline > now) connecting::wait_for({{fd_.get(), need_}}, deadline);
  return true;
}

std::optional<engine::Completion> Endpoint::next_completion(Time deadline) {
  engine::Completion completion;
  if (cq_->poll({&completion, 1}) == 1) return completion;
  while (!has_ended()) {
    if (poll({&completion, 1}) == 1) return completion;
    if (!rest(deadline)) break;
  }
  return std::nullopt;
}

std::string Endpoint::describe_end() const {
  constexpr std::array kHow{"still connected", "closed", "ended with a Terminate of ours: ",
                            "ended by the peer's Terminate: ", "the TCP connection was lost"};
  const engine::TerminateInfo info = qp_->terminate_info();
  return std::string(kHow.at(static_cast<size_t>(info.reason))) +
         (info.has_terminate() ? to_string(info.terminate.code) : "");
}

bool Endpoint::close(Time deadline) {
  qp_->drain();
  return wait_for_end(deadline);
}

bool Endpoint::wait_for_end(Time deadline) {
  for (advance({}); !has_ended(); advance({}))
    if (!rest(deadline)) return false;
  return true;
}

}  // namespace ddpsock::iwarp
