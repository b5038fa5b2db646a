// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What was asked before connect(2), for those who ask after it.
#ifndef DDPSOCK_SHIM_INQUIRY_H_
#define DDPSOCK_SHIM_INQUIRY_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "shim/registry_table.h"

namespace ddpsock::shim {

struct Inquiry {
  SocketKey key;               // of the client's socket
  std::optional<uid_t> owner;  // of that socket
  // The listener that the connection is made to by what the kernel said some time ago
  // (recent_listeners.h): it must be that one still. 0: the kernel said so just before.
  uint64_t listener = 0;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_INQUIRY_H_
