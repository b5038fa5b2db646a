// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The part of a byte stream (stream/one_sided_way.h) that a queue pair uses whose FPDUs lie between
// stream's chunks (doc/decisions/0034-one-sided-between-chunks.md).
#ifndef DDPSOCK_ENGINE_FPDU_WAY_H_
#define DDPSOCK_ENGINE_FPDU_WAY_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"

namespace ddpsock::engine {

// Neither call waits. EBUSY: another call is at it; try again, or once the queue pair is woken.
class FpduWay {
 public:
  // Hands over FPDUs from the front of `from`, whole ones only; how many bytes. EAGAIN: the kernel
  // refused.
  virtual Result<size_t> send_fpdus(int fd, std::span<const Bytes> from) = 0;
  // Fills `to` with FPDUs that are not of the stream; 0: the peer's FIN, or the stream has failed.
  // Stream bytes before them are kept for recv(). EAGAIN: none are there.
  virtual Result<size_t> receive_fpdus(int fd, std::span<const MutBytes> to) = 0;
  // The stream's own FPDUs carry so much at most.
  virtual uint32_t max_chunk() const = 0;

 protected:
  ~FpduWay() = default;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_FPDU_WAY_H_
