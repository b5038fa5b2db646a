// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two network namespaces, joined by a pair of devices, as `elsewhere COMMAND...` makes them: the
// command runs in the first and has both as descriptors. They go with its last process.
#ifndef DDPSOCK_TESTS_SHIM_ELSEWHERE_H_
#define DDPSOCK_TESTS_SHIM_ELSEWHERE_H_

namespace ddpsock::shim_tests {

// Numbers that no test counts or closes.
constexpr int kNamespaceHere = 900, kNamespaceElsewhere = 901;
#define DDPSOCK_TESTS_ADDRESS_HERE "10.99.0.1"
#define DDPSOCK_TESTS_ADDRESS_ELSEWHERE "10.99.0.2"

}  // namespace ddpsock::shim_tests

#endif  // DDPSOCK_TESTS_SHIM_ELSEWHERE_H_
