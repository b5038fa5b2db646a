// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What each wrapper adds. That it takes nothing away is tests/conformance's business.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/loopback/loopback.h"
#include "engine/wrap/fault.h"
#include "engine/wrap/pcap.h"
#include "engine/wrap/trace.h"

namespace ddpsock::engine::wrap {
namespace {

struct End {
  std::unique_ptr<Engine> engine;
  Pd pd;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Qp> qp;
};

// Two ends on a loopback link; the first one's engine is wrapped.
class WrapTest : public ::testing::Test {
 protected:
  void make(End& end, std::unique_ptr<Engine> engine) {
    end.engine = std::move(engine);
    end.pd = *end.engine->open_pd();
    end.cq = *end.engine->make_cq({});
    end.qp = *end.engine->make_qp({.pd = end.pd, .send_cq = end.cq.get(), .recv_cq = end.cq.get()});
  }
  std::unique_ptr<Engine> bare() { return loopback::open(network_, {}); }

  void join(std::unique_ptr<Engine> first) {
    make(a_, std::move(first));
    make(b_, bare());
    const auto [lower_a, lower_b] = network_.connect({});
    Agreement agreed;
    agreed.ird = agreed.ord = 4;
    agreed.is_initiator = true;
    ASSERT_TRUE(a_.qp->start({.lower = lower_a, .agreed = agreed}));
    agreed.is_initiator = false;
    ASSERT_TRUE(b_.qp->start({.lower = lower_b, .agreed = agreed}));
  }
  Posted send(uint64_t id) {
    const Bytes payload(message_);
    const SendWr wr{.id = id, .op = op::Send{.payload = {&payload, 1}}};
    return a_.qp->send({&wr, 1});
  }
  Posted receive(uint64_t id) {
    const MutBytes buffer(buffer_);
    const RecvWr wr{.id = id, .buffer = {&buffer, 1}};
    return b_.qp->recv({&wr, 1});
  }
  void run(int steps = 50) {
    for (int i = 0; i < steps; ++i) {
      now_ = now_ + Duration::from_us(10);
      a_.qp->advance(now_, {});
      b_.qp->advance(now_, {});
    }
  }
  std::vector<Completion> poll(End& end) {
    std::vector<Completion> all(64);
    all.resize(end.cq->poll(all));
    return all;
  }

  loopback::Network network_{7};
  End a_;
  End b_;
  Time now_{};
  std::array<uint8_t, 100> message_{};
  std::array<uint8_t, 100> buffer_{};
};

class TextFile {
 public:
  TextFile() : file_(open_memstream(&text_, &size_)) {}
  ~TextFile() {
    std::fclose(file_);
    std::free(text_);
  }
  Records& records() { return records_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
  StdioRecords records_{file_};
};

TEST_F(WrapTest, TracePrintsALineForEachEvent) {
  TextFile out;
  join(trace(bare(), out.records()));
  EXPECT_STREQ(a_.engine->name(), "trace(loopback)");
  receive(1);
  send(7);
  run();
  poll(a_);
  send(8);  // nobody posted a receive for it
  run();
  poll(a_);
  send(9);
  EXPECT_EQ(
      out.text(),
      "qp 1 start initiator ird 4 ord 4 crc\n"
      "qp 1 post Send id 7 100 bytes\n"
      "qp 1 done Send id 7 100 bytes ok\n"
      "qp 1 post Send id 8 100 bytes\n"
      "qp 1 ended: terminate received, untagged buffer error: no buffer available for the MSN\n"
      "qp 1 done Send id 8 100 bytes ok\n"
      "qp 1 refused Send id 9: not connected\n");
}

TEST_F(WrapTest, PcapBeginsWithTheConnectionAndStartUp) {
  TextFile out;
  join(pcap(bare(), out.records()));
  receive(1);
  send(1);
  run();
  const std::string file = out.text();
  const auto at = [&](size_t i) { return static_cast<uint8_t>(file[i]); };
  ASSERT_GT(file.size(), 24u);
  EXPECT_EQ(file.substr(0, 4), "\x4d\x3c\xb2\xa1");
  // Three packets of 54 bytes (SYN, SYN ACK, ACK), then the Request.
  constexpr size_t kBare = 16 + 54;
  EXPECT_EQ(at(24 + 16 + 47), 0x02);
  EXPECT_EQ(at(24 + kBare + 16 + 47), 0x12);
  EXPECT_EQ(at(24 + 2 * kBare + 16 + 47), 0x10);
  const size_t request = 24 + 3 * kBare + kBare;
  EXPECT_EQ(file.substr(request, 16), "MPA ID Req Frame");
  EXPECT_NE(file.find("MPA ID Rep Frame"), std::string::npos);
}

TEST_F(WrapTest, FaultRefusesPosts) {
  join(fault(bare(), {.refuse = 1'000'000}, 3));
  const Posted posted = send(1);
  EXPECT_EQ(posted.accepted, 0u);
  EXPECT_EQ(posted.reason, Refusal::kQueueFull);
}

TEST_F(WrapTest, FaultStalls) {
  join(fault(bare(), {.stall = 1'000'000}, 3));
  receive(1);
  send(1);
  run();
  EXPECT_TRUE(poll(b_).empty());
  EXPECT_EQ(a_.qp->advance(now_, {}).deadline, now_);
}

TEST_F(WrapTest, FaultDropsConnections) {
  join(fault(bare(), {.drop = 1'000'000}, 3));
  receive(1);
  run();
  EXPECT_EQ(a_.qp->state(), QpState::kEnded);
  EXPECT_EQ(b_.qp->terminate_info().reason, EndReason::kLlpLost);
  EXPECT_EQ(poll(b_).size(), 1u);
}

TEST_F(WrapTest, FaultFailsCompletions) {
  join(fault(bare(), {.fail_completion = 1'000'000}, 3));
  receive(1);
  send(1);
  run();
  const auto done = poll(a_);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WorkStatus::kLocalError);
}

TEST_F(WrapTest, FaultRepeatsItsSeed) {
  const auto pattern_of = [&](uint64_t seed) {
    End end;
    make(end, fault(bare(), {.refuse = 500'000}, seed));
    std::string pattern;
    for (int i = 0; i < 40; ++i) {
      const RecvWr wr{};
      pattern += end.qp->recv({&wr, 1}).accepted == 1 ? '+' : '-';
    }
    return pattern;
  };
  EXPECT_EQ(pattern_of(1), pattern_of(1));
  EXPECT_NE(pattern_of(1), pattern_of(2));
}

}  // namespace
}  // namespace ddpsock::engine::wrap
