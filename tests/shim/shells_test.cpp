// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// system(), popen() and posix_spawn() from a program with connections, and programs that use one
// they inherit: with the library in their environment, or without it.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// Where the program that is started will be without the library.
class WithoutLibrary {
 public:
  WithoutLibrary() {
    if (const char* list = getenv("LD_PRELOAD"); list != nullptr) list_ = list;
    unsetenv("LD_PRELOAD");
  }
  ~WithoutLibrary() {
    if (list_) setenv("LD_PRELOAD", list_->c_str(), 1);
  }

 private:
  std::optional<std::string> list_;
};

class Shells : public TcpTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) {
      if (column() == Column::kOneSided) GTEST_SKIP() << "such connections do not leave";
      without_.emplace();
    }
    for (int i = 0; i < 3; ++i) expect_alive(client_, server_);
  }
  // `command`, with the connection's number in place of each @.
  std::string of_connection(std::string command) const {
    for (size_t at; (at = command.find('@')) != command.npos;)
      command.replace(at, 1, std::to_string(server_));
    return command;
  }
  void let_inherit() const { ASSERT_EQ(fcntl(server_, F_SETFD, 0), 0); }
  void expect_all_alive() const {
    expect_alive(client_, server_);
    expect_alive(server_, client_);
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
  std::optional<WithoutLibrary> without_;
};

TEST_P(Shells, SystemWritesToAConnection) {
  let_inherit();
  const int status = system(of_connection("echo \"it's me\" >&@; printf '%s' 'a b' >&@").c_str());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(recv_exactly(client_, 11), "it's me\na b");
  expect_all_alive();
}

TEST_P(Shells, SystemReadsFromAConnection) {
  let_inherit();
  send_all(client_, "one two\nrest");
  const int status =
      system(of_connection("read a b <&@; test \"$a-$b\" = one-two && exit 3").c_str());
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(recv_exactly(server_, 4), "rest");
  expect_all_alive();
}

TEST_P(Shells, SystemStartsProgramsThatUseOne) {
  let_inherit();
  send_all(client_, "abc");
  EXPECT_EQ(system(of_connection("head -c 3 <&@ | tr a-z A-Z >&@; true | cat").c_str()), 0);
  EXPECT_EQ(recv_exactly(client_, 3), "ABC");
  expect_all_alive();
}

TEST_P(Shells, SystemSaysHowItWent) {
  let_inherit();
  EXPECT_NE(system(nullptr), 0);
  EXPECT_EQ(WEXITSTATUS(system("exit 7")), 7);
  EXPECT_EQ(WEXITSTATUS(system("/nonexistent/program 2>/dev/null")), 127);
  EXPECT_EQ(WTERMSIG(system("kill -TERM $$")), SIGTERM);
  EXPECT_EQ(system("test -z \"$DDPSOCK_NOTHING\" && test $# = 0"), 0);
  expect_all_alive();
}

TEST_P(Shells, PopenReadsWhatAProgramReads) {
  let_inherit();
  send_all(client_, "a line\nmore");
  FILE* file = popen(of_connection("read x <&@; echo got $x").c_str(), "r");
  ASSERT_NE(file, nullptr);
  char line[64];
  EXPECT_STREQ(fgets(line, sizeof line, file), "got a line\n");
  EXPECT_EQ(pclose(file), 0);
  EXPECT_EQ(recv_exactly(server_, 4), "more");
  expect_all_alive();
}

// The child goes on when the parent has closed its end.
TEST_P(Shells, PopenWritesToAProgramThatHasTheConnection) {
  let_inherit();
  FILE* file = popen(of_connection("cat >&@").c_str(), "w");
  ASSERT_NE(file, nullptr);
  pair_.server.close();
  fputs("through the child", file);
  EXPECT_EQ(pclose(file), 0);
  EXPECT_EQ(recv_to_end(client_), "through the child");
}

// As Rust's Command does it: the connection itself is closed on exec, its copy is not.
TEST_P(Shells, PosixSpawnDuplicatesAConnection) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, server_, 0);
  posix_spawn_file_actions_adddup2(&actions, server_, 1);
  char name[] = "cat";
  char* arguments[] = {name, nullptr};
  pid_t pid = -1;
  send_all(client_, "hello ");
  ASSERT_EQ(posix_spawn(&pid, "/bin/cat", &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  pair_.server.close();
  send_all(client_, "cat");
  EXPECT_EQ(recv_exactly(client_, 9), "hello cat");
  shutdown(client_, SHUT_WR);
  expect_end_of_stream(client_);
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

// Nor is anything lost where nobody uses it.
TEST_P(Shells, CommandsThatDoNotCare) {
  EXPECT_EQ(system("true"), 0);
  let_inherit();
  send_all(client_, "unread");
  EXPECT_EQ(system("true"), 0);
  FILE* file = popen("echo x", "r");
  EXPECT_EQ(fgetc(file), 'x');
  EXPECT_EQ(pclose(file), 0);
  EXPECT_EQ(recv_exactly(server_, 6), "unread");
  expect_all_alive();
}

INSTANTIATE_TEST_SUITE_P(All, Shells, testing::Bool(), [](const auto& with) {
  return std::string(with.param ? "WithTheLibrary" : "WithoutTheLibrary");
});

}  // namespace
}  // namespace ddpsock::shim_tests
