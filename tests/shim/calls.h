// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every libc call that moves bytes through a connected socket, in one shape each, so that a test
// can run over all of them.
#ifndef DDPSOCK_TESTS_SHIM_CALLS_H_
#define DDPSOCK_TESTS_SHIM_CALLS_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <ostream>
#include <string>

namespace ddpsock::shim_tests {

struct Writer {
  const char* name;
  ssize_t (*write)(int fd, const void* bytes, size_t count);
  bool is_socket_only;  // gives ENOTSOCK on anything else
};

struct Reader {
  const char* name;
  ssize_t (*read)(int fd, void* bytes, size_t count);
  bool is_socket_only;
};

// The gathering and scattering ones cut the bytes into three parts, one of them empty.
extern const std::array<Writer, 5> kWriters;
extern const std::array<Reader, 5> kReaders;

inline void PrintTo(const Writer& writer, std::ostream* out) {
  *out << writer.name;
}
inline void PrintTo(const Reader& reader, std::ostream* out) {
  *out << reader.name;
}

// For INSTANTIATE_TEST_SUITE_P: names a case after the call it tries.
template <typename Call>
std::string call_name(const testing::TestParamInfo<Call>& call) {
  return call.param.name;
}

}  // namespace ddpsock::shim_tests

#endif  // DDPSOCK_TESTS_SHIM_CALLS_H_
