// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/effort.h"

namespace ddpsock::base {

thread_local constinit Effort effort;

}  // namespace ddpsock::base
