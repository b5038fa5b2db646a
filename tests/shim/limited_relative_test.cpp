// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process whose address space is full reads what a relative has left behind.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// More than one mapping of the library's holds what is left of so many connections.
constexpr int kConnections = 60;

// True as on TCP, or told that there is no memory; the connection is whole, and others can go on.
void read_with_no_address_space(const std::vector<Pair>& pairs) {
  std::vector<ssize_t> got(pairs.size());
  std::vector<int> errors(pairs.size());
  char byte;
  const rlimit none{0, 0};
  setrlimit(RLIMIT_AS, &none);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const int fd = pairs[i].server.get();
    if (i % 3 == 0) queued_bytes(fd);
    if (i % 3 == 1) got[i] = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    got[i] = recv(fd, &byte, 1, MSG_DONTWAIT);
    errors[i] = errno;
  }
  const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &all);
  for (size_t i = 0; i < pairs.size(); ++i)
    if (got[i] != 1 && errors[i] != ENOBUFS) _exit(2);
}

TEST_F(TcpTest, ReadsWhatARelativeHasLeft) {
  std::vector<Pair> pairs;
  for (int i = 0; i < kConnections; ++i) {
    pairs.push_back(connected_pair());
    send_all(pairs.back().client.get(), "abc");
  }
  Child([&] {
    for (const Pair& pair : pairs) EXPECT_EQ(recv_exactly(pair.server.get(), 1), "a");
  }).expect_success();
  // This one has the limits for itself.
  Child([&] { read_with_no_address_space(pairs); }).expect_success();
  for (const Pair& pair : pairs) {
    const std::string rest = recv_exactly(pair.server.get(), 1);
    EXPECT_TRUE(rest == "b" || rest == "c") << rest;
    send_all(pair.client.get(), "d");
    send_all(pair.server.get(), "e");
    EXPECT_EQ(recv_exactly(pair.client.get(), 1), "e");
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
