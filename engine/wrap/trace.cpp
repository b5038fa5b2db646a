// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/trace.h"

#include <atomic>
#include <cinttypes>
#include <cstdio>

#include "base/tcp_address.h"
#include "engine/wrap/wrap.h"

namespace ddpsock::engine::wrap {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};

struct Described {
  const char* name;
  uint64_t bytes;
  bool is_solicited = false;
};

template <typename Ranges>
uint64_t total(const Ranges& ranges) {
  uint64_t n = 0;
  for (const auto& r : ranges) n += r.size();
  return n;
}

Described describe(const SendWr& wr) {
  return std::visit(
      Overloaded{
          [](const op::Send& s) {
            return Described{s.invalidate ? "SendInvalidate" : "Send", total(s.payload),
                             s.is_solicited};
          },
          [](const op::Write& w) { return Described{"Write", total(w.payload)}; },
          [](const op::Read& r) { return Described{"Read", r.length}; },
          [](const op::Immediate& i) { return Described{"Immediate", 8, i.is_solicited}; },
          [](const op::FetchAdd&) { return Described{"FetchAdd", 8}; },
          [](const op::Swap&) { return Described{"Swap", 8}; },
          [](const op::CmpSwap&) { return Described{"CmpSwap", 8}; },
          [](const op::LocalInvalidate&) { return Described{"LocalInvalidate", 0}; },
      },
      wr.op);
}

class TraceCq final : public WrapCq {
 public:
  TraceCq(std::unique_ptr<Cq> inner, Records& out) : WrapCq(std::move(inner)), out_(out) {}

  uint32_t poll(std::span<Completion> out) override {
    const uint32_t n = WrapCq::poll(out);
    for (const Completion& c : out.first(n)) {
      out_.print("qp %u done %s id %" PRIu64 " %u bytes %s", c.qp, to_string(c.kind), c.id,
                 c.length, to_string(c.status));
    }
    return n;
  }

 private:
  Records& out_;
};

class TraceQp final : public WrapQp {
 public:
  TraceQp(std::unique_ptr<Qp> inner, Records& out, EndsOf ends_of)
      : WrapQp(std::move(inner)), out_(out), ends_of_(ends_of) {}

  Status<StartError> start(const Start& s) override {
    char between[2 * sizeof(base::TcpAddressText) + 8] = "";
    if (ends_of_ != nullptr) {
      const auto [here, there] = ends_of_(s, number()).addresses;
      std::snprintf(between, sizeof between, " %s > %s", base::TcpAddressText(here).text.data(),
                    base::TcpAddressText(there).text.data());
    }
    const auto done = WrapQp::start(s);
    out_.print("qp %u start %s%s ird %u ord %u%s%s%s", number(),
               s.agreed.is_initiator ? "initiator" : "responder", between, s.agreed.ird,
               s.agreed.ord, s.agreed.has_crc ? " crc" : "",
               s.agreed.send_markers ? " markers" : "", done ? "" : " REFUSED");
    return done;
  }

  Posted send(std::span<const SendWr> work) override {
    const Posted posted = WrapQp::send(work);
    for (const SendWr& wr : work.first(posted.accepted)) {
      const Described d = describe(wr);
      out_.print("qp %u post %s id %" PRIu64 " %" PRIu64 " bytes%s%s%s%s", number(), d.name, wr.id,
                 d.bytes, d.is_solicited ? " solicited" : "", wr.is_signalled ? "" : " unsignalled",
                 wr.has_fence ? " fence" : "", wr.is_inline ? " inline" : "");
    }
    if (posted.reason != Refusal::kNone) {
      const SendWr& wr = work[posted.accepted];
      refused(describe(wr).name, wr.id, posted.reason);
    }
    return posted;
  }

  Posted recv(std::span<const RecvWr> work) override {
    const Posted posted = WrapQp::recv(work);
    for (const RecvWr& wr : work.first(posted.accepted)) {
      out_.print("qp %u post Receive id %" PRIu64 " %" PRIu64 " bytes", number(), wr.id,
                 total(wr.buffer));
    }
    if (posted.reason != Refusal::kNone) {
      refused("Receive", work[posted.accepted].id, posted.reason);
    }
    return posted;
  }

