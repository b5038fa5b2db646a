// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A connection that survives exec: every way to start a program, and programs that use it as
// servers and shells have them do.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/kernel_call.h"
#include "ddpsock/ddpsock.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// An argument list as exec wants it.
class Command {
 public:
  explicit Command(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  const char* path() const { return pointers_.front(); }
  char* const* list() const { return pointers_.data(); }
  const char* word(size_t i) const { return i < words_.size() ? pointers_[i] : nullptr; }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

std::string beside_this_program(const char* name) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, length < 0 ? 0 : static_cast<size_t>(length));
  return self.substr(0, self.rfind('/') + 1) + name;
}

std::string child_program() {
  return beside_this_program("shim_exec_child");
}

using Exec = void (*)(const Command&);

struct Way {
  const char* name;
  pid_t (*start)(int fd, const Command& command);
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

// In a new process, with `fd` as 0 and 1.
template <Exec kExec>
pid_t by_fork(int fd, const Command& command) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  dup2(fd, 0);
  dup2(fd, 1);
  kExec(command);
  _exit(127);
}

pid_t by_vfork(int fd, const Command& command) {
  const pid_t pid = vfork();
  if (pid != 0) return pid;
  dup2(fd, 0);
  dup2(fd, 1);
  execve(command.path(), command.list(), environ);
  _exit(127);
}

// As Python's subprocess does.
pid_t by_vfork_and_close(int fd, const Command& command) {
  const pid_t pid = vfork();
  if (pid != 0) return pid;
  dup2(fd, 0);
  dup2(fd, 1);
  syscall(SYS_close_range, 3, ~0u, 0);
  execve(command.path(), command.list(), environ);
  _exit(127);
}

// What a daemon does before it executes a helper: every descriptor above 2 goes.
pid_t by_fork_and_close_range(int fd, const Command& command) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  dup2(fd, 0);
  dup2(fd, 1);
  close_range(3, ~0u, 0);
  execv(command.path(), command.list());
  _exit(127);
}

// As older daemons do, descriptor by descriptor, in the child of a child.
pid_t by_daemon(int fd, const Command& command) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const pid_t daemon = fork();
  if (daemon != 0) {
    int how = 0;
    waitpid(daemon, &how, 0);
    _exit(WEXITSTATUS(how));
  }
  dup2(fd, 0);
  dup2(fd, 1);
  for (int other = 3; other < 2048; ++other) close(other);
  execv(command.path(), command.list());
  _exit(127);
}

using Spawn = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                      const posix_spawnattr_t*, char* const*, char* const*);

