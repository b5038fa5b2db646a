// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What posix_spawn does in the new process before it executes the program: libc's own record of it,
// the same since there has been the call, which cannot be asked.
#ifndef DDPSOCK_SHIM_RUN_SPAWN_ACTIONS_H_
#define DDPSOCK_SHIM_RUN_SPAWN_ACTIONS_H_

#include <spawn.h>
#include <sys/types.h>

#include <algorithm>

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
  enum : int { kClose, kDup2 } kind;
  union {
    Dup2 dup2;
    Open open;
  };
};
static_assert(sizeof(SpawnAction) == 32 && sizeof(posix_spawn_file_actions_t) == 80);

// `actions` may be null.
template <typename Is>
bool is_any_action(const posix_spawn_file_actions_t* actions, Is is) {
  if (actions == nullptr) return false;
  const auto* all = reinterpret_cast<const SpawnAction*>(actions->__actions);
  return std::any_of(all, all + actions->__used, is);
}

// Is `fd` duplicated there? The copy is inherited, whatever its own flags say.
inline bool is_duplicated_by(const posix_spawn_file_actions_t* actions, int fd) {
  return is_any_action(actions, [fd](const SpawnAction& action) {
    return action.kind == SpawnAction::kDup2 && action.dup2.fd == fd;
  });
}

// What becomes number `target` there; -1: it is not made.
inline int duplicated_to(const posix_spawn_file_actions_t* actions, int target) {
  int source = -1;
  is_any_action(actions, [&](const SpawnAction& action) {
    if (action.kind == SpawnAction::kDup2 && action.dup2.target == target) source = action.dup2.fd;
    return false;
  });
  return source;
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_SPAWN_ACTIONS_H_
