// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Writes a capture file through wrap/pcap for pcap_decode_test.py: one connection over a loopback
// link, with every operation that Wireshark's iWARP dissector knows, cut into reads of any size.
// The last argument says which end is captured, or asks for Markers.
//   pcap_sample FILE initiator|responder|markers
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "engine/loopback/loopback.h"
#include "engine/wrap/pcap.h"

namespace ddpsock::engine {
namespace {

struct End {
  std::unique_ptr<Engine> engine;
  Pd pd;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Qp> qp;
};

void make(End& end, std::unique_ptr<Engine> engine) {
  end.engine = std::move(engine);
  end.pd = *end.engine->open_pd();
  end.cq = *end.engine->make_cq({});
  end.qp = *end.engine->make_qp({.pd = end.pd, .send_cq = end.cq.get(), .recv_cq = end.cq.get()});
}

class Sample {
 public:
  Sample(wrap::Records& out, bool has_markers, bool is_captured_initiator) : network_(5) {
    make(captured_, wrap::pcap(loopback::open(network_, {}), out));
    make(other_, loopback::open(network_, {}));
    loopback::LinkAttr link;
    link.max_read = 3000;
    const auto [a, b] = network_.connect(link);
    start(captured_, a, has_markers, is_captured_initiator);
    start(other_, b, has_markers, !is_captured_initiator);
    initiator_ = is_captured_initiator ? &captured_ : &other_;
    responder_ = is_captured_initiator ? &other_ : &captured_;
  }

  bool run() {
    const Mr source = reg(*responder_, memory_, rdmap::kRemoteRead | rdmap::kRemoteWrite);
    const Mr sink = reg(*initiator_, sink_, rdmap::kLocalWrite);
    for (uint64_t i = 0; i < 40; ++i) {
      const MutBytes buffer(buffer_);
      const RecvWr wr{.id = i, .buffer = {&buffer, 1}};
      responder_->qp->recv({&wr, 1});
      initiator_->qp->recv({&wr, 1});
    }
    for (const size_t size : {0, 1, 2, 3, 4, 100, 1440, 1441, 9000, 100'000}) {
      const Bytes payload = Bytes(memory_).first(size);
      post(*initiator_, {.op = op::Send{.payload = {&payload, 1}}});
      post(*initiator_, {.op = op::Send{.payload = {&payload, 1}, .is_solicited = true}});
      post(*initiator_,
           {.op = op::Write{.payload = {&payload, 1}, .stag = source.stag, .to = source.base_to}});
      post(*initiator_, {.op = op::Read{.sink_stag = sink.stag,
                                        .sink_to = sink.base_to,
                                        .length = static_cast<uint32_t>(size),
                                        .stag = source.stag,
                                        .to = source.base_to}});
      advance();
      post(*responder_, {.op = op::Send{.payload = {&payload, 1}}});
      advance();
    }
    post(*initiator_, {.op = op::Send{.invalidate = source.stag}});
    advance();
    initiator_->qp->drain();
    advance();
    return initiator_->qp->terminate_info().reason == EndReason::kOrderly &&
           responder_->qp->terminate_info().reason == EndReason::kOrderly;
  }

 private:
  static void start(End& end, LowerLayer lower, bool has_markers, bool is_initiator) {
    Agreement agreed;
    agreed.is_initiator = is_initiator;
    agreed.send_markers = agreed.receive_markers = has_markers;
    agreed.ird = agreed.ord = 4;
    agreed.rtr = Rtr::kWrite;
    (void)end.qp->start({.lower = lower, .agreed = agreed});
  }
  static Mr reg(End& end, MutBytes memory, Rights rights) {
    return *end.engine->register_memory(
        {.memory = memory, .base_to = 0x1000, .rights = rights, .pd = end.pd});
  }
  static void post(End& end, const SendWr& wr) { end.qp->send({&wr, 1}); }
  void advance() {
    std::array<Completion, 64> done;
    for (int i = 0; i < 400; ++i) {
      now_ = now_ + Duration::from_us(10);
      initiator_->qp->advance(now_, {});
      responder_->qp->advance(now_, {});
      initiator_->cq->poll(done);
      responder_->cq->poll(done);
    }
  }

  loopback::Network network_;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(100'000, 0x42);
  std::vector<uint8_t> sink_ = std::vector<uint8_t>(100'000);
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(100'000);
  End captured_;
  End other_;
  End* initiator_ = nullptr;
  End* responder_ = nullptr;
  Time now_ = Time{} + Duration::from_ms(1'700'000'000'000);
};

}  // namespace
}  // namespace ddpsock::engine

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::FILE* out = std::fopen(argv[1], "wb");
  if (out == nullptr) return 1;
  const bool has_markers = argc > 2 && std::strcmp(argv[2], "markers") == 0;
  const bool is_initiator = !(argc > 2 && std::strcmp(argv[2], "responder") == 0);
  ddpsock::engine::wrap::StdioRecords records(out);
  const bool is_done = ddpsock::engine::Sample(records, has_markers, is_initiator).run();
  std::fclose(out);
  return is_done ? 0 : 1;
}
