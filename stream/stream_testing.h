// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For the tests of the stream engine: a pair of TCP sockets and one end of a stream.
#ifndef DDPSOCK_STREAM_STREAM_TESTING_H_
#define DDPSOCK_STREAM_STREAM_TESTING_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stream/stream.h"

namespace ddpsock::engine {

using Buffer = std::vector<uint8_t>;

inline Buffer pattern(size_t n, uint32_t seed = 1) {
  Buffer b(n);
  std::minstd_rand rng(seed);
  for (auto& x : b) x = static_cast<uint8_t>(rng() >> 7);
  return b;
}

struct TcpPair {
  // Whose choice the sizes of buffers are: a stream in memory keeps to the program's.
  enum class Sizes : uint8_t { kPrograms, kHosts };
  int client = -1, server = -1;
  explicit TcpPair(int sndbuf = 0, int rcvbuf = 0, Sizes sizes = Sizes::kPrograms) {
    const int l = ::socket(AF_INET, SOCK_STREAM, 0);
    if (rcvbuf != 0) setsockopt(l, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    EXPECT_EQ(bind(l, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    EXPECT_EQ(listen(l, 1), 0);
    getsockname(l, reinterpret_cast<sockaddr*>(&a), &size);
    client = ::socket(AF_INET, SOCK_STREAM, 0);
    if (sndbuf != 0) setsockopt(client, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
    if (rcvbuf != 0) setsockopt(client, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
    constexpr int kBufLock = 72;  // SO_BUF_LOCK
    constexpr int kIsReceiveBufferSet = 2;
    if (sizes == Sizes::kHosts)
      setsockopt(client, SOL_SOCKET, kBufLock, &kIsReceiveBufferSet, sizeof kIsReceiveBufferSet);
    EXPECT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    server = ::accept(l, nullptr, nullptr);
    ::close(l);
    const int one = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const timeval limit{10, 0};
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~TcpPair() {
    close_client();
    close_server();
  }
  void close_client() {
    if (client >= 0) ::close(std::exchange(client, -1));
  }
  void close_server() {
    if (server >= 0) ::close(std::exchange(server, -1));
  }
};

// One end in DDPMODE.
struct End {
  int fd;
  Stream* s;
  End(int f, Role role, Peer peer = Peer::kProved, bool strict = false, bool crc = true,
      bool memory = false)
      : End(f, {.role = role,
                .peer = peer,
                .is_strict = strict,
                .may_share_memory = memory,
                .wants_crc = crc}) {}
  End(int f, const StreamAttr& attr) : fd(f) {
    auto r = user_stream_engine().open(f, attr);
    EXPECT_TRUE(r.has_value());
    s = *r;
  }
  ~End() { release(); }
  void release() {
    if (s != nullptr) std::exchange(s, nullptr)->release(fd);
  }
  End(const End&) = delete;

  Io send(const Buffer& b, int flags = 0) {
    const iovec v{const_cast<uint8_t*>(b.data()), b.size()};
    return s->send(fd, {&v, 1}, flags);
  }
  Io recv(uint8_t* p, size_t n, int flags = 0) {
    const iovec v{p, n};
    return s->recv(fd, {&v, 1}, flags);
  }
  Buffer recv(size_t n, int flags = 0) {
    Buffer b(n, 0xa5);
    const Io io = recv(b.data(), n, flags);
    EXPECT_EQ(io.error, 0) << strerror(io.error);
    for (size_t i = static_cast<size_t>(std::max<ssize_t>(io.count, 0)); i < n; ++i)
      EXPECT_EQ(b[i], 0xa5) << "byte beyond the returned count touched";
    b.resize(static_cast<size_t>(std::max<ssize_t>(io.count, 0)));
    return b;
  }
};

struct MemoryEnd : End {
  MemoryEnd(int fd_to_use, Role role) : End(fd_to_use, role, Peer::kProved, false, true, true) {}
};

inline bool kernel_says_readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}

// What this process has of the memory of connections, and of descriptors.
inline std::vector<std::pair<uintptr_t, uintptr_t>> mapped_segments() {
  std::ifstream in("/proc/self/maps");
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (std::string line; std::getline(in, line);) {
    if (line.find("ddpsock-stream") == std::string::npos) continue;
    const size_t dash = line.find('-');
    ranges.emplace_back(std::stoull(line, nullptr, 16),
                        std::stoull(line.substr(dash + 1), nullptr, 16));
  }
  return ranges;
}
inline size_t open_files() {
  size_t n = 0;
  for (int fd = 0; fd < 4096; ++fd) n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return n;
}

// A thread, or the first of a process: sleeps in the kernel, not runs.
inline bool is_asleep(pid_t thread) {
  std::ifstream stat("/proc/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end, 3, ") S") == 0;
}

// A thread in a call of which it is known that it sleeps in the kernel, or for a lease.
template <typename F>
class Sleeper {
 public:
  explicit Sleeper(F f)
      : thread_([this, f] {
          tid_ = gettid();
          f();
          is_done_ = true;
        }) {
    while (tid_ == 0) sched_yield();
    while (!is_done_ && !is_asleep(tid_)) sched_yield();
  }
  ~Sleeper() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  // Until it sleeps and has not run for a while.
  void await_calm() const {
    for (int calm = 0; calm < 3 && !is_done_; usleep(1000)) calm = is_asleep(tid_) ? calm + 1 : 0;
  }
  bool is_done() const { return is_done_; }

 private:
  std::atomic<int> tid_{0};
  std::atomic<bool> is_done_{false};
  std::thread thread_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_STREAM_TESTING_H_
