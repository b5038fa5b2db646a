// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What both ends of the measured programs share: one connection of plain socket calls, clocks,
// memory.
#ifndef DDPSOCK_BENCH_PEER_H_
#define DDPSOCK_BENCH_PEER_H_

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/crc32c.h"

namespace ddpsock::bench {

[[noreturn]] inline void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

inline uint64_t nanoseconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

inline uint64_t now_ns() {
  return nanoseconds(CLOCK_MONOTONIC);
}

inline uint64_t cpu_ns() {
  return nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
}

// The result is handed to the optimiser as used, so that the work is done.
inline void touch_crc(std::span<const std::byte> bytes) {
  const uint32_t crc = base::crc32c({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  asm volatile("" ::"r"(crc));
}

// How an end waits for its peer: asleep in recv, busy, or asleep in epoll_wait or poll before each
// recv as an event loop does.
enum class Wait : uint8_t { kBlocking, kSpinning, kEpoll, kPoll };

// A connected socket; any error ends the program, for there is nothing to measure then.
struct Peer {
  int fd;
  bool has_crc = false;
  Wait wait = Wait::kBlocking;
  int epoll = -1;

  void start_waiting(Wait how) {
    wait = how;
    if (how == Wait::kBlocking) return;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) die("fcntl");
    if (how == Wait::kSpinning || how == Wait::kPoll) return;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll");
  }

  void send_all(std::span<const std::byte> bytes) const {
    if (has_crc) touch_crc(bytes);
    while (!bytes.empty()) {
      const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n >= 0) {
        bytes = bytes.subspan(static_cast<size_t>(n));
      } else if (errno != EAGAIN) {
        die("send");
      }
    }
  }

  // 0 at the end of the stream.
  size_t recv_some(std::span<std::byte> into) const {
    for (;;) {
      epoll_event event;
      if (wait == Wait::kEpoll && epoll_wait(epoll, &event, 1, -1) < 0) die("epoll_wait");
      pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
      if (wait == Wait::kPoll && poll(&readable, 1, -1) < 0) die("poll");
      const ssize_t n = recv(fd, into.data(), into.size(), 0);
      if (n >= 0) {
        if (has_crc) touch_crc(into.first(static_cast<size_t>(n)));
        return static_cast<size_t>(n);
      }
      if (errno != EAGAIN) die("recv");
    }
  }

  // False if the stream ends before the first byte; a message cut short is an error.
  bool recv_all(std::span<std::byte> into) const {
    for (size_t have = 0; have < into.size();) {
      const size_t n = recv_some(into.subspan(have));
      if (n == 0 && have == 0) return false;
      if (n == 0) {
        errno = ECONNRESET;
        die("recv: message cut short");
      }
      have += n;
    }
    return true;
  }
};

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Touched, so that no page fault is timed.
inline std::vector<std::byte> make_buffer(size_t size) {
  return std::vector<std::byte>(size, std::byte{1});
}

}  // namespace ddpsock::bench

#endif  // DDPSOCK_BENCH_PEER_H_
