// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ddpsock::engine {

Bytes Inbox::front(Arena& arena) const {
  return left > 0 ? Bytes{arena.block_data(block) + beg, left} : Bytes{};
}

Bytes Inbox::unparsed(Arena& arena) const {
  if (block == Arena::kNoBlock) return {};
  const uint32_t from = beg + (left > 0 ? left + skip : 0);
  return {arena.block_data(block) + from, end - from};
}

uint8_t* Inbox::buffer(Arena& arena) {
  if (block == Arena::kNoBlock) {
    block = arena.allocate_block();
    if (block == Arena::kNoBlock) return nullptr;
    beg = end = 0;
  }
  uint8_t* data = arena.block_data(block);
  if (beg > 0) std::memmove(data, data + beg, end - beg);
  end -= std::exchange(beg, 0);
  return data;
}

void Inbox::free_buffer(Arena& arena) {
  beg = end = 0;
  if (const uint32_t b = std::exchange(block, Arena::kNoBlock); b != Arena::kNoBlock)
    arena.free_block(b);
}

void Inbox::drop_buffered_octets() {
  const uint32_t n = std::min(end - beg, beyond_octets);
  beg += n;
  beyond_octets -= n;
}

bool Inbox::is_mapped(Arena& arena) const {
  return (block == Arena::kNoBlock || arena.block_data(block) != nullptr) &&
         ready.is_mapped(arena) && beyond.is_mapped(arena);
}

void Inbox::clear(Arena& arena) {
  free_buffer(arena);
  left = skip = beyond_octets = 0;
  has_kept_byte = false;
  ready.clear(arena);
  beyond.clear(arena);
}

}  // namespace ddpsock::engine
