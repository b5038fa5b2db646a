// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program executes another while one of its threads sleeps in a call on the connection that the
// other inherits.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class ExecAsleep : public TcpTest {
 protected:
  // In a new process: `call` in a thread that sleeps in it, and then cat with the server's end.
  template <typename Call>
  void execute_cat(Call call) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Fd executed(ends[0]);
    Fd here(ends[1]);
    pid_ = fork();
    if (pid_ != 0) {
      pair_.server.close();
      here.close();
      char none;
      EXPECT_EQ(read(executed.get(), &none, 1), 0);
      return;
    }
    std::atomic<pid_t> thread{0};
    std::thread([&] {
      thread = gettid();
      call();
    }).detach();
    while (thread == 0) std::this_thread::yield();
    await_asleep(thread);
    dup2(pair_.server.get(), 0);
    dup2(pair_.server.get(), 1);
    execl("/bin/cat", "cat", nullptr);
    _exit(127);
  }
  void expect_echo(const std::string& before) {
    send_all(pair_.client.get(), "and what comes");
    shutdown(pair_.client.get(), SHUT_WR);
    const std::string got = recv_to_end(pair_.client.get());
    const std::string end = "and what comes";
    EXPECT_TRUE(got.ends_with(end)) << got.substr(got.size() - std::min<size_t>(got.size(), 100));
    const size_t sent = got.size() - std::min(got.size(), end.size());
    EXPECT_TRUE(is_same(got.substr(0, sent), before.substr(0, sent)));
    int how = 0;
    ASSERT_EQ(waitpid(pid_, &how, 0), pid_);
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
  }

  void sleep_in_recv() {
    execute_cat([this] {
      char byte;
      recv(pair_.server.get(), &byte, 1, 0);
    });
  }
  Pair pair_ = connected_pair();
  pid_t pid_ = -1;
};

TEST_F(ExecAsleep, InRecv) {
  for (int i = 0; i < 3; ++i) expect_alive(pair_.client.get(), pair_.server.get());
  sleep_in_recv();
  expect_echo("");
}

TEST_F(ExecAsleep, InRecvSinceTheBeginning) {
  sleep_in_recv();
  expect_echo("");
}

TEST_F(ExecAsleep, InRecvWhileTheOtherDirectionBegan) {
  execute_cat([this] {
    std::thread([this] { send_all(pair_.server.get(), "one"); }).join();
    char byte;
    recv(pair_.server.get(), &byte, 1, 0);
  });
  expect_echo("one");
}

TEST_F(ExecAsleep, InALookForMore) {
  for (int i = 0; i < 3; ++i) expect_alive(pair_.client.get(), pair_.server.get());
  execute_cat([this] {
    char byte;
    recv(pair_.server.get(), &byte, 1, MSG_PEEK);
  });
  expect_echo("");
}

TEST_F(ExecAsleep, InPollAndInRecv) {
  for (int i = 0; i < 3; ++i) expect_alive(pair_.client.get(), pair_.server.get());
  execute_cat([this] {
    pollfd p{pair_.server.get(), POLLIN, 0};
    poll(&p, 1, -1);
  });
  expect_echo("");
}

TEST_F(ExecAsleep, InSend) {
  const std::string much = pattern(16'000'000);
  for (int i = 0; i < 3; ++i) expect_alive(pair_.client.get(), pair_.server.get());
  execute_cat([&] { write(pair_.server.get(), much.data(), much.size()); });
  expect_echo(much);
}

}  // namespace
}  // namespace ddpsock::shim_tests
