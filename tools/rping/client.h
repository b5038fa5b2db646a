// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_RPING_CLIENT_H_
#define DDPSOCK_TOOLS_RPING_CLIENT_H_

#include "tools/rping/options.h"

namespace ddpsock::rping {

// Connects, pings, closes.
Status<Error> run_client(const Options& options);

}  // namespace ddpsock::rping

#endif  // DDPSOCK_TOOLS_RPING_CLIENT_H_
