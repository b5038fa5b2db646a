// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The part of a byte stream (stream/one_sided_way.h) that a queue pair uses which reaches its peer
// by memory beside the stream's (doc/decisions/0065): the stream's bells, its end, and its fate.
#ifndef DDPSOCK_ENGINE_BELL_WAY_H_
#define DDPSOCK_ENGINE_BELL_WAY_H_

#include "base/result.h"

namespace ddpsock::engine {

// No call waits.
class BellWay {
 public:
  // Wakes who waits for the peer's part of the connection. EBUSY: another call is at it; try again,
  // or once the queue pair is woken.
  virtual Status<> ring(int fd) = 0;
  // Takes what came of that and stands for no byte of the stream. True: the peer's FIN has come.
  // ECONNRESET: the connection is lost, or the stream has failed.
  virtual Result<bool> heed(int fd) = 0;
  // Our own FIN is sent, or about to be.
  virtual bool is_shut() const = 0;
  // The stream ends by what the queue pair has met; a receive call has `error` to tell. `why` is a
  // constant.
  virtual void fail(int fd, int error, const char* why) = 0;

 protected:
  ~BellWay() = default;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_BELL_WAY_H_
