// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Byte views and big-endian loads and stores. Every wire field of MPA, DDP and RDMAP is big-endian
// except the MPA CRC (RFC 5044 section 4.4), which has its own pair here.
#ifndef DDPSOCK_BASE_BYTES_H_
#define DDPSOCK_BASE_BYTES_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

namespace ddpsock {

// A borrowed view, valid for the call it is passed to unless the callee's contract says otherwise.
using Bytes = std::span<const uint8_t>;
using MutBytes = std::span<uint8_t>;

namespace base {

static_assert(std::endian::native == std::endian::little ||
              std::endian::native == std::endian::big);

template <typename T>
constexpr T byteswap(T v) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(v));
  if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(v));
  if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(v));
}

// REQUIRES: sizeof(T) bytes at `p`. No alignment is needed.
template <typename T>
inline T load_be(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  if constexpr (std::endian::native == std::endian::little) v = byteswap(v);
  return v;
}

// Writes sizeof(T) bytes at `p` and returns the byte after them.
template <typename T>
inline uint8_t* store_be(uint8_t* p, T v) {
  if constexpr (std::endian::native == std::endian::little) v = byteswap(v);
  std::memcpy(p, &v, sizeof v);
  return p + sizeof v;
}

inline uint16_t load_be16(const uint8_t* p) {
  return load_be<uint16_t>(p);
}
inline uint32_t load_be32(const uint8_t* p) {
  return load_be<uint32_t>(p);
}
inline uint64_t load_be64(const uint8_t* p) {
  return load_be<uint64_t>(p);
}
inline uint8_t* store_be16(uint8_t* p, uint16_t v) {
  return store_be(p, v);
}
inline uint8_t* store_be32(uint8_t* p, uint32_t v) {
  return store_be(p, v);
}
inline uint8_t* store_be64(uint8_t* p, uint64_t v) {
  return store_be(p, v);
}

inline uint32_t load_le32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  if constexpr (std::endian::native == std::endian::big) v = byteswap(v);
  return v;
}

inline uint8_t* store_le32(uint8_t* p, uint32_t v) {
  if constexpr (std::endian::native == std::endian::big) v = byteswap(v);
  std::memcpy(p, &v, sizeof v);
  return p + sizeof v;
}

}  // namespace base
}  // namespace ddpsock

#endif  // DDPSOCK_BASE_BYTES_H_
