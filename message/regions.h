// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_MESSAGE_REGIONS_H_
#define DDPSOCK_MESSAGE_REGIONS_H_

#include <memory>
#include <mutex>

#include "base/result.h"
#include "ddpsock/ddpsock.h"
#include "engine/engine.h"
#include "shm/region_memory.h"

namespace ddpsock::message {

// The memory registered through one descriptor, the program's or ours (shm/region_memory.h), so
// that nobody else's is deregistered through it and all of it goes with it. Any thread.
class Regions {
 public:
  explicit Regions(engine::Engine& engine) : engine_(engine) {}
  ~Regions() { clear(); }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // EINVAL, ENOSPC, ENOMEM. `qp`: kAnyQp, or the only queue pair that may use it.
  Result<ddp_region> add(MutBytes memory, unsigned rights, engine::Pd pd, uint32_t qp);
  // The same for memory that is made for it, until it is freed or taken back. EINVAL, ENOSPC,
  // ENOMEM.
  Result<ddp_region> allocate(size_t length, unsigned rights, engine::Pd pd, uint32_t qp);
  // Of the program's memory, of ours, and of ours that is to be the program's. EINVAL (also: of the
  // other kind), EBUSY; take_back(): ENOMEM.
  Status<> remove(uint32_t stag);
  Status<> free(uint32_t stag);
  Status<> take_back(uint32_t stag);
  // REQUIRES: no work on any of them.
  void clear();

 private:
  struct Node {
    engine::Mr mr;
    std::unique_ptr<engine::shm::RegionMemory> own;  // nullptr: it is the program's
    std::unique_ptr<Node> next;
  };

  using Link = std::unique_ptr<Node>;
  Result<ddp_region> add(Link node, const engine::MemoryDesc& desc);
  // The link to it, with mutex_. nullptr: there is none of that kind.
  Link* find(uint32_t stag, bool is_own);
  Status<> end(uint32_t stag, bool is_own);

  engine::Engine& engine_;
  std::mutex mutex_;
  std::unique_ptr<Node> first_;
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_REGIONS_H_
