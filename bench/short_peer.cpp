// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Connections that carry one request and one answer, one after the other, by plain socket calls.
//
//   short_peer serve [OPTION...]     listens, prints the port, serves until a client says that it
//                                    was the last one
//   short_peer client [OPTION...]    prints one JSON object; the options are in options.h
//
// A request says in its first byte whether another one comes. The answer to the last one carries
// the CPU time that the server has used since the first.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>

#include "bench/options.h"
#include "bench/peer.h"

namespace ddpsock::bench {
namespace {

constexpr std::byte kOneOfMany{1}, kFirst{2}, kLast{3};
constexpr uint64_t kWarmUp = 200;

int serve(const Options& options) {
  const int listener = listen_and_print_port(options);
  std::vector<std::byte> message = make_buffer(options.size);
  uint64_t since = cpu_ns();
  for (;;) {
    const Peer peer{accept_one(listener)};
    if (!peer.recv_all(message)) die("a client without a request");
    const std::byte what = message[0];
    const uint64_t used = cpu_ns() - since;
    if (what == kFirst) since = cpu_ns();
    if (what == kLast) std::memcpy(message.data(), &used, sizeof used);
    peer.send_all(message);
    peer.recv_some(message);  // the client closes first
    close(peer.fd);
    if (what == kLast) return 0;
  }
}

void ask(const Options& options, std::span<std::byte> message, std::byte what) {
  const Peer peer{connect_to(options)};
  message[0] = what;
  peer.send_all(message);
  if (!peer.recv_all(message)) die("the server left");
  if (close(peer.fd) != 0) die("close");
}

int run_client(const Options& options) {
  std::vector<std::byte> message = make_buffer(options.size);
  for (uint64_t i = 0; i < kWarmUp; ++i) ask(options, message, kOneOfMany);
  ask(options, message, kFirst);
  const uint64_t start = now_ns(), start_cpu = cpu_ns();
  const uint64_t stop = start + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t done = 0;
  for (; done < options.count && now_ns() < stop; ++done) ask(options, message, kOneOfMany);
  const uint64_t ns = now_ns() - start, cpu = cpu_ns() - start_cpu;
  ask(options, message, kLast);
  uint64_t server_cpu = 0;
  std::memcpy(&server_cpu, message.data(), sizeof server_cpu);
  const auto count = static_cast<double>(done);
  std::printf("{\"connections_s\": %.1f, \"cpu_us\": %.3f, \"connections\": %llu}\n",
              count * 1e9 / static_cast<double>(ns),
              static_cast<double>(cpu + server_cpu) / 1e3 / count,
              static_cast<unsigned long long>(done));
  return 0;
}

int run(int argc, char** argv) {
  const Options options = start(argc, argv);
  if (options.size >= sizeof(uint64_t)) {
    if (options.what == "serve") return serve(options);
    if (options.what == "client") return run_client(options);
  }
  std::fprintf(stderr,
               "usage: short_peer serve [OPTION...] | client [OPTION...]; --size=8 or more\n");
  return 2;
}

}  // namespace
}  // namespace ddpsock::bench

int main(int argc, char** argv) {
  return ddpsock::bench::run(argc, argv);
}
