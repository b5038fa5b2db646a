// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_ENGINE_QUEUE_MEDIUM_H_
#define DDPSOCK_ENGINE_QUEUE_MEDIUM_H_

#include <memory>

#include "base/result.h"
#include "engine/engine.h"

namespace ddpsock::engine {

class Carrier;  // carrier.h: who names a medium need not know how segments move
class SoftEngine;

// Makes the carrier of a connection whose Start names it.
class Medium {
 public:
  // `engine`: that of the queue pair.
  virtual Result<std::unique_ptr<Carrier>, StartError> open(SoftEngine& engine, const Start& start,
                                                            const QpAttr& attr) const = 0;
  // Does a byte stream carry it? Then who watches that sees it, too (observer.h).
  virtual bool is_of_stream() const { return false; }

 protected:
  ~Medium() = default;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_QUEUE_MEDIUM_H_
