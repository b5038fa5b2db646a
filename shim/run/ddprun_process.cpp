// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/fd.h"

namespace ddpsock::shim {
namespace {

constexpr Duration kPatience = Duration::from_ms(10'000);
constexpr size_t kMostOutput = 4 << 20;

bool wait_for(int fd, Time deadline) {
  while (true) {
    pollfd readable{fd, POLLIN, 0};
    const auto left = static_cast<int>((deadline - base::now()).ceil_ms());
    const int ready = poll(&readable, 1, left);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// Until the writer has closed it. False: it was not in time, or said too much.
bool read_all(int fd, Time deadline, std::string& into) {
  char piece[16384];
  while (into.size() < kMostOutput) {
    if (!wait_for(fd, deadline)) return false;
    const ssize_t n = read(fd, piece, sizeof piece);
    if (n <= 0) return n == 0;
    into.append(piece, static_cast<size_t>(n));
  }
  return false;
}

pid_t start(const std::vector<std::string>& command, int output) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  base::UniqueFd ours(ends[0]), theirs(ends[1]);
  const Time deadline = base::now() + kPatience;
  const pid_t pid = start(command, theirs.get());
  if (pid < 0) return std::nullopt;
  theirs.reset();
  std::string output;
  const base::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const bool is_whole = read_all(ours.get(), deadline, output) && process.is_valid() &&
                        wait_for(process.get(), deadline);
  if (!is_whole) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (!is_whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return output;
}

}  // namespace ddpsock::shim
