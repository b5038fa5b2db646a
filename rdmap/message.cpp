// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/message.h"

#include <atomic>
#include <cassert>

namespace ddpsock::rdmap {

std::optional<size_t> encode(MutBytes out, const ReadRequest& r) {
  if (out.size() < RDMAP_READ_REQUEST_SIZE) return std::nullopt;
  uint8_t* p = out.data();
  base::store_be32(p + RDMAP_RR_SINK_STAG_OFFSET, r.sink_stag);
  base::store_be64(p + RDMAP_RR_SINK_TO_OFFSET, r.sink_to);
  base::store_be32(p + RDMAP_RR_LENGTH_OFFSET, r.length);
  base::store_be32(p + RDMAP_RR_SOURCE_STAG_OFFSET, r.source_stag);
  [[maybe_unused]] const uint8_t* end =
      base::store_be64(p + RDMAP_RR_SOURCE_TO_OFFSET, r.source_to);
  assert(end == p + RDMAP_READ_REQUEST_SIZE);
  return RDMAP_READ_REQUEST_SIZE;
}

std::optional<size_t> encode(MutBytes out, const AtomicRequest& r) {
  if (out.size() < RDMAP_ATOMIC_REQUEST_SIZE) return std::nullopt;
  uint8_t* p = out.data();
  base::store_be32(p + RDMAP_AR_OPCODE_OFFSET, static_cast<uint32_t>(r.op));
  base::store_be32(p + RDMAP_AR_REQUEST_ID_OFFSET, r.request_id);
  base::store_be32(p + RDMAP_AR_STAG_OFFSET, r.stag);
  base::store_be64(p + RDMAP_AR_TO_OFFSET, r.to);
  base::store_be64(p + RDMAP_AR_DATA_OFFSET, r.data);
  base::store_be64(p + RDMAP_AR_MASK_OFFSET, r.mask);
  base::store_be64(p + RDMAP_AR_COMPARE_OFFSET, r.compare);
  [[maybe_unused]] const uint8_t* end =
      base::store_be64(p + RDMAP_AR_COMPARE_MASK_OFFSET, r.compare_mask);
  assert(end == p + RDMAP_ATOMIC_REQUEST_SIZE);
  return RDMAP_ATOMIC_REQUEST_SIZE;
}

std::optional<size_t> encode(MutBytes out, const AtomicResponse& r) {
  if (out.size() < RDMAP_ATOMIC_RESPONSE_SIZE) return std::nullopt;
  uint8_t* p = out.data();
  base::store_be32(p + RDMAP_AS_REQUEST_ID_OFFSET, r.request_id);
  [[maybe_unused]] const uint8_t* end = base::store_be64(p + RDMAP_AS_VALUE_OFFSET, r.value);
  assert(end == p + RDMAP_ATOMIC_RESPONSE_SIZE);
  return RDMAP_ATOMIC_RESPONSE_SIZE;
}

std::optional<ReadRequest> decode_read_request(Bytes body) {
  if (body.size() != RDMAP_READ_REQUEST_SIZE) return std::nullopt;
  const uint8_t* p = body.data();
  return ReadRequest{
      base::load_be32(p + RDMAP_RR_SINK_STAG_OFFSET), base::load_be64(p + RDMAP_RR_SINK_TO_OFFSET),
      base::load_be32(p + RDMAP_RR_LENGTH_OFFSET), base::load_be32(p + RDMAP_RR_SOURCE_STAG_OFFSET),
      base::load_be64(p + RDMAP_RR_SOURCE_TO_OFFSET)};
}

std::optional<AtomicRequest> decode_atomic_request(Bytes body) {
  if (body.size() != RDMAP_ATOMIC_REQUEST_SIZE) return std::nullopt;
  const uint8_t* p = body.data();
  const uint32_t op = base::load_be32(p + RDMAP_AR_OPCODE_OFFSET) & RDMAP_AOP_MASK;
  if (op != RDMAP_AOP_FETCH_ADD && op != RDMAP_AOP_CMP_SWAP) return std::nullopt;
  return AtomicRequest{static_cast<AtomicOp>(op),
                       base::load_be32(p + RDMAP_AR_REQUEST_ID_OFFSET),
                       base::load_be32(p + RDMAP_AR_STAG_OFFSET),
                       base::load_be64(p + RDMAP_AR_TO_OFFSET),
                       base::load_be64(p + RDMAP_AR_DATA_OFFSET),
                       base::load_be64(p + RDMAP_AR_MASK_OFFSET),
                       base::load_be64(p + RDMAP_AR_COMPARE_OFFSET),
                       base::load_be64(p + RDMAP_AR_COMPARE_MASK_OFFSET)};
}

std::optional<AtomicResponse> decode_atomic_response(Bytes body) {
  if (body.size() != RDMAP_ATOMIC_RESPONSE_SIZE) return std::nullopt;
  return AtomicResponse{base::load_be32(body.data() + RDMAP_AS_REQUEST_ID_OFFSET),
                        base::load_be64(body.data() + RDMAP_AS_VALUE_OFFSET)};
}

uint64_t execute(const AtomicRequest& r, uint8_t* at) {
  const std::atomic_ref<uint64_t> target(*reinterpret_cast<uint64_t*>(at));
  uint64_t original = target.load(std::memory_order_acquire);
  while (!target.compare_exchange_weak(original, apply(r, original), std::memory_order_acq_rel)) {
  }
  return original;
}

uint64_t apply(const AtomicRequest& r, uint64_t original) {
  if (r.op == AtomicOp::kFetchAdd) {
    // Adding below the top bits cannot carry out of a field; the top bits are then added without
    // carry.
    const uint64_t tops = r.mask;
    return ((original & ~tops) + (r.data & ~tops)) ^ ((original ^ r.data) & tops);
  }
  if (((r.compare ^ original) & r.compare_mask) != 0) return original;
  return (original & ~r.mask) | (r.data & r.mask);
}

}  // namespace ddpsock::rdmap
