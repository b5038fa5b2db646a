// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A whole RDMAP stream against a hostile peer. The input is a list of steps: ULPDUs of any content,
// with patches that make deep states reachable (real STags, the MSN that comes next), and things
// the program does meanwhile. Whatever comes: memory outside what was granted keeps its pattern,
// every work request completes at most once and exactly once by the end, completions keep their
// order, and output stays bounded.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "rdmap/qp.h"

namespace {

using namespace ddpsock;
using namespace ddpsock::rdmap;

#define CHECK(cond)                                                                 \
  do {                                                                              \
    if (!(cond)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                                 \
    }                                                                               \
  } while (0)

constexpr uint8_t kPattern = 0xa5;
constexpr uint32_t kDepth = 8;
constexpr uint64_t kBase = 0x1000;

// The input as an endless supply: zeros when it has run out.
class Input {
 public:
  explicit Input(Bytes data) : data_(data) {}
  bool is_empty() const { return data_.empty(); }
  uint8_t byte() {
    if (data_.empty()) return 0;
    const uint8_t b = data_.front();
    data_ = data_.subspan(1);
    return b;
  }
  Bytes take(size_t n) {
    n = std::min(n, data_.size());
    const Bytes out = data_.first(n);
    data_ = data_.subspan(n);
    return out;
  }

 private:
  Bytes data_;
};

// Memory of the victim: granted pieces between guards that nobody may write.
struct Memory {
  static constexpr size_t kPiece = 64;
  static constexpr size_t kPieces = 4;
  enum Piece : size_t { kWritable, kReadable, kSink, kReceive };
  alignas(8) std::array<uint8_t, kPiece * (2 * kPieces + 1)> bytes;

  Memory() { bytes.fill(kPattern); }
  MutBytes piece(size_t i) { return MutBytes(bytes).subspan((2 * i + 1) * kPiece, kPiece); }
  void check_guards() const {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const size_t block = i / kPiece;
      const bool is_guard = block % 2 == 0 || (block - 1) / 2 == kReadable;
      if (is_guard) CHECK(bytes[i] == kPattern);
    }
  }
};

// Posted and completed ids of one queue: consecutive, so completions must be too.
struct Ledger {
  uint64_t posted = 0;
  uint64_t completed = 0;
  void take(const Completion& c) { CHECK(c.id == completed++ && completed <= posted); }
};

class Victim {
 public:
  explicit Victim(uint8_t setup)
      : stags_(8,
               [](MutBytes out) {
                 std::ranges::fill(out, uint8_t{0x77});  // the same keys in every run
                 return true;
               }),
        send_cq_(2 * kDepth),
        recv_cq_(kDepth),
        qp_(QpAttr{.number = 1,
                   .pd = 7,
                   .send_depth = kDepth,
                   .recv_depth = kDepth,
                   .max_ird = 3,
                   .max_ord = 3,
                   .max_fragments = 6,
                   .order = setup & 1 ? ddp::LlpOrder::kAnyOrder : ddp::LlpOrder::kInOrder},
            stags_, send_cq_, recv_cq_) {
    CHECK(qp_.has_memory());
    grant(Memory::kWritable, kRemoteWrite | kRemoteAtomic | kRemoteRead);
    grant(Memory::kReadable, kRemoteRead);
    grant(Memory::kSink, kLocalWrite);
    const uint32_t reads = setup >> 1 & 3;
    qp_.start({(setup & 8) != 0, static_cast<Rtr>(setup >> 4 & 3), reads, reads});
  }
  ~Victim() {
    qp_.on_llp_end(LlpEnd::kLost);
    poll();
    CHECK(sends_.completed == sends_.posted && receives_.completed == receives_.posted);
    for (uint32_t stag : granted_) CHECK(stags_.deregister(stag));
    memory_.check_guards();
  }

  void step(Input& in) {
    const uint8_t what = in.byte();
    switch (what & 7) {
      case 0:
      case 1:
      case 2:
      case 3:
        receive(in, what);
        break;
      case 4:
        post_receive();
        break;
      case 5:
        post_send(in);
        break;
      case 6:
        send_some(what >> 3);
        break;
      case 7:
        rarely(what >> 3);
        break;
    }
    poll();
  }

 private:
  void grant(size_t piece, Rights rights) {
    granted_.push_back(
        stags_.register_region({{kBase, memory_.piece(piece)}, rights, 7, kAnyQp}).value());
  }

  // One ULPDU. Bits of `what` replace the fields that blind mutation would never get right.
  void receive(Input& in, uint8_t what) {
    const size_t length = in.byte() % 160;
    const Bytes raw = in.take(length);
    std::vector<uint8_t> u(raw.begin(), raw.end());
    if (what & 0x08 && !u.empty()) u[0] = static_cast<uint8_t>((u[0] & 0xc0) | DDP_VERSION);
    if (what & 0x10 && u.size() >= 2) u[1] = static_cast<uint8_t>(0x40 | (u[1] & 0x0f));
    if (what & 0x20) patch_place(u);
    if (what & 0x40 && u.size() >= DDP_UNTAGGED_HEADER_SIZE + RDMAP_READ_REQUEST_SIZE) {
      base::store_be32(&u[DDP_UNTAGGED_HEADER_SIZE + RDMAP_RR_SOURCE_STAG_OFFSET],
                       granted_[u[2] & 1]);
      base::store_be32(&u[DDP_UNTAGGED_HEADER_SIZE + RDMAP_AR_STAG_OFFSET], granted_[0]);
    }
    const bool is_spoilt = (what & 0xe0) == 0xe0;
    deliver(u, is_spoilt);
  }

