// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The handshake matrix once more, over TCP sockets: our side is the endpoint that command line
// tools use (start-up on a socket, the second call with revision 1, the Terminate of a failed
// start-up, the user engine's queue pair), the persona sits in a thread of its own.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/interop/matrix/exchange.h"
#include "tools/iwarp/endpoint.h"

namespace ddpsock::interop {
namespace {

using iwarp::Address;
using iwarp::Endpoint;
using mpa::StartupError;

constexpr int kPatienceMs = 10'000;
constexpr Duration kShort = Duration::from_ms(100);  // of start-up, where the peer is silent

Time soon() {
  return base::now() + Duration::from_ms(kPatienceMs);
}

bool is_readable(int fd) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, kPatienceMs) == 1;
}

base::UniqueFd connect_tcp(const Address& to) {
  base::UniqueFd fd(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), to.get(), to.size), 0);
  return fd;
}

// The persona on a connected socket until either end closes.
void play(Persona& peer, base::UniqueFd fd) {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  peer.connected();
  std::array<uint8_t, 4096> buffer;
  for (;;) {
    for (const Octets& segment : peer.take_segments())
      (void)!send(fd.get(), segment.data(), segment.size(), MSG_NOSIGNAL);
    if (peer.hangup() != Hangup::kNo) break;
    if (!is_readable(fd.get())) return ADD_FAILURE() << "nothing came for too long";
    const ssize_t n = recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) return peer.ended();
    peer.input({buffer.begin(), buffer.begin() + n});
  }
  if (peer.hangup() == Hangup::kReset) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return;
  }
  // What is on its way to us must not turn our FIN into a reset.
  shutdown(fd.get(), SHUT_WR);
  while (is_readable(fd.get()) && recv(fd.get(), buffer.data(), buffer.size(), 0) > 0) {
  }
}

struct Played {
  std::unique_ptr<Persona> peer;
  int calls = 0;
};

// Answers calls until it is told to stop.
class Server {
 public:
  explicit Server(const Cell& cell)
      : listener_(*iwarp::Listener::open(*Address::resolve("127.0.0.1", 0))) {
    thread_ = std::thread([this, &cell] { serve(cell); });
  }
  Address address() const { return *Address::resolve("127.0.0.1", listener_.port()); }
  Played stop() {
    is_stopping_ = true;
    const auto last_call = connect_tcp(address());
    thread_.join();
    return std::move(played_);
  }

 private:
  void serve(const Cell& cell) {
    for (;;) {
      auto fd = listener_.take(soon());
      if (is_stopping_) return;
      if (!fd) return ADD_FAILURE() << fd.error().text;
      played_.peer = cell.peer.make(Role::kResponder, cell.ulp, played_.calls++);
      play(*played_.peer, std::move(*fd));
    }
  }

  iwarp::Listener listener_;
  std::atomic<bool> is_stopping_ = false;
  Played played_;
  std::thread thread_;
};

bool ends_by_time(const Cell& cell) {
  const Fails* fails = std::get_if<Fails>(&cell.outcome);
  return fails != nullptr && fails->error == StartupError::kTimedOut;
}

// What our side came to.
struct OurResult {
  std::optional<mpa::Agreement> agreement;
  std::optional<StartupError> error;
  std::string lost;  // TCP was, outside start-up
  std::vector<std::string> heard;
  engine::TerminateInfo end;
};

// Our end of the talk: one Send each way, then the close.
class Talker {
 public:
  // Queue pairs of no reads where the ULP wants none: a Read RTR must work all the same.
  explicit Talker(uint16_t reads) : end_(*Endpoint::make({.max_ird = reads, .max_ord = reads})) {
    for (uint64_t i = 0; i < buffers_.size(); ++i) {
      const MutBytes buffer(buffers_[i]);
      EXPECT_TRUE(end_->post(engine::RecvWr{.id = i, .buffer = {&buffer, 1}}));
    }
  }
  Endpoint& end() { return *end_; }

  void talk(Then then, OurResult& result) {
    result.agreement = end_->agreement();
    const Bytes text(reinterpret_cast<const uint8_t*>(kOurText.data()), kOurText.size());
    EXPECT_TRUE(
        end_->post(engine::SendWr{.id = kOurSend, .op = engine::op::Send{.payload = {&text, 1}}}));
    if (then == Then::kTalks) {
      for (int i = 0; i < 2; ++i) take(result);
    } else if (then != Then::kNothingHeard) {
      EXPECT_TRUE(end_->wait_for_end(soon()));
    }
    EXPECT_TRUE(end_->close(soon()));
    while (take(result)) {
    }
    result.end = end_->qp().terminate_info();
  }

 private:
  static constexpr uint64_t kOurSend = 100;

  bool take(OurResult& result) {
    const auto done = end_->next_completion(soon());
    if (!done) return false;
    if (done->kind == engine::WorkKind::kReceive && done->status == engine::WorkStatus::kOk) {
      const auto& buffer = buffers_[done->id];
      result.heard.emplace_back(buffer.begin(), buffer.begin() + done->length);
    }
    return true;
  }

