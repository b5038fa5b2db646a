// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/unfinished.h"

namespace ddpsock::base {

[[gnu::tls_model("initial-exec")]] thread_local constinit Unfinished* innermost_unfinished =
    nullptr;

// A handler has switched to a coroutine that is inside a call of its own.
void Unfinished::unlink() {
  for (Unfinished* at = innermost_unfinished; at != nullptr; at = at->outer_) {
    if (at->outer_ != this) continue;
    at->outer_ = outer_;
    return;
  }
}

}  // namespace ddpsock::base
