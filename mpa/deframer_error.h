// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What can be wrong with a stream of FPDUs, RFC 5044 section 8.
#ifndef DDPSOCK_MPA_DEFRAMER_ERROR_H_
#define DDPSOCK_MPA_DEFRAMER_ERROR_H_

#include <cstdint>

namespace ddpsock::mpa {

// All of them end the stream; none can be recovered from (RFC 5044 section 8).
enum class DeframerError : uint8_t {
  kNone,
  kTooShort,  // ULPDU_Length below the header it announces
  kTooLong,   // ULPDU_Length above what is taken, or what Markers leave room for
  kBadCrc,
  kBadMarker,  // FPDUPTR does not point at the length field
  kTruncated,  // the stream ended inside an FPDU
};

// The LLP/MPA code of the Terminate to send (MPA_TERM_*). REQUIRES: error is not kNone.
uint8_t to_term_code(DeframerError error);
const char* to_text(DeframerError error);

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_DEFRAMER_ERROR_H_
