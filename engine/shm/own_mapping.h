// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reading a peer's memory goes by its word for which process it is and where the connection's
// secret lies there. Who names us would have us read ourselves for it.
#ifndef DDPSOCK_ENGINE_SHM_OWN_MAPPING_H_
#define DDPSOCK_ENGINE_SHM_OWN_MAPPING_H_

#include <sys/types.h>

#include <cstdint>

namespace ddpsock::engine::shm {

// One end's mapping of a file that is shared with the other. Known to this process as long as it
// lives. Thread-safe.
class OwnMapping {
 public:
  // `secret`: where the connection's lies in it.
  OwnMapping(int file, const void* secret);
  ~OwnMapping();
  OwnMapping(const OwnMapping&) = delete;
  OwnMapping& operator=(const OwnMapping&) = delete;

  // May `pid`, with the secret at `address`, be the other end? Not if its memory is ours, whatever
  // it is called (a thread, a process that shares it), but for an end that lies in this process:
  // its own mapping of the same file is where its secret is.
  bool may_be_peer(uint32_t pid, uint64_t address) const;

 private:
  const uint64_t secret_;
  dev_t device_ = 0;
  ino_t file_ = 0;  // 0: not known, and no other is the same
  OwnMapping* next_ = nullptr;
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_ENGINE_SHM_OWN_MAPPING_H_
