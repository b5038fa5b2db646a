// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/sim/scenario.h"

#include <random>

#include "rdmap/work.h"

namespace ddpsock::sim {
namespace {

using engine::loopback::LinkAttr;

class Chooser {
 public:
  explicit Chooser(uint64_t seed) : random_(seed) {}
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <size_t N>
  uint32_t any_of(const std::array<uint32_t, N>& values) {
    return values[below(N)];
  }

 private:
  std::mt19937_64 random_;
};

// Sizes at which something could go wrong, and any others.
uint32_t choose_size(Chooser& c, uint32_t mulpdu) {
  switch (c.below(6)) {
    case 0:
      return c.any_of(std::array<uint32_t, 6>{0, 1, 2, 3, 4, 5});
    case 1:
      return c.below(64);
    case 2:  // about one segment
      return mulpdu - 20 + c.below(8);
    case 3:  // about two
      return 2 * (mulpdu - 18) - 2 + c.below(5);
    case 4:
      return c.below(2000);
    default:
      return c.below(12'000);
  }
}

Op choose_op(Chooser& c, uint32_t mulpdu) {
  Op op;
  op.kind = static_cast<Kind>(c.below(6));
  if (op.kind == Kind::kInvalidate && !c.one_in(4)) op.kind = Kind::kSend;
  op.is_signalled = !c.one_in(3);
  op.has_fence = c.one_in(6);
  op.is_solicited = c.one_in(4);
  switch (op.kind) {
    case Kind::kSend:
    case Kind::kWrite:
    case Kind::kRead:
      op.size = choose_size(c, mulpdu);
      op.is_inline = op.kind != Kind::kRead && op.size <= rdmap::kMaxInline && c.one_in(2);
      break;
    case Kind::kFetchAdd:
    case Kind::kImmediate:
      op.size = 8;
      break;
    case Kind::kInvalidate:
      break;
  }
  return op;
}

Work choose_work(Chooser& c, uint32_t mulpdu) {
  Work w;
  bool has_invalidated = false;
  for (uint32_t left = c.below(40); left != 0; --left) {
    Op op = choose_op(c, mulpdu);
    // There is one region to invalidate.
    if (op.kind == Kind::kInvalidate && std::exchange(has_invalidated, true)) continue;
    if (op.kind == Kind::kWrite) op.offset = std::exchange(w.written, w.written + op.size);
    if (op.kind == Kind::kRead) op.offset = std::exchange(w.read, w.read + op.size);
    w.ops.push_back(op);
  }
  // Completions come in posting order: the last one tells that all is done.
  if (!w.ops.empty()) w.ops.back().is_signalled = true;
  return w;
}

void choose_byte_link(Chooser& c, Scenario& s) {
  s.link.max_read = c.any_of(std::array<uint32_t, 6>{0, 1, 3, 50, 1000, 20'000});
  s.link.capacity = c.any_of(std::array<uint32_t, 4>{100, 3000, 65'536, 262'144});
  s.has_crc = !c.one_in(4);
  s.has_markers = c.one_in(4);
  s.max_ulpdu = c.one_in(2) ? 0 : 128 + c.below(4000);
  if (c.one_in(8)) s.link.flip = 50 + c.below(500);
}

void choose_segment_link(Chooser& c, Scenario& s) {
  s.link.kind = LinkAttr::Kind::kSegments;
  s.link.latency = Duration::from_us(c.below(100));
  s.link.jitter = Duration::from_us(c.below(2000));
  s.link.capacity = c.any_of(std::array<uint32_t, 3>{2000, 20'000, 262'144});
  if (c.one_in(2)) s.link.drop = c.below(200'000);
  if (c.one_in(2)) s.link.duplicate = c.below(300'000);
  if (c.one_in(8)) s.link.spoil = c.below(20'000);
  if (c.one_in(8)) s.link.flip = c.below(20'000);
}

}  // namespace

bool Scenario::has_silent_damage() const {
  return link.flip != 0 && (link.kind == LinkAttr::Kind::kSegments || !has_crc);
}

bool Scenario::is_healthy() const {
  return link.flip == 0 && link.spoil == 0 && missing_receives == 0;
}

Scenario make_scenario(uint64_t seed) {
  Chooser c(seed);
  Scenario s;
  s.seed = seed;
  s.link.latency = Duration::from_us(c.below(50));
  s.link.emss = 200 + c.below(1500);
  s.depth = static_cast<uint16_t>(1 + c.below(8));
  if (c.one_in(2)) {
    choose_byte_link(c, s);
  } else {
    choose_segment_link(c, s);
  }
  if (c.one_in(4)) s.faults = {.refuse = 200'000, .stall = 200'000, .trickle = 500'000};
  for (Work& w : s.work) w = choose_work(c, s.link.emss);
  if (c.one_in(16)) s.missing_receives = 1 + c.below(3);
  return s;
}

Scenario make_small(bool has_markers) {
  Scenario s;
  s.has_markers = has_markers;
  s.depth = 2;
  Op op;
  op.size = 5;
  s.work[0].ops.push_back(op);
  op = {.kind = Kind::kWrite, .size = 3};
  s.work[0].ops.push_back(op);
  s.work[0].written = 3;
  op = {.kind = Kind::kRead, .size = 4};
  s.work[0].ops.push_back(op);
  s.work[0].read = 4;
  op = {.kind = Kind::kSend, .size = 2};
  s.work[1].ops.push_back(op);
  return s;
}

std::string describe(const Op& op) {
  static constexpr const char* kNames[] = {"Send", "Immediate", "Write",
                                           "Read", "FetchAdd",  "Invalidate"};
  return std::string(kNames[static_cast<size_t>(op.kind)]) + " " + std::to_string(op.size) +
         (op.is_signalled ? "" : " unsignalled") + (op.has_fence ? " fence" : "") +
         (op.is_inline ? " inline" : "");
}

std::string describe(const Scenario& s) {
  const auto number = [](const char* name, auto value) {
    return std::string(" ") + name + "=" + std::to_string(value);
  };
  const bool is_bytes = s.link.kind == LinkAttr::Kind::kBytes;
  return "seed " + std::to_string(s.seed) + (is_bytes ? ": bytes" : ": segments") +
         number("emss", s.link.emss) + number("capacity", s.link.capacity) +
         number("max_read", s.link.max_read) + number("jitter_ns", s.link.jitter.ns) +
         number("drop", s.link.drop) + number("duplicate", s.link.duplicate) +
         number("spoil", s.link.spoil) + number("flip", s.link.flip) +
         number("crc", int{s.has_crc}) + number("markers", int{s.has_markers}) +
         number("max_ulpdu", s.max_ulpdu) + number("depth", s.depth) +
         number("missing", s.missing_receives) + number("faults", s.faults.stall) +
         number("ops", s.work[0].ops.size()) + "+" + std::to_string(s.work[1].ops.size());
}

}  // namespace ddpsock::sim
