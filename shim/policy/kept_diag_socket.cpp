// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/kept_diag_socket.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>

#include "base/fd.h"
#include "base/kernel_call.h"
#include "base/kernel_view.h"
#include "base/process.h"

namespace ddpsock::shim {
namespace {

// A program that was given so few descriptors needs them itself.
constexpr rlim_t kEnoughFiles = 1024;

// Below the generation of the process. What a forked child finds is a copy of its parent's, and
// only kForbidden holds for it too.
enum State : uint32_t { kNone, kTaken, kThere, kLost, kForbidden };
constinit std::atomic<uint64_t> state{kNone};

uint64_t mine(State s) {
  return uint64_t{base::process_generation()} << 32 | s;
}

bool is(uint64_t seen, State s) {
  return static_cast<uint32_t>(seen) == s;
}

bool take(uint64_t seen) {
  return state.compare_exchange_strong(seen, mine(kTaken), std::memory_order_acq_rel);
}

// REQUIRES: taken. False: it has been forbidden meanwhile.
bool leave(State next) {
  uint64_t seen = mine(kTaken);
  return state.compare_exchange_strong(seen, mine(next), std::memory_order_acq_rel);
}

// Whoever has taken it reads and writes this.
struct Kept {
  int fd;
  uint64_t netns;
  dev_t device;
  ino_t inode;
  // As this process sees the user who made it: the answers name users as that user namespace does.
  uid_t owner;
};
constinit Kept kept{};

bool is_still_there(struct stat& st) {
  return base::kernel::fstat(kept.fd, st) == 0 && st.st_dev == kept.device &&
         st.st_ino == kept.inode;
}

bool are_files_few() {
  rlimit files;
  return getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur < kEnoughFiles;
}

}  // namespace

int take_diag_socket(uint64_t netns) {
  const uint64_t seen = state.load(std::memory_order_relaxed);
  if (!is(seen, kThere) || !take(seen)) return -1;
  // The parent's is asked by the parent: answers would go to either.
  const bool is_inherited = seen != mine(kThere);
  struct stat st;
  const bool is_there = is_still_there(st);
  if (is_there && !is_inherited && kept.netns == netns && kept.owner == st.st_uid) return kept.fd;
  if (is_there) base::close_own(kept.fd);
  leave(is_there || is_inherited ? kNone : kLost);
  return -1;
}

void return_diag_socket(int fd) {
  if (!leave(kThere)) base::close_own(fd);
}

void drop_diag_socket(int fd) {
  base::close_own(fd);
  leave(kNone);
}

void forbid_diag_socket() {
  const uint64_t seen = state.exchange(kForbidden, std::memory_order_acq_rel);
  // A parent's thread, which is not here, may have been asking.
  if (!is(seen, kThere) && (!is(seen, kTaken) || seen == mine(kTaken))) return;
  struct stat st;
  if (is_still_there(st)) base::close_own(kept.fd);
}

void keep_diag_socket(int fd, uint64_t netns) {
  const uint64_t seen = state.load(std::memory_order_relaxed);
  // What a thread of the parent's was doing when it forked nobody here ends.
  const bool is_free = is(seen, kNone) || ((is(seen, kTaken) || is(seen, kLost)) &&
                                           seen != mine(kTaken) && seen != mine(kLost));
  struct stat st;
  if (netns == 0 || !base::process_init() || !is_free || are_files_few() ||
      base::kernel::fstat(fd, st) != 0 || !take(seen))
    return base::close_own(fd);
  const auto high =
      static_cast<int>(base::kernel_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, base::high_number()));
  base::close_own(fd);
  kept = {high, netns, st.st_dev, st.st_ino, st.st_uid};
  if (!leave(high >= 0 ? kThere : kNone) && high >= 0) base::close_own(high);
}

}  // namespace ddpsock::shim
