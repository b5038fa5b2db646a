// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "act.h"

namespace ddpsock::sequences {
namespace {

constexpr Object kOther = {Object::What::kOther, -1, 0};

void close_one(const Op& op, Answer& answer) {
  const int slot = op.argument[0], fd = fd_of(slot);
  forget(fd);
  if (slot >= 0 && slot < kSlots) myself.slots[static_cast<size_t>(slot)] = -1;
  const unsigned number = static_cast<unsigned>(fd);
  const int how = fd < 0 ? 0 : op.argument[1];
  answer.add_result(how == 0   ? close(fd)
                    : how == 1 ? syscall(SYS_close, fd)
                               : close_range(number, number, 0));
}

void duplicate(const Op& op, Answer& answer) {
  const int from = fd_of(op.argument[0]), target_slot = op.argument[1], target = fd_of(target_slot);
  const Object object = object_of(from);
  int fd;
  switch (op.argument[2]) {
    case 0:
      fd = dup(from);
      break;
    case 1:
      fd = fcntl(from, F_DUPFD, 0);
      break;
    case 2:
      fd = fcntl(from, F_DUPFD_CLOEXEC, 20);
      break;
    case 3:
      fd = dup2(from, target);
      break;
    case 4:
      fd = dup3(from, target, 0);
      break;
    default:
      fd = static_cast<int>(syscall(SYS_dup2, from, target));
  }
  answer.add_result(fd);
  note(target_slot, fd, object);
}

int open_file(Opened what) {
  if (what == Opened::kNull) return open("/dev/null", O_RDWR);
  if (what == Opened::kFile) return open("/proc/self/exe", O_RDONLY);
  return eventfd(0, EFD_NONBLOCK);
}

void open_something(const Op& op, Answer& answer) {
  const Opened what = static_cast<Opened>(op.argument[1]);
  if (what != Opened::kPipe && what != Opened::kUnixPair) {
    const int fd = open_file(what);
    note(op.argument[0], fd, kOther);
    return answer.add_result(fd);
  }
  int pair[2] = {-1, -1};
  const int result =
      what == Opened::kPipe ? pipe2(pair, O_NONBLOCK) : socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  note(op.argument[0], pair[0], kOther);
  note(op.argument[2], pair[1], kOther);
  answer.add_result(result);
  answer.add(" %d %d", pair[0], pair[1]);
}

struct Message {
  explicit Message() {
    part = {&byte, 1};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  char byte = 'x';
  iovec part{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

void pass(const Op& op, Answer& answer) {
  const int through = fd_of(op.argument[0]), fd = fd_of(op.argument[1]);
  Message message;
  cmsghdr* c = CMSG_FIRSTHDR(&message.header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  const ssize_t sent = sendmsg(through, &message.header, MSG_DONTWAIT | MSG_NOSIGNAL);
  answer.add_result(sent);
  if (sent == 1) world->passed[world->pass_count++ % world->passed.size()] = object_of(fd);
}

void take(const Op& op, Answer& answer) {
  Message message;
  const ssize_t got = recvmsg(fd_of(op.argument[0]), &message.header, MSG_DONTWAIT);
  answer.add_result(got);
  const cmsghdr* c = CMSG_FIRSTHDR(&message.header);
  if (got != 1 || c == nullptr) return;
  int fd;
  memcpy(&fd, CMSG_DATA(c), sizeof fd);
  answer.add(" %d", fd);
  note(op.argument[1], fd, world->passed[world->take_count++ % world->passed.size()]);
}

}  // namespace

void act_on_descriptors(const Op& op, Answer& answer) {
  switch (op.kind) {
    case Kind::kClose:
      return close_one(op, answer);
    case Kind::kDup:
      return duplicate(op, answer);
    case Kind::kOpen:
      return open_something(op, answer);
    case Kind::kPass:
      return pass(op, answer);
    default:
      return take(op, answer);
  }
}

}  // namespace ddpsock::sequences
