// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "calls.h"

#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "script.h"

namespace ddpsock::sequences {

const std::array<const char*, kSenders> kSenderNames = {"send",
                                                        "sendto",
                                                        "sendmsg",
                                                        "sendmmsg",
                                                        "syscall(sendto)",
                                                        "syscall(sendmsg)",
                                                        "syscall(sendmmsg)",
                                                        "write",
                                                        "writev",
                                                        "pwritev2",
                                                        "syscall(write)",
                                                        "syscall(writev)",
                                                        "fwrite"};
const std::array<const char*, kReceivers> kReceiverNames = {"recv",
                                                            "recvfrom",
                                                            "recvmsg",
                                                            "recvmmsg",
                                                            "syscall(recvfrom)",
                                                            "syscall(recvmsg)",
                                                            "syscall(recvmmsg)",
                                                            "read",
                                                            "readv",
                                                            "preadv2",
                                                            "syscall(read)",
                                                            "syscall(readv)",
                                                            "fread"};
const std::array<const char*, kPollers> kPollerNames = {
    "poll", "ppoll", "select", "pselect", "syscall(poll)", "syscall(select)"};

bool takes_flags(int how) {
  return how < kWithFlags;
}

namespace {

using Parts = std::array<iovec, 3>;

Parts cut(const char* bytes, size_t size) {
  char* start = const_cast<char*>(bytes);
  const size_t first = (size + 2) / 3;
  return {iovec{start, first}, iovec{start + first, 0}, iovec{start + first, size - first}};
}

msghdr message_of(iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  return message;
}

Moved plain(ssize_t result) {
  return {result, result > 0 ? static_cast<size_t>(result) : 0, 0};
}

// The second message is what follows the first.
std::array<mmsghdr, 2> messages_of(Parts& parts) {
  std::array<mmsghdr, 2> messages{};
  messages[0].msg_hdr = message_of(parts.data(), 2);
  messages[1].msg_hdr = message_of(&parts[2], 1);
  return messages;
}

Moved moved_by(const std::array<mmsghdr, 2>& messages, int result) {
  Moved moved{result, 0, 0};
  for (int i = 0; i < result; ++i) {
    moved.bytes += messages[static_cast<size_t>(i)].msg_len;
    moved.flags |= messages[static_cast<size_t>(i)].msg_hdr.msg_flags;
  }
  return moved;
}

Moved with_flags(Moved moved, const msghdr& message) {
  if (moved.result >= 0) moved.flags = message.msg_flags;
  return moved;
}

// As a program does that has the socket under a FILE: of a duplicate, so that it can be closed.
FILE* open_file(int fd, const char* mode) {
  const int copy = dup(fd);
  FILE* file = fdopen(copy, mode);
  if (file == nullptr && copy >= 0) close(copy);
  return file;
}

ssize_t write_file(int fd, const char* bytes, size_t size) {
  FILE* file = open_file(fd, "w");
  if (file == nullptr) return -1;
  const size_t written = fwrite(bytes, 1, size, file);
  return fclose(file) == 0 && written == size ? static_cast<ssize_t>(size) : -1;
}

// Nothing is read that is not returned.
ssize_t read_file(int fd, char* bytes, size_t size) {
  FILE* file = open_file(fd, "r");
  if (file == nullptr) return -1;
  setvbuf(file, nullptr, _IONBF, 0);
  const size_t got = fread(bytes, 1, size, file);
  const bool has_failed = got == 0 && ferror(file) != 0;
  const int error = errno;
  fclose(file);
  errno = error;
  return has_failed ? -1 : static_cast<ssize_t>(got);
}

}  // namespace

Moved send_by(int how, int fd, const char* bytes, size_t size, int flags) {
  Parts parts = cut(bytes, size);
  const int count = static_cast<int>(parts.size());
  const msghdr message = message_of(parts.data(), parts.size());
  auto messages = messages_of(parts);
  switch (how) {
    case 0:
      return plain(send(fd, bytes, size, flags));
    case 1:
      return plain(sendto(fd, bytes, size, flags, nullptr, 0));
    case 2:
      return plain(sendmsg(fd, &message, flags));
    case 3:
      return moved_by(messages, sendmmsg(fd, messages.data(), messages.size(), flags));
    case 4:
      return plain(syscall(SYS_sendto, fd, bytes, size, flags, nullptr, 0));
    case 5:
      return plain(syscall(SYS_sendmsg, fd, &message, flags));
    case 6:
      return moved_by(messages, static_cast<int>(syscall(SYS_sendmmsg, fd, messages.data(),
                                                         messages.size(), flags)));
    case 7:
      return plain(write(fd, bytes, size));
    case 8:
      return plain(writev(fd, parts.data(), count));
    case 9:
      return plain(pwritev2(fd, parts.data(), count, -1, 0));
    case 10:
      return plain(syscall(SYS_write, fd, bytes, size));
    case 11:
      return plain(syscall(SYS_writev, fd, parts.data(), count));
    default:
      return plain(write_file(fd, bytes, size));
  }
}

Moved receive_by(int how, int fd, char* bytes, size_t size, int flags) {
  Parts parts = cut(bytes, size);
  const int count = static_cast<int>(parts.size());
  msghdr message = message_of(parts.data(), parts.size());
  auto messages = messages_of(parts);
  // With what is unread the second would wait for more.
  const int of_many = flags | MSG_WAITFORONE;
  switch (how) {
    case 0:
      return plain(recv(fd, bytes, size, flags));
    case 1:
      return plain(recvfrom(fd, bytes, size, flags, nullptr, nullptr));
    case 2:
      return with_flags(plain(recvmsg(fd, &message, flags)), message);
    case 3:
      return moved_by(messages, recvmmsg(fd, messages.data(), messages.size(), of_many, nullptr));
    case 4:
      return plain(syscall(SYS_recvfrom, fd, bytes, size, flags, nullptr, nullptr));
    case 5:
      return with_flags(plain(syscall(SYS_recvmsg, fd, &message, flags)), message);
    case 6:
      return moved_by(messages, static_cast<int>(syscall(SYS_recvmmsg, fd, messages.data(),
                                                         messages.size(), of_many, nullptr)));
    case 7:
      return plain(read(fd, bytes, size));
    case 8:
      return plain(readv(fd, parts.data(), count));
    case 9:
      return plain(preadv2(fd, parts.data(), count, -1, 0));
    case 10:
      return plain(syscall(SYS_read, fd, bytes, size));
    case 11:
      return plain(syscall(SYS_readv, fd, parts.data(), count));
    default:
      return plain(read_file(fd, bytes, size));
  }
}

namespace {

struct Sets {
  fd_set in, out, other;
  int count;
};

Sets sets_of(std::span<const Polled> fds) {
  Sets sets;
  FD_ZERO(&sets.in);
  FD_ZERO(&sets.out);
  FD_ZERO(&sets.other);
  sets.count = 0;
  for (const Polled& one : fds) {
    if (one.fd < 0) continue;
    if ((one.wanted & POLLIN) != 0) FD_SET(one.fd, &sets.in);
    if ((one.wanted & POLLOUT) != 0) FD_SET(one.fd, &sets.out);
    if ((one.wanted & POLLPRI) != 0) FD_SET(one.fd, &sets.other);
    sets.count = std::max(sets.count, one.fd + 1);
  }
  return sets;
}

void note(const Sets& sets, std::span<Polled> fds) {
  for (Polled& one : fds) {
    one.got = 0;
    if (one.fd < 0) continue;
    if (FD_ISSET(one.fd, &sets.in)) one.got |= POLLIN;
    if (FD_ISSET(one.fd, &sets.out)) one.got |= POLLOUT;
    if (FD_ISSET(one.fd, &sets.other)) one.got |= POLLPRI;
  }
}

int select_by(int how, std::span<Polled> fds, int timeout_ms) {
  Sets sets = sets_of(fds);
  timeval time{timeout_ms / 1000, (timeout_ms % 1000) * 1000L};
  const timespec fine{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000L};
  int count;
  if (how == 2) {
    count = select(sets.count, &sets.in, &sets.out, &sets.other, timeout_ms < 0 ? nullptr : &time);
  } else if (how == 3) {
    count = pselect(sets.count, &sets.in, &sets.out, &sets.other, timeout_ms < 0 ? nullptr : &fine,
                    nullptr);
  } else {
    count = static_cast<int>(syscall(SYS_select, sets.count, &sets.in, &sets.out, &sets.other,
                                     timeout_ms < 0 ? nullptr : &time));
  }
  if (count >= 0) note(sets, fds);
  return count;
}

}  // namespace

int poll_by(int how, std::span<Polled> fds, int timeout_ms) {
  if (how == 2 || how == 3 || how == 5) return select_by(how, fds, timeout_ms);
  std::array<pollfd, 4> polled{};
  const size_t size = std::min(fds.size(), polled.size());
  for (size_t i = 0; i < size; ++i) polled[i] = {fds[i].fd, fds[i].wanted, 0};
  const timespec time{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000L};
  int count;
  if (how == 0) {
    count = poll(polled.data(), size, timeout_ms);
  } else if (how == 1) {
    count = ppoll(polled.data(), size, timeout_ms < 0 ? nullptr : &time, nullptr);
  } else {
    count = static_cast<int>(syscall(SYS_poll, polled.data(), size, timeout_ms));
  }
  for (size_t i = 0; i < size; ++i) fds[i].got = polled[i].revents;
  return count;
}

}  // namespace ddpsock::sequences
