// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where Markers fall in one direction of a stream (RFC 5044 section 4.3): the first precedes the
// first FPDU, then one every 512 octets, Markers themselves counted. FPDUs are multiples of four,
// so a Marker never cuts a length field or a CRC word; one that falls between two FPDUs belongs to
// the second.
#ifndef DDPSOCK_MPA_MARKER_H_
#define DDPSOCK_MPA_MARKER_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "mpa/format.h"

namespace ddpsock::mpa {

class MarkerClock {
 public:
  explicit constexpr MarkerClock(bool has_markers) : has_markers_(has_markers) {}

  constexpr bool has_markers() const { return has_markers_; }
  constexpr bool is_due() const { return has_markers_ && until_due_ == 0; }

  // How many of the next `n` octets that are no Marker come before the next Marker.
  constexpr size_t run(size_t n) const { return has_markers_ && n > until_due_ ? until_due_ : n; }

  // How many Markers fall in front of or between the next `n` octets that are no Marker.
  constexpr size_t count(size_t n) const {
    if (!has_markers_ || n <= until_due_) return 0;
    return 1 + (n - until_due_ - 1) / MPA_MARKER_SPACING;
  }

  // REQUIRES: n == run(n).
  constexpr void advance(size_t n) {
    if (!has_markers_) return;
    assert(n <= until_due_);
    until_due_ = static_cast<uint16_t>(until_due_ - n);
  }
  // A whole Marker went by. REQUIRES: is_due().
  constexpr void pass_marker() { until_due_ = MPA_MARKER_SPACING; }

 private:
  bool has_markers_;
  uint16_t until_due_ = 0;  // octets that are no Marker
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_MARKER_H_
