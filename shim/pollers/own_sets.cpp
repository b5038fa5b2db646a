// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/own_sets.h"

namespace ddpsock::shim {

constinit std::array<std::atomic<uint64_t>, kMostSetNumbers / 64> own_set_numbers{};

namespace {

std::atomic<uint64_t>& numbers_of(int set) {
  return own_set_numbers[static_cast<unsigned>(set) / 64];
}

uint64_t bit_of(int set) {
  return uint64_t{1} << (set % 64);
}

}  // namespace

void own_set(int set) {
  if (static_cast<unsigned>(set) < kMostSetNumbers)
    numbers_of(set).fetch_or(bit_of(set), std::memory_order_relaxed);
}

void disown_set(int set) {
  numbers_of(set).fetch_and(~bit_of(set), std::memory_order_relaxed);
}

void disown_all_sets() {
  for (std::atomic<uint64_t>& numbers : own_set_numbers)
    if (numbers.load(std::memory_order_relaxed) != 0) numbers.store(0, std::memory_order_relaxed);
}

}  // namespace ddpsock::shim
