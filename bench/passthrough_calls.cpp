// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What bench/passthrough measures: intercepted calls on descriptors that are no DDP sockets. The
// driver runs this binary alternately as it is and with the library preloaded; the difference is
// the price that everybody else pays. Google Benchmark does the timing within one run.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

// A system call that fails at once costs least, so that the wrapper shows most.
void fcntl_on_no_fd(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(fcntl(-1, F_GETFL));
}
BENCHMARK(fcntl_on_no_fd);

void write_to_null(benchmark::State& state) {
  const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
  char byte = 0;
  for (auto _ : state) benchmark::DoNotOptimize(write(fd, &byte, 1));
  close(fd);
}
BENCHMARK(write_to_null);

void read_from_null(benchmark::State& state) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  char byte = 0;
  for (auto _ : state) benchmark::DoNotOptimize(read(fd, &byte, 1));
  close(fd);
}
BENCHMARK(read_from_null);

struct SocketPair {
  SocketPair() {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0) std::abort();
  }
  ~SocketPair() {
    close(fd[0]);
    close(fd[1]);
  }
  int fd[2];
};

void recv_with_nothing_there(benchmark::State& state) {
  const SocketPair pair;
  char byte = 0;
  for (auto _ : state) benchmark::DoNotOptimize(recv(pair.fd[0], &byte, 1, MSG_DONTWAIT));
}
BENCHMARK(recv_with_nothing_there);

void poll_one(benchmark::State& state) {
  const SocketPair pair;
  pollfd entry{pair.fd[0], POLLIN, 0};
  for (auto _ : state) benchmark::DoNotOptimize(poll(&entry, 1, 0));
}
BENCHMARK(poll_one);

void epoll_wait_one(benchmark::State& state) {
  const SocketPair pair;
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.fd = pair.fd[0]}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, pair.fd[0], &event) != 0) std::abort();
  for (auto _ : state) benchmark::DoNotOptimize(epoll_wait(epoll, &event, 1, 0));
  close(epoll);
}
BENCHMARK(epoll_wait_one);

void getsockopt_type(benchmark::State& state) {
  const SocketPair pair;
  int type = 0;
  socklen_t length = sizeof type;
  for (auto _ : state)
    benchmark::DoNotOptimize(getsockopt(pair.fd[0], SOL_SOCKET, SO_TYPE, &type, &length));
}
BENCHMARK(getsockopt_type);

}  // namespace

BENCHMARK_MAIN();
