// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Time as the cores see it: a point on some monotonic clock, in nanoseconds, handed in by the
// caller. Only engines read a real clock (now()); simulations hand in their own.
#ifndef DDPSOCK_BASE_CLOCK_H_
#define DDPSOCK_BASE_CLOCK_H_

#include <compare>
#include <cstdint>
#include <limits>

namespace ddpsock {

struct Duration {
  int64_t ns = 0;
  constexpr auto operator<=>(const Duration&) const = default;
  static constexpr Duration from_ms(int64_t ms) { return {ms * 1'000'000}; }
  static constexpr Duration from_us(int64_t us) { return {us * 1'000}; }
  // Rounded up, so that a wait of that many milliseconds is never short. Never negative.
  constexpr int64_t ceil_ms() const { return ns <= 0 ? 0 : (ns + 999'999) / 1'000'000; }
};

struct Time {
  int64_t ns = 0;
  constexpr auto operator<=>(const Time&) const = default;
  constexpr Time operator+(Duration d) const { return {ns + d.ns}; }
  constexpr Duration operator-(Time t) const { return {ns - t.ns}; }
};

// "No deadline": later than every time a caller can hand in.
inline constexpr Time kNever{std::numeric_limits<int64_t>::max()};

namespace base {
// CLOCK_MONOTONIC. Async-signal-safe.
Time now();
// The same as of the last tick, a few ms ago at most, for half the price.
Time coarse_now();
// Counts up in no unit, alike on all processors of a host wherever the kernel trusts it for its own
// clock: what came first, for a tenth of now()'s price. Nothing may depend on it but order, and
// whether it is worth while to ask for the time: a millisecond is a million of them, or a few.
inline uint64_t ticks() {
  return __builtin_ia32_rdtsc();
}
}  // namespace base

}  // namespace ddpsock

#endif  // DDPSOCK_BASE_CLOCK_H_
