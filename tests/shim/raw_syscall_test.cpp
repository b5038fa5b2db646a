// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that call the kernel by syscall(), as Node's event loop does when it closes a socket.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/kernel_call.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

class RawSyscall : public TcpTest {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

msghdr message_of(iovec& part) {
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return message;
}

TEST_F(RawSyscall, BytesByEveryCall) {
  using Move = std::function<long(int fd, iovec part)>;
  const Move writes[] = {
      [](int fd, iovec p) { return syscall(SYS_write, fd, p.iov_base, p.iov_len); },
      [](int fd, iovec p) { return syscall(SYS_writev, fd, &p, 1); },
      [](int fd, iovec p) { return syscall(SYS_pwritev2, fd, &p, 1, -1L, -1L, 0); },
      [](int fd, iovec p) { return syscall(SYS_sendto, fd, p.iov_base, p.iov_len, 0, nullptr, 0); },
      [](int fd, iovec p) {
        const msghdr message = message_of(p);
        return syscall(SYS_sendmsg, fd, &message, 0);
      },
      [](int fd, iovec p) {
        mmsghdr message{message_of(p), 0};
        return syscall(SYS_sendmmsg, fd, &message, 1, 0) == 1 ? long{message.msg_len} : -1;
      },
  };
  const Move reads[] = {
      [](int fd, iovec p) { return syscall(SYS_read, fd, p.iov_base, p.iov_len); },
      [](int fd, iovec p) { return syscall(SYS_readv, fd, &p, 1); },
      [](int fd, iovec p) { return syscall(SYS_preadv2, fd, &p, 1, -1L, -1L, 0); },
      [](int fd, iovec p) {
        return syscall(SYS_recvfrom, fd, p.iov_base, p.iov_len, 0, nullptr, nullptr);
      },
      [](int fd, iovec p) {
        msghdr message = message_of(p);
        return syscall(SYS_recvmsg, fd, &message, 0);
      },
      [](int fd, iovec p) {
        mmsghdr message{message_of(p), 0};
        return syscall(SYS_recvmmsg, fd, &message, 1, 0, nullptr) == 1 ? long{message.msg_len} : -1;
      },
  };
  for (const Move& write : writes) {
    char out[] = "to libc";
    ASSERT_EQ(write(client_, {out, 7}), 7);
    ASSERT_EQ(recv_exactly(server_, 7), "to libc");
  }
  for (const Move& read : reads) {
    char in[16] = {};
    send_all(client_, "from libc");
    ASSERT_EQ(read(server_, {in, sizeof in}), 9);
    ASSERT_STREQ(in, "from libc");
  }
  for (const Move& write : writes)
    for (const Move& read : reads) {
      char out[] = "hello", in[16] = {};
      ASSERT_EQ(write(client_, {out, 5}), 5);
      ASSERT_EQ(read(server_, {in, sizeof in}), 5);
      ASSERT_STREQ(in, "hello");
    }
}

TEST_F(RawSyscall, ErrorsAreLibcs) {
  errno = 0;
  EXPECT_EQ(syscall(SYS_read, closed_number(), nullptr, 0), -1);
  EXPECT_EQ(errno, EBADF);
  errno = 0;
  EXPECT_EQ(syscall(SYS_kill, getpid(), 1000), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(syscall(400000), -1);
  EXPECT_EQ(errno, ENOSYS);
  char byte;
  EXPECT_EQ(syscall(SYS_recvfrom, server_, &byte, 1, MSG_DONTWAIT, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
}

[[gnu::noinline]] pid_t end_in_vfork_child() {
  const pid_t child = vfork();
  if (child == 0) syscall(SYS_exit_group, 3);
  return child;
}

// The child's thread is its parent's, and whatever the child's last call has begun nobody ends.
TEST_F(RawSyscall, AVforkChildThatEndsLeavesItsParentsThreadAsItWas) {
  std::thread([] {}).join();  // no call of a process with a single thread looks at cancellation
  const pid_t child = end_in_vfork_child();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  int before = -1;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
  EXPECT_EQ(before, PTHREAD_CANCEL_ENABLE);
  expect_alive(client_, server_);
}

Pair pair_by_raw_calls() {
  const Fd listener(static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0)));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(syscall(SYS_bind, listener.get(), &address, length), 0);
  EXPECT_EQ(syscall(SYS_listen, listener.get(), 4), 0);
  EXPECT_EQ(syscall(SYS_getsockname, listener.get(), &address, &length), 0);
  Pair pair;
  pair.client = Fd(static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0)));
  EXPECT_EQ(syscall(SYS_connect, pair.client.get(), &address, length), 0);
  pair.server = Fd(static_cast<int>(syscall(SYS_accept4, listener.get(), nullptr, nullptr, 0)));
  return pair;
}

