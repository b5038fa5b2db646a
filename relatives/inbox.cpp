// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ddpsock::engine {

Bytes Inbox::front(Blocks& blocks) const {
  return left > 0 ? Bytes{blocks.data(block) + beg, left} : Bytes{};
}

Bytes Inbox::unparsed(Blocks& blocks) const {
  if (block == Blocks::kNoBlock) return {};
  const uint32_t from = beg + (left > 0 ? left + skip : 0);
  return {blocks.data(block) + from, end - from};
}

uint8_t* Inbox::buffer(Blocks& blocks) {
  if (block == Blocks::kNoBlock) {
    block = blocks.allocate();
    if (block == Blocks::kNoBlock) return nullptr;
    beg = end = 0;
  }
  uint8_t* data = blocks.data(block);
  if (beg > 0) std::memmove(data, data + beg, end - beg);
  end -= std::exchange(beg, 0);
  return data;
}

void Inbox::free_buffer(Blocks& blocks) {
  beg = end = 0;
  if (const uint32_t b = std::exchange(block, Blocks::kNoBlock); b != Blocks::kNoBlock)
    blocks.free(b);
}

void Inbox::drop_buffered_octets() {
  const uint32_t n = std::min(end - beg, beyond_octets);
  beg += n;
  beyond_octets -= n;
}

bool Inbox::is_mapped(Blocks& blocks) const {
  return (block == Blocks::kNoBlock || blocks.data(block) != nullptr) && ready.is_mapped(blocks) &&
         beyond.is_mapped(blocks);
}

void Inbox::clear(Blocks& blocks) {
  free_buffer(blocks);
  left = skip = beyond_octets = 0;
  has_kept_byte = false;
  ready.clear(blocks);
  beyond.clear(blocks);
}

}  // namespace ddpsock::engine
