// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/real.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/sys.h"
#include "shim/policy/policy.h"

// Where this library, or the test that contains it, begins and ends in memory: put there by the
// linker.
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
extern const char* gnu_get_libc_version() __attribute__((weak));
}

namespace ddpsock::shim {
namespace {

bool is_inside_this_library(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address >= reinterpret_cast<uintptr_t>(__ehdr_start) &&
         address < reinterpret_cast<uintptr_t>(_end);
}

// What the program itself would find. Not by RTLD_DEFAULT: linked with -Bsymbolic, this library
// would be asked first.
void* find_first(const char* name) {
  void* program = dlopen(nullptr, RTLD_LAZY);
  if (program == nullptr) return nullptr;
  void* found = dlsym(program, name);
  dlclose(program);
  return found;
}

void* find_next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  // Nothing comes after a library that was itself loaded by dlopen().
  if (found == nullptr) found = find_first(name);
  return is_inside_this_library(found) ? nullptr : found;
}

// What the kernel has handed over is not to be lost with a thread that is cancelled just then.
bool must_not_be_cancelled(int flags) {
  return (flags & MSG_DONTWAIT) != 0 && base::is_any_asynchronous.load(std::memory_order_relaxed);
}

ssize_t recv_for_engines(int fd, void* to, size_t size, int flags) {
  if (must_not_be_cancelled(flags)) [[unlikely]]
    return base::kernel_call(SYS_recvfrom, fd, to, size, flags, nullptr, nullptr);
  return real.recv(fd, to, size, flags);
}

ssize_t recvmsg_for_engines(int fd, msghdr* message, int flags) {
  if (must_not_be_cancelled(flags)) [[unlikely]]
    return base::kernel_call(SYS_recvmsg, fd, message, flags);
  return real.recvmsg(fd, message, flags);
}

void give_engines_the_real_calls() {
  base::sys = {
      .recv = recv_for_engines,
      .recvmsg = recvmsg_for_engines,
      .send = real.send,
      .sendmsg = real.sendmsg,
      .poll = real.poll,
      .shutdown = real.shutdown,
      .socket = real.socket,
      .connect = real.connect,
      .getsockopt = real.getsockopt,
      .setsockopt = real.setsockopt,
      .fcntl = real.fcntl,
      .ioctl = real.ioctl,
      .socketpair = real.socketpair,
      .epoll_create1 = real.epoll_create1,
      .epoll_ctl = real.epoll_ctl,
      .epoll_wait = real.epoll_wait,
  };
}

bool is_behind_a_copy() {
  const void* first = find_first("ddp_poll");
  // Not found: this library was opened with RTLD_LOCAL, or is a part of a test.
  return first != nullptr && !is_inside_this_library(first);
}

[[gnu::constructor(101)]] void start() {
  const base::KeepErrno keep;
  resolve_real_calls();
  if (stands_aside()) choose_nothing();
  // Where the program has a copy of it (-fno-pic, or C++), that is the one that libc writes.
  if (const void* found = find_first("__libc_single_threaded"); found != nullptr)
    base::single_threaded = static_cast<const char*>(found);
}

}  // namespace

// Other libraries' constructors may ask before ours has run.
bool stands_aside() {
  enum class Answer : uint8_t { kUnknown, kYes, kNo };
  static constinit std::atomic<Answer> answer{Answer::kUnknown};
  Answer now = answer.load(std::memory_order_relaxed);
  if (now == Answer::kUnknown) [[unlikely]] {
    const base::KeepErrno keep;
    now = gnu_get_libc_version == nullptr || is_behind_a_copy() ? Answer::kYes : Answer::kNo;
    answer.store(now, std::memory_order_relaxed);
  }
  return now == Answer::kYes;
}

void resolve_real_calls() {
  // An array of function pointers under another name (real_calls.h asserts the size). Collected
  // aside: dlsym may allocate, and the allocator may call us.
  void* found[kRealCalls];
  for (unsigned i = 0; i < kRealCalls; ++i) found[i] = find_next(kRealNames[i]);
  for (unsigned i = 0; i < kRealCalls; ++i) {
    if (found[i] != nullptr)
      memcpy(reinterpret_cast<char*>(&real) + i * sizeof(void*), &found[i], sizeof(void*));
  }
  give_engines_the_real_calls();
}

int boot_pselect(int count, fd_set* readers, fd_set* writers, fd_set* others,
                 const timespec* timeout, const sigset_t* mask) {
  // The kernel writes the rest of the time back, libc's pselect does not.
  timespec rest{};
  if (timeout != nullptr) rest = *timeout;
  const struct {
    const sigset_t* mask;
    size_t size;
  } packed{mask, 8};
  return static_cast<int>(base::kernel_call(SYS_pselect6, count, readers, writers, others,
                                            timeout != nullptr ? &rest : nullptr, &packed));
}

}  // namespace ddpsock::shim
