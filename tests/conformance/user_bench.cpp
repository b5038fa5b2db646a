// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/user_bench.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "connect/handshake.h"
#include "engine/user/user_engine.h"
#include "tests/conformance/tcp_pair.h"

namespace ddpsock::conformance {
namespace {

using connecting::Handshake;
using mpa::StartupState;

mpa::RtrSet only(engine::Rtr rtr) {
  return {.has_send = rtr == engine::Rtr::kSend,
          .has_write = rtr == engine::Rtr::kWrite,
          .has_read = rtr == engine::Rtr::kRead};
}

class UserBench final : public Bench {
 public:
  std::unique_ptr<engine::Engine> make_engine() override {
    return engine::open_user_message_engine();
  }

  Joined join(const Wish& wish) override {
    fds_.push_back(connect_tcp());
    const int a = fds_.back().initiator.get();
    const int b = fds_.back().responder.get();
    mpa::InitiatorConfig config{.wants_crc = wish.has_crc,
                                .needs_markers = wish.has_markers,
                                .is_peer_to_peer = wish.rtr != engine::Rtr::kNone,
                                .ird = wish.ird,
                                .ord = wish.ord};
    if (wish.rtr != engine::Rtr::kNone) config.rtr_offer = only(wish.rtr);
    Handshake initiator(a, {.startup = config});
    Handshake responder(
        b, mpa::Responder({.wants_crc = wish.has_crc, .needs_markers = wish.has_markers}, now()));
    while (initiator.state() != StartupState::kAgreed ||
           responder.state() != StartupState::kAgreed) {
      EXPECT_NE(initiator.state(), StartupState::kFailed);
      EXPECT_NE(responder.state(), StartupState::kFailed);
      initiator.advance(now());
      responder.advance(now());
      if (responder.state() == StartupState::kDeciding) {
        EXPECT_TRUE(responder.responder()->accept({.ird = wish.ird, .ord = wish.ord}, now()));
      }
    }
    Joined joined;
    joined.ends[0] = {.lower = engine::lower_layer_of(a),
                      .agreed = initiator.agreement(),
                      .max_ulpdu = wish.max_ulpdu};
    joined.ends[1] = {.lower = engine::lower_layer_of(b),
                      .agreed = responder.agreement(),
                      .max_ulpdu = wish.max_ulpdu};
    return joined;
  }

  void inject(engine::LowerLayer end, Bytes octets) override {
    ASSERT_EQ(send(static_cast<int>(end), octets.data(), octets.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(octets.size()));
  }
  void finish(engine::LowerLayer end) override { shutdown(static_cast<int>(end), SHUT_WR); }
  void cut(engine::LowerLayer end) override { cut_tcp(static_cast<int>(end)); }
  Time now() override { return base::now(); }

 private:
  std::vector<TcpPair> fds_;
};

}  // namespace

std::unique_ptr<Bench> user_tcp() {
  return std::make_unique<UserBench>();
}

}  // namespace ddpsock::conformance
