// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/random.h"

#include <errno.h>
#include <sys/random.h>

namespace ddpsock::base {

bool fill_random(MutBytes out) {
  while (!out.empty()) {
    const ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out = out.subspan(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace ddpsock::base
