// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program may write to a buffer while another of its threads is sending it. TCP then delivers one
// version of each byte or the other, and goes on.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class ChangingBuffer : public TcpTest {};

TEST_F(ChangingBuffer, ArrivesInOneVersionOrTheOther) {
  constexpr size_t kSize = 1 << 20;
  constexpr int kTimes = 60;
  const Pair pair = connected_pair();
  std::vector<char> buffer(kSize, 'a');
  std::atomic<bool> is_over{false};
  std::thread scribe([&] {
    for (char letter = 'a'; !is_over; letter = letter == 'a' ? 'b' : 'a')
      memset(buffer.data(), letter, kSize);
  });
  std::thread reader([&] {
    std::vector<char> in(kSize);
    for (size_t left = kSize * kTimes; left > 0;) {
      const ssize_t n = recv(pair.server.get(), in.data(), std::min(left, in.size()), 0);
      ASSERT_GT(n, 0) << strerror(errno);
      ASSERT_EQ(std::string(in.data(), size_t(n)).find_first_not_of("ab"), std::string::npos);
      left -= size_t(n);
    }
  });
  for (int time = 0; time < kTimes; ++time) {
    for (size_t at = 0; at < kSize;) {
      const ssize_t n = send(pair.client.get(), buffer.data() + at, kSize - at, MSG_NOSIGNAL);
      EXPECT_GT(n, 0) << strerror(errno);
      if (n <= 0) break;
      at += size_t(n);
    }
  }
  reader.join();
  is_over = true;
  scribe.join();
  expect_alive(pair.client.get(), pair.server.get());
}

}  // namespace
}  // namespace ddpsock::shim_tests
