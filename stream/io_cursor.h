// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_IO_CURSOR_H_
#define DDPSOCK_STREAM_IO_CURSOR_H_

#include <limits.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "stream/stream.h"

namespace ddpsock::engine {

// A position in the program's gather or scatter list. Borrows the list for one call.
class IoCursor {
 public:
  explicit IoCursor(std::span<const iovec> list) : list_(list) {
    for (const iovec& v : list) left_ += std::min(v.iov_len, kMostAtOnce - left_);
    skip_empty();
  }

  size_t left() const { return left_; }

  // The next byte's place. REQUIRES: left() > 0.
  const uint8_t* front() const { return front_byte(); }

  // Into the program's memory. REQUIRES: size <= left().
  void put(const uint8_t* from, size_t size) {
    each(size, [&](uint8_t* to, size_t n) {
      std::memcpy(to, from, n);
      from += n;
    });
  }
  // Out of the program's memory. REQUIRES: size <= left().
  void get(uint8_t* to, size_t size) {
    each(size, [&](const uint8_t* from, size_t n) {
      std::memcpy(to, from, n);
      to += n;
    });
  }
  // The same, and extends `crc` by what has been copied.
  void get(uint8_t* to, size_t size, uint32_t& crc) {
    each(size, [&](const uint8_t* from, size_t n) {
      crc = base::crc32c_copy(crc, to, {from, n});
      to += n;
    });
  }
  void skip(size_t size) {
    each(size, [](uint8_t*, size_t) {});
  }

  // Appends the next `size` bytes to `out` as slices, without moving a byte. Returns how many slots
  // of `out` were filled; fewer bytes than asked are covered when `out` is too short, and `size`
  // says how many.
  size_t slice(std::span<iovec> out, size_t& size) {
    size_t used = 0, covered = 0;
    while (covered < size && used < out.size()) {
      const size_t n = std::min(size - covered, front_left());
      out[used++] = {front_byte(), n};
      covered += n;
      advance(n);
    }
    size = covered;
    return used;
  }

 private:
  uint8_t* front_byte() const { return static_cast<uint8_t*>(list_.front().iov_base) + offset_; }
  size_t front_left() const { return list_.front().iov_len - offset_; }
  void skip_empty() {
    while (!list_.empty() && list_.front().iov_len == offset_) {
      list_ = list_.subspan(1);
      offset_ = 0;
    }
  }
  void advance(size_t n) {
    left_ -= n;
    offset_ += n;
    skip_empty();
  }
  template <typename F>
  void each(size_t size, F f) {
    while (size > 0) {
      const size_t n = std::min(size, front_left());
      f(front_byte(), n);
      advance(n);
      size -= n;
    }
  }

  std::span<const iovec> list_;
  size_t offset_ = 0;
  size_t left_ = 0;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_IO_CURSOR_H_
