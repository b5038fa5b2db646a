// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copy and CRC32c in one pass: folding by carry-less multiplication, 256 bytes a step, in registers
// that the copy goes through anyway.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/crc32c.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace ddpsock::base {
namespace {

// Checksummed while it is still in the innermost cache.
constexpr size_t kPiece = 16 * 1024;

using Copy = uint32_t (*)(uint32_t crc, uint8_t* to, Bytes from);
constinit std::atomic<Copy> fused{nullptr};

#ifdef __x86_64__

constexpr size_t kVector = 64;
constexpr size_t kVectors = 4;
constexpr size_t kStep = kVectors * kVector;

// x^n modulo the polynomial, reflected.
constexpr uint32_t power_of_x(unsigned n) {
  uint32_t r = 0x8000'0000;
  for (; n > 0; --n) r = (r >> 1) ^ ((r & 1) != 0 ? 0x82f6'3b78u : 0u);
  return r;
}

// What 16 bytes are multiplied with to stand `bytes` further on: their first half, which is 64 bits
// ahead, then their second. A product of reflected words lies one bit low, and the 32 bits of the
// factor in the lower half of theirs.
struct Factors {
  uint64_t first, second;
};
constexpr Factors factors(unsigned bytes) {
  return {power_of_x(8 * bytes + 64 - 33), power_of_x(8 * bytes - 33)};
}
constexpr Factors kByStep = factors(kStep);
constexpr Factors kByVector = factors(kVector);

#define DDPSOCK_FOLDING __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

// The bytes at `from`, which are `to`'s now. They are not loaded again to be checksummed: another
// thread may have changed them.
DDPSOCK_FOLDING inline __m512i moved(uint8_t* to, const uint8_t* from) {
  __m512i bytes = _mm512_loadu_si512(from);
  __asm__("" : "+v"(bytes));
  _mm512_storeu_si512(to, bytes);
  return bytes;
}

DDPSOCK_FOLDING inline __m512i broadcast(Factors by) {
  const auto first = static_cast<int64_t>(by.first), second = static_cast<int64_t>(by.second);
  return _mm512_set4_epi64(second, first, second, first);
}

// `before` moved on by what `by` says, and what is there.
DDPSOCK_FOLDING inline __m512i fold(__m512i before, __m512i by, __m512i here) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(before, by, 0x00),
                                   _mm512_clmulepi64_epi128(before, by, 0x11), here, kXorOfThree);
}

// The rest, word by word.
__attribute__((target("sse4.2"))) uint32_t copy_words(uint32_t crc, uint8_t* to, Bytes from) {
  const uint8_t* p = from.data();
  size_t n = from.size();
  uint64_t c = crc;
  for (; n >= sizeof c; n -= sizeof c, p += sizeof c, to += sizeof c) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    __asm__("" : "+r"(word));
    std::memcpy(to, &word, sizeof word);
    c = _mm_crc32_u64(c, word);
  }
  for (; n > 0; --n) {
    uint8_t byte = *p++;
    __asm__("" : "+r"(byte));
    *to++ = byte;
    c = _mm_crc32_u8(static_cast<uint32_t>(c), byte);
  }
  return static_cast<uint32_t>(c);
}

// REQUIRES: steps > 0.
DDPSOCK_FOLDING uint32_t copy_steps(uint32_t crc, uint8_t* to, const uint8_t* from, size_t steps) {
  const __m512i by_step = broadcast(kByStep), by_vector = broadcast(kByVector);
  __m512i folded[kVectors];
  for (size_t i = 0; i < kVectors; ++i) folded[i] = moved(to + i * kVector, from + i * kVector);
  folded[0] =
      _mm512_xor_si512(folded[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  for (; steps > 1; --steps) {
    from += kStep;
    to += kStep;
#pragma GCC unroll 4
    for (size_t i = 0; i < kVectors; ++i)
      folded[i] = fold(folded[i], by_step, moved(to + i * kVector, from + i * kVector));
  }
  __m512i all = folded[0];
  for (size_t i = 1; i < kVectors; ++i) all = fold(all, by_vector, folded[i]);
  uint64_t words[kVector / sizeof(uint64_t)];
  _mm512_storeu_si512(words, all);
  uint64_t c = 0;
  for (const uint64_t word : words) c = _mm_crc32_u64(c, word);
  return static_cast<uint32_t>(c);
}

uint32_t copy_folding(uint32_t crc, uint8_t* to, Bytes from) {
  crc = ~crc;
  const size_t steps = from.size() / kStep, size = steps * kStep;
  if (steps > 0) crc = copy_steps(crc, to, from.data(), steps);
  return ~copy_words(crc, to + size, from.subspan(size));
}

bool can_fold() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("sse4.2");
}

#endif

}  // namespace

uint32_t crc32c_copy_in_pieces(uint32_t crc, uint8_t* to, Bytes from) {
  while (!from.empty()) {
    const size_t n = std::min(from.size(), kPiece);
    std::memcpy(to, from.data(), n);
    crc = crc32c_extend(crc, {to, n});
    from = from.subspan(n);
    to += n;
  }
  return crc;
}

uint32_t crc32c_copy(uint32_t crc, uint8_t* to, Bytes from) {
  const Copy copy = fused.load(std::memory_order_relaxed);
  return copy != nullptr ? copy(crc, to, from) : crc32c_copy_in_pieces(crc, to, from);
}

bool crc32c_copy_init() {
#ifdef __x86_64__
  if (can_fold()) fused.store(copy_folding, std::memory_order_relaxed);
#endif
  return fused.load(std::memory_order_relaxed) != nullptr;
}

}  // namespace ddpsock::base
