// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/measure.h"

namespace ddpsock::perf {
namespace {

// One end of a ping-pong; what differs between Send and Write.
class Player {
 public:
  Player(Session& session, uint32_t size)
      : session_(session), own_(session.buffers.own().first(size)), payload_(own_) {
    const MutBytes shared = session.buffers.shared().first(size);
    last_byte_ = &shared.back();
  }

  Status<Error> serve() {
    if (session_.plan.verb == Verb::kWrite) own_.back() = static_cast<uint8_t>(++served_);
    if (const auto posted = session_.post(session_.request(payload_, false)); !posted) {
      return posted;
    }
    session_.data().flush();
    return {};
  }

  Status<Error> await() {
    ++awaited_;
    return session_.plan.verb == Verb::kWrite ? await_byte() : await_message();
  }

 private:
  Status<Error> await_byte() {
    while (*last_byte_ != static_cast<uint8_t>(awaited_)) {
      if (const auto n = session_.poll({}); !n) return fail(n.error());
      if (*last_byte_ == static_cast<uint8_t>(awaited_)) break;
      if (const auto rested = session_.link.rest(); !rested) return rested;
    }
    return {};
  }

  Status<Error> await_message() {
    engine::Completion completion;
    if (const auto n = session_.wait({&completion, 1}); !n) return fail(n.error());
    if (completion.length != payload_.size()) {
      return fail_with("the peer sent a message of " + std::to_string(completion.length) +
                       " bytes where " + std::to_string(payload_.size()) + " were expected");
    }
    // As many receives in all as messages.
    const Plan& plan = session_.plan;
    if (awaited_ + plan.receive_depth > plan.iterations) return {};
    return session_.post_receives(1, static_cast<uint32_t>(payload_.size()));
  }

  Session& session_;
  MutBytes own_;
  Bytes payload_;
  const volatile uint8_t* last_byte_;
  uint32_t served_ = 0;
  uint32_t awaited_ = 0;
};

}  // namespace

Result<Posted, Error> ping_pong(Session& session, uint32_t size) {
  Player player(session, size);
  session.link.renew_patience();
  const bool is_first = session.plan.is_client() == (session.plan.verb == Verb::kSend);
  Posted posted(session.plan.iterations);
  for (Time& at : posted) {
    if (!is_first) {
      if (const auto came = player.await(); !came) return fail(came.error());
    }
    at = base::now();
    if (const auto served = player.serve(); !served) return fail(served.error());
    if (is_first) {
      if (const auto came = player.await(); !came) return fail(came.error());
    }
  }
  return posted;
}

Result<Posted, Error> read_latency(Session& session, uint32_t size) {
  const Bytes payload = session.buffers.own().first(size);
  Posted posted(session.plan.iterations);
  session.link.renew_patience();
  for (Time& at : posted) {
    at = base::now();
    if (const auto done = session.post(session.request(payload, true)); !done) {
      return fail(done.error());
    }
    session.data().flush();
    engine::Completion completion;
    if (const auto n = session.wait({&completion, 1}); !n) return fail(n.error());
  }
  return posted;
}

}  // namespace ddpsock::perf
