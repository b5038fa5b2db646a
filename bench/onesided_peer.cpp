// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations in message mode under measurement, by the calls of ddpsock.h; the library is
// preloaded.
//
//   onesided_peer serve [OPTION...]   registers memory, serves one client and ends; while it is
//   served it asks ddp_poll (--wait=spin) or sleeps in ddp_wait (--wait=block)
//   onesided_peer CASE [OPTION...]    prints its result as one JSON object; the options are in
//   options.h
//
//   read    Reads of --size bytes, one after the other; microseconds from post to completion
//   add     fetch-adds, in the same way
//   write   Writes of --size bytes, --window outstanding; the rate up to the completion of a Read
//           after the last, which says that they are all there
//   copy    memcpy of --size bytes between two pieces of the process's own memory; its rate
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "bench/message_link.h"
#include "bench/options.h"
#include "bench/timing.h"
#include "ddpsock/ddpsock.h"

namespace ddpsock::bench {
namespace {

constexpr uint32_t kDepth = 256;
constexpr uint64_t kMostWindow = kDepth / 2;
constexpr uint32_t kReads = 16;
constexpr uint64_t kAtomicBytes = 8;
// Copies between two looks at the clock.
constexpr uint64_t kCopies = 64;

struct Request {
  uint64_t size;
  Wait wait;
  uint8_t unused[7];
};

uint64_t region_size(uint64_t size) {
  return std::max(size, kAtomicBytes);
}

ddp_region register_all(int fd, std::vector<std::byte>& memory, unsigned rights) {
  ddp_region region;
  if (ddp_reg(fd, memory.data(), memory.size(), rights, &region) != 0) die("ddp_reg");
  return region;
}

int serve(const Options& options) {
  const int fd = accept_one(listen_and_print_port(options));
  set_nodelay(fd);
  Link link(fd);
  Request request{};
  link.post_receive(bytes_of(request));
  link.take_received();
  link.set_size(sizeof(Report));
  link.set_wait(request.wait);
  link.post_receives(1);
  constexpr unsigned kRights = DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC;
  std::vector<std::byte> memory;
  ddp_region region;
  if (options.is_mapped) {
    if (ddp_alloc(fd, region_size(request.size), kRights, &region) != 0) die("ddp_alloc");
  } else {
    memory = make_buffer(region_size(request.size));
    region = register_all(fd, memory, kRights);
  }
  link.post_note(bytes_of(region));
  const uint64_t start = cpu_ns();
  link.take_received();
  Report report{.bytes = 0, .ns = 1, .cpu_ns = cpu_ns() - start};
  link.post_note(bytes_of(report));
  link.wait_until_ended();
  return 0;
}

// The client's end: what is here and what is there.
class Client {
 public:
  Client(Link& link, uint64_t size)
      : link_(link), size_(size), memory_(make_buffer(region_size(size))) {
    own_ = register_all(link.fd(), memory_, DDP_LOCAL_WRITE);
    link.take_received();
    std::memcpy(&there_, link.room().data(), sizeof there_);
  }

  void read(uint64_t bytes) {
    const ddp_read_work work{.cookie = 0,
                             .address = memory_.data(),
                             .length = static_cast<uint32_t>(bytes),
                             .stag = own_.stag,
                             .remote_to = there_.to,
                             .remote_stag = there_.stag,
                             .flags = 0};
    if (ddp_post_read(link_.fd(), &work, 1) != 1) die("ddp_post_read");
    while (link_.seen_one_sided() == 0) link_.take();
  }

  void add() {
    const ddp_atomic_work work{.cookie = 0,
                               .operation = DDP_FETCH_ADD,
                               .flags = 0,
                               .operand = 1,
                               .compare = 0,
                               .remote_to = there_.to,
                               .remote_stag = there_.stag,
                               .reserved = 0};
    if (ddp_post_atomic(link_.fd(), &work, 1) != 1) die("ddp_post_atomic");
    while (link_.seen_one_sided() == 0) link_.take();
  }

