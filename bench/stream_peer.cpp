// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One connection under measurement: a TCP program of plain socket calls that knows nothing of DDP.
// The driver starts pairs of it, as it is or under ddprun.
//
//   stream_peer serve [OPTION...]   listens, prints the port, serves one client and ends
//   stream_peer CASE [OPTION...]    prints its result as one JSON object; the options are in
//   options.h
//
//   latency    ping-pong of --size bytes; microseconds are one way, half a round trip
//   bandwidth  one direction, --size bytes a send, as fast as they go; the receiver's rate
//   window     one direction, --size bytes a send, after every --window sends the sender waits
//              for a message of the receiver (the way of Balaji et al.); the receiver's rate
//   fetch      the client asks for --size bytes and reads them; microseconds from asking to the
//              last byte
//
// Rates leave the first 50 ms out.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "bench/options.h"
#include "bench/peer.h"
#include "bench/timing.h"

namespace ddpsock::bench {
namespace {

constexpr size_t kMinReceiveBuffer = 64 << 10;
constexpr size_t kAskingBytes = 64;

// The client's first bytes tell the server what to do; the server's last are its report.
struct Request {
  uint64_t size;
  uint64_t window;
  uint8_t kind;  // first letter of the case
  Wait wait;
  uint8_t has_crc;
  uint8_t unused[5];
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
  Meter meter;
  while (const size_t n = peer.recv_some(buffer)) meter.add(n);
  return meter.report();
}

Report serve_window(const Peer& peer, const Request& request) {
  std::vector<std::byte> buffer = make_buffer(std::max<size_t>(request.size, kMinReceiveBuffer));
  const uint64_t window = request.size * request.window;
  const std::byte reply{};
  Meter meter;
  uint64_t missing = window;
  while (const size_t n =
             peer.recv_some(std::span(buffer).first(std::min<uint64_t>(buffer.size(), missing)))) {
    meter.add(n);
    missing -= n;
    if (missing != 0) continue;
    peer.send_all({&reply, 1});
    missing = window;
  }
  return meter.report();
}

Report serve_fetch(const Peer& peer, const Request& request) {
  const std::vector<std::byte> file = make_buffer(request.size);
  std::vector<std::byte> asking = make_buffer(kAskingBytes);
  const uint64_t start = cpu_ns();
  Report report{};
  while (peer.recv_all(asking)) {
    peer.send_all(file);
    report.bytes += file.size();
  }
  report.cpu_ns = cpu_ns() - start;
  return report;
}

Report serve_case(const Peer& peer, const Request& request) {
  switch (request.kind) {
    case 'l':
      return serve_latency(peer, request);
    case 'b':
      return serve_bandwidth(peer, request);
    case 'w':
      return serve_window(peer, request);
    default:
      return serve_fetch(peer, request);
  }
}

bool is_nodelay(uint8_t kind) {
  return kind != 'b';
}

int serve(const Options& options) {
  const int listener = listen_and_print_port(options);
  Peer peer{accept_one(listener)};
  Request request{};
  if (!peer.recv_all(bytes_of(request))) return 1;
  if (is_nodelay(request.kind)) set_nodelay(peer.fd);
  peer.has_crc = request.has_crc != 0;
  peer.start_waiting(request.wait);
  Report report = serve_case(peer, request);
  peer.send_all(bytes_of(report));
  std::byte byte;
  peer.recv_some({&byte, 1});  // the client leaves last
  return 0;
}

Report finish(const Peer& peer) {
  if (shutdown(peer.fd, SHUT_WR) != 0) die("shutdown");
  Report report{};
  if (!peer.recv_all(bytes_of(report))) die("no report");
  return report;
}

// Sends `asking` and reads `answer` until the time is over; `ways` is 2 where a time is one way.
void run_times(const Options& options, const Peer& peer, std::span<const std::byte> asking,
               std::span<std::byte> answer, double ways) {
  Times times(options);
  const uint64_t start_cpu = cpu_ns();
  while (!times.is_over(options)) {
    peer.send_all(asking);
    if (!peer.recv_all(answer)) die("server left");
    times.add();
  }
  const uint64_t cpu = cpu_ns() - start_cpu;
  const Report report = finish(peer);
  if (report.bytes != times.done * options.size) die("server counted other bytes");
  print_times(times, ways, cpu, report);
}

void run_latency(const Options& options, const Peer& peer) {
  std::vector<std::byte> message = make_buffer(options.size);
  run_times(options, peer, message, message, 2);
}

void run_fetch(const Options& options, const Peer& peer) {
  const std::vector<std::byte> asking = make_buffer(kAskingBytes);
  std::vector<std::byte> file = make_buffer(options.size);
  run_times(options, peer, asking, file, 1);
}

void run_bandwidth(const Options& options, const Peer& peer) {
  const std::vector<std::byte> message = make_buffer(options.size);
  const bool has_window = options.what == "window";
  const uint64_t start_cpu = cpu_ns();
  const uint64_t stop = now_ns() + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t sent = 0;
  while (sent < options.count && now_ns() < stop) {
    for (uint64_t i = 0; i < (has_window ? options.window : 1); i++, sent++) peer.send_all(message);
    std::byte reply;
    if (has_window && !peer.recv_all({&reply, 1})) die("server left");
  }
  const uint64_t cpu = cpu_ns() - start_cpu;
  const Report report = finish(peer);
  print_rate(report, cpu, sent);
}

int run_client(const Options& options) {
  Peer peer{connect_to(options)};
  const auto kind = static_cast<uint8_t>(options.what[0]);
  if (is_nodelay(kind) || options.is_nodelay) set_nodelay(peer.fd);
  Request request{options.size, options.window, kind, options.wait, options.has_crc, {}};
  peer.send_all(bytes_of(request));
  peer.has_crc = options.has_crc;
  peer.start_waiting(options.wait);
  if (options.what == "latency") {
    run_latency(options, peer);
  } else if (options.what == "fetch") {
    run_fetch(options, peer);
  } else {
    run_bandwidth(options, peer);
  }
  return 0;
}

int run(int argc, char** argv) {
  const Options options = start(argc, argv);
  if (options.what == "serve") return serve(options);
  for (const std::string_view known : {"latency", "bandwidth", "window", "fetch"})
    if (options.what == known) return run_client(options);
  std::fprintf(stderr, "usage: stream_peer serve|latency|bandwidth|window|fetch [OPTION...]\n");
  return 2;
}

}  // namespace
}  // namespace ddpsock::bench

int main(int argc, char** argv) {
  return ddpsock::bench::run(argc, argv);
}