TEST_F(RawSyscall, ConnectionsMadeByRawCalls) {
  for (int i = 0; i < 3; ++i) {
    const Pair pair = pair_by_raw_calls();
    expect_alive(pair.client.get(), pair.server.get());
    EXPECT_EQ(syscall(SYS_shutdown, pair.client.get(), SHUT_WR), 0);
    EXPECT_EQ(recv_to_end(pair.server.get()), "");
  }
}

// So that `fd` is the next number that the kernel gives once it is closed.
std::vector<Fd> take_numbers_below(int fd) {
  std::vector<Fd> taken;
  for (;;) {
    Fd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (next.get() > fd) return taken;
    taken.push_back(std::move(next));
  }
}

// Closes `fd` and has `make` give its number to something else.
void give_away(int fd, const std::function<int()>& make) {
  const std::vector<Fd> lower = take_numbers_below(fd);
  ASSERT_EQ(syscall(SYS_close, fd), 0);
  ASSERT_EQ(make(), fd);
}

TEST_F(RawSyscall, NumberOfAClosedSocketIsADupsNext) {
  Pair other = connected_pair();
  send_all(server_, "unread");
  give_away(pair_.client.release(), [&] { return dup(other.client.get()); });
  const Fd copy(client_);
  expect_alive(copy.get(), other.server.get());
}

