// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_HOLDER_SET_H_
#define DDPSOCK_RELATIVES_HOLDER_SET_H_

#include <array>
#include <atomic>
#include <cstdint>

namespace ddpsock::engine {

// Which processes hold a record, as a set of places in the table of processes.
class HolderSet {
 public:
  static constexpr uint32_t kMax = 1024;
  void add(uint32_t index) { word(index).fetch_or(bit(index), std::memory_order_acq_rel); }
  void remove(uint32_t index) { word(index).fetch_and(~bit(index), std::memory_order_acq_rel); }
  void clear() {
    for (auto& w : words_) w.store(0, std::memory_order_relaxed);
  }
  bool has(uint32_t index) const {
    return (words_[index / 64].load(std::memory_order_acquire) & bit(index)) != 0;
  }
  bool is_only(uint32_t index) const {
    for (uint32_t i = 0; i < kMax / 64; ++i)
      if (words_[i].load(std::memory_order_acquire) != (i == index / 64 ? bit(index) : 0))
        return false;
    return true;
  }
  bool is_empty() const {
    for (const auto& w : words_)
      if (w.load(std::memory_order_acquire) != 0) return false;
    return true;
  }

 private:
  static uint64_t bit(uint32_t index) { return uint64_t{1} << (index % 64); }
  std::atomic<uint64_t>& word(uint32_t index) { return words_[index / 64]; }
  std::array<std::atomic<uint64_t>, kMax / 64> words_{};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_HOLDER_SET_H_
