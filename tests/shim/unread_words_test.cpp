// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process that has read all that was sent to it, and has not read what only a library has to say,
// ends its connections without a reset.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernel.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

struct Fate {
  const char* name;
  void (*meet)(int fd);
};

void PrintTo(const Fate& fate, std::ostream* out) {
  *out << fate.name;
}

const Fate kFates[] = {{"close",
                        [](int fd) {
                          close(fd);
                          _exit(0);
                        }},
                       {"exit", [](int) { exit(0); }},
                       {"quick_exit", [](int) { quick_exit(0); }},
                       {"_exit", [](int) { _exit(0); }}};

class UnreadWords : public TcpTest, public testing::WithParamInterface<Fate> {
 protected:
  const Listener listener_ = listen_loopback();
};
INSTANTIATE_TEST_SUITE_P(Fates, UnreadWords, testing::ValuesIn(kFates),
                         [](const auto& p) { return p.param.name; });

TEST_P(UnreadWords, OfAServerThatOnlyWrites) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    const Fd client = dial(listener_.address);
    EXPECT_EQ(shutdown(client.get(), SHUT_WR), 0);
    Child server([&] {
      const int fd = accept_one(listener_.fd.get()).release();
      EXPECT_TRUE(kernel_poll(fd, POLLIN, kSoon) & POLLIN) << "the end, and what comes before it";
      send_all(fd, "x");
      GetParam().meet(fd);
    });
    server.expect_success();
    EXPECT_EQ(recv_exactly(client.get(), 1), "x");
    expect_end_of_stream(client.get());
  }
}

TEST_P(UnreadWords, OfAClientThatOnlyWrites) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    Child client([&] {
      const int fd = dial(listener_.address).release();
      send_all(fd, "x");
      EXPECT_TRUE(kernel_poll(fd, POLLIN, kSoon) & POLLIN) << "the end, and what comes before it";
      GetParam().meet(fd);
    });
    const Fd server = accept_one(listener_.fd.get());
    EXPECT_EQ(recv_exactly(server.get(), 1), "x");
    EXPECT_EQ(shutdown(server.get(), SHUT_WR), 0);
    client.expect_success();
    expect_end_of_stream(server.get());
  }
}

// Each of the two leaves a connection that the other may still have.
TEST_P(UnreadWords, OfAServerWhoseChildHasEndedBeforeItCloses) {
  for (int round = 0; round < 5 && !HasFailure(); ++round) {
    const Fd client = dial(listener_.address);
    Fd server = accept_one(listener_.fd.get());
    Child child([&] {
      send_all(server.get(), "x");
      GetParam().meet(server.get());
    });
    child.expect_success();
    EXPECT_EQ(shutdown(client.get(), SHUT_WR), 0);
    EXPECT_TRUE(kernel_poll(server.get(), POLLIN, kSoon) & POLLIN) << "the end, and what is before";
    server.close();
    EXPECT_EQ(recv_exactly(client.get(), 1), "x");
    expect_end_of_stream(client.get());
  }
}

// exit() writes what a FILE has kept behind all handlers. Before that it waits here for room in a
// pipe, and the words come meanwhile.
TEST_F(TcpTest, UnreadWordsThatComeWhileExitFlushesFiles) {
  Pair pair = connected_pair();
  std::array<int, 2> pipe_fds{};
  ASSERT_EQ(pipe(pipe_fds.data()), 0);
  const Fd pipe_end(pipe_fds[0]);
  Fd full(pipe_fds[1]);
  const auto room = static_cast<size_t>(fcntl(full.get(), F_GETPIPE_SZ));
  EXPECT_EQ(write(full.get(), std::string(room, 'f').data(), room), static_cast<ssize_t>(room));
  Child child([&] {
    FILE* answer = fdopen(pair.server.get(), "w");
    fputs("x", answer);
    fputs("y", fdopen(full.get(), "w"));  // the newest is the first that exit() flushes
    exit(0);
  });
  full.close();
  pair.server.close();
  sleep_ms(100);
  EXPECT_EQ(shutdown(pair.client.get(), SHUT_WR), 0);
  std::string drained(room + 1, ' ');
  for (size_t got = 0; got < drained.size();) {
    const ssize_t n = read(pipe_end.get(), drained.data() + got, drained.size() - got);
    ASSERT_GT(n, 0);
    got += static_cast<size_t>(n);
  }
  child.expect_success();
  EXPECT_EQ(recv_exactly(pair.client.get(), 1), "x");
  expect_end_of_stream(pair.client.get());
}

// Bytes that nobody has read are another matter.
TEST_P(UnreadWords, AndBytesAreAReset) {
  const Fd client = dial(listener_.address);
  send_all(client.get(), "q");
  Child server([&] {
    const int fd = accept_one(listener_.fd.get()).release();
    EXPECT_TRUE(kernel_poll(fd, POLLIN, kSoon) & POLLIN);
    GetParam().meet(fd);
  });
  server.expect_success();
  char byte;
  EXPECT_EQ(recv(client.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

}  // namespace
}  // namespace ddpsock::shim_tests
