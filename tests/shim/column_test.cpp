// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// That a column is what it claims: without this a library that did nothing would pass every test
// here. And what the library may not do to a process, in any column.
#include <dirent.h>
#include <dlfcn.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "base/kernel_call.h"
#include "base/own_ring.h"
#include "ddpsock/ddpsock.h"
#include "kernel.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class ColumnIs : public TcpTest {};

TEST_F(ColumnIs, LoadedInFrontOfLibcOrNot) {
  for (const char* call : {"recv", "send", "connect", "accept4", "epoll_wait", "__read_chk"}) {
    Dl_info where{};
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, call), &where), 0);
    const bool is_ours =
        std::string_view(where.dli_fname).find("ddpsock") != std::string_view::npos;
    EXPECT_EQ(is_ours, column() != Column::kNative) << call << " is in " << where.dli_fname;
  }
}

// What went over the wire, asked past any library.
uint64_t wire_bytes_received(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  EXPECT_EQ(base::kernel_call(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
  return info.tcpi_bytes_received;
}

TEST_F(ColumnIs, WhatItClaimsOnTheWire) {
  const Pair pair = connected_pair();
  for (int time = 0; time < 10; ++time) expect_alive(pair.client.get(), pair.server.get());
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    if (column() == Column::kDdp || column() == Column::kOneSided ||
        column() == Column::kOtherUser) {
      EXPECT_GT(wire_bytes_received(fd), 110u + 10 * 16) << "framing adds to the payload";
    } else if (is_in_memory()) {
      EXPECT_GT(wire_bytes_received(fd), 56u) << "start-up, and an octet for each sleep";
      ddp_status status{};
      socklen_t size = sizeof status;
      ASSERT_EQ(getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &size), 0);
      EXPECT_STREQ(status.engine, "shm") << status.memory;
      EXPECT_GT(status.bytes_received, 100u);
    } else {
      EXPECT_EQ(wire_bytes_received(fd), 110u);
    }
  }
}

TEST_F(ColumnIs, TheFirstBytesAreAnMpaRequest) {
  if (column() == Column::kOneSided) GTEST_SKIP() << "the library's thread takes them";
  const Pair pair = connected_pair();
  send_all(pair.client.get(), "GET / HTTP/1.0\r\n\r\n");
  const int server = pair.server.get();
  ASSERT_TRUE(kernel_poll(server, POLLIN, kSoon));
  char bytes[16] = {};
  EXPECT_EQ(
      base::kernel_call(SYS_recvfrom, server, bytes, sizeof bytes, MSG_PEEK, nullptr, nullptr), 16);
  EXPECT_EQ(std::string(bytes, 16), is_in_ddp_mode() ? "MPA ID Req Frame" : "GET / HTTP/1.0\r\n");
}

ddp_status status_of(int fd) {
  ddp_status status{};
  socklen_t size = sizeof status;
  EXPECT_EQ(getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &size), 0) << strerror(errno);
  return status;
}

