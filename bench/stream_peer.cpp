// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The program that bench/stream measures: a TCP program of plain socket calls that knows nothing of
// DDP. The driver starts pairs of it, as it is or under ddprun.
//
//   stream_peer serve [--cpu=N] [--cc=NAME] [--crc] [--no-mpa-crc]
//       listens on loopback, prints the port, serves the connections of one client and ends
//   stream_peer CASE --port=P --size=BYTES [--seconds=S] [--count=N] [--spin] and the above
//       CASE is latency, bandwidth or idle; prints its result as one JSON object
//
//   latency    ping-pong of --size bytes; times in microseconds are one way, half a round trip
//   bandwidth  one direction, --size bytes a send; the receiver's rate after the first 50 ms
//   idle       --count connections that have carried one byte each way; private memory of each side
//
// --spin makes both sides non-blocking and busy. --crc computes CRC32c over every byte on both
// sides, the least that any checked transport costs. --no-mpa-crc asks for DDP without CRC.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "bench/peer.h"
#include "ddpsock/ddpsock.h"

namespace ddpsock::bench {
namespace {

constexpr uint64_t kWarmUpNs = 50'000'000;
constexpr size_t kMinReceiveBuffer = 64 << 10;
constexpr int kBacklog = 1024;

struct Options {
  std::string_view what;
  int port = 0;
  uint64_t size = 64;
  uint64_t count = UINT64_MAX;
  double seconds = 1e9;
  bool is_spinning = false;
  bool has_crc = false;
  bool is_without_mpa_crc = false;
  int cpu = -1;
  const char* congestion_control = "";
};

// The client's first bytes tell the server what to do; the server's last are its report.
struct Request {
  uint64_t size;
  uint64_t connections;
  uint8_t kind;  // first letter of the case
  uint8_t is_spinning;
  uint8_t has_crc;
  uint8_t unused[5];
};

struct Report {
  uint64_t bytes;
  uint64_t ns;
  uint64_t cpu_ns;
  uint64_t memory_kb;
};

// Answers every message with one of the same size until the client ends.
Report serve_latency(const Peer& peer, const Request& request) {
  std::vector<std::byte> message = make_buffer(request.size);
  Report report{};
  const uint64_t start = cpu_ns();
  while (peer.recv_all(message)) {
    peer.send_all(message);
    report.bytes += message.size();
  }
  report.cpu_ns = cpu_ns() - start;
  return report;
}

Report serve_bandwidth(const Peer& peer, const Request& request) {
  std::vector<std::byte> buffer = make_buffer(std::max<size_t>(request.size, kMinReceiveBuffer));
  const uint64_t start = now_ns(), start_cpu = cpu_ns();
  uint64_t total = 0, warm_bytes = 0, warm_at = 0, last = start;
  while (const size_t n = peer.recv_some(buffer)) {
    total += n;
    last = now_ns();
    if (warm_at == 0 && last - start >= kWarmUpNs) {
      warm_bytes = total;
      warm_at = last;
    }
  }
  if (warm_at == 0) warm_at = start;
  return {total - warm_bytes, last - warm_at, cpu_ns() - start_cpu, 0};
}

void set_congestion_control(int fd, const Options& options) {
  const std::string_view name = options.congestion_control;
  if (name.empty()) return;
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                 static_cast<socklen_t>(name.size())) != 0)
    die("TCP_CONGESTION");
}

int make_socket(const Options& options) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  set_congestion_control(fd, options);
  const int off = 0;
  // Plain TCP answers ENOPROTOOPT, and there is no CRC to switch off.
  if (options.is_without_mpa_crc) setsockopt(fd, SOL_DDP, DDP_CRC, &off, sizeof off);
  return fd;
}

void set_nodelay(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) die("TCP_NODELAY");
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int listen_on_loopback(const Options& options) {
  const int fd = make_socket(options);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, length) != 0 || listen(fd, kBacklog) != 0) die("listen");
  if (getsockname(fd, generic, &length) != 0) die("getsockname");
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return fd;
}

