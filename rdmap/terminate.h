// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The Terminate message, RFC 5040 section 4.8: why one end gives the stream up, and the headers of
// the segment that made it. Sent strictly by the RFC. Received in the RFC's form and in the one
// Linux siw sends, whose bit-fields swap the nibbles of the first byte and put M, D, R at the low
// end of the third.
#ifndef DDPSOCK_RDMAP_TERMINATE_H_
#define DDPSOCK_RDMAP_TERMINATE_H_

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "ddp/error.h"
#include "ddp/format.h"
#include "rdmap/format.h"

namespace ddpsock::rdmap {

// Layer, error type and code as they go on the wire.
struct TermCode {
  uint8_t layer = RDMAP_LAYER_RDMA;
  uint8_t etype = RDMAP_ETYPE_LOCAL_CATASTROPHIC;
  uint8_t code = 0;
  bool operator==(const TermCode&) const = default;

  static constexpr TermCode ddp(ddp::Error e) {
    return {RDMAP_LAYER_DDP, ddp::error_type(e), ddp::error_code(e)};
  }
  static constexpr TermCode protection(uint8_t code) {
    return {RDMAP_LAYER_RDMA, RDMAP_ETYPE_REMOTE_PROTECTION, code};
  }
  static constexpr TermCode operation(uint8_t code) {
    return {RDMAP_LAYER_RDMA, RDMAP_ETYPE_REMOTE_OPERATION, code};
  }
  static constexpr TermCode mpa(uint8_t code) { return {RDMAP_LAYER_LLP, RDMAP_ETYPE_MPA, code}; }
};

// "DDP: untagged buffer error: message too long for available buffer". Static storage.
const char* to_string(TermCode c);

// A Terminate by value.
struct Terminate {
  TermCode code;
  // ULPDU bytes of the segment at fault; goes with the DDP header.
  std::optional<uint16_t> segment_length;
  // Its DDP header: 14 or 18 bytes, or none.
  std::array<uint8_t, DDP_MAX_HEADER_SIZE> ddp_header{};
  uint8_t ddp_header_length = 0;
  // Its RDMA Read Request Header, when it was one.
  std::array<uint8_t, RDMAP_READ_REQUEST_SIZE> read_request{};
  bool has_read_request = false;
};

// Bytes written; nothing when `out` is too short. RDMAP_TERM_MAX_SIZE always suffices.
std::optional<size_t> encode(MutBytes out, const Terminate& t);

// Where the connection stands: decides what a Terminate without flags means, for then the two forms
// cannot be told apart (LLP codes of the start-up look like siw's RDMAP version and opcode errors).
enum class Phase : uint8_t {
  kStartUp,      // no message but the RTR frame has been exchanged
  kEstablished,  // any later
};

struct DecodedTerminate {
  Terminate terminate;
  bool is_swapped = false;  // it came in siw's form
};

// Nothing when `body` is shorter than the control field or than what its flags promise. Bytes that
// follow are ignored. Unknown codes are kept as they are.
std::optional<DecodedTerminate> decode_terminate(Bytes body, Phase phase);

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_TERMINATE_H_
