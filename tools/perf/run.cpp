// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tools/perf/measure.h"
#include "tools/perf/report.h"

namespace ddpsock::perf {
namespace {

constexpr uint32_t kCycle = 4096;
constexpr uint32_t kLine = 64;
// What a peer may ask of our memory for small messages: perftest sends its page size.
constexpr uint32_t kMaxCycle = 2u << 20;
constexpr std::array<uint8_t, kMtuSize> kMtu{'3', 0};  // 1024 bytes; of use to InfiniBand only

class Runner {
 public:
  Runner(const Plan& plan, std::unique_ptr<Link> link, const Printer& print)
      : plan_(plan), print_(print), link_(std::move(link)) {}

  Status<Error> run() {
    if (const auto agreed = agree(); !agreed) return agreed;
    if (const auto opened = open_data(); !opened) return opened;
    const bool is_passive = !plan_.is_measuring() && plan_.verb != Verb::kSend;
    const bool is_silent = is_passive && plan_.metric == Metric::kLatency;
    if (!is_silent && !plan_.is_json) print_(header(plan_));
    for (uint32_t size : plan_.sizes) {
      if (is_passive) break;
      if (const auto measured = measure(size); !measured) return measured;
    }
    return finish();
  }

 private:
  Status<Error> agree();
  Status<Error> open_data();
  Status<Error> shake_hands(int times);
  Status<Error> measure(uint32_t size);
  Status<Error> measure_latency(uint32_t size);
  Status<Error> measure_bandwidth(uint32_t size);
  Status<Error> exchange_reports();
  Status<Error> finish();

