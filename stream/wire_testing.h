// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For tests that play the peer of a stream: what it puts on the wire, byte by byte.
#ifndef DDPSOCK_STREAM_WIRE_TESTING_H_
#define DDPSOCK_STREAM_WIRE_TESTING_H_

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "base/crc32c.h"
#include "mpa/format.h"
#include "stream/chunk.h"

namespace ddpsock::engine {

inline std::vector<uint8_t> request(uint8_t flags = 0x50, uint8_t revision = 2) {
  std::vector<uint8_t> f(MPA_STARTUP_HEADER_SIZE + MPA_ENHANCED_SIZE, 0);
  std::copy_n(reinterpret_cast<const uint8_t*>(MPA_REQUEST_KEY), MPA_KEY_SIZE, f.begin());
  f[MPA_FLAGS_OFFSET] = flags;
  f[MPA_REVISION_OFFSET] = revision;
  f[MPA_PD_LENGTH_OFFSET + 1] = MPA_ENHANCED_SIZE;
  return f;
}

// The CRC that fits what the FPDU now is.
inline void seal(std::vector<uint8_t>& f) {
  base::store_le32(f.data() + f.size() - 4, base::crc32c(Bytes(f).first(f.size() - 4)));
}

inline std::vector<uint8_t> chunk(const std::vector<uint8_t>& payload, uint32_t msn,
                                  uint8_t opcode = RDMAP_OP_SEND) {
  std::vector<uint8_t> f(chunk_size(static_cast<uint32_t>(payload.size())), 0);
  uint8_t* p = write_chunk_header(f.data(), static_cast<uint32_t>(payload.size()), msn);
  f[3] = static_cast<uint8_t>(RDMAP_CTRL_IETF | opcode);
  std::copy(payload.begin(), payload.end(), p);
  seal(f);
  return f;
}

// A part of a Send, as a stranger cuts it.
inline std::vector<uint8_t> segment(const std::vector<uint8_t>& payload, uint32_t msn, uint32_t mo,
                                    bool is_last) {
  std::vector<uint8_t> f = chunk(payload, msn);
  f[2] = static_cast<uint8_t>((is_last ? DDP_CTRL_LAST : 0u) | DDP_VERSION);
  base::store_be32(&f[16], mo);
  seal(f);
  return f;
}

// A Write of nothing: how a stranger says that it is ready (RFC 6581 section 4).
inline std::vector<uint8_t> empty_write() {
  std::vector<uint8_t> f(fpdu_size(DDP_TAGGED_HEADER_SIZE), 0);
  base::store_be16(f.data(), DDP_TAGGED_HEADER_SIZE);
  f[2] = DDP_CTRL_TAGGED | DDP_CTRL_LAST | DDP_VERSION;
  f[3] = RDMAP_CTRL_IETF | RDMAP_OP_WRITE;
  seal(f);
  return f;
}

inline std::vector<uint8_t> operator+(std::vector<uint8_t> a, const std::vector<uint8_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline void put(int fd, const std::vector<uint8_t>& bytes) {
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_WIRE_TESTING_H_
