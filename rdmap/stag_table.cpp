// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/stag_table.h"

#include <cassert>
#include <new>

namespace ddpsock::rdmap {
namespace {

constexpr uint32_t kKeyBits = 8;
constexpr uint32_t kMaxIndex = (1u << (32 - kKeyBits)) - 1;

constexpr uint32_t make_stag(uint32_t index, uint8_t key) {
  return index << kKeyBits | key;
}
constexpr uint32_t index_of(uint32_t stag) {
  return stag >> kKeyBits;
}
constexpr uint8_t key_of(uint32_t stag) {
  return static_cast<uint8_t>(stag);
}

}  // namespace

ddp::Error to_ddp(AccessError e) {
  switch (e) {
    case AccessError::kNotAssociated:
      return ddp::Error::kStagNotAssociated;
    case AccessError::kWrap:
      return ddp::Error::kToWrap;
    case AccessError::kBounds:
      return ddp::Error::kBaseOrBounds;
    case AccessError::kInvalidStag:
    case AccessError::kRights:
      break;
  }
  return ddp::Error::kInvalidStag;
}

TermCode to_rdmap(AccessError e) {
  switch (e) {
    case AccessError::kInvalidStag:
      return TermCode::protection(RDMAP_ECODE_INVALID_STAG);
    case AccessError::kNotAssociated:
      return TermCode::protection(RDMAP_ECODE_STAG_NOT_ASSOCIATED);
    case AccessError::kRights:
      return TermCode::protection(RDMAP_ECODE_ACCESS_RIGHTS);
    case AccessError::kWrap:
      return TermCode::protection(RDMAP_ECODE_TO_WRAP);
    case AccessError::kBounds:
      break;
  }
  return TermCode::protection(RDMAP_ECODE_BASE_BOUNDS);
}

StagTable::StagTable(uint32_t capacity, RandomSource random)
    : entries_(capacity <= kMaxIndex ? new(std::nothrow) Entry[capacity] : nullptr),
      random_(random),
      capacity_(entries_ ? capacity : 0) {
  for (uint32_t i = 0; i < capacity_; ++i) entries_[i].next_free = i + 2 <= capacity_ ? i + 2 : 0;
  free_ = capacity_ != 0 ? 1 : 0;
}

Result<uint32_t, RegisterError> StagTable::register_region(const MemoryRegion& region) {
  const uint64_t size = region.buffer.memory.size();
  if (size == 0 || region.rights.bits == 0 || region.buffer.base_to + size < size) {
    return fail(RegisterError::kBadRegion);
  }
  if (free_ == 0) return fail(RegisterError::kTableFull);
  uint8_t random = 0;
  if (!random_(MutBytes(&random, 1))) return fail(RegisterError::kNoRandom);

  const uint32_t index = free_;
  Entry& e = entries_[index - 1];
  // An STag of this slot's last registration must not fit the next one.
  const uint8_t key = random == e.key ? static_cast<uint8_t>(random + 1) : random;
  free_ = e.next_free;
  e = Entry{region, 0, 0, key, true, true};
  ++size_;
  return make_stag(index, key);
}

StagTable::Entry* StagTable::find(uint32_t stag) const {
  const uint32_t index = index_of(stag);
  if (index == 0 || index > capacity_) return nullptr;
  Entry& e = entries_[index - 1];
  return e.is_registered && e.key == key_of(stag) ? &e : nullptr;
}

Result<void, DeregisterError> StagTable::deregister(uint32_t stag) {
  Entry* e = find(stag);
  if (!e) return fail(DeregisterError::kUnknown);
  e->is_usable = false;
  if (e->pins != 0) return fail(DeregisterError::kInUse);
  e->is_registered = false;
  e->region = MemoryRegion{};
  e->next_free = free_;
  free_ = index_of(stag);
  --size_;
  return {};
}

bool StagTable::is_associated(const Entry& e, StreamId who) {
  return e.region.pd == who.pd && (e.region.qp == kAnyQp || e.region.qp == who.qp);
}

Result<MutBytes, AccessError> StagTable::access(uint32_t stag, uint64_t to, uint32_t length,
                                                Rights needed, StreamId who) const {
  const Entry* e = find(stag);
  if (!e || !e->is_usable) return fail(AccessError::kInvalidStag);
  if (!is_associated(*e, who)) return fail(AccessError::kNotAssociated);
  if (!e->region.rights.has_any(needed)) return fail(AccessError::kRights);
  const Result<MutBytes, ddp::Error> where = ddp::locate(e->region.buffer, to, length);
  if (where) return *where;
  return fail(where.error() == ddp::Error::kToWrap ? AccessError::kWrap : AccessError::kBounds);
}

void StagTable::pin(uint32_t stag) {
  Entry* e = find(stag);
  assert(e);
  ++e->pins;
}

void StagTable::unpin(uint32_t stag) {
  Entry* e = find(stag);
  assert(e && e->pins != 0);
  --e->pins;
}

Result<void, AccessError> StagTable::invalidate(uint32_t stag, StreamId who) {
  Entry* e = find(stag);
  if (!e || !e->is_usable) return fail(AccessError::kInvalidStag);
  if (!is_associated(*e, who)) return fail(AccessError::kNotAssociated);
  e->is_usable = false;
  return {};
}

}  // namespace ddpsock::rdmap