TEST_F(ColumnIs, UndecidedUntilThePeerSpeaks) {
  if (column() != Column::kUndecided) GTEST_SKIP() << "each client is known";
  const Pair pair = connected_pair();
  const int server = pair.server.get();
  EXPECT_STREQ(status_of(server).reason, "the client is not proved: its first bytes decide");
  char byte;
  EXPECT_EQ(recv(server, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_STREQ(status_of(server).reason, "the client is not proved: its first bytes decide");
  expect_alive(pair.client.get(), server);
  EXPECT_STREQ(status_of(server).reason, "the peer turned out to be plain TCP");
}

std::set<std::string> names_in(const char* directory) {
  std::set<std::string> names;
  DIR* open_directory = opendir(directory);
  while (const dirent* entry = readdir(open_directory)) names.insert(entry->d_name);
  closedir(open_directory);
  return names;
}

size_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

struct Process {
  std::set<std::string> threads = names_in("/proc/self/task");
  std::set<std::string> descriptors = names_in("/proc/self/fd");
  std::array<struct sigaction, NSIG> actions{};
  sigset_t mask{};
  Process() {
    for (int number = 1; number < NSIG; ++number)
      sigaction(number, nullptr, &actions[size_t(number)]);
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  }
};

void use_everything() {
  for (int time = 0; time < 10; ++time) {
    const Pair pair = connected_pair();
    expect_alive(pair.client.get(), pair.server.get());
    const Fd copy(dup(pair.client.get()));
    shutdown(copy.get(), SHUT_WR);
    expect_end_of_stream(pair.server.get());
  }
}

class Untouched : public TcpTest {};

TEST_F(Untouched, ThreadsSignalsAndMask) {
  if (column() == Column::kOneSided) GTEST_SKIP() << "one-sided operations have a thread";
  const Process before;
  EXPECT_EQ(before.threads.size(), 3u) << "one, and the two dots";
  use_everything();
  const Process after;
  EXPECT_EQ(before.threads, after.threads);
  EXPECT_EQ(memcmp(&before.mask, &after.mask, sizeof before.mask), 0);
  for (int number = 1; number < NSIG; ++number) {
    const auto& was = before.actions[size_t(number)];
    const auto& is = after.actions[size_t(number)];
    EXPECT_EQ(was.sa_handler, is.sa_handler) << number;
    EXPECT_EQ(was.sa_flags, is.sa_flags) << number;
    // Ignored is what nohup leaves behind.
    EXPECT_TRUE(number == SIGPIPE || is.sa_handler == SIG_DFL || is.sa_handler == SIG_IGN)
        << strsignal(number);
  }
}

TEST_F(Untouched, DescriptorsWithinTheProgramsReach) {
  const Process before;
  use_everything();
  const Process after;
  if (is_in_ddp_mode()) {
    for (int fd = 0; fd < 100; ++fd)
      EXPECT_EQ(before.descriptors.count(std::to_string(fd)),
                after.descriptors.count(std::to_string(fd)))
          << fd;
  } else {
    EXPECT_EQ(before.descriptors, after.descriptors);
  }
}

TEST_F(Untouched, MemoryWherePlainTcpIsUsed) {
  if (is_in_ddp_mode()) GTEST_SKIP() << "a connection in DDPMODE has memory";
  const Listener listener = listen_loopback();
  const Fd client = dial(listener.address);
  const Fd server = accept_one(listener.fd.get());
  char byte = 'x';
  const size_t mappings = count_mappings();
  const auto before = mallinfo2();
  for (int time = 0; time < 1000; ++time) {
    EXPECT_EQ(write(client.get(), &byte, 1), 1);
    EXPECT_EQ(read(server.get(), &byte, 1), 1);
    const int copy = dup(client.get());
    close(copy);
    const int other = socket(AF_INET, SOCK_STREAM, 0);
    close(other);
  }
  const auto after = mallinfo2();
  EXPECT_EQ(before.uordblks, after.uordblks);
  EXPECT_EQ(before.arena, after.arena);
  EXPECT_EQ(mappings, count_mappings());
}

TEST_F(Untouched, OutputAndErrorOutput) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd in(ends[0]);
  Fd out(ends[1]);
  Child child([&] {
    dup2(out.get(), STDOUT_FILENO);
    dup2(out.get(), STDERR_FILENO);
    use_everything();
    _exit(HasFailure());
  });
  out.close();
  std::string written;
  char part[512];
  for (ssize_t n; (n = read(in.get(), part, sizeof part)) > 0;) written.append(part, size_t(n));
  EXPECT_EQ(written, "");
  child.expect_success();
}

TEST_F(Untouched, AChildForkedWhileTheThreadStartsHasNoRing) {
  if (column() != Column::kOneSided) GTEST_SKIP() << "a thread is for one-sided operations";
  const auto has_no_ring_and_listens = [] {
    for (const std::string& name : names_in("/proc/self/fd"))
      EXPECT_FALSE(name[0] != '.' && base::is_ring(atoi(name.c_str()))) << name;
    use_everything();
  };
  for (int time = 0; time < 10; ++time) {
    Child with_no_thread_yet([&] {
      const Pair pair = connected_pair();
      Child forked_soon(has_no_ring_and_listens);
      forked_soon.expect_success();
    });
    with_no_thread_yet.expect_success();
  }
}

// No handler tells such a child of the fork.
TEST_F(Untouched, AChildOfABareForkForksAtOnce) {
  if (column() != Column::kOneSided) GTEST_SKIP() << "a thread is for one-sided operations";
  for (int time = 0; time < 10; ++time) {
    Child with_no_thread_yet([&] {
      const Pair pair = connected_pair();
      const pid_t bare = _Fork();
      if (bare == 0) {
        const int64_t start = now_ms();
        const pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, nullptr, 0);
        _exit(now_ms() - start < 500 ? 0 : 1);
      }
      int status = -1;
      waitpid(bare, &status, 0);
      EXPECT_EQ(status, 0);
    });
    with_no_thread_yet.expect_success();
  }
}

TEST_F(Untouched, Errno) {
  const Pair pair = connected_pair();
  errno = 12345;
  send_all(pair.client.get(), "abc");
  EXPECT_EQ(recv_exactly(pair.server.get(), 3), "abc");
  set_option(pair.client.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  EXPECT_EQ(queued_bytes(pair.client.get()), 0);
  EXPECT_EQ(errno, 12345) << "a call that succeeds leaves errno alone";
}

}  // namespace
}  // namespace ddpsock::shim_tests
