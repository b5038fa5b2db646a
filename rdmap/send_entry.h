// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A posted send work request while it is in the send queue, and what is checked before it gets
// there.
#ifndef DDPSOCK_RDMAP_SEND_ENTRY_H_
#define DDPSOCK_RDMAP_SEND_ENTRY_H_

#include <array>
#include <cstdint>
#include <span>

#include "ddp/slices.h"
#include "rdmap/message.h"
#include "rdmap/stag_table.h"
#include "rdmap/work.h"

namespace ddpsock::rdmap {

// Its address does not change while it is queued.
struct SendEntry {
  enum class Stage : uint8_t { kWaiting, kStarted, kProduced };

  uint64_t id = 0;
  uint64_t last_segment = 0;  // ordinal of its last segment, once kProduced
  uint32_t length = 0;
  uint32_t stag = 0;  // Write: the peer's; LocalInvalidate: ours; Send: the one to invalidate
  uint64_t to = 0;
  Opcode opcode = Opcode::kSend;
  WorkKind kind = WorkKind::kSend;
  WorkStatus status = WorkStatus::kOk;
  Stage stage = Stage::kWaiting;
  bool is_signalled = false;
  bool has_fence = false;
  bool is_void = false;  // was refused after all
  bool awaits_response = false;
  bool has_pin = false;                    // Read: on the sink
  uint64_t original = 0;                   // atomics: the value the peer sent back
  ReadRequest read;                        // Read
  AtomicRequest atomic;                    // atomics
  std::array<uint8_t, kMaxInline> body{};  // inline payload or RDMAP header
  ddp::GatherList payload;

  // It sends nothing.
  bool is_local() const { return kind == WorkKind::kLocalInvalidate; }
};

constexpr Opcode send_opcode(const op::Send& send) {
  if (send.invalidate)
    return send.is_solicited ? Opcode::kSendSeInvalidate : Opcode::kSendInvalidate;
  return send.is_solicited ? Opcode::kSendSe : Opcode::kSend;
}
constexpr Opcode immediate_opcode(const op::Immediate& immediate) {
  return immediate.is_solicited ? Opcode::kImmediateSe : Opcode::kImmediate;
}

// The three as the two that are on the wire.
AtomicRequest atomic_request(const op::FetchAdd& add);
AtomicRequest atomic_request(const op::Swap& swap);
AtomicRequest atomic_request(const op::CmpSwap& swap);

// `e` becomes what `wr` asks for; an inline payload is copied. REQUIRES: `wr` was admitted.
void fill(SendEntry& e, const SendWr& wr);
// The request of a Read or an atomic becomes the payload. REQUIRES: e.awaits_response.
void encode_request(SendEntry& e);

// Why a request cannot be posted, if so. In any thread. What is admitted has a pin on a Read's
// sink; dismiss() gives up those of requests that are not posted after all. `ord`: Start::ord.
Refusal admit(const SendWr& wr, uint32_t ord, StagTable& stags, StreamId stream);
void dismiss(std::span<const SendWr> work, StagTable& stags);

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_SEND_ENTRY_H_
