// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/rping/session.h"

#include <fmt/core.h>

namespace ddpsock::rping {
namespace {

constexpr Duration kAbandonTime = Duration::from_ms(1'000);
constexpr uint64_t kWork = 1;

const char* to_text(engine::Refusal refusal) {
  switch (refusal) {
    case engine::Refusal::kNoReadsAllowed:
      return "the peer allows no RDMA Reads (its IRD is 0)";
    case engine::Refusal::kBadState:
      return "the connection has ended";
    default:
      return "refused by the queue pair";
  }
}

Status<Error> check(const engine::Posted& posted, const std::string& what) {
  if (posted.accepted != 0) return {};
  return iwarp::fail_with(what + ": " + to_text(posted.reason));
}

std::string seconds(Duration duration) {
  return fmt::format("{:g} s", static_cast<double>(duration.ceil_ms()) / 1'000);
}

}  // namespace

Status<Error> Session::post_receives() {
  for (size_t slot = 0; slot < kReceives; ++slot) {
    if (auto posted = post_receive(slot); !posted) return posted;
  }
  return {};
}

Status<Error> Session::post_receive(size_t slot) {
  const MutBytes room(slots_[slot]);
  const engine::RecvWr work{.id = slot, .buffer = {&room, 1}};
  return check(endpoint_.qp().recv({&work, 1}), "posting a receive");
}

Status<Error> Session::send(const Message& message) {
  const Bytes payload(message);
  const engine::SendWr work{
      .op = engine::op::Send{.payload = {&payload, 1}}, .is_signalled = false, .is_inline = true};
  return check(endpoint_.qp().send({&work, 1}), "posting a Send");
}

Result<std::optional<Message>, Error> Session::receive(const std::string& what) {
  const Time deadline = base::now() + patience_;
  while (arrived_ == 0) {
    const auto completion = next(deadline, what);
    if (!completion && has_peer_closed()) return std::nullopt;
    if (!completion) return fail(completion.error());
    if (auto noted = note(*completion, what); !noted) return fail(noted.error());
  }
  const Message message = slots_[next_slot_];
  const auto posted = post_receive(next_slot_);
  if (!posted) return fail(posted.error());
  next_slot_ = (next_slot_ + 1) % kReceives;
  --arrived_;
  return message;
}

Status<Error> Session::perform(const engine::SendWr& work, const std::string& what) {
  engine::SendWr marked = work;
  marked.id = kWork;
  if (auto posted = check(endpoint_.qp().send({&marked, 1}), what); !posted) return posted;
  const Time deadline = base::now() + patience_;
  for (;;) {
    const auto completion = next(deadline, what);
    if (!completion) return fail(completion.error());
    if (completion->kind != engine::WorkKind::kReceive) return {};
    if (auto noted = note(*completion, what); !noted) return noted;
  }
}

Result<engine::Completion, Error> Session::next(Time deadline, const std::string& what) {
  const auto completion = endpoint_.next_completion(deadline);
  if (completion && completion->status == engine::WorkStatus::kOk) return *completion;
  if (completion || endpoint_.has_ended()) return fail_ended(what);
  return iwarp::fail_with(what + ": nothing came within " + seconds(patience_) + " (--timeout)");
}

Status<Error> Session::note(const engine::Completion& completion, const std::string& what) {
  if (completion.length != kMessageSize) {
    return iwarp::fail_with(fmt::format("{}: the peer sent {} bytes where rping sends {}", what,
                                        completion.length, kMessageSize));
  }
  ++arrived_;
  return {};
}

bool Session::has_peer_closed() const {
  return endpoint_.has_ended() &&
         endpoint_.qp().terminate_info().reason == engine::EndReason::kOrderly;
}

std::unexpected<Error> Session::fail_ended(const std::string& what) const {
  return iwarp::fail_with(what + ": " + endpoint_.describe_end());
}

Status<Error> Session::close() {
  if (!endpoint_.close(base::now() + patience_)) {
    return iwarp::fail_with("closing: the peer does not close within " + seconds(patience_));
  }
  if (!has_peer_closed()) return fail_ended("closing");
  return {};
}

void Session::abandon() {
  if (!endpoint_.has_ended()) endpoint_.close(base::now() + kAbandonTime);
}

}  // namespace ddpsock::rping
