// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/shm/own_mapping.h"

#include <sys/stat.h>
#include <unistd.h>

#include <mutex>

#include "base/random.h"
#include "engine/shm/peer_process.h"

namespace ddpsock::engine::shm {
namespace {

constinit std::mutex mutex;
constinit OwnMapping* first = nullptr;  // with mutex

// A word of this process's memory that nobody else can write or know; another one in each child.
struct Mark {
  uint64_t word = 0;
  pid_t process = 0;
};
constinit Mark mark;  // with mutex

// Without one nobody is taken for another process.
bool is_own_memory(uint32_t pid) {
  const std::lock_guard lock(mutex);
  if (mark.process != getpid()) {
    if (!base::fill_random({reinterpret_cast<uint8_t*>(&mark.word), sizeof mark.word})) return true;
    mark.process = getpid();
  }
  return PeerProcess(pid, reinterpret_cast<uintptr_t>(&mark.word), mark.word).can_read();
}

}  // namespace

OwnMapping::OwnMapping(int file, const void* secret)
    : secret_(reinterpret_cast<uintptr_t>(secret)) {
  struct stat found;
  if (fstat(file, &found) == 0) {
    device_ = found.st_dev;
    file_ = found.st_ino;
  }
  const std::lock_guard lock(mutex);
  next_ = first;
  first = this;
}

OwnMapping::~OwnMapping() {
  const std::lock_guard lock(mutex);
  OwnMapping** place = &first;
  while (*place != this) place = &(*place)->next_;
  *place = next_;
}

bool OwnMapping::may_be_peer(uint32_t pid, uint64_t address) const {
  if (pid != static_cast<uint32_t>(getpid())) return !is_own_memory(pid);
  const std::lock_guard lock(mutex);
  for (const OwnMapping* other = first; other != nullptr; other = other->next_)
    if (other != this && other->file_ == file_ && other->device_ == device_ &&
        other->secret_ == address)
      return file_ != 0;
  return false;
}

}  // namespace ddpsock::engine::shm