  void patch_place(std::vector<uint8_t>& u) {
    if (u.size() >= DDP_TAGGED_HEADER_SIZE && ddp::is_tagged(u[0])) {
      base::store_be32(&u[DDP_TAGGED_STAG_OFFSET], granted_[u[2] % granted_.size()]);
      base::store_be64(&u[DDP_TAGGED_TO_OFFSET], kBase + u[9] % 80);
    } else if (u.size() >= DDP_UNTAGGED_HEADER_SIZE) {
      const uint32_t qn = u[9] & 3;
      base::store_be32(&u[DDP_UNTAGGED_QN_OFFSET], qn);
      base::store_be32(&u[DDP_UNTAGGED_MSN_OFFSET], next_msn_[qn] + (u[13] & 3));
      base::store_be32(&u[DDP_UNTAGGED_MO_OFFSET], u[17] % 80);
    }
  }

  void deliver(const std::vector<uint8_t>& u, bool is_spoilt) {
    const auto p = qp_.place(u, static_cast<uint32_t>(u.size()));
    if (!p) {
      CHECK(qp_.state() == QpState::kTerminate);
      return;
    }
    CHECK(p->header_length + p->payload_length == u.size());
    CHECK(p->is_discarded ? p->spans.is_empty() : p->spans.total() == p->payload_length);
    const uint8_t* from = u.data() + p->header_length;
    for (const MutBytes& r : p->spans.ranges()) {
      std::copy_n(from, r.size(), r.begin());
      from += r.size();
    }
    memory_.check_guards();
    if (is_spoilt) {
      qp_.segment_spoilt();
      return;
    }
    qp_.segment_placed();
    if (!p->is_discarded && !ddp::is_tagged(u[0]) && u[0] & DDP_CTRL_LAST) {
      const auto h = ddp::UntaggedView::parse(u)->value();
      if (h.msn == next_msn_[h.qn]) ++next_msn_[h.qn];
    }
  }

  void post_receive() {
    const MutBytes range = memory_.piece(Memory::kReceive);
    const RecvWr wr{receives_.posted, {&range, 1}};
    receives_.posted += qp_.post_recv({&wr, 1}).accepted;
  }

  void post_send(Input& in) {
    const uint8_t kind = in.byte();
    const Bytes range = memory_.piece(Memory::kReadable).first(kind >> 3);
    SendWr wr{
        .id = sends_.posted, .has_fence = (kind & 0x40) != 0, .is_inline = (kind & 0x80) != 0};
    switch (kind & 7) {
      case 0:
        wr.op = op::Send{.payload = {&range, 1}};
        break;
      case 1:
        wr.op = op::Write{.payload = {&range, 1}, .stag = 1, .to = kind};
        break;
      case 2:
      case 3:
        wr.op = op::Read{granted_[2], kBase + (kind >> 4), static_cast<uint32_t>(kind >> 3), 1, 0};
        break;
      case 4:
        wr.op = op::FetchAdd{1, 0, 1, 0};
        break;
      case 5:
        wr.op = op::Immediate{kind};
        break;
      case 6:
        wr.op = op::CmpSwap{.stag = 1};
        break;
      case 7:
        wr.op = op::LocalInvalidate{kind >> 3 == 5 ? granted_[0] : 1};
        break;
    }
    sends_.posted += qp_.post_send({&wr, 1}).accepted;
  }

  void send_some(unsigned limit) {
    for (unsigned i = 0; i <= limit; ++i) {
      ddp::Segment s;
      if (!qp_.next_segment(128, s)) return;
      CHECK(s.ulpdu_length() <= 128);
      // The peer cannot be made to cost more than its own requests and our own work do.
      for (const Bytes& r : s.payload.ranges()) CHECK(!r.empty() && r.data() != nullptr);
      ++unsent_;
      if (i % 2 == 1) {
        qp_.segments_sent(unsent_);
        unsent_ = 0;
      }
    }
  }

  void rarely(unsigned which) {
    switch (which) {
      case 0:
        qp_.close();
        break;
      case 1:
        qp_.terminate(TermCode::mpa(RDMAP_ECODE_MPA_CRC));
        break;
      case 2:
        qp_.on_llp_end(LlpEnd::kFinBetween);
        break;
      case 3:
        qp_.on_llp_end(LlpEnd::kFinInside);
        break;
      default:
        if (unsent_ != 0) qp_.segments_sent(unsent_);
        unsent_ = 0;
        break;
    }
  }

  void poll() {
    std::array<Completion, 4> out;
    for (uint32_t n; (n = send_cq_.poll(out)) != 0;) {
      for (uint32_t i = 0; i < n; ++i) sends_.take(out[i]);
    }
    for (uint32_t n; (n = recv_cq_.poll(out)) != 0;) {
      for (uint32_t i = 0; i < n; ++i) receives_.take(out[i]);
    }
  }

  Memory memory_;
  StagTable stags_;
  CompletionQueue send_cq_;
  CompletionQueue recv_cq_;
  Qp qp_;
  std::vector<uint32_t> granted_;
  std::array<uint32_t, RDMAP_QN_COUNT> next_msn_{1, 1, 1, 1};
  Ledger sends_;
  Ledger receives_;
  uint32_t unsent_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(Bytes(data, size));
  Victim victim(in.byte());
  while (!in.is_empty()) victim.step(in);
  return 0;
}
