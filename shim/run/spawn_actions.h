// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What posix_spawn does in the new process before it executes the program: libc's own record of it,
// the same since there has been the call, which cannot be asked.
#ifndef DDPSOCK_SHIM_RUN_SPAWN_ACTIONS_H_
#define DDPSOCK_SHIM_RUN_SPAWN_ACTIONS_H_

#include <spawn.h>
#include <sys/types.h>

#include <algorithm>
#include <span>

namespace ddpsock::shim {

struct SpawnAction {
  struct Dup2 {
    int fd, target;
  };
  struct Open {
    int fd;
    char* path;
    int flags;
    mode_t mode;
  };
  enum : int { kClose, kDup2, kOpen, kChdir, kFchdir, kCloseFrom } kind;
  union {
    int fd;  // of kClose and kCloseFrom
    Dup2 dup2;
    Open open;
  };
};
static_assert(sizeof(SpawnAction) == 32 && sizeof(posix_spawn_file_actions_t) == 80);

// In order. `actions` may be null.
inline std::span<const SpawnAction> all_of(const posix_spawn_file_actions_t* actions) {
  if (actions == nullptr) return {};
  return {reinterpret_cast<const SpawnAction*>(actions->__actions),
          static_cast<size_t>(actions->__used)};
}

// Is `fd` duplicated there? The copy is inherited, whatever its own flags say.
inline bool is_duplicated_by(const posix_spawn_file_actions_t* actions, int fd) {
  return std::ranges::any_of(all_of(actions), [fd](const SpawnAction& action) {
    return action.kind == SpawnAction::kDup2 && action.dup2.fd == fd;
  });
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_SPAWN_ACTIONS_H_
