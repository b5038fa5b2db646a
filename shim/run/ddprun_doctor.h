// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `ddprun doctor PROGRAM ADDRESS:PORT`: will a connection of the program to the address be in
// DDPMODE, and if not, what is missing? A line a check.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_DOCTOR_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_DOCTOR_H_

namespace ddpsock::shim {

// `argv` begins with the word. 0: nothing is missing; 1: something is. Throws Failure.
int run_doctor(int argc, char** argv);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_DOCTOR_H_
