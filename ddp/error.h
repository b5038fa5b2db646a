// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What DDP can find wrong with a segment, with the numbers RFC 5041 section 7.2 gives it. Every one
// is fatal for the stream: nothing of the segment is delivered, and RDMAP sends them in a
// Terminate.
#ifndef DDPSOCK_DDP_ERROR_H_
#define DDPSOCK_DDP_ERROR_H_

#include <cstdint>

#include "ddp/format.h"

namespace ddpsock::ddp {

// EType in the high byte, code in the low one.
enum class Error : uint16_t {
  // Not the peer's fault or not describable: a ULPDU shorter than its DDP header, or more
  // out-of-order fragments than the tracker holds.
  kLocalCatastrophic = DDP_ETYPE_LOCAL_CATASTROPHIC << 8 | DDP_ECODE_LOCAL_CATASTROPHIC,

  kInvalidStag = DDP_ETYPE_TAGGED << 8 | DDP_ECODE_T_INVALID_STAG,
  kBaseOrBounds = DDP_ETYPE_TAGGED << 8 | DDP_ECODE_T_BASE_BOUNDS,
  kStagNotAssociated = DDP_ETYPE_TAGGED << 8 | DDP_ECODE_T_STAG_NOT_ASSOCIATED,
  kToWrap = DDP_ETYPE_TAGGED << 8 | DDP_ECODE_T_TO_WRAP,
  kTaggedVersion = DDP_ETYPE_TAGGED << 8 | DDP_ECODE_T_VERSION,

  kInvalidQn = DDP_ETYPE_UNTAGGED << 8 | DDP_ECODE_U_INVALID_QN,
  kNoBuffer = DDP_ETYPE_UNTAGGED << 8 | DDP_ECODE_U_NO_BUFFER,
  kMsnRange = DDP_ETYPE_UNTAGGED << 8 | DDP_ECODE_U_MSN_RANGE,
  kInvalidMo = DDP_ETYPE_UNTAGGED << 8 | DDP_ECODE_U_INVALID_MO,
  kTooLong = DDP_ETYPE_UNTAGGED << 8 | DDP_ECODE_U_TOO_LONG,
  kUntaggedVersion = DDP_ETYPE_UNTAGGED << 8 | DDP_ECODE_U_VERSION,
};

constexpr uint8_t error_type(Error e) {
  return static_cast<uint8_t>(static_cast<uint16_t>(e) >> 8);
}
constexpr uint8_t error_code(Error e) {
  return static_cast<uint8_t>(e);
}

// Human-readable, static storage.
const char* to_string(Error e);

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_ERROR_H_
