// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Many connections between two processes of plain socket calls: what one costs while it rests, and
// what an operation costs among so many.
//
//   connections_peer serve [OPTION...]    listens, prints the port, serves one client and ends
//   connections_peer client --count=N [OPTION...]    prints one JSON object; the options are in
//   options.h
//
// The server is an event loop (epoll) that sends back what it reads. The client opens --count
// connections, each of which carries one message both ways, weighs both processes, then plays
// ping-pong of --size bytes on one connection after the other in random order for --seconds.
// Memory is the proportional set size, so that what both processes map is counted once; the
// kernel's own socket memory is not in it.
#include <unistd.h>

#include <cstdio>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "bench/options.h"
#include "bench/peer.h"

namespace ddpsock::bench {
namespace {

constexpr int kEvents = 256;
constexpr size_t kBufferBytes = 64 << 10;

struct Report {
  uint64_t cpu_ns;
  int64_t memory_kb;
};

// Anonymous and shared memory, not files, of which a process has less when another maps them too.
int64_t memory_kb() {
  FILE* f = std::fopen("/proc/self/smaps_rollup", "r");
  if (f == nullptr) die("smaps_rollup");
  char line[256];
  int64_t total = 0;
  while (std::fgets(line, sizeof line, f) != nullptr) {
    long long kb = 0;
    if (std::sscanf(line, "Pss_Anon: %lld", &kb) == 1 ||
        std::sscanf(line, "Pss_Shmem: %lld", &kb) == 1)
      total += kb;
  }
  std::fclose(f);
  return total;
}

class Server {
 public:
  Server(int listener, int control)
      : listener_(listener), control_{control}, before_kb_(memory_kb()) {
    watch(listener_);
    watch(control);
  }

  // Until the client has no more to say on the first connection. Each byte there asks for the
  // report of what has been used since the last one.
  void run() {
    epoll_event events[kEvents];
    for (;;) {
      const int n = epoll_wait(epoll_, events, kEvents, -1);
      if (n < 0) die("epoll_wait");
      for (const epoll_event& event : std::span(events, static_cast<size_t>(n))) {
        if (event.data.fd == listener_) {
          watch(accept_one(listener_));
        } else if (event.data.fd != control_.fd) {
          echo(event.data.fd);
        } else if (!answer_client()) {
          return;
        }
      }
    }
  }

 private:
  void watch(int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll");
  }

  void echo(int fd) {
    const Peer peer{fd};
    const size_t n = peer.recv_some(buffer_);
    if (n != 0) {
      peer.send_all(std::span(buffer_).first(n));
    } else if (close(fd) != 0) {
      die("close");
    }
  }

  bool answer_client() {
    std::byte asking;
    if (control_.recv_some({&asking, 1}) == 0) return false;
    Report report{cpu_ns() - cpu_, memory_kb() - before_kb_};
    control_.send_all(bytes_of(report));
    cpu_ = cpu_ns();
    return true;
  }

  int listener_;
  Peer control_;
  int64_t before_kb_;
  uint64_t cpu_ = cpu_ns();
  int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::byte> buffer_ = make_buffer(kBufferBytes);
};

int serve(const Options& options) {
  const int listener = listen_and_print_port(options);
  Server(listener, accept_one(listener)).run();
  return 0;
}

Report ask_for_report(const Peer& control) {
  const std::byte asking{1};
  Report report{};
  control.send_all({&asking, 1});
  if (!control.recv_all(bytes_of(report))) die("no report");
  return report;
}

void play(const Peer& peer, std::span<std::byte> message) {
  peer.send_all(message);
  if (!peer.recv_all(message)) die("server left");
}

int run_client(const Options& options) {
  std::vector<std::byte> message = make_buffer(options.size);
  std::vector<Peer> peers;
  peers.reserve(options.count);
  const Peer control{connect_to(options)};
  ask_for_report(control);
  const int64_t before_kb = memory_kb();
  const uint64_t connecting = now_ns();
  for (uint64_t i = 0; i < options.count; i++) {
    peers.push_back({connect_to(options)});
    set_nodelay(peers.back().fd);
    play(peers.back(), message);
  }
  const uint64_t connected = now_ns();
  const int64_t mine_kb = memory_kb() - before_kb;
  const Report idle = ask_for_report(control);

  std::minstd_rand random(1);  // every run plays the same order
  const uint64_t start = now_ns(), start_cpu = cpu_ns();
  const uint64_t stop = start + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t done = 0;
  for (; now_ns() < stop; done++) play(peers[random() % peers.size()], message);
  const uint64_t ns = now_ns() - start, cpu = cpu_ns() - start_cpu;
  const Report busy = ask_for_report(control);

  const auto count = static_cast<double>(options.count), operations = static_cast<double>(done);
  std::printf(
      "{\"client_bytes\": %.1f, \"server_bytes\": %.1f, \"connect_us\": %.3f, \"operation_us\": "
      "%.3f, "
      "\"cpu_us\": %.3f, \"operations\": %llu}\n",
      static_cast<double>(mine_kb) * 1024 / count,
      static_cast<double>(idle.memory_kb) * 1024 / count,
      static_cast<double>(connected - connecting) / 1e3 / count,
      static_cast<double>(ns) / 1e3 / operations,
      static_cast<double>(cpu + busy.cpu_ns) / 1e3 / operations,
      static_cast<unsigned long long>(done));
  return 0;
}

int run(int argc, char** argv) {
  const Options options = start(argc, argv);
  if (options.what == "serve") return serve(options);
  if (options.what == "client" && options.count != UINT64_MAX) return run_client(options);
  std::fprintf(stderr,
               "usage: connections_peer serve [OPTION...] | client --count=N [OPTION...]\n");
  return 2;
}

}  // namespace
}  // namespace ddpsock::bench

int main(int argc, char** argv) {
  return ddpsock::bench::run(argc, argv);
}
