// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// CRC32c (Castagnoli, reflected 0x82F63B78), the CRC of RFC 5044 section 4.4.
//
// The fast implementation is ISA-L's, opened at run time by crc32c_init() with local scope, so that
// a program under LD_PRELOAD sees none of its names and pays nothing until a socket is in DDPMODE.
// Without it, or before it, a table computes the same values at about 2 GB/s.
#ifndef DDPSOCK_BASE_CRC32C_H_
#define DDPSOCK_BASE_CRC32C_H_

#include <cstdint>

#include "base/bytes.h"

namespace ddpsock::base {

// The value to start from; also what extend() yields for no bytes.
inline constexpr uint32_t kCrc32cInit = 0;

// The CRC of the bytes already in `crc` followed by `data`. Start with kCrc32cInit. The result is
// the final value (inverted); MPA puts it on the wire with store_le32. Thread-safe,
// async-signal-safe.
uint32_t crc32c_extend(uint32_t crc, Bytes data);
inline uint32_t crc32c(Bytes data) {
  return crc32c_extend(kCrc32cInit, data);
}

// The same of what is copied from `from` to `to`, which do not overlap: of the bytes that `to`
// holds then, whatever another thread makes of `from` meanwhile. In one pass at about the speed of
// memcpy where the processor can (AVX-512 with VPCLMULQDQ).
uint32_t crc32c_copy(uint32_t crc, uint8_t* to, Bytes from);

// Selects the fastest implementation on this machine; returns its name ("isa-l", "table").
// Idempotent and thread-safe. May allocate (dlopen); call it before the first connection.
const char* crc32c_init();
// Part of that. False: a copy is checksummed piece by piece.
bool crc32c_copy_init();

// The portable implementation, for tests and for firmware.
uint32_t crc32c_extend_table(uint32_t crc, Bytes data);
uint32_t crc32c_copy_in_pieces(uint32_t crc, uint8_t* to, Bytes from);

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_CRC32C_H_
