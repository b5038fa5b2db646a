// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Both ends over loopback, and one end against peers that do not keep to the exchange.
#include "tools/perf/run.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tools/perf/link.h"
#include "tools/perf/session.h"

namespace ddpsock::perf {
namespace {

using Lines = std::vector<std::string>;
constexpr Duration kShortPatience = Duration::from_ms(300);

struct Outcome {
  std::string error = {};  // empty: none
  Lines lines = {};
};

Outcome outcome_of(const Plan& plan, iwarp::Listener* listener) {
  Outcome outcome;
  const auto done = run(plan, listener, [&](const std::string& l) { outcome.lines.push_back(l); });
  if (!done) outcome.error = done.error().text;
  return outcome;
}

Plan a_plan(Verb verb, Metric metric, std::vector<uint32_t> sizes, uint32_t iterations = 20) {
  Plan plan;
  plan.verb = verb;
  plan.metric = metric;
  plan.sizes = std::move(sizes);
  plan.is_sweep = plan.sizes.size() > 1;
  plan.iterations = iterations;
  plan.send_depth = iterations;
  plan.receive_depth = std::min<uint32_t>(iterations, 8);
  plan.reads = verb == Verb::kRead ? 16 : 0;
  plan.is_sleeping = true;  // two spinning threads would fight for the processors of a test run
  plan.patience = Duration::from_ms(20'000);
  plan.client_wait = Duration::from_ms(20'000);
  return plan;
}

iwarp::Listener listener() {
  return *iwarp::Listener::open(*iwarp::Address::resolve("127.0.0.1", 0));
}

Plan client_of(Plan plan, const iwarp::Listener& at) {
  plan.host = "127.0.0.1";
  plan.port = at.port();
  return plan;
}

struct Both {
  Outcome server;
  Outcome client;
};

Both run_both(const Plan& plan) {
  iwarp::Listener at = listener();
  Both both;
  std::thread server([&] { both.server = outcome_of(plan, &at); });
  both.client = outcome_of(client_of(plan, at), nullptr);
  server.join();
  return both;
}

// Which ends print a table: the header and a line a size.
size_t lines_at_server(const Plan& plan) {
  if (plan.is(Verb::kRead, Metric::kLatency)) return 0;
  const bool is_told = plan.metric == Metric::kBandwidth && plan.verb != Verb::kSend;
  return 1 + (is_told && !plan.is_bidirectional ? 1 : plan.sizes.size());
}

using PairParam = std::tuple<Verb, Metric, std::vector<uint32_t>>;

std::string name_of(const testing::TestParamInfo<PairParam>& info) {
  const auto& [verb, metric, sizes] = info.param;
  return std::string(to_text(verb)) + (metric == Metric::kLatency ? "_lat_" : "_bw_") +
         (sizes.size() > 1 ? "sweep" : std::to_string(sizes[0]));
}

class Pair : public testing::TestWithParam<PairParam> {};

TEST_P(Pair, Measures) {
  const auto& [verb, metric, sizes] = GetParam();
  const Plan plan = a_plan(verb, metric, sizes);
  const Both both = run_both(plan);
  EXPECT_EQ(both.client.error, "");
  EXPECT_EQ(both.server.error, "");
  EXPECT_EQ(both.client.lines.size(), 1 + sizes.size());
  EXPECT_EQ(both.server.lines.size(), lines_at_server(plan));
  EXPECT_TRUE(both.client.lines.back().starts_with(" " + std::to_string(sizes.back())));
}

INSTANTIATE_TEST_SUITE_P(
    , Pair,
    testing::Combine(testing::Values(Verb::kSend, Verb::kWrite, Verb::kRead),
                     testing::Values(Metric::kLatency, Metric::kBandwidth),
                     testing::Values(std::vector<uint32_t>{1}, std::vector<uint32_t>{65536},
                                     std::vector<uint32_t>{1 << 20},
                                     std::vector<uint32_t>{2, 4, 2048, 100'000, 1 << 21})),
    name_of);

class BothWays : public testing::TestWithParam<Verb> {};

TEST_P(BothWays, MeasureAtTheSameTime) {
  Plan plan = a_plan(GetParam(), Metric::kBandwidth, {2, 65536}, 100);
  plan.is_bidirectional = true;
  const Both both = run_both(plan);
  EXPECT_EQ(both.client.error, "");
  EXPECT_EQ(both.server.error, "");
  EXPECT_EQ(both.client.lines.size(), 3u);
  EXPECT_EQ(both.server.lines.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(, BothWays, testing::Values(Verb::kWrite, Verb::kRead));

// More messages than receives, so that the sender depends on credit, size after size.
TEST(SendStream, WaitsForCredit) {
  Plan plan = a_plan(Verb::kSend, Metric::kBandwidth, {1, 4096, 65536}, 1000);
  plan.receive_depth = 5;
  const Both both = run_both(plan);
  EXPECT_EQ(both.client.error, "");
  EXPECT_EQ(both.server.error, "");
}

// perftest posts an even number of receives, even when there are fewer messages.
TEST(SendStream, HasReceivesLeft) {
  Plan plan = a_plan(Verb::kSend, Metric::kBandwidth, {64}, 5);
  plan.receive_depth = 6;
  const Both both = run_both(plan);
  EXPECT_EQ(both.client.error, "");
  EXPECT_EQ(both.server.error, "");
}

TEST(Options, ChangeTheWire) {
  Plan plan = a_plan(Verb::kWrite, Metric::kBandwidth, {1 << 20});
  plan.wants_crc = false;
  plan.max_ulpdu = 65532;
  plan.is_sleeping = false;
  EXPECT_EQ(run_both(plan).client.error, "");
}

// What a scripted peer of a client of ours does with its end.
using Script = std::function<void(Link&)>;

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string error_against(Plan plan, const Script& script) {
  iwarp::Listener at = listener();
  Plan theirs = plan;
  theirs.patience = Duration::from_ms(5'000);
  plan.patience = kShortPatience;
  std::thread peer([&] {
    auto link = Link::open(theirs, &at);
    ASSERT_TRUE(link) << link.error().text;
    script(**link);
    // Cutting the connection would destroy what the client has not read yet.
    (*link)->close();
  });
  const std::string error = outcome_of(client_of(plan, at), nullptr).error;
  peer.join();
  return error;
}

std::string error_against(const Script& script) {
  return error_against(a_plan(Verb::kWrite, Metric::kBandwidth, {4096}), script);
}

void trade(Link& link, Bytes mine) {
  std::vector<uint8_t> theirs(mine.size());
  EXPECT_TRUE(link.exchange(mine, theirs));
}

void say_version(Link& link, std::string_view text) {
  std::string padded(text);
  padded.resize(kVersionSize);
  trade(link, bytes_of(padded));
}

void agree(Link& link) {
  say_version(link, "6.06");
  trade(link, std::array<uint8_t, 4>{0, 0, 0x10, 0});
  trade(link, std::array<uint8_t, 4>{0, 0, 0, 64});
  trade(link, std::array<uint8_t, 2>{'3', 0});
}

// Up to the point where a client of ours starts to write.
void connect(Link& link, const Key& key) {
  agree(link);
  trade(link, encode(Key{}));
  ASSERT_TRUE(link.open_data());
  for (int i = 0; i < 4; ++i) trade(link, encode(key));
}

// Until the client has gone; not a word on the control connection meanwhile.
void wait_out(Link& link) {
  std::array<engine::Completion, 1> none;
  link.renew_patience();
  while (link.rest()) link.data().poll(none);
}

TEST(HostilePeer, SaysWhatIsNoVersion) {
  const auto say = [](std::string_view text) {
    return error_against([text](Link& link) { say_version(link, text); });
  };
  EXPECT_EQ(say("HTTP/1.0 400 Bad"), "the peer's first message is no perftest version");
  EXPECT_EQ(say("5.69"), "the peer's version of the exchange is older than 5.70");
}

TEST(HostilePeer, SendsMessagesOfOtherLengths) {
  const std::string error = error_against([](Link& link) {
    std::array<uint8_t, kVersionSize> theirs;
    EXPECT_TRUE(link.exchange(bytes_of("6.06"), theirs));
  });
  EXPECT_EQ(error,
            "the peer's control message has 4 bytes where 16 were expected: does it run the same "
            "test with the same options?");
}

TEST(HostilePeer, IsSilent) {
  iwarp::Listener at = listener();
  std::thread peer([&] {
    auto end = *Endpoint::make({});
    ASSERT_TRUE(end->hear(*at.take(base::now() + Duration::from_ms(5'000)), {}));
    std::array<uint8_t, kVersionSize> buffer;
    const MutBytes room(buffer);
    ASSERT_TRUE(end->post(engine::RecvWr{.buffer = {&room, 1}}));
    ASSERT_TRUE(end->answer(end->responder().accept({.ird = 1, .ord = 1}, base::now())));
    EXPECT_TRUE(end->wait_for_end(base::now() + Duration::from_ms(5'000)));
  });
  Plan plan = a_plan(Verb::kSend, Metric::kLatency, {2});
  plan.patience = kShortPatience;
  EXPECT_EQ(outcome_of(client_of(plan, at), nullptr).error,
            "control connection: the peer is silent");
  peer.join();
}

TEST(HostilePeer, ClosesEarly) {
  EXPECT_EQ(error_against([](Link& link) { link.close(); }), "control connection: closed");
}

TEST(HostilePeer, WantsTooMuchMemory) {
  const std::string error = error_against([](Link& link) {
    say_version(link, "6.06");
    trade(link, std::array<uint8_t, 4>{0x7f, 0, 0, 0});
  });
  EXPECT_EQ(error, "the peer wants to go round in 2130706432 bytes");
}

TEST(HostilePeer, NamesMemoryThatWrapsAround) {
  const std::string error =
      error_against([](Link& link) { connect(link, Key{.stag = 1, .to = UINT64_MAX - 100}); });
  EXPECT_EQ(error, "the peer's buffer wraps around");
}

TEST(HostilePeer, NamesMemoryThatItHasNot) {
  const std::string error = error_against([](Link& link) {
    connect(link, Key{.stag = 0x12345678, .to = 0x1000});
    wait_out(link);
  });
  EXPECT_TRUE(error.starts_with("data connection: ended by the peer's Terminate")) << error;
}

TEST(HostilePeer, StopsListeningForTheDataConnection) {
  iwarp::Listener at = listener();
  Plan plan = a_plan(Verb::kSend, Metric::kLatency, {2});
  std::thread peer([&] {
    auto link = Link::open(plan, &at);
    ASSERT_TRUE(link);
    agree(**link);
    trade(**link, encode(Key{}));
    // The Request is read and never answered.
    const auto end = *Endpoint::make({});
    EXPECT_TRUE(end->hear(*at.take(base::now() + Duration::from_ms(5'000)), {}));
    std::array<uint8_t, kKeySize> bytes;
    EXPECT_FALSE((*link)->exchange(encode(Key{}), bytes));
  });
  plan.patience = kShortPatience;
  const Outcome outcome = outcome_of(client_of(plan, at), nullptr);
  peer.join();
  EXPECT_TRUE(outcome.error.starts_with("MPA start-up: ")) << outcome.error;
}

// Gives no credit, so that the client may send all but one of its receives and no more.
TEST(HostilePeer, GivesNoCredit) {
  Plan plan = a_plan(Verb::kSend, Metric::kBandwidth, {64}, 100);
  const std::string error = error_against(plan, [&](Link& link) {
    connect(link, Key{});
    auto buffers = Buffers::make(plan, 4096, link.data());
    ASSERT_TRUE(buffers);
    Session session{plan, link, *buffers, Key{}};
    ASSERT_TRUE(session.post_receives(plan.receive_depth, 64));
    trade(link, encode(Key{}));
    uint32_t received = 0;
    std::array<engine::Completion, 8> completions;
    link.renew_patience();
    while (const auto n = session.wait(completions)) received += *n;
    EXPECT_EQ(received, plan.receive_depth - 1);
  });
  EXPECT_EQ(error, "data connection: the peer is silent");
}

// The same for a server of ours.
std::string error_of_server(Plan plan, const Script& script) {
  iwarp::Listener at = listener();
  Plan theirs = client_of(plan, at);
  theirs.patience = Duration::from_ms(5'000);
  plan.patience = kShortPatience;
  std::string error;
  std::thread server([&] { error = outcome_of(plan, &at).error; });
  auto link = Link::open(theirs, nullptr);
  EXPECT_TRUE(link) << link.error().text;
  if (link) script(**link);
  server.join();
  return error;
}

TEST(HostileClient, ReportsNoNumbers) {
  const Plan plan = a_plan(Verb::kWrite, Metric::kBandwidth, {4096});
  const std::string error = error_of_server(plan, [](Link& link) {
    connect(link, Key{});
    trade(link, encode(Key{}));
    Report report{.size = 1, .iterations = 1};
    report.mib_per_second = std::numeric_limits<double>::quiet_NaN();
    for (const ReportField& field : encode(report)) trade(link, field);
  });
  EXPECT_EQ(error, "the peer's report holds no numbers");
}

Status<Error> send_bytes(Link& link, Bytes payload) {
  if (!link.data().post(engine::SendWr{.op = engine::op::Send{.payload = {&payload, 1}},
                                       .is_signalled = false,
                                       .is_inline = true})) {
    return fail_with("refused");
  }
  link.data().flush();
  return {};
}

TEST(HostileClient, SendsMessagesOfAnotherSize) {
  const auto error_of = [](Metric metric) {
    return error_of_server(a_plan(Verb::kSend, metric, {64}), [](Link& link) {
      connect(link, Key{});
      trade(link, encode(Key{}));
      EXPECT_TRUE(send_bytes(link, bytes_of("short")));
      wait_out(link);
    });
  };
  EXPECT_EQ(error_of(Metric::kBandwidth),
            "the peer sent a message of 5 bytes where 64 were expected");
  EXPECT_EQ(error_of(Metric::kLatency),
            "the peer sent a message of 5 bytes where 64 were expected");
}

TEST(HostileClient, SendsBeforeItIsAskedTo) {
  const Plan plan = a_plan(Verb::kSend, Metric::kBandwidth, {5});
  const std::string error = error_of_server(plan, [](Link& link) {
    connect(link, Key{});
    EXPECT_TRUE(send_bytes(link, bytes_of("early")));
    wait_out(link);
  });
  EXPECT_EQ(error, "the peer sent a message before both ends were ready");
}

TEST(HostileClient, StopsInTheMiddle) {
  const auto error_of = [](Verb verb, Metric metric) {
    return error_of_server(a_plan(verb, metric, {64}), [](Link& link) {
      connect(link, Key{});
      link.data().close(base::now() + Duration::from_ms(5'000));
    });
  };
  EXPECT_EQ(error_of(Verb::kWrite, Metric::kBandwidth), "data connection: closed");
  EXPECT_EQ(error_of(Verb::kSend, Metric::kBandwidth), "data connection: closed");
  EXPECT_EQ(error_of(Verb::kRead, Metric::kLatency), "data connection: closed");
}

// Something that speaks no MPA comes first: the client after it is served.
TEST(HostileClient, IsTurnedAwayWithoutHarm) {
  iwarp::Listener at = listener();
  const Plan plan = a_plan(Verb::kSend, Metric::kLatency, {2});
  Outcome outcome;
  std::thread server([&] { outcome = outcome_of(plan, &at); });
  {
    auto address = *iwarp::Address::resolve("127.0.0.1", at.port());
    const base::UniqueFd plain(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(plain.get(), address.get(), address.size), 0);
    ASSERT_EQ(send(plain.get(), "GET / HTTP/1.0\r\n\r\n....", 22, MSG_NOSIGNAL), 22);
  }
  EXPECT_EQ(outcome_of(client_of(plan, at), nullptr).error, "");
  server.join();
  EXPECT_EQ(outcome.error, "");
}

TEST(Server, StopsWaitingForItsClient) {
  iwarp::Listener at = listener();
  Plan plan = a_plan(Verb::kSend, Metric::kLatency, {2});
  plan.client_wait = Duration::from_ms(20);
  EXPECT_EQ(outcome_of(plan, &at).error, "accepting: Connection timed out");
}

}  // namespace
}  // namespace ddpsock::perf