int accept_one(int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) die("accept4");
  return fd;
}

// The first connection has been accepted; the others carry one byte each way and then rest.
Report serve_idle(int listener, const Request& request) {
  std::vector<int> fds;
  fds.reserve(request.connections);
  const uint64_t before = private_memory_kb();
  for (uint64_t i = 0; i < request.connections; i++) {
    const Peer peer{accept_one(listener), false, false};
    std::byte byte{};
    if (!peer.recv_all({&byte, 1})) die("idle connection");
    peer.send_all({&byte, 1});
    fds.push_back(peer.fd);
  }
  return {0, 0, 0, private_memory_kb() - before};
}

int serve(const Options& options) {
  const int listener = listen_on_loopback(options);
  const int fd = accept_one(listener);
  Request request{};
  Peer peer{fd, false, false};
  if (!peer.recv_all(bytes_of(request))) return 1;
  if (request.kind == 'l') set_nodelay(fd);
  peer.is_spinning = request.is_spinning != 0;
  peer.has_crc = request.has_crc != 0;
  peer.start_spinning();
  Report report = request.kind == 'l'   ? serve_latency(peer, request)
                  : request.kind == 'b' ? serve_bandwidth(peer, request)
                                        : serve_idle(listener, request);
  peer.send_all(bytes_of(report));
  std::byte byte;
  peer.recv_some({&byte, 1});  // the client leaves last
  return 0;
}

int connect_to(const Options& options) {
  const int fd = make_socket(options);
  sockaddr_in address = loopback(options.port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die("connect");
  return fd;
}

Report finish(const Peer& peer) {
  if (shutdown(peer.fd, SHUT_WR) != 0) die("shutdown");
  Report report{};
  if (!peer.recv_all(bytes_of(report))) die("no report");
  return report;
}

double at_quantile(std::vector<uint32_t>& sorted, double q) {
  const size_t i =
      std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())));
  return sorted[i] / 2e3;
}

void run_latency(const Options& options, const Peer& peer) {
  std::vector<std::byte> message = make_buffer(options.size);
  std::vector<uint32_t> round_trips;
  round_trips.reserve(4 << 20);
  const uint64_t start = now_ns(), start_cpu = cpu_ns();
  const uint64_t stop = start + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t before = start;
  uint64_t sent = 0;
  while (sent < options.count && before < stop && round_trips.size() < round_trips.capacity()) {
    peer.send_all(message);
    if (!peer.recv_all(message)) die("server left");
    const uint64_t after = now_ns();
    sent++;
    if (before - start >= kWarmUpNs) round_trips.push_back(static_cast<uint32_t>(after - before));
    before = after;
  }
  const uint64_t cpu = cpu_ns() - start_cpu;
  const Report report = finish(peer);
  if (report.bytes != sent * options.size) die("server counted other bytes");
  if (round_trips.empty())
    round_trips.push_back(static_cast<uint32_t>((before - start) / std::max<uint64_t>(sent, 1)));
  std::sort(round_trips.begin(), round_trips.end());
  std::printf(
      "{\"p50_us\": %.3f, \"p99_us\": %.3f, \"messages\": %llu, \"client_cpu_us\": %.3f, "
      "\"server_cpu_us\": %.3f}\n",
      at_quantile(round_trips, 0.5), at_quantile(round_trips, 0.99),
      static_cast<unsigned long long>(sent),
      static_cast<double>(cpu) / 1e3 / static_cast<double>(sent),
      static_cast<double>(report.cpu_ns) / 1e3 / static_cast<double>(sent));
}