  Need advance(Time now, Budget budget) override {
    const Need need = WrapQp::advance(now, budget);
    if (state() == QpState::kEnded) tell_end();
    return need;
  }

  void drain() override {
    out_.print("qp %u drain", number());
    WrapQp::drain();
  }
  void abort(std::optional<TermCode> why) override {
    out_.print("qp %u abort%s%s", number(), why ? ": " : "", why ? rdmap::to_string(*why) : "");
    WrapQp::abort(why);
    if (state() == QpState::kEnded) tell_end();
  }

 private:
  void refused(const char* what, uint64_t id, Refusal reason) {
    out_.print("qp %u refused %s id %" PRIu64 ": %s", number(), what, id, to_string(reason));
  }
  void tell_end() {
    if (is_end_told_.exchange(true)) return;
    const TerminateInfo info = terminate_info();
    out_.print("qp %u ended: %s%s%s", number(), to_string(info.reason),
               info.has_terminate() ? ", " : "",
               info.has_terminate() ? rdmap::to_string(info.terminate.code) : "");
  }

  Records& out_;
  const EndsOf ends_of_;
  std::atomic<bool> is_end_told_ = false;
};

class TraceEngine final : public WrapEngine {
 public:
  TraceEngine(std::unique_ptr<Engine> inner, Records& out, EndsOf ends_of)
      : WrapEngine("trace", std::move(inner)), out_(out), ends_of_(ends_of) {}

 protected:
  std::unique_ptr<WrapCq> wrap_cq(std::unique_ptr<Cq> cq) override {
    return std::unique_ptr<WrapCq>(new (std::nothrow) TraceCq(std::move(cq), out_));
  }
  std::unique_ptr<WrapQp> wrap_qp(std::unique_ptr<Qp> qp) override {
    return std::unique_ptr<WrapQp>(new (std::nothrow) TraceQp(std::move(qp), out_, ends_of_));
  }

 private:
  Records& out_;
  const EndsOf ends_of_;
};

}  // namespace

std::unique_ptr<Engine> trace(std::unique_ptr<Engine> inner, Records& out, EndsOf ends_of) {
  return std::unique_ptr<Engine>(new (std::nothrow) TraceEngine(std::move(inner), out, ends_of));
}

const char* to_string(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "accepted";
    case Refusal::kQueueFull:
      return "the queue is full";
    case Refusal::kCqFull:
      return "no slot in the completion queue";
    case Refusal::kBadState:
      return "not connected";
    case Refusal::kTooManySlices:
      return "too many ranges";
    case Refusal::kTooLong:
      return "too long";
    case Refusal::kBadSink:
      return "the sink is not memory of ours to write to";
    case Refusal::kNoReadsAllowed:
      return "the peer takes no Reads";
  }
  return "?";
}

const char* to_string(WorkKind kind) {
  switch (kind) {
    case WorkKind::kSend:
      return "Send";
    case WorkKind::kWrite:
      return "Write";
    case WorkKind::kRead:
      return "Read";
    case WorkKind::kImmediate:
      return "Immediate";
    case WorkKind::kFetchAdd:
      return "FetchAdd";
    case WorkKind::kSwap:
      return "Swap";
    case WorkKind::kCmpSwap:
      return "CmpSwap";
    case WorkKind::kLocalInvalidate:
      return "LocalInvalidate";
    case WorkKind::kReceive:
      return "Receive";
  }
  return "?";
}

const char* to_string(WorkStatus status) {
  switch (status) {
    case WorkStatus::kOk:
      return "ok";
    case WorkStatus::kFlushed:
      return "flushed";
    case WorkStatus::kLocalError:
      return "local error";
  }
  return "?";
}

const char* to_string(EndReason reason) {
  switch (reason) {
    case EndReason::kNone:
      return "not ended";
    case EndReason::kOrderly:
      return "orderly";
    case EndReason::kTerminateSent:
      return "terminate sent";
    case EndReason::kTerminateReceived:
      return "terminate received";
    case EndReason::kLlpLost:
      return "connection lost";
  }
  return "?";
}

}  // namespace ddpsock::engine::wrap
