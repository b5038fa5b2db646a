// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_BASE_RANDOM_H_
#define DDPSOCK_BASE_RANDOM_H_

#include "base/bytes.h"

namespace ddpsock::base {

// Fills `out` from the kernel's generator (getrandom). For secrets: STag keys, tokens, cookies.
// Returns false if the kernel refuses; the caller must then not create the secret at all.
[[nodiscard]] bool fill_random(MutBytes out);

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_RANDOM_H_
