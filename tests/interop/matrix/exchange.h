// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One TCP connection between our side and a persona, without TCP.
#ifndef DDPSOCK_TESTS_INTEROP_MATRIX_EXCHANGE_H_
#define DDPSOCK_TESTS_INTEROP_MATRIX_EXCHANGE_H_

#include <functional>
#include <memory>
#include <vector>

#include "tests/interop/matrix/matrix.h"

namespace ddpsock::interop {

inline constexpr Time kStart{1'000'000'000};

// Our side of the first or a later call.
std::unique_ptr<OurEnd> make_ours(const Ours& ours, int call, Time now);
Role role_of_peer(const Ours& ours);

// What each side sent.
struct Transcript {
  Octets from_ours = {};
  Octets from_peer = {};
};
// What a segment of the peer's becomes on its way.
using Way = std::function<std::vector<Octets>(const Octets& segment)>;

// Carries segments both ways until neither has more to say and no time-out is left. False: it does
// not come to an end.
bool exchange(OurEnd& ours, Persona& peer, Transcript& transcript, const Way& way = {});

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_MATRIX_EXCHANGE_H_
