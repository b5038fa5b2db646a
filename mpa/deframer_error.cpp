// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/deframer_error.h"

#include "mpa/format.h"

namespace ddpsock::mpa {

uint8_t to_term_code(DeframerError error) {
  switch (error) {
    case DeframerError::kBadCrc:
      return MPA_TERM_CRC;
    case DeframerError::kTooShort:
    case DeframerError::kTooLong:
    case DeframerError::kBadMarker:
      return MPA_TERM_MARKER;
    case DeframerError::kNone:
    case DeframerError::kTruncated:
      break;
  }
  return MPA_TERM_CONNECTION_LOST;
}

const char* to_text(DeframerError error) {
  switch (error) {
    case DeframerError::kNone:
      return "no error";
    case DeframerError::kTooShort:
      return "FPDU too short for its header";
    case DeframerError::kTooLong:
      return "FPDU longer than agreed";
    case DeframerError::kBadCrc:
      return "FPDU with a wrong CRC";
    case DeframerError::kBadMarker:
      return "Marker that does not point at its FPDU";
    case DeframerError::kTruncated:
      return "stream ended inside an FPDU";
  }
  return "unknown error";
}

}  // namespace ddpsock::mpa
