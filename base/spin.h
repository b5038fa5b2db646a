// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Waiting without sleeping, where that pays: for about 20 us, only while the peer was last seen on
// another CPU, and not for a while after it found nothing a few times or the thread lost its CPU to
// somebody else. Now and then a longer spin asks whether it would pay again: two peers that both
// sleep must be woken first, which alone takes longer than 20 us. What a thread has learnt is its
// own.
#ifndef DDPSOCK_BASE_SPIN_H_
#define DDPSOCK_BASE_SPIN_H_

#include <cstdint>

#include "base/clock.h"

namespace ddpsock::base {

// The CPU that this thread runs on, plus 1; 0 if it is not known. A load, no system call.
uint32_t current_cpu();

class Spin {
 public:
  // This thread's.
  static Spin& mine();

  // True as soon as `is_ready()` is; false when spinning is not worth it (any more). Ask
  // is_worth() first. `is_ready` is called at least once. `saved`: what going to sleep would cost
  // beyond the sleep; so much longer it pays to wait.
  template <typename F>
  bool until(F is_ready, Duration saved = {}) {
    const Time start = base::now();
    Time seen = start;
    for (;;) {
      for (int i = 0; i < kLooksPerClock; ++i) {
        if (is_ready()) return on_found();
        relax();
      }
      const Time now = base::now();
      if (now - seen > kLostCpu) return on_lost(now);
      if (now - start > (is_probe_ ? kProbe : Duration{kUsual.ns + saved.ns})) return on_nothing();
      seen = now;
    }
  }

  // The peer was last seen on these CPUs (current_cpu() there, 0: never).
  bool is_worth(uint32_t peer_cpu, uint32_t other_peer_cpu);

  // The same where the peer was last seen on this CPU: lets it run, a few times at most. Not for a
  // while after somebody else ran instead.
  template <typename F>
  bool by_yielding(F is_ready) {
    for (int i = 0; i < kMostYields && may_yield(); ++i) {
      const bool was_quick = yield();
      const bool has_found = is_ready();
      count(has_found);
      if (has_found) return on_yield(true);
      if (!was_quick) return false;
    }
    return on_yield(false);
  }
  bool is_beside(uint32_t peer_cpu) const;

  // Where the peer ran of which this thread has last received something, for who waits for many.
  void note_peer(uint32_t cpu) { last_peer_cpu_ = cpu; }
  uint32_t last_peer_cpu() const { return last_peer_cpu_; }

  static void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

 private:
  static constexpr Duration kUsual = Duration::from_us(20);
  static constexpr Duration kProbe = Duration::from_us(100);
  static constexpr int kLooksPerClock = 8;
  // Between two looks at the clock; more means that another thread ran here.
  static constexpr Duration kLostCpu = Duration::from_us(50);
  static constexpr Duration kAfterLoss = Duration::from_ms(5);
  // What finds bytes may find nothing this often afterwards, one for one.
  static constexpr uint32_t kMostCredit = 32;
  // How many waits go without before a probe.
  static constexpr uint32_t kLeastSkipped = 16, kMostSkipped = 1024;

  static constexpr int kMostYields = 2;
  // A peer has given the CPU back by then.
  static constexpr Duration kLostSlice = Duration::from_ms(1);
  static constexpr Duration kLeastPause = Duration::from_ms(5),
                            kMostPause = Duration::from_ms(1000);
  static constexpr uint32_t kYieldsToForget = 4096;

  static void count(bool has_found);
  bool may_yield();
  bool yield();
  bool on_yield(bool has_found);
  bool on_found();
  bool on_nothing();
  bool on_lost(Time now);

  bool is_probe_ = true;
  uint32_t credit_ = 0, skip_ = 0, next_skip_ = kLeastSkipped;
  Time not_before_{};
  Duration pause_{};
  Time no_yield_before_{};
  uint32_t last_peer_cpu_ = 0;
  uint32_t quick_yields_ = 0, yield_credit_ = 1, skipped_yields_ = 0;
};

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_SPIN_H_
