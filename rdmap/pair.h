// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Test support: an endpoint owns a queue pair with its table and queues, and a wire between two of
// them carries ULPDUs byte for byte, in order or not, as the test likes.
#ifndef DDPSOCK_RDMAP_PAIR_H_
#define DDPSOCK_RDMAP_PAIR_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "rdmap/qp.h"

namespace ddpsock::rdmap::test {

inline constexpr uint32_t kMulpdu = 1460;
using Ulpdu = std::vector<uint8_t>;

inline Bytes bytes_of(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

struct Endpoint {
  explicit Endpoint(const QpAttr& attr = QpAttr{.number = 1, .pd = 7}, uint32_t cq_depth = 256)
      : stags(16), send_cq(cq_depth), recv_cq(cq_depth), qp(attr, stags, send_cq, recv_cq) {
    EXPECT_TRUE(qp.has_memory());
  }

  uint32_t reg(MutBytes memory, Rights rights, uint64_t base_to = 0) {
    const auto r = stags.register_region({{base_to, memory}, rights, qp.stream().pd, kAnyQp});
    EXPECT_TRUE(r.has_value());
    return r.value_or(0);
  }

  Posted send(SendWr wr) {
    const Posted posted = qp.post_send({&wr, 1});
    qp.take_posted();
    return posted;
  }
  Posted send_text(uint64_t id, const std::string& text) {
    texts.push_back(text);  // borrowed until the completion
    const Bytes range = bytes_of(texts.back());
    return send({.id = id, .op = op::Send{.payload = {&range, 1}}});
  }
  Posted recv(uint64_t id, MutBytes memory) {
    const RecvWr wr{id, {&memory, 1}};
    const Posted posted = qp.post_recv({&wr, 1});
    qp.take_posted();
    return posted;
  }

  // Cuts everything that can go out; the LLP takes it at once.
  std::vector<Ulpdu> output(uint32_t mulpdu = kMulpdu) {
    std::vector<Ulpdu> out;
    ddp::Segment s;
    while (qp.next_segment(mulpdu, s)) {
      EXPECT_LE(s.ulpdu_length(), mulpdu);
      out.push_back(flatten(s));
      qp.segments_sent(1);
    }
    return out;
  }
  static Ulpdu flatten(const ddp::Segment& s) {
    Ulpdu u(s.header().begin(), s.header().end());
    for (const Bytes& r : s.payload.ranges()) u.insert(u.end(), r.begin(), r.end());
    return u;
  }

  // What an engine does with one ULPDU. Nothing: accepted; otherwise the error.
  std::optional<TermCode> input(const Ulpdu& u) {
    const auto p = qp.place(u, static_cast<uint32_t>(u.size()));
    if (!p) return p.error();
    EXPECT_EQ(p->header_length + p->payload_length, u.size());
    if (!p->is_discarded) {
      EXPECT_EQ(p->spans.total(), p->payload_length);
      const uint8_t* from = u.data() + p->header_length;
      for (const MutBytes& r : p->spans.ranges()) {
        std::copy_n(from, r.size(), r.begin());
        from += r.size();
      }
    }
    qp.segment_placed();
    return std::nullopt;
  }

  std::vector<Completion> poll(CompletionQueue& cq) {
    std::vector<Completion> out(64);
    out.resize(cq.poll(out));
    return out;
  }
  std::vector<Completion> sends() { return poll(send_cq); }
  std::vector<Completion> receives() { return poll(recv_cq); }

  std::deque<std::string> texts;
  StagTable stags;
  CompletionQueue send_cq;
  CompletionQueue recv_cq;
  Qp qp;
};

// Two connected endpoints; `a` is the initiator.
struct Pair {
  explicit Pair(const QpAttr& attr = QpAttr{.number = 1, .pd = 7}, uint32_t reads = 4,
                Rtr rtr = Rtr::kWrite)
      : a(attr), b(attr) {
    a.qp.start({true, rtr, reads, reads});
    b.qp.start({false, rtr, reads, reads});
  }

  // Carries everything both ways until neither has more to say.
  void run(uint32_t mulpdu = kMulpdu) {
    for (bool is_moving = true; is_moving;) {
      is_moving = carry(a, b, mulpdu);
      is_moving = carry(b, a, mulpdu) || is_moving;
    }
  }
  static bool carry(Endpoint& from, Endpoint& to, uint32_t mulpdu) {
    const std::vector<Ulpdu> out = from.output(mulpdu);
    for (const Ulpdu& u : out) to.input(u);
    return !out.empty();
  }

  Endpoint a;
  Endpoint b;
};

}  // namespace ddpsock::rdmap::test

#endif  // DDPSOCK_RDMAP_PAIR_H_
