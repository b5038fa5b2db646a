// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/stag_table.h"

#include <cassert>
#include <new>

namespace ddpsock::rdmap {
namespace {

constexpr uint32_t kMaxIndex = (1u << (32 - kKeyBits)) - 1;

constexpr uint32_t make_stag(uint32_t index, uint8_t key) {
  return index << kKeyBits | key;
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
  const bool is_same = random == e.word.load(std::memory_order_relaxed).key;
  const uint8_t key = is_same ? static_cast<uint8_t>(random + 1) : random;
  free_ = e.next_free;
  e.region = region;
  e.shared = nullptr;
  e.word.store({.key = key, .is_registered = true, .is_usable = true}, std::memory_order_release);
  ++size_;
  return make_stag(index, key);
}

void StagTable::note_shared(uint32_t stag, std::atomic<uint64_t>* shared) {
  Entry* e = find(stag);
  assert(e);
  e->shared = shared;
}

void StagTable::end_sharing(const Entry& e) {
  if (e.shared != nullptr) e.shared->store(0, std::memory_order_release);
}

StagTable::Entry* StagTable::at(uint32_t stag) const {
  const uint32_t index = index_of(stag);
  return index != 0 && index <= capacity_ ? &entries_[index - 1] : nullptr;
}

StagTable::Entry* StagTable::find(uint32_t stag) const {
  Entry* e = at(stag);
  if (!e) return nullptr;
  const Word word = e->word.load(std::memory_order_acquire);
  return word.is_registered && word.key == key_of(stag) ? e : nullptr;
}

template <typename Change>
StagTable::Word StagTable::change(Entry& e, const Change& change) {
  Word before = e.word.load(std::memory_order_relaxed), after;
  do {
    after = before;
    change(after);
  } while (!e.word.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  return after;
}

Result<void, DeregisterError> StagTable::deregister(uint32_t stag) {
  Entry* e = find(stag);
  if (!e) return fail(DeregisterError::kUnknown);
  end_sharing(*e);
  const Word left = change(*e, [](Word& word) {
    word.is_leaving = true;
    word.is_registered = word.pins != 0;
  });
  if (left.is_registered) return fail(DeregisterError::kInUse);
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
  if (!e || !e->word.load(std::memory_order_relaxed).is_open_to_work())
    return fail(AccessError::kInvalidStag);
  return access(*e, to, length, needed, who);
}

Result<MutBytes, AccessError> StagTable::access_pinned(uint32_t stag, uint64_t to, uint32_t length,
                                                       Rights needed, StreamId who) const {
  const Entry* e = find(stag);
  if (!e || !e->word.load(std::memory_order_relaxed).is_usable)
    return fail(AccessError::kInvalidStag);
  return access(*e, to, length, needed, who);
}

Result<MutBytes, AccessError> StagTable::access(const Entry& e, uint64_t to, uint32_t length,
                                                Rights needed, StreamId who) {
  if (!is_associated(e, who)) return fail(AccessError::kNotAssociated);
  if (!e.region.rights.has_any(needed)) return fail(AccessError::kRights);
  const Result<MutBytes, ddp::Error> where = ddp::locate(e.region.buffer, to, length);
  if (where) return *where;
  return fail(where.error() == ddp::Error::kToWrap ? AccessError::kWrap : AccessError::kBounds);
}

void StagTable::pin(uint32_t stag) {
  Entry* e = find(stag);
  assert(e);
  change(*e, [](Word& word) { ++word.pins; });
}

void StagTable::unpin(uint32_t stag) {
  Entry* e = find(stag);
  assert(e && e->word.load().pins != 0);
  change(*e, [](Word& word) { --word.pins; });
}

// The region is looked at only once it cannot change any more.
Result<MutBytes, AccessError> StagTable::access_and_pin(uint32_t stag, uint64_t to, uint32_t length,
                                                        Rights needed, StreamId who) {
  Entry* e = at(stag);
  if (!e) return fail(AccessError::kInvalidStag);
  bool is_open = false;
  change(*e, [&](Word& word) {
    is_open = word.is_open_to_work() && word.key == key_of(stag);
    if (is_open) ++word.pins;
  });
  if (!is_open) return fail(AccessError::kInvalidStag);
  const auto where = access(*e, to, length, needed, who);
  if (!where) unpin(stag);
  return where;
}

Result<void, AccessError> StagTable::invalidate(uint32_t stag, StreamId who) {
  Entry* e = find(stag);
  if (!e || !e->word.load(std::memory_order_relaxed).is_open_to_work())
    return fail(AccessError::kInvalidStag);
  if (!is_associated(*e, who)) return fail(AccessError::kNotAssociated);
  end_sharing(*e);
  change(*e, [](Word& word) { word.is_usable = false; });
  return {};
}

}  // namespace ddpsock::rdmap
