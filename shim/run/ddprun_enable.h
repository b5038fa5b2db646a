// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `ddprun enable UNIT` and `ddprun disable UNIT`: a drop-in for a systemd service that preloads the
// library and hands it rules. Nothing else of the unit is touched, and nothing is restarted.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_ENABLE_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_ENABLE_H_

namespace ddpsock::shim {

// `argv` begins with the word. Exit statuses; throw Failure.
int run_enable(int argc, char** argv);
int run_disable(int argc, char** argv);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_ENABLE_H_