  // The last of them is told.
  void post_writes(uint64_t count) {
    const iovec bytes{memory_.data(), size_};
    std::array<ddp_write_work, kMostWindow> work;
    std::fill_n(work.begin(), count,
                ddp_write_work{.cookie = 0,
                               .iov = &bytes,
                               .iov_count = 1,
                               .flags = DDP_SILENT,
                               .remote_to = there_.to,
                               .remote_stag = there_.stag,
                               .reserved = 0});
    work[count - 1].flags = 0;
    const auto n = static_cast<unsigned>(count);
    if (ddp_post_write(link_.fd(), work.data(), n) != static_cast<int>(n)) die("ddp_post_write");
  }

  uint64_t taken_writes() {
    link_.take();
    return link_.seen_one_sided();
  }

 private:
  Link& link_;
  const uint64_t size_;
  std::vector<std::byte> memory_;
  ddp_region own_{}, there_{};
};

void run_one_by_one(const Options& options, Link& link, Client& client) {
  Times times(options);
  const uint64_t start_cpu = cpu_ns();
  while (!times.is_over(options)) {
    if (options.what == "read") {
      client.read(options.size);
    } else {
      client.add();
    }
    times.add();
  }
  const uint64_t cpu = cpu_ns() - start_cpu;
  print_times(times, 1, cpu, finish(link));
}

void run_writes(const Options& options, Link& link, Client& client) {
  const uint64_t start_cpu = cpu_ns(), start = now_ns();
  const uint64_t stop = start + static_cast<uint64_t>(options.seconds * 1e9);
  const uint64_t batch = std::max<uint64_t>(options.window / 2, 1);
  uint64_t written = 0, free = options.window;
  while (written < options.count && now_ns() < stop) {
    for (; free >= batch; free -= batch, written += batch) client.post_writes(batch);
    free += client.taken_writes() * batch;
  }
  while (free < options.window) free += client.taken_writes() * batch;
  client.read(1);
  const uint64_t took = now_ns() - start, cpu = cpu_ns() - start_cpu;
  Report report = finish(link);
  report.bytes = written * options.size;
  report.ns = took;
  print_rate(report, cpu, written);
}

void run_copies(const Options& options, Link& link) {
  const std::vector<std::byte> from = make_buffer(options.size);
  std::vector<std::byte> to = make_buffer(options.size);
  const uint64_t start_cpu = cpu_ns(), start = now_ns();
  const uint64_t stop = start + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t copied = 0;
  for (; copied < options.count && now_ns() < stop; copied += kCopies) {
    for (uint64_t i = 0; i < kCopies; i++) {
      std::memcpy(to.data(), from.data(), options.size);
      asm volatile("" ::"r"(to.data()) : "memory");
    }
  }
  const uint64_t took = now_ns() - start, cpu = cpu_ns() - start_cpu;
  Report report = finish(link);
  report.bytes = copied * options.size;
  report.ns = took;
  print_rate(report, cpu, copied);
}

int run_client(const Options& options) {
  const int fd = connect_to(options);
  set_nodelay(fd);
  Link link(fd);
  link.set_size(options.size);
  // The answer to the request, and the report.
  link.post_receives(2);
  Request request{options.size, options.wait, {}};
  link.post_note(bytes_of(request));
  check_engine(fd, options);
  Client client(link, options.size);
  link.set_wait(options.wait);
  if (options.what == "write") {
    run_writes(options, link, client);
  } else if (options.what == "copy") {
    run_copies(options, link);
  } else {
    run_one_by_one(options, link, client);
  }
  close(fd);
  return 0;
}

int run(int argc, char** argv) {
  Options options = start(argc, argv);
  options.depths = {.send = kDepth, .receive = 8, .ird = kReads, .ord = kReads};
  if (!ddp_is_loaded() || options.size == 0 || options.window == 0 ||
      options.window > kMostWindow) {
    std::fprintf(stderr,
                 "onesided_peer: the library is not loaded, or --size or --window is bad\n");
    return 2;
  }
  if (options.what == "serve") return serve(options);
  for (const std::string_view known : {"read", "add", "write", "copy"})
    if (options.what == known) return run_client(options);
  std::fprintf(stderr, "usage: onesided_peer serve|read|add|write|copy [OPTION...]\n");
  return 2;
}

}  // namespace
}  // namespace ddpsock::bench

int main(int argc, char** argv) {
  return ddpsock::bench::run(argc, argv);
}
