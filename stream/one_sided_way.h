// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A byte stream whose connection a queue pair shares: how message/ begins and ends that
// (doc/decisions/0034-one-sided-between-chunks.md). What the queue pair itself uses of it is
// engine/fpdu_way.h; what the stream sees of the queue pair, queue_pair.h.
#ifndef DDPSOCK_STREAM_ONE_SIDED_WAY_H_
#define DDPSOCK_STREAM_ONE_SIDED_WAY_H_

#include "base/result.h"
#include "engine/fpdu_way.h"

namespace ddpsock::engine {

class OneSided;  // queue_pair.h

// A stream's, which stays its owner (Stream::one_sided_way()). `fd`, threads and signals: as for
// all calls of a Stream.
class OneSidedWay : public FpduWay {
 public:
  // One-sided operations are this process's from then on, by a queue pair on this way, which must
  // stay until no call is running after end(). EOPNOTSUPP: the peer or another process that has
  // them says no. ENOTCONN: not decided yet. ENOMEM.
  virtual Status<> begin(int fd, OneSided& queue_pair) = 0;
  virtual void end() = 0;
  // What the peer's start-up frame says: whether FPDUs have CRCs. EAGAIN before it has come,
  // EOPNOTSUPP if the peer says no.
  virtual Result<bool> has_crc(int fd) = 0;
  // Makes sure that our start-up frame is on its way, so that the peer's comes. EAGAIN, ENOTCONN.
  virtual Status<> announce(int fd) = 0;

 protected:
  ~OneSidedWay() = default;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_ONE_SIDED_WAY_H_