  std::unique_ptr<Endpoint> end_;
  std::array<std::array<uint8_t, 64>, 2> buffers_{};
};

void note(const iwarp::Error& error, OurResult& result) {
  if (error.startup)
    result.error = error.startup->error;
  else
    result.lost = error.text;
}

OurResult call(const Calling& calling, const Cell& cell, const Address& to) {
  connecting::Call call{.startup = calling.config, .may_fall_back = true};
  if (ends_by_time(cell)) call.startup.timeouts = {kShort, kShort};
  OurResult result;
  Talker talker(calling.config.ord == 0 ? 0 : 128);
  const auto connected = talker.end().connect(to, call);
  if (connected)
    talker.talk(cell.then, result);
  else
    note(connected.error(), result);
  return result;
}

OurResult answer(const Answering& answering, const Cell& cell, iwarp::Listener& listener) {
  mpa::ResponderConfig config = answering.config;
  if (ends_by_time(cell)) config.timeouts = {kShort, kShort};
  const mpa::Acceptance& acceptance = answering.decision.acceptance;
  OurResult result;
  Talker talker(acceptance.ird == 0 ? 0 : 128);
  if (const auto heard = talker.end().hear(*listener.take(soon()), config); !heard) {
    note(heard.error(), result);
    return result;
  }
  mpa::Responder& responder = talker.end().responder();
  const auto answered = talker.end().answer(
      answering.decision.rejects ? responder.reject(acceptance.private_data, base::now())
                                 : responder.accept(acceptance, base::now()));
  if (answered)
    talker.talk(cell.then, result);
  else
    note(answered.error(), result);
  return result;
}

// TCP brings a reset at once, perhaps before connect() or the start of the queue pair.
bool may_be_lost(const Cell& cell) {
  const Fails* fails = std::get_if<Fails>(&cell.outcome);
  return cell.then == Then::kPeerLeaves ||
         (fails != nullptr && fails->error == StartupError::kClosed);
}

void check(const Cell& cell, const OurResult& ours, Played& played) {
  if (!ours.lost.empty()) {
    EXPECT_TRUE(may_be_lost(cell)) << ours.lost;
    return;
  }
  const Account& peer = played.peer->account();
  EXPECT_EQ(played.calls, cell.has_fallen_back ? 2 : 1);
  EXPECT_EQ(peer.verdict, cell.verdict);
  if (const Agrees* expected = std::get_if<Agrees>(&cell.outcome)) {
    ASSERT_TRUE(ours.agreement);
    EXPECT_EQ(ours.agreement->revision, expected->revision);
    EXPECT_EQ(ours.agreement->has_crc, expected->has_crc);
    EXPECT_EQ(ours.agreement->rtr, expected->rtr);
    EXPECT_EQ(ours.agreement->ird, expected->ird);
    EXPECT_EQ(ours.agreement->ord, expected->ord);
    const bool is_talk = cell.then == Then::kTalks;
    EXPECT_EQ(ours.heard,
              is_talk ? std::vector<std::string>{kPeerText} : std::vector<std::string>{});
    if (is_talk) {
      EXPECT_EQ(peer.heard, std::vector<std::string>{kOurText});
      EXPECT_EQ(peer.stream_error, "");
      EXPECT_FALSE(peer.terminate);
      EXPECT_FALSE(peer.was_spoken_to_early);
    }
    if (cell.then == Then::kPeerTerminates) {
      EXPECT_EQ(ours.end.reason, rdmap::EndReason::kTerminateReceived);
    }
    return;
  }
  const Fails& expected = std::get<Fails>(cell.outcome);
  ASSERT_TRUE(ours.error);
  EXPECT_STREQ(mpa::to_text(*ours.error), mpa::to_text(expected.error));
  ASSERT_EQ(peer.terminate.has_value(), expected.term_code.has_value());
  if (expected.term_code) {
    EXPECT_EQ(peer.terminate->code, *expected.term_code);
  }
}

class Loopback : public testing::TestWithParam<size_t> {};

TEST_P(Loopback, Cell) {
  const Cell& cell = matrix()[GetParam()];
  SCOPED_TRACE(to_text(cell));
  if (const Calling* calling = std::get_if<Calling>(&cell.ours)) {
    Server server(cell);
    const OurResult ours = call(*calling, cell, server.address());
    Played played = server.stop();
    check(cell, ours, played);
    return;
  }
  auto listener = *iwarp::Listener::open(*Address::resolve("127.0.0.1", 0));
  Played played{.peer = cell.peer.make(Role::kInitiator, cell.ulp, 0), .calls = 1};
  auto fd = connect_tcp(*Address::resolve("127.0.0.1", listener.port()));
  std::thread thread([&] { play(*played.peer, std::move(fd)); });
  const OurResult ours = answer(std::get<Answering>(cell.ours), cell, listener);
  thread.join();
  check(cell, ours, played);
}

INSTANTIATE_TEST_SUITE_P(All, Loopback, testing::Range<size_t>(0, matrix().size()));

}  // namespace
}  // namespace ddpsock::interop
