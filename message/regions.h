// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_MESSAGE_REGIONS_H_
#define DDPSOCK_MESSAGE_REGIONS_H_

#include <memory>
#include <mutex>

#include "base/result.h"
#include "ddpsock/ddpsock.h"
#include "engine/engine.h"

namespace ddpsock::message {

// The memory registered through one descriptor, so that nobody else's is deregistered through it
// and all of it goes with it. Any thread.
class Regions {
 public:
  explicit Regions(engine::Engine& engine) : engine_(engine) {}
  ~Regions() { clear(); }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // EINVAL, ENOSPC, ENOMEM. `qp`: kAnyQp, or the only queue pair that may use it.
  Result<ddp_region> add(MutBytes memory, unsigned rights, engine::Pd pd, uint32_t qp);
  // EINVAL, EBUSY.
  Status<> remove(uint32_t stag);
  // REQUIRES: no work on any of them.
  void clear();

 private:
  struct Node {
    engine::Mr mr;
    std::unique_ptr<Node> next;
  };

  engine::Engine& engine_;
  std::mutex mutex_;
  std::unique_ptr<Node> first_;
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_REGIONS_H_
