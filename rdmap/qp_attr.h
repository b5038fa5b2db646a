// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RDMAP_QP_ATTR_H_
#define DDPSOCK_RDMAP_QP_ATTR_H_

#include <cstdint>

#include "ddp/receive_queue.h"
#include "rdmap/qp_counters.h"
#include "rdmap/stag_table.h"

namespace ddpsock::rdmap {

// Sizes and identity, fixed for the life of the queue pair.
struct QpAttr {
  uint32_t number = 0;  // for STags bound to one queue pair, and in completions
  uint32_t pd = 0;      // protection domain
  uint32_t send_depth = 64;
  // With shared receives: how many messages ahead of the next to be delivered a segment may belong
  // to, where the LLP reorders them.
  uint32_t recv_depth = 64;
  uint32_t max_ird = 8;  // upper bound of Start::ird
  uint32_t max_ord = 8;  // upper bound of Start::ord
  uint32_t max_fragments = 32;
  ddp::LlpOrder order = ddp::LlpOrder::kInOrder;
  QpCounters* counters = nullptr;  // outlive the queue pair; none: its own

  StreamId stream() const { return {number, pd}; }
};

// An agreed Read RTR needs a place although IRD or ORD is 0.
constexpr uint32_t with_rtr(uint32_t reads) {
  return reads + 1;
}

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_QP_ATTR_H_
