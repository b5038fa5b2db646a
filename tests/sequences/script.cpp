// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "script.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstdio>

namespace ddpsock::sequences {
namespace {

std::string number(long value) {
  return std::to_string(value);
}

std::string slot(int which) {
  return "s" + number(which);
}

template <size_t n>
std::string names(uint32_t bits, const Name (&all)[n]) {
  std::string text;
  for (const Name& name : all) {
    if ((bits & static_cast<uint32_t>(name.value)) == 0) continue;
    text += (text.empty() ? "" : "|") + std::string(name.text);
  }
  return text.empty() ? "0" : text;
}

std::string flags_of(int bits) {
  static constexpr Name kFlags[] = {
      {MSG_PEEK, "PEEK"},   {MSG_WAITALL, "WAITALL"}, {MSG_DONTWAIT, "DONTWAIT"},
      {MSG_TRUNC, "TRUNC"}, {MSG_MORE, "MORE"},       {MSG_NOSIGNAL, "NOSIGNAL"},
      {MSG_OOB, "OOB"}};
  return names(static_cast<uint32_t>(bits), kFlags);
}

std::string events_of(uint32_t bits) {
  static constexpr Name kEvents[] = {{EPOLLIN, "IN"},           {EPOLLOUT, "OUT"},
                                     {EPOLLPRI, "PRI"},         {EPOLLRDHUP, "RDHUP"},
                                     {EPOLLONESHOT, "ONESHOT"}, {int(EPOLLET), "ET"}};
  return names(bits, kEvents);
}

std::string poll_text(const Op& op) {
  std::string text = kPollerNames[static_cast<size_t>(op.argument[0])];
  text += "(";
  for (size_t i = 2; i < 5; ++i) {
    if (op.argument[i] < 0) continue;
    text += slot(op.argument[i] >> 16) + "=" +
            events_of(static_cast<uint32_t>(op.argument[i] & 0xffff)) + ", ";
  }
  return text + number(op.argument[1]) + " ms)";
}

std::string call_text(const Op& op) {
  const auto& a = op.argument;
  const std::string first = slot(a[0]);
  switch (op.kind) {
    case Kind::kPair:
      return "pair(" + first + ", " + slot(a[1]) + ", nonblocking " + number(a[2]) + ")";
    case Kind::kListen:
      return "listen(" + first + ", nonblocking " + number(a[1]) + ")";
    case Kind::kSocket:
      return "socket(" + first + ", nonblocking " + number(a[1]) + ")";
    case Kind::kConnect:
      return "connect(" + first + ", " + slot(a[1]) + ")";
    case Kind::kAccept:
      return "accept(" + slot(a[1]) + ") to " + first + ", nonblocking " + number(a[2]) + ", how " +
             number(a[3]);
    case Kind::kSend:
      return std::string(kSenderNames[static_cast<size_t>(a[3])]) + "(" + first + ", " +
             number(a[1]) + ", " + flags_of(a[2]) + ")";
    case Kind::kReceive:
      return std::string(kReceiverNames[static_cast<size_t>(a[3])]) + "(" + first + ", " +
             number(a[1]) + ", " + flags_of(a[2]) + ")";
    case Kind::kFill:
      return "fill(" + first + ")";
    case Kind::kDrain:
      return "drain(" + first + ")";
    case Kind::kPoll:
      return poll_text(op);
    case Kind::kEpollCreate:
      return "epoll_create(" + first + ")";
    case Kind::kEpollControl:
      return "epoll_ctl(" + first + ", " +
             (a[1] == 1   ? "ADD"
              : a[1] == 2 ? "DEL"
                          : "MOD") +
             ", " + slot(a[2]) + ", " + events_of(static_cast<uint32_t>(a[3])) +
             (a[4] != 0 ? ") raw" : ")");
    case Kind::kEpollWait:
      return "epoll_wait(" + first + ", " + number(a[1]) + ", " + number(a[2]) + " ms) how " +
             number(a[3]);
    case Kind::kAwait: {
      constexpr const char* kHow[] = {"poll",         "epoll",    "epoll for edges",
                                      "nested epoll", "io_uring", "SIGIO"};
      return std::string("unseen ") + kHow[a[1]] + "(" + first + ", " + number(a[2]) + " ms)";
    }
    case Kind::kShutdown:
      return "shutdown(" + first + ", " + number(a[1]) + (a[2] != 0 ? ") raw" : ")");
    case Kind::kClose:
      return "close(" + first + ") how " + number(a[1]);
    case Kind::kDup:
      return "dup(" + first + ") to " + slot(a[1]) + " how " + number(a[2]);
    case Kind::kNonblocking:
      return "nonblocking(" + first + ", " + number(a[1]) + ") how " + number(a[2]);
    case Kind::kGetOption:
      return std::string(a[3] != 0 ? "raw " : "") + "getsockopt(" + first + ", " +
             kOptions[static_cast<size_t>(a[1])].text + ")";
    case Kind::kSetOption:
      return std::string(a[3] != 0 ? "raw " : "") + "setsockopt(" + first + ", " +
             kOptions[static_cast<size_t>(a[1])].text + ", " + number(a[2]) + ")";
    case Kind::kQueued:
      return std::string(std::array{"FIONREAD(", "raw FIONREAD(", "SIOCOUTQ(",
                                    "sockatmark("}[static_cast<size_t>(a[1])]) +
             first + ")";
    case Kind::kName:
      return std::string(a[1] != 0 ? "getpeername(" : "getsockname(") + first + ")";
    case Kind::kOpen: {
      constexpr const char* kWhat[] = {"/dev/null", "file", "pipe", "eventfd", "UNIX pair"};
      return std::string("open ") + kWhat[a[1]] + " to " + first +
             (a[1] == 2 || a[1] == 4 ? ", " + slot(a[2]) : "");
    }
    case Kind::kPass:
      return "pass(" + first + ", " + slot(a[1]) + ")";
    case Kind::kTake:
      return "take(" + first + ") to " + slot(a[1]);
    case Kind::kSendFile:
      return "sendfile(" + first + ", " + number(a[1]) + ")";
    case Kind::kSplice:
      return "splice(" + first + ", " + number(a[1]) + (a[2] != 0 ? ", out)" : ", in)");
    case Kind::kFork: {
      constexpr const char* kHow[] = {"fork", "_Fork", "syscall(clone)", "raw clone"};
      return std::string(kHow[a[1]]) + " makes A" + number(a[0]);
    }
    case Kind::kVfork: {
      constexpr const char* kWhat[] = {"exits", "closes", "writes", "dup2s over"};
      return "vfork child " + std::string(kWhat[a[1]]) + " " + first;
    }
    case Kind::kExec:
      return a[0] != 0 ? "exec without the library" : "exec";
    case Kind::kRefused: {
      constexpr const char* kWhich[] = {"pread", "pwrite", "lseek", "ftruncate", "fsync", "isatty",
                                        "fstat", "listen", "bind",  "connect",   "accept"};
      return std::string(kWhich[a[1]]) + " of a stream(" + first + ")";
    }
    case Kind::kAio:
      return std::string(a[2] != 0 ? "aio_write(" : "aio_read(") + first + ")";
    case Kind::kShell: {
      constexpr const char* kHow[] = {"system", "popen", "posix_spawn"};
      return std::string(kHow[a[1]]) + " writes to " + first;
    }
    case Kind::kLimit: {
      constexpr const char* kWhat[] = {"chroot",
                                       "RLIMIT_NOFILE 64",
                                       "RLIMIT_AS",
                                       "RLIMIT_FSIZE 0",
                                       "become nobody",
                                       "a filter of memory calls",
                                       "a filter of socket calls"};
      return kWhat[a[0]];
    }
    case Kind::kSignal: {
      constexpr const char* kHow[] = {"SA_RESTART", "no SA_RESTART", "jump"};
      return "signal A" + number(a[0]) + ", " + kHow[a[1]];
    }
    case Kind::kCancel:
      return "cancel A" + number(a[0]);
    case Kind::kEnd: {
      constexpr const char* kHow[] = {"_exit", "raw exit", "SIGKILL"};
      return "end A" + number(a[0]) + ", " + kHow[a[1]];
    }
    case Kind::kStop:
      return std::string(a[1] != 0 ? "stop A" : "continue A") + number(a[0]);
    default:
      return "?";
  }
}

}  // namespace

std::string to_text(const Op& op) {
  return op.kind >= Kind::kSignal ? call_text(op) : "A" + number(op.actor) + " " + call_text(op);
}

}  // namespace ddpsock::sequences
