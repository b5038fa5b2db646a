// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// From bytes of the stream to placed segments. Large payloads are read straight to where they
// belong; the rest goes through the reader's spill buffer, which is empty again after each read,
// so that it needs no memory of the connection's own. Sans-IO.
//
//   n = read(lower layer, receiver.targets(spill))   without the lock
//   receiver.took(n, spill)                          without the lock: CRC of what was placed
//   receiver.consume(core)                           with it
#ifndef DDPSOCK_ENGINE_WIRE_RECEIVER_H_
#define DDPSOCK_ENGINE_WIRE_RECEIVER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "ddp/slices.h"
#include "mpa/deframer.h"
#include "rdmap/qp.h"

namespace ddpsock::engine {

class Receiver {
 public:
  static constexpr size_t kMaxTargets = ddp::kMaxSlices + 1;

  Receiver();
  void configure(bool has_crc, bool has_markers);

  // Where the next bytes go: valid until took().
  std::span<const MutBytes> targets(MutBytes spill);
  // `octets` bytes were read to targets(spill). Those now in `spill` are kept for consume(), by
  // reference.
  void took(size_t octets, MutBytes spill);
  // Takes in everything read. Also for bytes that came otherwise, in `more`.
  void consume(rdmap::Qp& core, Bytes more = {});

  // The stream has ended; what that means to the core. Spoils an FPDU cut short.
  rdmap::LlpEnd end(rdmap::Qp& core);

 private:
  // Below this a copy from the spill is cheaper than a read of its own.
  static constexpr size_t kMinDirect = 4096;

  void take(rdmap::Qp& core, Bytes input);
  void on_header(rdmap::Qp& core);
  void on_payload(Bytes payload, uint32_t offset);
  void on_complete(rdmap::Qp& core);
  void on_error(rdmap::Qp& core);

  mpa::Deframer deframer_;
  bool has_crc_ = true;
  std::optional<rdmap::Placement> open_;
  uint32_t payload_done_ = 0;
  bool is_dead_ = false;  // after an error nothing can be made of the bytes; they are dropped
  std::array<MutBytes, kMaxTargets> targets_;
  size_t direct_ = 0;  // bytes of targets_ that are places
  Bytes spilled_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_WIRE_RECEIVER_H_
