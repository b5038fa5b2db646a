// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/session.h"

#include <algorithm>
#include <new>

namespace ddpsock::perf {
namespace {

engine::Rights rights_of(Verb verb) {
  return verb == Verb::kRead ? rdmap::kRemoteRead : rdmap::kRemoteWrite;
}

}  // namespace

Result<Buffers, Error> Buffers::make(const Plan& plan, uint32_t cycle, Endpoint& endpoint) {
  Buffers made;
  // The peer goes round in `cycle` bytes with small messages.
  made.size_ = std::max(*std::max_element(plan.sizes.begin(), plan.sizes.end()), cycle);
  made.memory_.reset(new (std::nothrow) uint8_t[2 * made.size_]());
  made.credit_.reset(new (std::nothrow) uint32_t(0));
  if (!made.memory_ || !made.credit_) return fail_with("no memory for messages of this size");
  // Captures show more than zeros; write-lat waits for a change and needs them.
  if (!plan.is(Verb::kWrite, Metric::kLatency)) {
    for (size_t i = 0; i < made.size_; ++i) made.memory_[i] = static_cast<uint8_t>(i * 31 >> 3);
  }
  const auto own = endpoint.register_memory(made.own(), rdmap::kLocalWrite);
  if (!own) return fail(own.error());
  made.own_region_ = *own;
  const MutBytes credit(reinterpret_cast<uint8_t*>(made.credit_.get()), sizeof(uint32_t));
  const auto peer = endpoint.register_memory(plan.verb == Verb::kSend ? credit : made.shared(),
                                             rights_of(plan.verb));
  if (!peer) return fail(peer.error());
  made.peer_region_ = *peer;
  return made;
}

Result<uint32_t, Error> Session::poll(std::span<engine::Completion> out) {
  const uint32_t n = data().poll(out);
  for (const engine::Completion& c : out.first(n)) {
    if (c.status != engine::WorkStatus::kOk) {
      return fail_with("data connection: " + data().describe_end());
    }
  }
  return n;
}

Result<uint32_t, Error> Session::wait(std::span<engine::Completion> out) {
  for (;;) {
    const auto n = poll(out);
    if (!n || *n != 0) return n;
    if (const auto rested = link.rest(); !rested) return fail(rested.error());
  }
}

Status<Error> Session::post(const engine::SendWr& work) {
  if (data().post(work)) return {};
  return fail_with("data connection: " + data().describe_end());
}

Status<Error> Session::post_receives(uint32_t count, uint32_t size) {
  const MutBytes room = buffers.shared().first(size);
  const engine::RecvWr work{.buffer = {&room, 1}};
  for (; count != 0; --count) {
    if (!data().post(work)) return fail_with("data connection: " + data().describe_end());
  }
  return {};
}

engine::SendWr Session::request(const Bytes& payload, bool is_signalled) const {
  engine::SendWr work;
  work.is_signalled = is_signalled;
  switch (plan.verb) {
    case Verb::kSend:
      work.op = engine::op::Send{.payload = {&payload, 1}};
      break;
    case Verb::kWrite:
      work.op = engine::op::Write{.payload = {&payload, 1}, .stag = peer.stag, .to = peer.to};
      break;
    case Verb::kRead:
      work.op = engine::op::Read{.sink_stag = buffers.own_region().stag,
                                 .sink_to = buffers.own_region().base_to,
                                 .length = static_cast<uint32_t>(payload.size()),
                                 .stag = peer.stag,
                                 .to = peer.to};
      break;
  }
  return work;
}

}  // namespace ddpsock::perf
