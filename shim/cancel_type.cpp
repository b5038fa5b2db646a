// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/cancel_type.h"

#include <pthread.h>

#include "shim/calls.h"
#include "shim/real.h"

namespace ddpsock::shim {

int defer_cancellation() {
  int type = PTHREAD_CANCEL_DEFERRED;
  real.pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  return type;
}

void restore_cancellation(int type) {
  if (type != PTHREAD_CANCEL_DEFERRED) real.pthread_setcanceltype(type, nullptr);
}

int own_pthread_setcanceltype(int type, int* before) {
  if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
    base::is_any_asynchronous.store(true, std::memory_order_relaxed);
  return real.pthread_setcanceltype(type, before);
}

}  // namespace ddpsock::shim
