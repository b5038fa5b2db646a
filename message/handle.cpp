// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/handle.h"

#include "base/process.h"

namespace ddpsock::message {

Handle::Handle() : generation_(base::process_generation()) {}

bool Handle::is_foreign() const {
  return generation_ != base::process_generation();
}

}  // namespace ddpsock::message
