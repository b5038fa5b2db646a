// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How many descriptors and running calls refer to something, in one word, so that exactly one
// thread sees the last of them go. Inline: every call on a socket of ours counts itself twice.
#ifndef DDPSOCK_SHIM_REFERENCES_H_
#define DDPSOCK_SHIM_REFERENCES_H_

#include <atomic>
#include <cstdint>

#include "base/process.h"

namespace ddpsock::shim {

// Lock-free: close() may run in a signal handler. A forked child inherits the descriptors but not
// the calls of its parent's threads; the word carries the process generation (base/process.h) to
// tell.
class References {
 public:
  struct Left {
    uint32_t fds;
    uint32_t calls;
    bool is_none() const { return fds == 0 && calls == 0; }
  };

  // A fresh socket, with one descriptor.
  void reset() {
    word_.store(make_word(base::process_generation(), 1, 0), std::memory_order_release);
  }

  // False if no descriptor is left: the Socket is on its way out and may be another's next.
  // `generation` is the process's.
  [[nodiscard]] bool try_begin_call(uint32_t generation) { return try_add(kOneCall, generation); }

  // REQUIRES: a true try_begin_call() in this process or, before fork, in its parent (`generation`
  // as it was then: the child's word may have forgotten the call already).
  Left end_call(uint32_t generation) {
    uint64_t word = word_.load(std::memory_order_acquire);
    uint64_t next;
    do {
      const uint64_t mine = in_this_process(word);
      const bool is_counted =
          generation_of(mine) == (generation & kGenerationMask) && calls_of(mine) != 0;
      // The child of a fork inside the call: nothing of the call is left to take back. One more
      // call than none is reported, so that it never looks like the last.
      if (!is_counted) return {fds_of(mine), 1};
      next = mine - kOneCall;
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel));
    return {fds_of(next), calls_of(next)};
  }

  bool is_any_call() const {
    return calls_of(in_this_process(word_.load(std::memory_order_acquire))) != 0;
  }

  // Whoever begins a call after this sees what was stored before it.
  bool is_only_call() {
    return calls_of(in_this_process(word_.fetch_add(0, std::memory_order_seq_cst))) == 1;
  }

  // Would the next drop_fd() leave calls, and no descriptor?
  bool are_calls_on_last_fd() const {
    const uint64_t word = in_this_process(word_.load(std::memory_order_acquire));
    return fds_of(word) == 1 && calls_of(word) != 0;
  }

  [[nodiscard]] bool try_add_fd() { return try_add(kOneFd, base::process_generation()); }
  Left drop_fd() {
    uint64_t word = word_.load(std::memory_order_acquire);
    uint64_t next;
    do {
      next = in_this_process(word) - kOneFd;
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel));
    return {fds_of(next), calls_of(next)};
  }

 private:
  // generation:24 | fds:20 | calls:20
  static constexpr unsigned kFieldBits = 20;
  static constexpr uint64_t kField = (uint64_t{1} << kFieldBits) - 1;
  static constexpr uint64_t kOneCall = 1;
  static constexpr uint64_t kOneFd = uint64_t{1} << kFieldBits;
  static constexpr unsigned kGenerationShift = 2 * kFieldBits;
  static constexpr uint32_t kGenerationMask = (1u << (64 - kGenerationShift)) - 1;

  static uint32_t generation_of(uint64_t word) {
    return static_cast<uint32_t>(word >> kGenerationShift);
  }
  static uint32_t fds_of(uint64_t word) {
    return static_cast<uint32_t>(word >> kFieldBits & kField);
  }
  static uint32_t calls_of(uint64_t word) { return static_cast<uint32_t>(word & kField); }
  static uint64_t make_word(uint32_t generation, uint32_t fds, uint32_t calls) {
    return uint64_t{generation & kGenerationMask} << kGenerationShift |
           uint64_t{fds} << kFieldBits | calls;
  }
  // The word as this process must read it: a parent's running calls do not run here.
  static uint64_t in_process(uint64_t word, uint32_t generation) {
    return generation_of(word) == (generation & kGenerationMask)
               ? word
               : make_word(generation, fds_of(word), 0);
  }
  static uint64_t in_this_process(uint64_t word) {
    return in_process(word, base::process_generation());
  }

  bool try_add(uint64_t one, uint32_t generation) {
    uint64_t word = word_.load(std::memory_order_acquire);
    uint64_t next;
    do {
      if (fds_of(word) == 0) return false;
      next = in_process(word, generation) + one;
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel));
    return true;
  }

  std::atomic<uint64_t> word_{0};
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_REFERENCES_H_
