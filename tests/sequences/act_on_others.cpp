// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls that sockets refuse, or that others make on them: files' calls, aio's threads, shells.
#include <aio.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "act.h"
#include "base/kernel_call.h"

namespace ddpsock::sequences {
namespace {

long connect_to_itself(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  auto* general = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(fd, general, &length) != 0) return -1;
  return connect(fd, general, length);
}

long what_it_is(int fd) {
  struct stat st{};
  return fstat(fd, &st) == 0 ? long{S_ISSOCK(st.st_mode)} : -1;
}

long call(Refused which, int fd) {
  char bytes[4] = {};
  sockaddr_in any{};
  any.sin_family = AF_INET;
  switch (which) {
    case Refused::kPread:
      return pread(fd, bytes, sizeof bytes, 0);
    case Refused::kPwrite:
      return pwrite(fd, bytes, sizeof bytes, 0);
    case Refused::kSeek:
      return lseek(fd, 0, SEEK_CUR);
    case Refused::kTruncate:
      return ftruncate(fd, 0);
    case Refused::kSync:
      return fsync(fd);
    case Refused::kTerminal:
      return isatty(fd) != 0 ? 1 : -1;
    case Refused::kStat:
      return what_it_is(fd);
    case Refused::kListen:
      return listen(fd, 1);
    case Refused::kBind:
      return bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any);
    case Refused::kConnect:
      return connect_to_itself(fd);
    default:
      return accept(fd, nullptr, nullptr);
  }
}

// Its threads are not there in a child.
void by_aio(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  const Object object = object_of(fd);
  Direction *in = incoming(object), *out = outgoing(object);
  if (in == nullptr) return answer.add("no stream");
  const bool is_write = op.argument[2] != 0;
  const bool is_sure = is_write ? is_roomy(object) : in->sent > in->received && in->urgent == 0;
  if (is_process(current_actor) || !is_sure || !claim(object, true))
    return answer.add("not certain");
  char buffer[16];
  memset(buffer, '\xee', sizeof buffer);
  constexpr size_t kSize = 5;
  aiocb request{};
  request.aio_fildes = fd;
  request.aio_nbytes = kSize;
  request.aio_buf = buffer;
  request.aio_sigevent.sigev_notify = SIGEV_NONE;
  if (is_write) memcpy(buffer, bytes_at(object.connection, object.side, out->sent, kSize), kSize);
  if ((is_write ? aio_write(&request) : aio_read(&request)) != 0) return answer.add_result(-1);
  const aiocb* const all[] = {&request};
  while (aio_error(&request) == EINPROGRESS) aio_suspend(all, 1, nullptr);
  errno = aio_error(&request);
  const ssize_t moved = aio_return(&request);
  answer.add_result(moved);
  if (moved <= 0) return;
  if (is_write) {
    out->sent += static_cast<uint64_t>(moved);
    return;
  }
  const char* due = bytes_at(object.connection, 1 - object.side, in->received, kSize);
  answer.add(memcmp(buffer, due, static_cast<size_t>(moved)) == 0 ? " right" : " other bytes");
  in->received += static_cast<uint64_t>(moved);
  in->is_full = false;
}

int status_of_spawned(const char* command, int fd) {
  static char shell[] = "sh", flag[] = "-c";
  std::string text = command;
  char* const arguments[] = {shell, flag, text.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
  pid_t child = -1;
  const int error = posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    errno = error;
    return -1;
  }
  int status = -1;
  base::kernel_call(SYS_wait4, child, &status, 0, nullptr);
  return status;
}

// Three bytes by a shell's printf.
void by_shell(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  const Object object = object_of(fd);
  Direction* out = outgoing(object);
  const Shell how = static_cast<Shell>(op.argument[1]);
  // A shell knows numbers of one digit, and would sleep where there is no room.
  if (out == nullptr || fd > 9 || !is_roomy(object)) return answer.add("not certain");
  constexpr size_t kSize = 3;
  const char* bytes = bytes_at(object.connection, object.side, out->sent, kSize);
  std::string command = "printf '";
  for (size_t i = 0; i < kSize; ++i) {
    char octal[8];
    snprintf(octal, sizeof octal, "\\%03o", static_cast<unsigned char>(bytes[i]));
    command += octal;
  }
  command += how == Shell::kSpawn ? "' 2>/dev/null" : "' 2>/dev/null >&" + std::to_string(fd);
  int status;
  if (how == Shell::kSystem) {
    status = system(command.c_str());
  } else if (how == Shell::kPopen) {
    FILE* pipe = popen(command.c_str(), "r");
    status = pipe != nullptr ? pclose(pipe) : -1;
  } else {
    status = status_of_spawned(command.c_str(), fd);
  }
  answer.add("status %#x", static_cast<unsigned>(status));
  if (status == 0) out->sent += kSize;
}

}  // namespace

void act_on_others(const Op& op, Answer& answer) {
  switch (op.kind) {
    case Kind::kRefused:
      return answer.add_result(call(static_cast<Refused>(op.argument[1]), fd_of(op.argument[0])));
    case Kind::kAio:
      return by_aio(op, answer);
    default:
      return by_shell(op, answer);
  }
}

}  // namespace ddpsock::sequences
