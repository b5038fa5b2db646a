// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One connection in message mode under measurement, by the calls of ddpsock.h; the library is
// preloaded. stream_peer measures the same over plain sockets.
//
//   message_peer serve [OPTION...]   listens, prints the port, serves one client and ends
//   message_peer CASE [OPTION...]    prints its result as one JSON object; the options are in
//   options.h
//
//   latency   ping-pong of --size bytes by posted sends; microseconds are one way
//   window    --window sends of --size bytes are posted at once, the next when the receiver has
//             answered them all; the receiver's rate
//   rate      --window sends are outstanding, each done when it has left for TCP; the receiver's
//   rate
//
// --wait=spin asks ddp_poll again and again, --wait=block sleeps in ddp_wait. All messages of one
// end leave from and land in one buffer, as with plain sockets.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/message_link.h"
#include "bench/options.h"
#include "bench/peer.h"
#include "bench/timing.h"
#include "ddpsock/ddpsock.h"

namespace ddpsock::bench {
namespace {

constexpr uint32_t kSends = 1024, kReceives = 8192;
constexpr uint64_t kMostWindow = Link::kMostPosted;
// A sender whose messages complete locally stays within the receives posted by an answer for so
// many.
constexpr uint64_t kAnswered = 1024, kAllowed = 4 * kAnswered;
static_assert(kAllowed < kReceives);

// The client's first message; an empty one is its last and asks for the report.
struct Request {
  uint64_t size;
  uint64_t window;
  uint8_t kind;  // first letter of the case
  Wait wait;
  uint8_t unused[6];
};

Report serve_latency(Link& link) {
  Report report{};
  const uint64_t start = cpu_ns();
  for (;;) {
    link.take_received();
    if (link.has_got_end()) break;
    link.post_messages(1, false);
    link.post_receives(1);
    report.bytes += link.last_size();
  }
  report.cpu_ns = cpu_ns() - start;
  return report;
}

// Answers every so many.
Report serve_rate(Link& link, const Request& request) {
  const uint64_t answered = request.kind == 'w' ? request.window : kAnswered;
  Meter meter;
  uint64_t unanswered = 0;
  for (;;) {
    uint64_t n = link.take_received();
    if (link.has_got_end()) n--;
    if (n != 0) meter.add(n * request.size);
    if (link.has_got_end()) return meter.report();
    link.post_receives(n);
    unanswered += n;
    for (; unanswered >= answered; unanswered -= answered) link.post_note({});
  }
}

int serve(const Options& options) {
  const int listener = listen_and_print_port(options);
  const int fd = accept_one(listener);
  set_nodelay(fd);
  Link link(fd);
  Request request{};
  link.post_receive(bytes_of(request));
  link.take_received();
  link.set_size(request.size);
  link.set_wait(request.wait);
  link.post_receives(request.kind == 'r' ? kAllowed + 1 : request.window + 1);
  link.post_note({});
  Report report = request.kind == 'l' ? serve_latency(link) : serve_rate(link, request);
  link.post_note(bytes_of(report));
  link.wait_until_ended();
  return 0;
}

void run_latency(const Options& options, Link& link) {
  Times times(options);
  const uint64_t start_cpu = cpu_ns();
  while (!times.is_over(options)) {
    link.post_messages(1, false);
    link.post_receives(1);
    link.take_received();
    times.add();
  }
  const uint64_t cpu = cpu_ns() - start_cpu;
  const Report report = finish(link);
  if (report.bytes != times.done * options.size) die("server counted other bytes");
  print_times(times, 2, cpu, report);
}

uint64_t send_windows(const Options& options, Link& link, uint64_t stop) {
  uint64_t sent = 0;
  while (sent < options.count && now_ns() < stop) {
    link.post_messages(options.window, false);
    link.take_received();
    link.post_receives(1);
    sent += options.window;
  }
  return sent;
}

// Half of the window is posted when half has completed: fewer calls, and never idle.
uint64_t send_at_rate(const Options& options, Link& link, uint64_t stop) {
  const uint64_t batch = std::max<uint64_t>(options.window / 2, 1);
  uint64_t sent = 0, allowed = kAllowed, free = options.window;
  while (sent < options.count && now_ns() < stop) {
    for (; free >= batch && allowed >= batch; free -= batch, allowed -= batch, sent += batch)
      link.post_messages(batch, true);
    link.take();
    free += link.seen_sent() * batch;
    if (const uint64_t answers = link.seen_received(); answers != 0) {
      link.post_receives(answers);
      allowed += answers * kAnswered;
    }
  }
  while (free < options.window) {
    link.take();
    free += link.seen_sent() * batch;
  }
  return sent;
}

void run_rate(const Options& options, Link& link) {
  const uint64_t start_cpu = cpu_ns();
  const uint64_t stop = now_ns() + static_cast<uint64_t>(options.seconds * 1e9);
  const uint64_t sent = options.what == "window" ? send_windows(options, link, stop)
                                                 : send_at_rate(options, link, stop);
  const uint64_t cpu = cpu_ns() - start_cpu;
  print_rate(finish(link), cpu, sent);
}

int run_client(const Options& options) {
  const int fd = connect_to(options);
  set_nodelay(fd);
  Link link(fd);
  link.set_size(options.size);
  // The answer to the request, those that may come while the last are taken, and the report.
  link.post_receives(kAllowed / kAnswered + 2);
  Request request{
      options.size, options.window, static_cast<uint8_t>(options.what[0]), options.wait, {}};
  link.post_note(bytes_of(request));
  check_engine(fd, options);
  link.take_received();
  link.post_receives(1);
  link.set_wait(options.wait);
  if (options.what == "latency") {
    run_latency(options, link);
  } else {
    run_rate(options, link);
  }
  close(fd);
  return 0;
}

int run(int argc, char** argv) {
  Options options = start(argc, argv);
  options.depths = {.send = kSends, .receive = kReceives, .ird = 1, .ord = 1};
  if (!ddp_is_loaded() || options.size == 0 || options.window == 0 ||
      options.window > kMostWindow) {
    std::fprintf(stderr, "message_peer: the library is not loaded, or --size or --window is bad\n");
    return 2;
  }
  if (options.what == "serve") return serve(options);
  for (const std::string_view known : {"latency", "window", "rate"})
    if (options.what == known) return run_client(options);
  std::fprintf(stderr, "usage: message_peer serve|latency|window|rate [OPTION...]\n");
  return 2;
}

}  // namespace
}  // namespace ddpsock::bench

int main(int argc, char** argv) {
  return ddpsock::bench::run(argc, argv);
}