TEST_F(RawSyscall, NumberOfAClosedSocketIsAFilesNext) {
  send_all(server_, "unread");
  give_away(pair_.client.release(),
            [] { return static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/dev/zero", O_RDWR)); });
  const Fd file(client_);
  char bytes[8] = "xxxxxxx";
  EXPECT_EQ(read(file.get(), bytes, 8), 8);
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(write(file.get(), "x", 1), 1);
}

TEST_F(RawSyscall, NumberOfAClosedSocketIsAPipesNext) {
  send_all(server_, "unread");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd in(ends[1]), out(ends[0]);
  give_away(pair_.client.release(), [&] { return static_cast<int>(syscall(SYS_dup, ends[0])); });
  const Fd copy(client_);
  EXPECT_EQ(write(in.get(), "pipe", 4), 4);
  char bytes[8] = {};
  EXPECT_EQ(read(copy.get(), bytes, 8), 4);
  EXPECT_STREQ(bytes, "pipe");
}

TEST_F(RawSyscall, NumberOfAClosedSocketComesBackFromAccept) {
  const Listener listener = listen_loopback();
  for (int round = 0; round < 50; ++round) {
    Fd client = dial(listener.address);
    Fd server = accept_one(listener.fd.get());
    const int number = server.get();
    const std::vector<Fd> lower = take_numbers_below(number);
    for (int turn = 0; turn < 3; ++turn) {
      send_all(client.get(), "question");
      EXPECT_EQ(recv_exactly(server.get(), 8), "question");
      send_all(server.get(), "answer");
      EXPECT_EQ(recv_exactly(client.get(), 6), "answer");
    }
    if (round % 2) send_all(client.get(), "more that nobody reads");
    Fd next = dial(listener.address);
    send_all(next.get(), "next");
    EXPECT_EQ(syscall(SYS_close, server.release()), 0);
    const Fd again = accept_one(listener.fd.get());
    ASSERT_EQ(again.get(), number);
    EXPECT_EQ(recv_exactly(again.get(), 4), "next");
    expect_alive(next.get(), again.get());
  }
}

TEST_F(RawSyscall, CloseRangeAndDup2Close) {
  send_all(client_, "last words");
  ASSERT_EQ(syscall(SYS_close_range, pair_.client.release(), client_, 0), 0);
  EXPECT_EQ(recv_to_end(server_), "last words");
  Pair first = connected_pair(), second = connected_pair();
  ASSERT_EQ(syscall(SYS_dup2, second.client.get(), first.client.get()), first.client.get());
  expect_end_of_stream(first.server.get());
  expect_alive(first.client.get(), second.server.get());
  const Fd copy(static_cast<int>(syscall(SYS_fcntl, first.client.get(), F_DUPFD_CLOEXEC, 100)));
  expect_alive(copy.get(), second.server.get());
}

// An answer longer than the socket's buffers, then a close by number, as Node serves.
TEST_F(RawSyscall, ServerThatClosesByRawCalls) {
  constexpr int kConnections = 60;
  const std::string answer = pattern(300'000);
  const Listener listener = listen_loopback();
  std::jthread server([&] {
    for (int i = 0; i < kConnections; ++i) {
      Fd fd = accept_one(listener.fd.get());
      EXPECT_EQ(recv_exactly(fd.get(), 3), "get");
      send_all(fd.get(), answer);
      EXPECT_EQ(syscall(SYS_close, fd.release()), 0);
    }
  });
  std::vector<std::jthread> clients;
  for (int thread = 0; thread < 3; ++thread)
    clients.emplace_back([&] {
      for (int i = 0; i < kConnections / 3; ++i) {
        const Fd fd = dial(listener.address);
        send_all(fd.get(), "get");
        ASSERT_TRUE(is_same(recv_to_end(fd.get()), answer)) << "connection " << i;
      }
    });
}

// The same under epoll, everything but connect and accept by syscall().
TEST_F(RawSyscall, EchoUnderEpollWithRawCalls) {
  constexpr int kConnections = 64, kTurns = 8;
  const Listener listener = listen_loopback(64, SOCK_NONBLOCK);
  std::jthread server([&] {
    const int set = static_cast<int>(syscall(SYS_epoll_create1, 0));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = listener.fd.get();
    ASSERT_EQ(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, listener.fd.get(), &event), 0);
    for (int closed = 0; closed < kConnections;) {
      epoll_event ready[16];
      const long count = syscall(SYS_epoll_pwait, set, ready, 16, -1, nullptr, 8);
      ASSERT_GT(count, 0) << strerror(errno);
      for (long i = 0; i < count; ++i) {
        int fd = ready[i].data.fd;
        if (fd == listener.fd.get()) {
          fd = column() == Column::kRawServer
                   ? static_cast<int>(
                         base::kernel_call(SYS_accept4, fd, nullptr, nullptr, SOCK_NONBLOCK))
                   : accept4(fd, nullptr, nullptr, SOCK_NONBLOCK);
          if (fd < 0) continue;
          event.data.fd = fd;
          ASSERT_EQ(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event), 0);
          continue;
        }
        char bytes[256];
        const long got = syscall(SYS_read, fd, bytes, sizeof bytes);
        if (got < 0 && errno == EAGAIN) continue;
        ASSERT_GE(got, 0) << strerror(errno);
        if (got > 0) {
          ASSERT_EQ(syscall(SYS_write, fd, bytes, got), got);
          continue;
        }
        ASSERT_EQ(syscall(SYS_close, fd), 0);
        ++closed;
      }
    }
    syscall(SYS_close, set);
  });
  std::vector<std::jthread> clients;
  for (uint32_t thread = 0; thread < 4; ++thread)
    clients.emplace_back([&, thread] {
      for (uint32_t i = 0; i < kConnections / 4; ++i) {
        Fd fd = dial(listener.address);
        for (uint32_t turn = 0; turn < kTurns; ++turn) {
          const std::string bytes = pattern(200, thread * 10'000 + i * 100 + turn);
          send_all(fd.get(), bytes);
          ASSERT_TRUE(is_same(recv_exactly(fd.get(), bytes.size()), bytes));
        }
        EXPECT_EQ(syscall(SYS_close, fd.release()), 0);
      }
    });
}

TEST_F(RawSyscall, Pollers) {
  char byte;
  pollfd one{server_, POLLIN, 0};
  fd_set readers;
  const auto set_readers = [&] {
    FD_ZERO(&readers);
    FD_SET(server_, &readers);
  };
  timespec short_time{0, 5 * kNsPerMs};
  EXPECT_EQ(syscall(SYS_ppoll, &one, 1, &short_time, nullptr, 0), 0);
  EXPECT_EQ(short_time.tv_nsec, 0) << "the kernel writes the rest of the time back";
  short_time = {0, 5 * kNsPerMs};
  set_readers();
  EXPECT_EQ(syscall(SYS_pselect6, server_ + 1, &readers, nullptr, nullptr, &short_time, nullptr),
            0);
  EXPECT_EQ(short_time.tv_nsec, 0);
  sigset_t mask;
  sigemptyset(&mask);
  EXPECT_EQ(syscall(SYS_ppoll, &one, 1, nullptr, &mask, sizeof mask), -1);
  EXPECT_EQ(errno, EINVAL);
  send_all(client_, "x");
  EXPECT_EQ(syscall(SYS_poll, &one, 1, -1), 1);
  timespec long_time{1000, 0};
  EXPECT_EQ(syscall(SYS_ppoll, &one, 1, &long_time, &mask, 8), 1);
  EXPECT_GT(long_time.tv_sec, 0);
  set_readers();
  EXPECT_EQ(syscall(SYS_select, server_ + 1, &readers, nullptr, nullptr, nullptr), 1);
  struct {
    const sigset_t* mask;
    size_t size;
  } packed{&mask, 8};
  set_readers();
  EXPECT_EQ(syscall(SYS_pselect6, server_ + 1, &readers, nullptr, nullptr, nullptr, &packed), 1);
  const Fd set(static_cast<int>(syscall(SYS_epoll_create1, EPOLL_CLOEXEC)));
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(syscall(SYS_epoll_ctl, set.get(), EPOLL_CTL_ADD, server_, &event), 0);
  EXPECT_EQ(syscall(SYS_epoll_wait, set.get(), &event, 1, -1), 1);
  EXPECT_EQ(syscall(SYS_epoll_pwait, set.get(), &event, 1, -1, &mask, 8), 1);
  EXPECT_EQ(syscall(SYS_epoll_pwait2, set.get(), &event, 1, nullptr, &mask, 8), 1);
  EXPECT_EQ(syscall(SYS_read, server_, &byte, 1), 1);
}

// The child has nothing on its stack but where to return to.
int child_ran = 0;
[[noreturn]] void in_child() {
  child_ran = 1;
  for (;;) base::kernel_call(SYS_exit, 0);
}

// The kernel writes back what is left of the time, and lets it be where it cannot.
TEST_F(RawSyscall, PollersWithAConstantTimeout) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const timeout = static_cast<timespec*>(page);
  *timeout = {.tv_sec = 0, .tv_nsec = kNsPerMs};
  ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
  pollfd one{client_, POLLIN, 0};
  EXPECT_EQ(syscall(SYS_ppoll, &one, 1, timeout, nullptr, 0), 0);
  EXPECT_EQ(syscall(SYS_pselect6, 0, nullptr, nullptr, nullptr, timeout, nullptr), 0);
  EXPECT_EQ(timeout->tv_nsec, kNsPerMs);
  munmap(page, 4096);
}

// A program that the child executes does not end what the library began for the thread of both.
TEST_F(RawSyscall, ExecutedByAVforkChild) {
  static char path[] = "/bin/true";
  static char* arguments[] = {path, nullptr};
  const pid_t pid = vfork();
  if (pid == 0) {
    syscall(SYS_execve, path, arguments, environ);
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  int state = -1;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  EXPECT_EQ(state, PTHREAD_CANCEL_ENABLE);
}

TEST_F(RawSyscall, CloneOnAStackOfItsOwn) {
  alignas(16) static std::array<void*, 4096> stack;
  void** top = stack.data() + stack.size() - 3;
  *top = reinterpret_cast<void*>(&in_child);
  const long pid = syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, top, nullptr, nullptr, 0);
  ASSERT_GT(pid, 0) << strerror(errno);
  EXPECT_EQ(waitpid(static_cast<pid_t>(pid), nullptr, 0), pid);
  EXPECT_EQ(child_ran, 1);
  expect_alive(client_, server_);
}

// syscall() is no cancellation point: a thread that is cancelled in it gets its byte all the same.
TEST_F(RawSyscall, ReadIsNotCancelled) {
  std::atomic<pthread_t> reader{};
  std::atomic<long> got{-2};
  std::thread thread([&] {
    reader = pthread_self();
    char byte;
    got = syscall(SYS_read, server_, &byte, 1);
    pthread_testcancel();
  });
  while (reader == pthread_t{}) sched_yield();
  sleep_ms(20);
  pthread_cancel(reader);
  sleep_ms(20);
  send_all(client_, "x");
  thread.join();
  EXPECT_EQ(got, 1);
}

}  // namespace
}  // namespace ddpsock::shim_tests
