// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/cancellation.h"

#include <sys/single_threaded.h>

namespace ddpsock::base {

constinit const char* single_threaded = &__libc_single_threaded;

}  // namespace ddpsock::base