  const Plan& plan_;
  const Printer& print_;
  uint32_t cycle_ = kCycle;
  Key own_;
  std::optional<Buffers> buffers_;
  // The peer writes to the buffers as long as there is a connection.
  std::unique_ptr<Link> link_;
  std::optional<Session> session_;
  Report report_;
};

Result<uint32_t, Error> exchange_number(Link& link, uint32_t mine) {
  std::array<uint8_t, 4> sent;
  std::array<uint8_t, 4> received{};
  base::store_be32(sent.data(), mine);
  if (const auto done = link.exchange(sent, received); !done) return fail(done.error());
  return base::load_be32(received.data());
}

// The version and what else both ends know of each other before there is a data connection.
Status<Error> Runner::agree() {
  std::array<uint8_t, kVersionSize> text{};
  if (const auto done = link_->exchange(encode_version(), text); !done) return done;
  const auto version = decode_version(text);
  if (!version) return fail_with("the peer's first message is no perftest version");
  if (*version < kLeastVersion) {
    return fail_with("the peer's version of the exchange is older than 5.70");
  }
  const auto cycle = exchange_number(*link_, kCycle);
  if (!cycle) return fail(cycle.error());
  if (*cycle > kMaxCycle) {
    return fail_with("the peer wants to go round in " + std::to_string(*cycle) + " bytes");
  }
  cycle_ = std::max(*cycle, kCycle);
  if (const auto line_size = exchange_number(*link_, kLine); !line_size) {
    return fail(line_size.error());
  }
  std::array<uint8_t, kMtuSize> mtu{};
  return link_->exchange(kMtu, mtu);
}

// How often perftest's ends shake hands between connecting and measuring.
int shakes_of(const Plan& plan) {
  return plan.metric == Metric::kLatency && plan.verb != Verb::kSend ? 4 : 3;
}

Status<Error> Runner::open_data() {
  own_.qp = static_cast<uint32_t>(getpid()) & 0xffffff;
  own_.reads = std::max<uint32_t>(plan_.reads, 1);
  if (const auto shaken = shake_hands(1); !shaken) return shaken;
  if (const auto opened = link_->open_data(); !opened) return opened;
  auto buffers = Buffers::make(plan_, cycle_, link_->data());
  if (!buffers) return fail(buffers.error());
  buffers_.emplace(std::move(*buffers));
  own_.stag = buffers_->stag();
  own_.to = buffers_->to();
  session_.emplace(plan_, *link_, *buffers_, Key{});
  const bool must_wait = !plan_.is_client() && link_->data().agreement().rtr == mpa::Rtr::kNone;
  if (must_wait && plan_.is(Verb::kWrite, Metric::kLatency)) {
    link_->leave_unanswered();
    return fail_with(
        "the server writes first here, which RFC 5044 section 7.1.2 allows only to a peer that has "
        "begun with a ready-to-receive message, and this one offers none (siw: peer_to_peer)");
  }
  return shake_hands(1 + shakes_of(plan_));
}

Status<Error> Runner::shake_hands(int times) {
  for (; times != 0; --times) {
    std::array<uint8_t, kKeySize> bytes{};
    if (const auto done = link_->exchange(encode(own_), bytes); !done) return done;
    if (session_) session_->peer = decode_key(bytes);
  }
  return {};
}

Status<Error> Runner::measure(uint32_t size) {
  // What the peer said must hold the largest message we write there or read from there.
  if (session_->peer.to > UINT64_MAX - size) return fail_with("the peer's buffer wraps around");
  return plan_.metric == Metric::kLatency ? measure_latency(size) : measure_bandwidth(size);
}

Status<Error> Runner::measure_latency(uint32_t size) {
  if (plan_.verb == Verb::kSend) {
    if (const auto posted = session_->post_receives(plan_.receive_depth, size); !posted) {
      return posted;
    }
    if (const auto shaken = shake_hands(1); !shaken) return shaken;
  }
  const auto posted =
      plan_.verb == Verb::kRead ? read_latency(*session_, size) : ping_pong(*session_, size);
  if (!posted) return fail(posted.error());
  print_(line(plan_, size, statistics_of(*posted, plan_.verb != Verb::kRead)));
  return {};
}

Status<Error> Runner::measure_bandwidth(uint32_t size) {
  const bool is_receiver = plan_.receives_messages();
  if (is_receiver) {
    if (const auto posted = session_->post_receives(plan_.receive_depth, size); !posted) {
      return posted;
    }
  }
  const bool keeps_step = plan_.verb == Verb::kSend || plan_.is_bidirectional;
  if (keeps_step) {
    if (const auto shaken = shake_hands(1); !shaken) return shaken;
  }
  buffers_->clear_credit();
  const auto time = is_receiver ? receive_stream(*session_, size) : send_stream(*session_, size);
  if (!time) return fail(time.error());
  report_ = report_of(plan_, size, *time);
  const Report own = report_;
  if (keeps_step && plan_.is_sweep) {
    if (const auto shaken = shake_hands(1); !shaken) return shaken;
  }
  if (plan_.is_bidirectional) {
    if (const auto exchanged = exchange_reports(); !exchanged) return exchanged;
    // Both directions together.
    report_.size = size;
    report_.iterations = own.iterations;
    report_.mib_per_second += own.mib_per_second;
    report_.mega_messages_per_second += own.mega_messages_per_second;
  }
  print_(line(plan_, report_));
  return {};
}

// Ours goes out; what came is in `report_` then.
Status<Error> Runner::exchange_reports() {
  const auto mine = encode(report_);
  std::array<ReportField, kReportFields> theirs{};
  for (size_t i = 0; i < kReportFields; ++i) {
    if (const auto done = link_->exchange(mine[i], theirs[i]); !done) return done;
  }
  report_ = decode_report(theirs);
  const bool is_sane = std::isfinite(report_.mib_per_second) && report_.mib_per_second >= 0 &&
                       std::isfinite(report_.mega_messages_per_second) &&
                       report_.mega_messages_per_second >= 0;
  if (!is_sane) return fail_with("the peer's report holds no numbers");
  return {};
}

// The last messages; then both connections are ended.
Status<Error> Runner::finish() {
  const bool has_reports =
      plan_.metric == Metric::kBandwidth && plan_.verb != Verb::kSend && !plan_.is_bidirectional;
  if (has_reports) {
    if (const auto shaken = shake_hands(1); !shaken) return shaken;
    if (const auto exchanged = exchange_reports(); !exchanged) return exchanged;
    if (!plan_.is_measuring()) print_(line(plan_, report_));
  }
  if (!plan_.is(Verb::kWrite, Metric::kLatency)) {
    link_->expect_end();
    if (const auto shaken = shake_hands(1); !shaken) return shaken;
  }
  link_->close();
  return {};
}

}  // namespace

Status<Error> run(const Plan& plan, iwarp::Listener* listener, const Printer& print) {
  auto link = Link::open(plan, listener);
  if (!link) return fail(link.error());
  return Runner(plan, std::move(*link), print).run();
}

}  // namespace ddpsock::perf
