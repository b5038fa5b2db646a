// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/kernel_call.h"

namespace ddpsock::shim_tests {
namespace {

constexpr unsigned kProcessSeconds = 30;

struct WaitOrder {
  int epoll_fd;
  int milliseconds;
};

uint32_t raw_epoll_wait(int epoll_fd, int milliseconds) {
  epoll_event event{};
  long count = 0;
  do {
    count = base::kernel_call(SYS_epoll_pwait, epoll_fd, &event, 1, milliseconds, nullptr, 0);
  } while (count < 0 && errno == EINTR);
  return count > 0 ? event.events : 0;
}

[[noreturn]] void raw_exit() {
  base::kernel_call(SYS_exit_group, 0);
  abort();
}

[[noreturn]] void serve_waits(int channel) {
  for (;;) {
    WaitOrder order{};
    if (base::kernel_call(SYS_read, channel, &order, sizeof order) != sizeof order) raw_exit();
    const uint32_t events = raw_epoll_wait(order.epoll_fd, order.milliseconds);
    base::kernel_call(SYS_write, channel, &events, sizeof events);
  }
}

int narrow(int fd) {
  const int small = 4096, yes = 1;
  base::kernel_call(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  base::kernel_call(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  base::kernel_call(SYS_setsockopt, fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &yes, sizeof yes);
  return fd;
}

// One direction of a relay: takes a random piece in, gives it out in random pieces.
class Forwarder {
 public:
  Forwarder(int from, int to, uint32_t seed, size_t largest_piece)
      : from_(from), to_(to), random_(seed), largest_(largest_piece) {}
  bool is_done() const { return is_done_; }
  void allow(int64_t count) { allowed_ = count; }
  pollfd wanted() const {
    if (is_done_ || allowed_ == 0) return {-1, 0, 0};
    return held_ == at_ ? pollfd{from_, POLLIN, 0} : pollfd{to_, POLLOUT, 0};
  }
  void advance() { held_ == at_ ? take() : give(); }

 private:
  void take() {
    const size_t room = random_size(random_, 1, std::min(largest_, buffer_.size()));
    const long got = base::kernel_call(SYS_read, from_, buffer_.data(), room);
    at_ = 0;
    held_ = got > 0 ? static_cast<size_t>(got) : 0;
    if (got > 0) return;
    base::kernel_call(SYS_shutdown, to_, SHUT_WR);
    is_done_ = true;
  }
  void give() {
    const size_t most = std::min(held_ - at_, static_cast<size_t>(allowed_));
    const size_t piece = random_size(random_, 1, most);
    const long sent =
        base::kernel_call(SYS_sendto, to_, buffer_.data() + at_, piece, MSG_NOSIGNAL, nullptr, 0);
    if (sent < 0) raw_exit();
    at_ += static_cast<size_t>(sent);
    allowed_ -= sent;
  }

  int from_, to_;
  std::mt19937 random_;
  size_t largest_;
  int64_t allowed_ = int64_t{1} << 60;
  std::array<char, 16 * 1024> buffer_{};
  size_t held_ = 0, at_ = 0;
  bool is_done_ = false;
};

void obey(int channel, Forwarder& way) {
  int64_t allowed = 0;
  if (base::kernel_call(SYS_read, channel, &allowed, sizeof allowed) != sizeof allowed) raw_exit();
  way.allow(allowed);
  base::kernel_call(SYS_write, channel, "k", 1);
}

[[noreturn]] void serve_relay(int listener, int channel, const sockaddr_in& target, uint32_t seed,
                              size_t largest_piece) {
  const int near = static_cast<int>(base::kernel_call(SYS_accept4, listener, nullptr, nullptr, 0));
  const int far = narrow(make_raw_client_socket().release());
  if (near < 0 || base::kernel_call(SYS_connect, far, &target, sizeof target) != 0) raw_exit();
  std::array<Forwarder, 2> ways{Forwarder(near, far, seed, largest_piece),
                                Forwarder(far, near, seed + 1, largest_piece)};
  while (!ways[0].is_done() || !ways[1].is_done()) {
    std::array<pollfd, 3> wanted{ways[0].wanted(), ways[1].wanted(), pollfd{channel, POLLIN, 0}};
    base::kernel_call(SYS_ppoll, wanted.data(), wanted.size(), nullptr, nullptr, 0);
    if (wanted[2].revents != 0) {
      obey(channel, ways[0]);
      continue;
    }
    for (size_t way = 0; way < ways.size(); ++way)
      if (wanted[way].revents != 0) ways[way].advance();
  }
  raw_exit();
}

void reap(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

short kernel_poll(int fd, short events, int milliseconds) {
  pollfd one{fd, events, 0};
  timespec time{milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
  return base::kernel_call(SYS_ppoll, &one, 1, &time, nullptr, 0) > 0 ? one.revents : short{0};
}

int kernel_unsent(int fd) {
  int bytes = -1;
  base::kernel_call(SYS_ioctl, fd, SIOCOUTQNSD, &bytes);
  return bytes;
}

KernelEpoll::KernelEpoll()
    : fd_(static_cast<int>(base::kernel_call(SYS_epoll_create1, EPOLL_CLOEXEC))) {}

void KernelEpoll::add(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  EXPECT_EQ(base::kernel_call(SYS_epoll_ctl, get(), EPOLL_CTL_ADD, fd, &event), 0)
      << strerror(errno);
}

void KernelEpoll::modify(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  EXPECT_EQ(base::kernel_call(SYS_epoll_ctl, get(), EPOLL_CTL_MOD, fd, &event), 0)
      << strerror(errno);
}

uint32_t KernelEpoll::wait(int milliseconds) const {
  return raw_epoll_wait(get(), milliseconds);
}

KernelWatcher::KernelWatcher(const std::vector<int>& not_held) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    alarm(kProcessSeconds);
    base::kernel_call(SYS_close, ends[0]);
    for (const int fd : not_held) base::kernel_call(SYS_close, fd);
    serve_waits(ends[1]);
  }
  ::close(ends[1]);
  channel_ = Fd(ends[0]);
}

KernelWatcher::~KernelWatcher() {
  reap(pid_);
}

uint32_t KernelWatcher::wait(const KernelEpoll& epoll, int milliseconds) const {
  const WaitOrder order{epoll.get(), milliseconds};
  uint32_t events = 0;
  EXPECT_EQ(write(channel_.get(), &order, sizeof order), ssize_t{sizeof order});
  EXPECT_EQ(read(channel_.get(), &events, sizeof events), ssize_t{sizeof events});
  return events;
}

Relay::Relay(const sockaddr_in& target, uint32_t seed, size_t largest_piece) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Fd listener(narrow(
      static_cast<int>(base::kernel_call(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))));
  address_ = own_address();
  socklen_t length = sizeof address_;
  EXPECT_EQ(base::kernel_call(SYS_bind, listener.get(), &address_, length), 0) << strerror(errno);
  EXPECT_EQ(base::kernel_call(SYS_listen, listener.get(), 1), 0) << strerror(errno);
  EXPECT_EQ(base::kernel_call(SYS_getsockname, listener.get(), &address_, &length), 0)
      << strerror(errno);
  fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    alarm(kProcessSeconds);
    base::kernel_call(SYS_close, ends[0]);
    serve_relay(listener.get(), ends[1], target, seed, largest_piece);
  }
  ::close(ends[1]);
  channel_ = Fd(ends[0]);
}

Relay::~Relay() {
  reap(pid_);
}

void Relay::allow(int64_t count) const {
  char done;
  EXPECT_EQ(write(channel_.get(), &count, sizeof count), ssize_t{sizeof count});
  EXPECT_EQ(read(channel_.get(), &done, 1), 1);
}

}  // namespace ddpsock::shim_tests
