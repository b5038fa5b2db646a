// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The RDMAP control byte and the three headers RDMAP puts after DDP's: RFC 5040 sections 4.1
// and 4.4, RFC 7306 sections 5.2 and 6.2.
#ifndef DDPSOCK_RDMAP_MESSAGE_H_
#define DDPSOCK_RDMAP_MESSAGE_H_

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "rdmap/format.h"

namespace ddpsock::rdmap {

enum class Opcode : uint8_t {
  kWrite = RDMAP_OP_WRITE,
  kReadRequest = RDMAP_OP_READ_REQUEST,
  kReadResponse = RDMAP_OP_READ_RESPONSE,
  kSend = RDMAP_OP_SEND,
  kSendInvalidate = RDMAP_OP_SEND_INVALIDATE,
  kSendSe = RDMAP_OP_SEND_SE,
  kSendSeInvalidate = RDMAP_OP_SEND_SE_INVALIDATE,
  kTerminate = RDMAP_OP_TERMINATE,
  kImmediate = RDMAP_OP_IMMEDIATE,
  kImmediateSe = RDMAP_OP_IMMEDIATE_SE,
  kAtomicRequest = RDMAP_OP_ATOMIC_REQUEST,
  kAtomicResponse = RDMAP_OP_ATOMIC_RESPONSE,
};

// The control byte that announces `op`.
constexpr uint8_t control_byte(Opcode op) {
  return static_cast<uint8_t>(RDMAP_CTRL_IETF | static_cast<uint8_t>(op));
}

// The opcode in a control byte; nothing for one that no RFC defines. The version is separate.
constexpr std::optional<Opcode> opcode_of(uint8_t control) {
  const uint8_t op = control & RDMAP_CTRL_OPCODE_MASK;
  if (op > RDMAP_OP_ATOMIC_RESPONSE) return std::nullopt;
  return static_cast<Opcode>(op);
}

constexpr bool is_version_known(uint8_t control) {
  const unsigned v = (control & RDMAP_CTRL_VERSION_MASK) >> RDMAP_CTRL_VERSION_SHIFT;
  return v == RDMAP_VERSION_IETF || v == RDMAP_VERSION_CONSORTIUM;
}

constexpr bool is_tagged(Opcode op) {
  return op == Opcode::kWrite || op == Opcode::kReadResponse;
}
constexpr bool is_immediate(Opcode op) {
  return op == Opcode::kImmediate || op == Opcode::kImmediateSe;
}
constexpr bool has_invalidate(Opcode op) {
  return op == Opcode::kSendInvalidate || op == Opcode::kSendSeInvalidate;
}
constexpr bool is_solicited(Opcode op) {
  return op == Opcode::kSendSe || op == Opcode::kSendSeInvalidate || op == Opcode::kImmediateSe;
}

// The DDP queue an untagged message uses. REQUIRES: !is_tagged(op).
constexpr uint32_t queue_of(Opcode op) {
  switch (op) {
    case Opcode::kReadRequest:
    case Opcode::kAtomicRequest:
      return RDMAP_QN_READ_REQUEST;
    case Opcode::kTerminate:
      return RDMAP_QN_TERMINATE;
    case Opcode::kAtomicResponse:
      return RDMAP_QN_ATOMIC_RESPONSE;
    default:
      return RDMAP_QN_SEND;
  }
}

struct ReadRequest {
  uint32_t sink_stag = 0;
  uint64_t sink_to = 0;
  uint32_t length = 0;
  uint32_t source_stag = 0;
  uint64_t source_to = 0;
  bool operator==(const ReadRequest&) const = default;
};

enum class AtomicOp : uint8_t {
  kFetchAdd = RDMAP_AOP_FETCH_ADD,
  kCmpSwap = RDMAP_AOP_CMP_SWAP,
};

struct AtomicRequest {
  AtomicOp op = AtomicOp::kFetchAdd;
  uint32_t request_id = 0;
  uint32_t stag = 0;
  uint64_t to = 0;
  uint64_t data = 0;  // to add, or to swap in
  uint64_t mask = 0;  // FetchAdd: top bit of each field; CmpSwap: bits to swap
  uint64_t compare = 0;
  uint64_t compare_mask = 0;
  bool operator==(const AtomicRequest&) const = default;
};

struct AtomicResponse {
  uint32_t request_id = 0;
  uint64_t value = 0;
  bool operator==(const AtomicResponse&) const = default;
};

// Each writes its header and returns its size; nothing is written when `out` is shorter.
std::optional<size_t> encode(MutBytes out, const ReadRequest& r);
std::optional<size_t> encode(MutBytes out, const AtomicRequest& r);
std::optional<size_t> encode(MutBytes out, const AtomicResponse& r);

// `body` must be exactly the header; nothing otherwise, or (AtomicRequest) when the RFC does not
// define the operation: RFC 7306 reserves code 1, the Swap of its drafts.
std::optional<ReadRequest> decode_read_request(Bytes body);
std::optional<AtomicRequest> decode_atomic_request(Bytes body);
std::optional<AtomicResponse> decode_atomic_response(Bytes body);

// Carries it out, atomic against every other stream and the program's own threads (RFC 7306 section
// 5.3), and says what it found. REQUIRES: is_aligned(at), 8 bytes.
uint64_t execute(const AtomicRequest& r, uint8_t* at);
inline bool is_aligned(const uint8_t* at) {
  return reinterpret_cast<uintptr_t>(at) % RDMAP_ATOMIC_OPERAND_SIZE == 0;
}

// What the operation leaves in memory, RFC 7306 sections 5.1.1 and 5.1.2.
uint64_t apply(const AtomicRequest& r, uint64_t original);

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_MESSAGE_H_
