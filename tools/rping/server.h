// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_RPING_SERVER_H_
#define DDPSOCK_TOOLS_RPING_SERVER_H_

#include "tools/rping/options.h"

namespace ddpsock::rping {

// Serves one client, or with is_persistent many at a time until none has come for `wait`.
// Connections that send no MPA Request are reported on stderr and do not count.
Status<Error> run_server(const Options& options);

}  // namespace ddpsock::rping

#endif  // DDPSOCK_TOOLS_RPING_SERVER_H_
