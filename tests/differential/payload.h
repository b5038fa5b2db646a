// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The octets that a script's requests carry.
#ifndef DDPSOCK_TESTS_DIFFERENTIAL_PAYLOAD_H_
#define DDPSOCK_TESTS_DIFFERENTIAL_PAYLOAD_H_

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "tests/differential/script.h"

namespace ddpsock::differential {

// What payloads are cut from, and memory is filled with at first.
const std::vector<uint8_t>& source();
// By Work::value. Static storage.
Bytes payload_of(const Work& work);

}  // namespace ddpsock::differential

#endif  // DDPSOCK_TESTS_DIFFERENTIAL_PAYLOAD_H_
