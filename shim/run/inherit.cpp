// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// At library start, in a program that was executed while streams were open (exec.cpp): takes their
// state over and enters the inherited sockets. In any other program this is one look at the
// environment, and one at each of the first descriptors for listeners.
#include "shim/run/inherit.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "shim/calls/listeners.h"
#include "shim/calls/stdio_files.h"
#include "shim/connection.h"
#include "shim/exec_environment.h"
#include "shim/log.h"
#include "shim/open_fds.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

constexpr char kInheritedReason[] = "inherited from the program before";
constexpr int kHighFd = 1000;  // as engines choose for their own

constinit pid_t given_to = 0;

// A parent that closes everything but what it passes on closes the handover too; while it lives,
// its own copy can be had under the same number. What lies there by chance is not adopted.
bool adopt_from_parent(int number) {
  const int fd = engine::user_stream_engine().copy_handover(getppid(), number);
  if (fd < 0) return false;
  const int high = real.fcntl(fd, F_DUPFD_CLOEXEC, kHighFd);
  const bool is_adopted = engine::user_stream_engine().adopt(high);
  if (high >= 0 && !is_adopted) base::close_own(high);
  base::close_own(fd);
  return is_adopted;
}

// Another descriptor of the same connection that is entered already; -1 if none is.
int find_entered(const engine::Stream* stream, int below) {
  for (int fd = 0; fd < below; ++fd)
    if (const Socket* socket = socket_at(fd); socket != nullptr && socket->stream.load() == stream)
      return fd;
  return -1;
}

void enter_stream(int fd, engine::Stream& stream) {
  Socket* socket = enter_fd(fd);
  if (socket == nullptr) {
    stream.release(fd);
    return;
  }
  const engine::StreamStatus status = stream.status();
  const bool is_initiator = status.role == engine::Role::kInitiator;
  socket->stream.store(&stream, std::memory_order_release);
  socket->role.store(status.role, std::memory_order_relaxed);
  socket->mode.store(Mode::kRequired, std::memory_order_relaxed);
  socket->reason.store(kInheritedReason, std::memory_order_relaxed);
  socket->is_nonblocking.store((real.fcntl(fd, F_GETFL) & O_NONBLOCK) != 0,
                               std::memory_order_relaxed);
  // TCP itself may still be under way: the first call finds out.
  const bool is_connecting = is_initiator && status.state == engine::StreamState::kStarting;
  socket->phase.store(is_connecting ? Phase::kConnecting : Phase::kStream,
                      std::memory_order_release);
  set_hint(fd, is_initiator ? Origin::kConnected : Origin::kAccepted, kInheritedReason);
  log_connection("exec", fd, "stream", status.engine, kInheritedReason);
}

void enter_inherited(int fd) {
  engine::Stream* stream = engine::user_stream_engine().find(fd);
  if (stream == nullptr) return;
  if (stream->status().state == engine::StreamState::kPlain) {
    stream->release(fd);
  } else if (const int other = find_entered(stream, fd); other >= 0) {
    share_fd(other, fd);
    const Hint hint = hint_of(other);
    set_hint(fd, hint.origin, hint.reason);
  } else {
    enter_stream(fd, *stream);
  }
}

// Where it is meant under one number, it is.
void note_given(int fd, bool has_strayed) {
  const SocketUse use(fd);
  if (!use) return;
  const bool was_given = use->is_given.exchange(true, std::memory_order_relaxed);
  use->is_stray.store(has_strayed && (!was_given || use->is_stray.load()),
                      std::memory_order_relaxed);
}

void take_over(HandoverNote note) {
  if (!engine::user_stream_engine().adopt(note.fd) && !adopt_from_parent(note.fd)) return;
  visit_open_fds(enter_inherited);
  engine::user_stream_engine().finish_adoption();
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    cover_standard_file(fd);
    note_given(fd, (note.strayed >> fd & 1) != 0);
  }
  given_to = getpid();
}

// After the table of real functions is filled (real.cpp).
[[gnu::constructor(102)]] void start() {
  if (stands_aside()) return;
  const base::KeepErrno keep;
  const char* value = secure_getenv(kHandoverVariable);
  if (value != nullptr)
    if (const HandoverNote note = parse_handover(value); note.fd >= 0) take_over(note);
  // It is for this program, not for those that it executes with no stream to inherit.
  if (value != nullptr) unsetenv(kHandoverVariable);
  enter_inherited_listeners();
}

}  // namespace

bool is_executed_itself() {
  return given_to == getpid();
}

}  // namespace ddpsock::shim
