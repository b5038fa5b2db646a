// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The kernel's own view of readiness: system calls made without libc's wrappers, so that no
// preloaded library runs. What a Go program, an io_uring, or another process would see.
#ifndef DDPSOCK_TESTS_SHIM_KERNEL_H_
#define DDPSOCK_TESTS_SHIM_KERNEL_H_

#include <sys/epoll.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {

constexpr int kSoon = 3000;  // ms in which an event that is due must come

// ppoll on one descriptor; the events, 0 after `milliseconds` without one.
short kernel_poll(int fd, short events, int milliseconds);

// Bytes that the kernel has not sent yet (SIOCOUTQNSD), octets and frames and all.
int kernel_unsent(int fd);

// An epoll instance driven by raw system calls only.
class KernelEpoll {
 public:
  KernelEpoll();
  int get() const { return fd_.get(); }
  void add(int fd, uint32_t events);
  void modify(int fd, uint32_t events);
  // The events of one descriptor that is ready, 0 after `milliseconds` without one.
  uint32_t wait(int milliseconds) const;

 private:
  Fd fd_;
};

// A process forked here, that holds copies of the descriptors open now and does nothing but wait on
// epoll instances when told to, by raw system calls. It closes `not_held` at once, so that the
// parent's close of them is the last.
class KernelWatcher {
 public:
  explicit KernelWatcher(const std::vector<int>& not_held);
  ~KernelWatcher();
  KernelWatcher(const KernelWatcher&) = delete;
  KernelWatcher& operator=(const KernelWatcher&) = delete;
  // KernelEpoll::wait(), in the other process.
  uint32_t wait(const KernelEpoll& epoll, int milliseconds) const;

 private:
  Fd channel_;
  pid_t pid_;
};

// A process that forwards the bytes of one connection between a port and `target`, by raw system
// calls, in random small pieces and with small socket buffers, so that nothing arrives as it was
// sent. Ends when both directions ended.
class Relay {
 public:
  Relay(const sockaddr_in& target, uint32_t seed, size_t largest_piece);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  const sockaddr_in& address() const { return address_; }
  // From now on only `count` more bytes pass from the connecting side on; in force on return.
  void allow(int64_t count) const;
  void allow_all() const { allow(kUnlimited); }

 private:
  static constexpr int64_t kUnlimited = int64_t{1} << 60;
  sockaddr_in address_{};
  Fd channel_;
  pid_t pid_;
};

}  // namespace ddpsock::shim_tests

#endif  // DDPSOCK_TESTS_SHIM_KERNEL_H_
