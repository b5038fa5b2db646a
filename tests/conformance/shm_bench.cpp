// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/shm_bench.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/memory/message_memory.h"
#include "engine/user/user_engine.h"
#include "shm/own_memory.h"
#include "tests/conformance/agreements.h"
#include "tests/conformance/tcp_pair.h"

namespace ddpsock::conformance {
namespace {

using engine::shm::MessageMemory;

class ShmBench final : public Bench {
 public:
  ShmBench() { engine::shm::take_own_memory_for_a_peers(true); }
  ~ShmBench() override { engine::shm::take_own_memory_for_a_peers(false); }

  std::unique_ptr<engine::Engine> make_engine() override {
    return engine::open_user_message_engine();
  }
  Joined join(const Wish& wish) override {
    pairs_.push_back(connect_tcp());
    const int fds[] = {pairs_.back().initiator.get(), pairs_.back().responder.get()};
    constexpr engine::shm::SocketName kSocket{.netns = 1, .cookie = 2};
    auto made = MessageMemory::make(kSocket);
    EXPECT_TRUE(made.has_value());
    auto joined_by_peer = MessageMemory::join(
        static_cast<uint32_t>(getpid()), static_cast<uint32_t>((*made)->descriptor()), kSocket);
    EXPECT_TRUE(joined_by_peer.has_value());
    EXPECT_TRUE((*made)->settle());
    EXPECT_TRUE((*joined_by_peer)->settle());
    memories_.push_back(std::move(*made));
    memories_.push_back(std::move(*joined_by_peer));
    Joined joined;
    for (int i = 0; i < 2; ++i) {
      joined.ends[i].lower = engine::lower_layer_of(fds[i]);
      joined.ends[i].agreed = agreed_by(wish, i == 0);
      joined.ends[i].max_ulpdu = wish.max_ulpdu;
      media_.push_back(std::make_unique<engine::InMemory>(*memories_.rbegin()[1 - i]));
      joined.ends[i].medium = media_.back().get();
    }
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
  std::vector<TcpPair> pairs_;
  std::vector<std::unique_ptr<MessageMemory>> memories_;
  std::vector<std::unique_ptr<engine::InMemory>> media_;
};

}  // namespace

std::unique_ptr<Bench> shm() {
  return std::make_unique<ShmBench>();
}

}  // namespace ddpsock::conformance