template <Spawn kSpawn, bool kClosesRest>
pid_t by_spawn(int fd, const Command& command) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, 0);
  posix_spawn_file_actions_adddup2(&actions, fd, 1);
  if (kClosesRest) posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  pid_t pid = -1;
  EXPECT_EQ(kSpawn(&pid, command.path(), &actions, nullptr, command.list(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

const std::array<Way, 16> kWays{{
    {"execve", by_fork<[](const Command& c) { execve(c.path(), c.list(), environ); }>},
    {"execv", by_fork<[](const Command& c) { execv(c.path(), c.list()); }>},
    {"execvp", by_fork<[](const Command& c) { execvp(c.path(), c.list()); }>},
    {"execvpe", by_fork<[](const Command& c) { execvpe(c.path(), c.list(), environ); }>},
    {"execl",
     by_fork<[](const Command& c) { execl(c.path(), c.word(0), c.word(1), c.word(2), nullptr); }>},
    {"execlp",
     by_fork<[](const Command& c) { execlp(c.path(), c.word(0), c.word(1), c.word(2), nullptr); }>},
    {"execle", by_fork<[](const Command& c) {
       // The list ends at the first null: all three words are there.
       execle(c.path(), c.word(0), c.word(1), c.word(2), nullptr, environ);
     }>},
    {"execveat",
     by_fork<[](const Command& c) { execveat(AT_FDCWD, c.path(), c.list(), environ, 0); }>},
    {"fexecve", by_fork<[](const Command& c) {
       fexecve(open(c.path(), O_RDONLY | O_CLOEXEC), c.list(), environ);
     }>},
    {"vfork", by_vfork},
    {"close_range", by_fork_and_close_range},
    {"daemon", by_daemon},
    {"posix_spawn", by_spawn<posix_spawn, false>},
    {"posix_spawnp", by_spawn<posix_spawnp, false>},
    {"closefrom_np", by_spawn<posix_spawn, true>},
    {"vfork_and_close", by_vfork_and_close},
}};
const Way& kPlainWay = kWays[1];

void expect_exit(pid_t pid, int status) {
  int how = 0;
  ASSERT_EQ(waitpid(pid, &how, 0), pid);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == status) << std::hex << how;
}

class ExecTest : public TcpTest {
 protected:
  // The program gets the server's end as 0 and 1, and this process closes its own at once. What the
  // client sent and then gets.
  std::string talk(const Way& way, const Command& command, std::string_view request) {
    if (!request.empty()) send_all(pair_.client.get(), request);
    const pid_t pid = way.start(pair_.server.get(), command);
    pair_.server.close();
    shutdown(pair_.client.get(), SHUT_WR);
    std::string answer = recv_to_end(pair_.client.get());
    expect_exit(pid, 0);
    return answer;
  }

  // As a client does that has said all it will: what lies unread cannot be sent again.
  void say_all(std::string_view request) const {
    send_all(pair_.client.get(), request);
    shutdown(pair_.client.get(), SHUT_WR);
    await_queued(pair_.server.get(), request.size());
  }

  Pair pair_ = connected_pair();
};

class ExecWays : public ExecTest, public testing::WithParamInterface<Way> {};

TEST_P(ExecWays, CatEchoes) {
  const std::string bytes = pattern(50'000);
  EXPECT_EQ(talk(GetParam(), Command({"/bin/cat", "-u", "-"}), bytes), bytes);
}

TEST_P(ExecWays, AShellReadsALineAndItsChildTheRest) {
  EXPECT_EQ(talk(GetParam(), Command({"/bin/sh", "-c", "read x; echo \"got $x\"; cat"}),
                 "one\ntwo\nthree\n"),
            "got one\ntwo\nthree\n");
}

INSTANTIATE_TEST_SUITE_P(All, ExecWays, testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_F(ExecTest, AProgramThatOnlyWrites) {
  EXPECT_EQ(talk(kPlainWay, Command({"/bin/date", "--date=@0", "+%s"}), ""), "0\n");
}

TEST_F(ExecTest, TwoProgramsOfAPipelineShareIt) {
  const std::string bytes = pattern(30'000);
  EXPECT_EQ(talk(kPlainWay, Command({"/bin/sh", "-c", "cat | cat"}), bytes), bytes);
}

TEST_F(ExecTest, StdioReadsAndWrites) {
  EXPECT_EQ(talk(kPlainWay, Command({child_program(), "lines"}), "alpha\nbeta\ngamma"),
            "ALPHA\nBETA\nGAMMA");
}

TEST_F(ExecTest, StdioIsFlushedAtExit) {
  EXPECT_EQ(talk(kPlainWay, Command({child_program(), "print"}), ""),
            "1 printf\n2 fputs\n3 fwrite\n4 puts\n");
}

TEST_F(ExecTest, StandardErrorIsNotBuffered) {
  EXPECT_EQ(
      talk(kPlainWay, Command({"/bin/sh", "-c", "exec " + child_program() + " print 2>&1"}), ""),
      "stderr comes first\n1 printf\n2 fputs\n3 fwrite\n4 puts\n");
}

TEST_F(ExecTest, OneFileReadsAndWrites) {
  EXPECT_EQ(talk(kPlainWay, Command({"/bin/sh", "-c", "exec " + child_program() + " fdopen 3<&0"}),
                 "hello\n"),
            "you said hello\nand dprintf\n");
}

TEST_F(ExecTest, WhatThisProcessLeftOfAMessageIsTheProgramsNext) {
  const std::string bytes = pattern(20'000);
  send_all(pair_.client.get(), bytes);
  EXPECT_EQ(recv_exactly(pair_.server.get(), 7), bytes.substr(0, 7));
  EXPECT_EQ(talk(kPlainWay, Command({"/bin/cat"}), ""), bytes.substr(7));
}

TEST_F(ExecTest, TheParentGoesOnAfterTheChild) {
  send_all(pair_.client.get(), "one\ntwo\n");
  const Command shell({"/bin/sh", "-c", "read x; echo \"got $x\""});
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    expect_exit(way.start(pair_.server.get(), shell), 0);
    EXPECT_EQ(recv_exactly(pair_.client.get(), 8), "got one\n");
    EXPECT_EQ(recv_exactly(pair_.server.get(), 4), "two\n");
    expect_alive(pair_.client.get(), pair_.server.get());
    send_all(pair_.client.get(), "one\ntwo\n");
  }
}

TEST_F(ExecTest, TheParentGoesOnAfterAVforkChildThatClosedItAndHasNotTheLibrary) {
  static char none[] = "A=1";
  static std::array<char*, 2> environment{none, nullptr};
  const Command command({child_program(), "nothing"});
  // Once something was said it is not reset for a program that may not even read it (decision 46).
  expect_alive(pair_.client.get(), pair_.server.get());
  for (int round = 0; round < 3; ++round) {
    const pid_t pid = vfork();
    if (pid == 0) {
      dup2(pair_.server.get(), 0);
      syscall(SYS_close_range, 3, ~0u, 0);
      execve(command.path(), command.list(), environment.data());
      _exit(127);
    }
    expect_exit(pid, 0);
    expect_alive(pair_.client.get(), pair_.server.get());
  }
}

// What a vfork child leaves to a program without the library.
class ExecOfVforkChild : public ExecTest {
 protected:
  void SetUp() override {
    if (column() == Column::kOneSided) GTEST_SKIP() << "which cannot return to plain TCP";
  }

  // It does `prepare` before it executes `command`, which echoes.
  template <typename Prepare>
  void expect_echo(const Command& command, Prepare prepare) {
    static std::array<char*, 1> environment{nullptr};
    const std::string bytes = pattern(20'000);
    send_all(pair_.client.get(), bytes);
    std::string answer;
    std::thread client([&] { answer = recv_exactly(pair_.client.get(), bytes.size()); });
    const pid_t pid = vfork();
    if (pid == 0) {
      prepare();
      execve(command.path(), command.list(), environment.data());
      _exit(127);
    }
    client.join();
    EXPECT_EQ(answer, bytes);
    shutdown(pair_.client.get(), SHUT_WR);
    expect_exit(pid, 0);
  }
};

// As Python's subprocess leaves a connection to a program that is static.
TEST_F(ExecOfVforkChild, WhatItHasClosedIsPlain) {
  expect_echo(Command({"/bin/cat"}), [&] {
    dup2(pair_.server.get(), 0);
    dup2(pair_.server.get(), 1);
    syscall(SYS_close_range, 3, ~0u, 0);
  });
}

TEST_F(ExecOfVforkChild, WhatItHasClosedIsPlainBesideManyThatItLeavesOpen) {
  std::vector<Pair> others(80);
  for (Pair& pair : others) pair = connected_pair();
  pair_ = connected_pair();
  for (const Pair& pair : others) fcntl(pair.client.get(), F_SETFD, FD_CLOEXEC);
  fcntl(pair_.client.get(), F_SETFD, FD_CLOEXEC);
  const int number = pair_.server.get();
  expect_echo(Command({"/bin/cat"}), [=] {
    dup2(number, 0);
    dup2(number, 1);
    close(number);
  });
}

TEST_F(ExecOfVforkChild, WhatItHasUnderAHighNumberIsPlain) {
  expect_echo(Command({"/bin/bash", "-c", "cat <&200 >&200"}), [&] {
    fcntl(pair_.server.get(), F_DUPFD, 200);
    syscall(SYS_close_range, 3, 199, 0);
  });
}

int mode_of(const Fd& fd) {
  ddp_status status{};
  socklen_t size = sizeof status;
  return getsockopt(fd.get(), SOL_DDP, DDP_STATUS, &status, &size) == 0
             ? static_cast<int>(status.mode)
             : -1;
}

TEST_F(ExecOfVforkChild, WhatItHasReplacedByAnotherIsPlainAndTheOtherIsAsItWas) {
  const Pair other = connected_pair();
  const int before = mode_of(other.server);
  expect_echo(Command({"/bin/cat"}), [&] {
    dup2(pair_.server.get(), 0);
    dup2(pair_.server.get(), 1);
    dup3(other.server.get(), pair_.server.get(), O_CLOEXEC);
  });
  EXPECT_EQ(mode_of(other.server), before);
  expect_alive(other.client.get(), other.server.get());
}

TEST_F(ExecOfVforkChild, OneInTheOthersPlaceAndBothArePlain) {
  const Pair other = connected_pair();
  send_all(other.client.get(), "to the other");
  std::string answer;
  std::thread client([&] { answer = recv_exactly(other.client.get(), 12); });
  const std::string there = std::to_string(pair_.server.get());
  const std::string script =
      "read -N 12 words <&" + there + "; echo -n \"$words\" >&" + there + "; exec cat";
  expect_echo(Command({"/bin/bash", "-c", script}), [&] {
    dup2(pair_.server.get(), 0);
    dup2(pair_.server.get(), 1);
    dup2(other.server.get(), pair_.server.get());
  });
  client.join();
  EXPECT_EQ(answer, "to the other");
}

TEST_F(ExecOfVforkChild, KeepsTheLocksOfAFileThatItHasInTheConnectionsPlace) {
  char name[] = "/tmp/shim_exec_test.XXXXXX";
  const Fd file(mkstemp(name));
  unlink(name);
  ASSERT_EQ(fcntl(file.get(), F_SETFD, FD_CLOEXEC), 0);
  const Command command({"/bin/sleep", "60"});
  static std::array<char*, 1> environment{nullptr};
  const pid_t pid = vfork();
  if (pid == 0) {
    dup2(pair_.server.get(), 0);
    dup2(file.get(), pair_.server.get());
    flock lock{};
    lock.l_type = F_WRLCK;
    close(file.get());
    fcntl(pair_.server.get(), F_SETLK, &lock);
    execve(command.path(), command.list(), environment.data());
    _exit(127);
  }
  flock lock{};
  lock.l_type = F_WRLCK;
  EXPECT_EQ(fcntl(file.get(), F_GETLK, &lock), 0);
  EXPECT_EQ(lock.l_type, F_WRLCK);
  EXPECT_EQ(lock.l_pid, pid);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// What the first thread has open is no list any more once that has ended.
TEST_F(ExecTest, WhatAThreadLeavesBehindTheFirstIsPlainForAProgramWithoutTheLibrary) {
  if (column() == Column::kOneSided) GTEST_SKIP() << "which cannot return to plain TCP";
  const std::string bytes = pattern(20'000);
  const Command command({"/bin/cat"});
  fcntl(pair_.server.get(), F_SETFD, FD_CLOEXEC);
  send_all(pair_.client.get(), bytes);
  const pid_t pid = fork();
  if (pid == 0) {
    std::thread([&] {
      while (access("/proc/self/fd/1", F_OK) == 0) sched_yield();
      for (const int number : {0, 1}) base::kernel_call(SYS_dup2, pair_.server.get(), number);
      static std::array<char*, 1> environment{nullptr};
      execve(command.path(), command.list(), environment.data());
      _exit(127);
    }).detach();
    base::kernel_call(SYS_exit, 0);  // pthread_exit unwinds through what catches all
  }
  EXPECT_EQ(recv_exactly(pair_.client.get(), bytes.size()), bytes);
  shutdown(pair_.client.get(), SHUT_WR);
  expect_exit(pid, 0);
}

TEST_F(ExecTest, AFailureLeavesTheStreamWorking) {
  const Command missing({"/nonexistent/program"});
  EXPECT_EQ(execv(missing.path(), missing.list()), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(execlp(missing.path(), missing.path(), nullptr), -1);
  EXPECT_EQ(errno, ENOENT);
  pid_t pid = -1;
  EXPECT_EQ(posix_spawn(&pid, missing.path(), nullptr, nullptr, missing.list(), environ), ENOENT);
  for (const Way& way : {kPlainWay, kWays[9]}) {
    expect_exit(way.start(pair_.server.get(), missing), 127);
    expect_alive(pair_.client.get(), pair_.server.get());
  }
  EXPECT_EQ(talk(kPlainWay, Command({"/bin/cat"}), "still here"), "still here");
}

TEST_F(ExecTest, CloseOnExecIsObeyed) {
  fcntl(pair_.server.get(), F_SETFD, FD_CLOEXEC);
  const std::string number = std::to_string(pair_.server.get());
  const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  const Command look({"/bin/sh", "-c", "! test -e /proc/self/fd/" + number});
  expect_exit(kPlainWay.start(nothing.get(), look), 0);
  expect_alive(pair_.client.get(), pair_.server.get());
}

// The rest of a server's child that serves another user, and executes a program of that user.
constexpr uid_t kAnother = 65533;
[[noreturn]] void execute_as_another(const Command& command) {
  if (setgid(kAnother) == 0 && setuid(kAnother) == 0) execv(command.path(), command.list());
  _exit(127);
}

TEST_F(ExecTest, AProgramThatInheritsNothingHasNoPartInWhatIsOpen) {
  fcntl(pair_.server.get(), F_SETFD, FD_CLOEXEC);
  const Command command({child_program(), "damage"});
  const Command look({"/bin/sh", "-c", "! grep -q DDPSOCK_HANDOVER /proc/$$/environ"});
  for (const bool has_no_number_left : {false, true}) {
    const pid_t pid = fork();
    if (pid == 0) {
      constexpr rlimit kFew{64, 64};
      setrlimit(RLIMIT_NOFILE, &kFew);
      while (has_no_number_left && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
      }
      execv(look.path(), look.list());
      _exit(127);
    }
    expect_exit(pid, 0);
    expect_alive(pair_.client.get(), pair_.server.get());
  }
  for (const bool is_another : {false, true}) {
    if (is_another && geteuid() != 0) continue;
    send_all(pair_.client.get(), "one\ntwo\n");
    EXPECT_EQ(recv_exactly(pair_.server.get(), 4), "one\n");
    const pid_t pid = fork();
    if (pid == 0) {
      if (is_another) execute_as_another(command);
      execv(command.path(), command.list());
      _exit(127);
    }
    expect_exit(pid, 0);
    EXPECT_EQ(recv_exactly(pair_.server.get(), 4), "two\n");
    expect_alive(pair_.client.get(), pair_.server.get());
  }
}

TEST_F(ExecTest, AProgramOfAnotherUserHasThePlainConnectionThatItInherits) {
  if (geteuid() != 0) GTEST_SKIP() << "only the superuser becomes another";
  const Pair other = connected_pair();
  const auto start = [](int fd, const Command& command) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    dup2(fd, 0);
    dup2(fd, 1);
    execute_as_another(command);
  };
  const std::string bytes = pattern(20'000);
  EXPECT_EQ(talk({"another's", start}, Command({"/bin/cat"}), bytes), bytes);
  expect_alive(other.client.get(), other.server.get());
  const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  expect_exit(start(nothing.get(), Command({child_program(), "damage"})), 0);
}

std::string output_of(const Command& command, char* const* environment) {
  std::array<int, 2> pipe_fds{};
  EXPECT_EQ(pipe(pipe_fds.data()), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
  pid_t pid = -1;
  EXPECT_EQ(posix_spawn(&pid, command.path(), &actions, nullptr, command.list(), environment), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  std::string output;
  char buffer[512];
  for (ssize_t n; (n = read(pipe_fds[0], buffer, sizeof buffer)) > 0;)
    output.append(buffer, static_cast<size_t>(n));
  close(pipe_fds[0]);
  expect_exit(pid, 0);
  return output;
}

TEST_F(ExecTest, AnEnvironmentOfTheProgramsOwnStaysSo) {
  std::array<char*, 1> none{};
  EXPECT_EQ(output_of(Command({"/usr/bin/env"}), none.data()), "");
  char one[] = "A=1";
  std::array<char*, 2> own{one, nullptr};
  EXPECT_EQ(output_of(Command({"/usr/bin/env"}), own.data()), "A=1\n");
  expect_alive(pair_.client.get(), pair_.server.get());
}

TEST_F(ExecTest, AStaticProgramIsLogged) {
  char log[] = "/tmp/shim_exec_test.XXXXXX";
  const Fd file(mkstemp(log));
  setenv("DDPSOCK_LOG", "info", 1);
  setenv("DDPSOCK_LOG_FILE", log, 1);
  const std::string target = beside_this_program("shim_exec_child_static");
  // The program in between reads the environment anew.
  const Command command({child_program(), "become", target, "nothing"});
  expect_exit(kPlainWay.start(pair_.server.get(), command), 0);
  unsetenv("DDPSOCK_LOG");
  unsetenv("DDPSOCK_LOG_FILE");
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  unlink(log);
  const bool is_logged =
      text.str().find("shim_exec_child_static: fds 0 1 ") != std::string::npos &&
      text.str().find("leave DDPMODE: the program is static") != std::string::npos;
  EXPECT_EQ(is_logged, is_in_ddp_mode()) << text.str();
}

// What `command` says, with the server's end as `number`, of a client that has said all it will.
struct Said {
  std::string text;
  int how;
};
Said said_by(const Command& command, char* const* environment, int server, int number) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const Fd from(ends[0]), to(ends[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(server, number);
    dup2(to.get(), 1);
    execve(command.path(), command.list(), environment);
    _exit(127);
  }
  int how = 0;
  waitpid(pid, &how, 0);
  char bytes[100];
  const ssize_t n = read(from.get(), bytes, sizeof bytes);
  return {std::string(bytes, n < 0 ? 0 : static_cast<size_t>(n)), how};
}

// As inetd does.
TEST_F(ExecTest, AProgramWithoutTheLibraryNeverReadsFpdus) {
  static std::array<char*, 1> environment{nullptr};
  say_all("request");
  const Said said = said_by(Command({"/bin/cat"}), environment.data(), pair_.server.get(), 0);
  EXPECT_EQ(said.text, WEXITSTATUS(said.how) == 0 ? "request" : "");
  if (!is_in_ddp_mode()) {
    EXPECT_EQ(said.how, 0);
  }
}

// Started by one that has the library, and is replaced by it.
TEST_F(ExecTest, NorDoesOneThatAWrapperBecomes) {
  const Command wrapper({"/bin/sh", "-c", "exec env -i /bin/cat"});
  say_all("request");
  const Said said = said_by(wrapper, environ, pair_.server.get(), 0);
  EXPECT_EQ(said.text, WEXITSTATUS(said.how) == 0 ? "request" : "");
}

// Or that it starts with another connection than its own as that number.
TEST_F(ExecTest, NorDoesOneThatIsGivenWhatAWrapperHadElsewhere) {
  const Command wrapper({"/bin/sh", "-c", "(exec 0<&7; exec env -i /bin/cat); exit 3"});
  say_all("request");
  const Said said = said_by(wrapper, environ, pair_.server.get(), 7);
  EXPECT_EQ(WEXITSTATUS(said.how), 3);
  EXPECT_EQ(said.text, is_in_ddp_mode() ? "" : "request");
}

// Even where no number is left to look at the file by, of which exec needs none.
TEST_F(ExecTest, AProgramWithoutTheLibraryIsKnownWithoutADescriptor) {
  if (!is_in_ddp_mode()) GTEST_SKIP() << "the client would wait for an answer";
  static std::array<char*, 1> environment{nullptr};
  const Command command({"/bin/true"});
  say_all("request");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(pair_.server.get(), 0);
    const rlimit few{3, 3};
    setrlimit(RLIMIT_NOFILE, &few);
    execve(command.path(), command.list(), environment.data());
    _exit(127);
  }
  waitpid(pid, nullptr, 0);
  set_timeout(pair_.client.get(), SO_RCVTIMEO, 2000);
  char byte;
  EXPECT_EQ(recv(pair_.client.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// What a program sends whose parent's bytes lie in memory still comes behind those, for who looks
// too.
TEST_F(ExecTest, ALookSeesWhatAProgramSendsBehindItsParent) {
  const int client = pair_.client.get(), server = pair_.server.get();
  send_all(client, "one two");
  EXPECT_EQ(recv_exactly(server, 4), "one ");
  send_all(client, " three ");
  const Fd inherited(dup(client));
  const std::string command = "printf four >&" + std::to_string(inherited.get());
  ASSERT_EQ(system(command.c_str()), 0);
  const int wanted = queued_bytes(server);
  char bytes[20];
  const ssize_t n = recv(server, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  EXPECT_EQ(std::string_view(bytes, n < 0 ? 0 : static_cast<size_t>(n)), "two three four");
  EXPECT_EQ(wanted, 14);
  EXPECT_EQ(recv_exactly(server, 14), "two three four");
}

std::string make_folder() {
  char folder[] = "/tmp/ddpsock-exec-XXXXXX";
  EXPECT_NE(mkdtemp(folder), nullptr);
  return folder;
}

std::string make_program(const std::string& folder, const char* name, const char* text) {
  std::string path = folder + "/" + name;
  std::ofstream(path) << text;
  EXPECT_EQ(chmod(path.c_str(), 0755), 0);
  return path;
}

// Nor is it lost to one that there is not: who has tried answers for it.
TEST_F(ExecTest, AnExecThatFailsLeavesAConnectionThatCannotReturn) {
  static std::array<char*, 1> environment{nullptr};
  const std::string folder = make_folder();
  const Command none[] = {Command({"/nowhere/cat"}), Command({"/etc/passwd"}),
                          Command({make_program(folder, "lost", "#!/nowhere/interpreter\n")}),
                          Command({make_program(folder, "text", "echo no kernel runs this\n")})};
  say_all("request");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(pair_.server.get(), 0);
    for (const Command& command : none) execve(command.path(), command.list(), environment.data());
    _exit(write(0, "500 no cat", 10) == 10 ? 0 : 1);
  }
  int how = 0;
  waitpid(pid, &how, 0);
  EXPECT_EQ(how, 0);
  EXPECT_EQ(recv_exactly(pair_.client.get(), 10), "500 no cat");
  std::filesystem::remove_all(folder);
}

// A service that was given the connection itself answers on it behind a helper.
TEST_F(ExecTest, AHelperWithoutTheLibraryLeavesItsParentsConnection) {
  const Command command({"/bin/sh", "-c", "read line; env -i /bin/true; echo answer"});
  say_all("one\ntwo\n");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(pair_.server.get(), 0);
    dup2(pair_.server.get(), 1);
    execve(command.path(), command.list(), environ);
    _exit(127);
  }
  int how = 0;
  waitpid(pid, &how, 0);
  EXPECT_EQ(how, 0);
  EXPECT_EQ(recv_exactly(pair_.client.get(), 7), "answer\n");
}

// Whoever waits for its other end to be opened would be told of it.
TEST_F(ExecTest, AFifoUnderTheNumberThatWasHandedOverIsNotOpened) {
  const std::string folder = make_folder();
  const std::string path = folder + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  {
    const Fd named(open(path.c_str(), O_PATH));
    const Fd opened(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    EXPECT_GE(inotify_add_watch(opened.get(), path.c_str(), IN_OPEN), 0);
    const std::string start =
        "DDPSOCK_HANDOVER=" + std::to_string(named.get()) + " /bin/true; exit $?";
    EXPECT_EQ(system(start.c_str()), 0);
    std::array<char, 256> event;
    EXPECT_LT(read(opened.get(), event.data(), event.size()), 0);
  }
  std::filesystem::remove_all(folder);
}

class ExecClient : public TcpTest {
 protected:
  Listener listener_ = listen_loopback();
  std::string host() const {
    char text[INET_ADDRSTRLEN];
    return inet_ntop(AF_INET, &listener_.address.sin_addr, text, sizeof text);
  }
  std::string port() const { return std::to_string(ntohs(listener_.address.sin_port)); }
};

TEST_F(ExecClient, BashConnectsAndItsChildrenUseTheDescriptor) {
  const std::string script =
      "exec 3<>/dev/tcp/" + host() + "/" + port() +
      "; echo hello >&3; read -u 3 x; echo \"x is $x\" >&3; head -c 3 <&3 >&3;"
      " printf '%s\\n' end >&3; cat <&3 >&3";
  const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  const pid_t pid = kPlainWay.start(nothing.get(), Command({"/bin/bash", "-c", script}));
  Fd server = accept_one(listener_.fd.get());
  EXPECT_EQ(recv_exactly(server.get(), 6), "hello\n");
  send_all(server.get(), "line\n");
  EXPECT_EQ(recv_exactly(server.get(), 10), "x is line\n");
  send_all(server.get(), "abc");
  EXPECT_EQ(recv_exactly(server.get(), 7), "abcend\n");
  send_all(server.get(), "all the rest");
  shutdown(server.get(), SHUT_WR);
  EXPECT_EQ(recv_to_end(server.get()), "all the rest");
  expect_exit(pid, 0);
}

TEST_F(ExecClient, PythonGivesItToSubprocesses) {
  const std::string script =
      "import os, socket, subprocess\n"
      "s = socket.create_connection(('" +
      host() + "', " + port() +
      "))\n"
      "subprocess.run(['sh', '-c', 'read x; echo run $x'], stdin=s, stdout=s, check=True)\n"
      "subprocess.run(['sh', '-c', f'read x <&{s.fileno()}; echo pass $x >&{s.fileno()}'],"
      " pass_fds=[s.fileno()], check=True)\n"
      "pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'read x; echo spawn $x'], os.environ,"
      " file_actions=[(os.POSIX_SPAWN_DUP2, s.fileno(), 0), (os.POSIX_SPAWN_DUP2, s.fileno(), "
      "1)])\n"
      "os.waitpid(pid, 0)\n"
      "s.sendall(s.recv(2))\n"
      "p = subprocess.Popen(['cat'], stdin=s, stdout=s)\n"
      "s.close()\n"
      "p.wait()\n";
  const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  const pid_t pid =
      kPlainWay.start(nothing.get(), Command({"/usr/bin/env", "python3", "-c", script}));
  Fd server = accept_one(listener_.fd.get());
  send_all(server.get(), "1\n2\n3\n4\nto the end");
  shutdown(server.get(), SHUT_WR);
  EXPECT_EQ(recv_to_end(server.get()), "run 1\npass 2\nspawn 3\n4\nto the end");
  expect_exit(pid, 0);
}

}  // namespace
}  // namespace ddpsock::shim_tests
