// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/handle.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include "base/process.h"
#include "base/sys.h"
#include "message/poller.h"

namespace ddpsock::message {

Handle::Handle() : generation_(base::process_generation()) {}

bool SharedHandle::open_event() {
  event_fd_ = move_high(base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  return event_fd_.is_valid();
}

int SharedHandle::open_descriptor() const {
  return base::sys.fcntl(event_fd_.get(), F_DUPFD_CLOEXEC, 0);
}

void SharedHandle::drop_reference() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void SharedHandle::destroy() {
  if (!is_foreign()) drop_reference();
}

}  // namespace ddpsock::message
