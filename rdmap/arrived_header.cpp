// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/arrived_header.h"

namespace ddpsock::rdmap {

Terminate ArrivedHeader::terminate(TermCode code, Bytes read_request) const {
  Terminate t;
  t.code = code;
  // RFC 5040 figure 10: local catastrophic errors carry no headers.
  if (code.etype == RDMAP_ETYPE_LOCAL_CATASTROPHIC || size_ == 0) return t;
  t.segment_length = static_cast<uint16_t>(ulpdu_length_);
  t.ddp_header = bytes_;
  t.ddp_header_length = static_cast<uint8_t>(size_);
  if (read_request.size() == t.read_request.size()) {
    std::copy(read_request.begin(), read_request.end(), t.read_request.begin());
    t.has_read_request = true;
  }
  return t;
}

}  // namespace ddpsock::rdmap
