// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where an engine under test runs: makes engines and joins two of their queue pairs. One class an
// engine; the tests know none of them.
#ifndef DDPSOCK_TESTS_CONFORMANCE_BENCH_H_
#define DDPSOCK_TESTS_CONFORMANCE_BENCH_H_

#include <memory>
#include <ostream>
#include <vector>

#include "engine/engine.h"

namespace ddpsock::conformance {

// What the two ends shall agree on.
struct Wish {
  uint16_t ird = 8;
  uint16_t ord = 8;
  bool has_crc = true;
  bool has_markers = false;  // in both directions
  engine::Rtr rtr = engine::Rtr::kNone;
  uint32_t max_ulpdu = 0;
};

struct Joined {
  engine::Start ends[2];  // of the initiator, of the responder
};

class Bench {
 public:
  virtual ~Bench() = default;
  virtual std::unique_ptr<engine::Engine> make_engine() = 0;
  virtual Joined join(const Wish& wish) = 0;
  // Bytes that this end's queue pair did not send; its FIN, from below.
  virtual void inject(engine::LowerLayer end, Bytes octets) = 0;
  virtual void finish(engine::LowerLayer end) = 0;
  // Both ends find the connection gone.
  virtual void cut(engine::LowerLayer end) = 0;
  // The time; it goes on between two calls.
  virtual Time now() = 0;
};

// One way to run the suite.
struct Kind {
  const char* name;
  std::unique_ptr<Bench> (*make)();
};
inline void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

std::vector<Kind> all_kinds();

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_BENCH_H_