void run_bandwidth(const Options& options, const Peer& peer) {
  const std::vector<std::byte> message = make_buffer(options.size);
  const uint64_t start_cpu = cpu_ns();
  const uint64_t stop = now_ns() + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t sent = 0;
  while (sent < options.count && now_ns() < stop) {
    peer.send_all(message);
    sent++;
  }
  const uint64_t cpu = cpu_ns() - start_cpu;
  const Report report = finish(peer);
  std::printf(
      "{\"gbit_s\": %.4f, \"messages\": %llu, \"client_cpu_us\": %.3f, \"server_cpu_us\": %.3f}\n",
      static_cast<double>(report.bytes) * 8 / static_cast<double>(report.ns),
      static_cast<unsigned long long>(sent),
      static_cast<double>(cpu) / 1e3 / static_cast<double>(sent),
      static_cast<double>(report.cpu_ns) / 1e3 / static_cast<double>(sent));
}

void run_idle(const Options& options, const Peer& peer) {
  std::vector<int> fds;
  fds.reserve(options.count);
  const uint64_t before = private_memory_kb();
  for (uint64_t i = 0; i < options.count; i++) {
    const Peer idle{connect_to(options), false, false};
    std::byte byte{1};
    idle.send_all({&byte, 1});
    if (!idle.recv_all({&byte, 1})) die("idle connection");
    fds.push_back(idle.fd);
  }
  const uint64_t mine = private_memory_kb() - before;
  const Report report = finish(peer);
  std::printf("{\"client_bytes\": %.1f, \"server_bytes\": %.1f}\n",
              static_cast<double>(mine) * 1024 / static_cast<double>(options.count),
              static_cast<double>(report.memory_kb) * 1024 / static_cast<double>(options.count));
}

int run_client(const Options& options) {
  Peer peer{connect_to(options), false, false};
  if (options.what == "latency") set_nodelay(peer.fd);
  Request request{options.size,        options.count,   static_cast<uint8_t>(options.what[0]),
                  options.is_spinning, options.has_crc, {}};
  peer.send_all(bytes_of(request));
  peer.is_spinning = options.is_spinning;
  peer.has_crc = options.has_crc;
  peer.start_spinning();
  if (options.what == "latency") {
    run_latency(options, peer);
  } else if (options.what == "bandwidth") {
    run_bandwidth(options, peer);
  } else {
    run_idle(options, peer);
  }
  return 0;
}

bool read_option(std::string_view argument, Options& options) {
  const auto value = [&](std::string_view name) -> const char* {
    return argument.starts_with(name) ? argument.data() + name.size() : nullptr;
  };
  if (const char* port = value("--port=")) {
    options.port = std::atoi(port);
  } else if (const char* size = value("--size=")) {
    options.size = std::strtoull(size, nullptr, 10);
  } else if (const char* count = value("--count=")) {
    options.count = std::strtoull(count, nullptr, 10);
  } else if (const char* seconds = value("--seconds=")) {
    options.seconds = std::strtod(seconds, nullptr);
  } else if (const char* cpu = value("--cpu=")) {
    options.cpu = std::atoi(cpu);
  } else if (const char* name = value("--cc=")) {
    options.congestion_control = name;
  } else if (argument == "--spin") {
    options.is_spinning = true;
  } else if (argument == "--crc") {
    options.has_crc = true;
  } else if (argument == "--no-mpa-crc") {
    options.is_without_mpa_crc = true;
  } else {
    return false;
  }
  return true;
}

void pin_to(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
}

int run(int argc, char** argv) {
  Options options;
  options.what = argc > 1 ? argv[1] : "";
  for (int i = 2; i < argc; i++) {
    if (!read_option(argv[i], options)) {
      std::fprintf(stderr, "stream_peer: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  base::crc32c_init();
  pin_to(options.cpu);
  if (options.what == "serve") return serve(options);
  if (options.what == "latency" || options.what == "bandwidth" || options.what == "idle")
    return run_client(options);
  std::fprintf(stderr, "usage: stream_peer serve|latency|bandwidth|idle [OPTION...]\n");
  return 2;
}

}  // namespace
}  // namespace ddpsock::bench

int main(int argc, char** argv) {
  return ddpsock::bench::run(argc, argv);
}
