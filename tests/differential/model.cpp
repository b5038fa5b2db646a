// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/differential/model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/differential/payload.h"

namespace ddpsock::differential {
namespace {

using engine::WorkStatus;

constexpr uint32_t kWord = 8;  // of atomics and Immediate Data

// Fields that each end with a top bit, added one by one (RFC 7306 section 5.2).
uint64_t add_fields(uint64_t a, uint64_t b, uint64_t tops) {
  uint64_t sum = 0;
  for (unsigned first = 0, i = 0; i < 64; ++i) {
    if ((tops >> i & 1) == 0 && i != 63) continue;
    const unsigned width = i - first + 1;
    const uint64_t mask = width == 64 ? ~uint64_t{0} : ((uint64_t{1} << width) - 1) << first;
    sum |= ((a & mask) + (b & mask)) & mask;
    first = i + 1;
  }
  return sum;
}

}  // namespace

void Model::begin(int end, int r, Bytes content) {
  at(end).regions[static_cast<size_t>(r)].assign(content.begin(), content.end());
}

void Model::note_registration(const Registration& r) {
  at(r.end).is_usable[static_cast<size_t>(r.region)] = !r.is_deregistration && r.rights.bits != 0;
}

uint64_t Model::change(const Work& w, uint8_t* at) {
  uint64_t found;
  std::memcpy(&found, at, sizeof found);
  uint64_t becomes = w.value;
  if (w.verb == Verb::kFetchAdd) becomes = add_fields(found, w.value, w.field_tops());
  if (w.verb == Verb::kCmpSwap) {
    const bool is_equal = ((found ^ w.compare()) & w.compare_mask()) == 0;
    becomes = is_equal ? (found & ~w.swap_mask()) | (w.value & w.swap_mask()) : found;
  }
  std::memcpy(at, &becomes, sizeof becomes);
  return found;
}

void Model::carry_out(int end, const Work& w) {
  End& own = at(end);
  End& peer = at(1 - end);
  uint8_t* const there = peer.regions[static_cast<size_t>(w.region)].data() + w.offset;
  Expected expected{.length = w.length};
  switch (w.verb) {
    case Verb::kSend:
      break;
    case Verb::kSendInvalidate:
      peer.is_usable[static_cast<size_t>(w.region)] = false;
      break;
    case Verb::kImmediate:
      expected.length = kWord;
      break;
    case Verb::kWrite:
      std::ranges::copy(payload_of(w), there);
      break;
    case Verb::kRead:
      std::copy_n(there, w.length, own.regions[static_cast<size_t>(w.sink)].data() + w.sink_offset);
      break;
    case Verb::kFetchAdd:
    case Verb::kSwap:
    case Verb::kCmpSwap:
      expected.length = kWord;
      expected.original = change(w, there);
      break;
    case Verb::kLocalInvalidate: {
      const bool was_usable = std::exchange(own.is_usable[static_cast<size_t>(w.sink)], false);
      expected = {.status = was_usable ? WorkStatus::kOk : WorkStatus::kLocalError};
      break;
    }
  }
  own.expected[w.id] = expected;
}

std::string Model::judge(int end, const engine::Completion& c) const {
  const auto expected = at(end).expected.find(c.id);
  if (expected == at(end).expected.end()) return "";
  const Expected& e = expected->second;
  if (c.status == e.status && c.length == e.length && c.original == e.original) return "";
  return "completes " + std::to_string(c.id) + " with status " +
         std::to_string(static_cast<int>(c.status)) + ", length " + std::to_string(c.length) +
         ", found " + std::to_string(c.original) + "; it should be " +
         std::to_string(static_cast<int>(e.status)) + ", " + std::to_string(e.length) + ", " +
         std::to_string(e.original);
}

}  // namespace ddpsock::differential
