// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_CONFORMANCE_TCP_PAIR_H_
#define DDPSOCK_TESTS_CONFORMANCE_TCP_PAIR_H_

#include "base/fd.h"

namespace ddpsock::conformance {

struct TcpPair {
  base::UniqueFd initiator;
  base::UniqueFd responder;
};
TcpPair connect_tcp();
// Both ends find the connection gone.
void cut_tcp(int end);

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_TCP_PAIR_H_
