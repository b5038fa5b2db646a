// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A message between the two libraries (doc/stream-protocol.md, "Raw"), as it stands in a ULPDU.
// The only code that reads one, for who takes it in and for who only looks.
#ifndef DDPSOCK_STREAM_RAW_MESSAGE_H_
#define DDPSOCK_STREAM_RAW_MESSAGE_H_

#include <optional>

#include "base/bytes.h"
#include "ddp/segment.h"
#include "rdmap/format.h"
#include "stream/format.h"

namespace ddpsock::engine {

struct RawMessage {
  uint32_t kind = 0;    // DDPSOCK_RAW_ASK, DDPSOCK_RAW_MARK or DDPSOCK_RAW_OFFER
  uint32_t number = 0;  // as the kind has it
  Bytes rest;  // of ASK, what is to come again; of OFFER, what is behind it; within the ULPDU
};

// nullopt: it is none, not whole, or not the Send `msn` from its beginning to its end.
inline std::optional<RawMessage> decode_raw(Bytes ulpdu, uint32_t msn) {
  const auto view = ddp::UntaggedView::parse(ulpdu);
  if (!view || view->qn() != RDMAP_QN_SEND || view->msn() != msn || view->mo() != 0 ||
      !view->is_last() || (view->rsvd_ulp().control & RDMAP_CTRL_OPCODE_MASK) != RDMAP_OP_SEND_SE)
    return std::nullopt;
  const Bytes body = view->after_header();
  if (body.size() < DDPSOCK_RAW_SIZE) return std::nullopt;
  const RawMessage message{.kind = base::load_be32(&body[DDPSOCK_RAW_KIND_OFFSET]),
                           .number = base::load_be32(&body[DDPSOCK_RAW_NUMBER_OFFSET]),
                           .rest = body.subspan(DDPSOCK_RAW_SIZE)};
  switch (message.kind) {
    case DDPSOCK_RAW_ASK:
      if (message.rest.size() <= DDPSOCK_RAW_MAX_RETURNED) return message;
      break;
    case DDPSOCK_RAW_MARK:
      if (message.rest.empty()) return message;
      break;
    case DDPSOCK_RAW_OFFER:
      if (message.rest.size() == DDPSOCK_RAW_OFFER_SIZE) return message;
      break;
    default:
      break;
  }
  return std::nullopt;
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_RAW_MESSAGE_H_
