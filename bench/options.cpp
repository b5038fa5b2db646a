// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bench/options.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/crc32c.h"
#include "ddpsock/ddpsock.h"

namespace ddpsock::bench {
namespace {

constexpr int kBacklog = 4096;

std::optional<Wait> wait_named(std::string_view name) {
  if (name == "block") return Wait::kBlocking;
  if (name == "spin") return Wait::kSpinning;
  if (name == "epoll") return Wait::kEpoll;
  if (name == "poll") return Wait::kPoll;
  return std::nullopt;
}

bool read_option(std::string_view argument, Options& options) {
  const auto value = [&](std::string_view name) -> const char* {
    return argument.starts_with(name) ? argument.data() + name.size() : nullptr;
  };
  if (const char* address = value("--address=")) {
    options.address = address;
  } else if (const char* port = value("--port=")) {
    options.port = std::atoi(port);
  } else if (const char* size = value("--size=")) {
    options.size = std::strtoull(size, nullptr, 10);
  } else if (const char* count = value("--count=")) {
    options.count = std::strtoull(count, nullptr, 10);
  } else if (const char* seconds = value("--seconds=")) {
    options.seconds = std::strtod(seconds, nullptr);
  } else if (const char* wait = value("--wait=")) {
    const std::optional<Wait> how = wait_named(wait);
    if (how) options.wait = *how;
    return how.has_value();
  } else if (const char* cpu = value("--cpu=")) {
    options.cpu = std::atoi(cpu);
  } else if (const char* name = value("--cc=")) {
    options.congestion_control = name;
  } else if (argument == "--crc") {
    options.has_crc = true;
  } else if (argument == "--no-mpa-crc") {
    options.is_without_mpa_crc = true;
  } else if (const char* window = value("--window=")) {
    options.window = std::strtoull(window, nullptr, 10);
  } else if (argument == "--nodelay") {
    options.is_nodelay = true;
  } else if (argument == "--caller") {
    options.is_caller_driven = true;
  } else if (argument == "--mapped") {
    options.is_mapped = true;
  } else if (const char* engine = value("--engine=")) {
    options.engine = engine;
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

void set_congestion_control(int fd, std::string_view name) {
  if (name.empty()) return;
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                 static_cast<socklen_t>(name.size())) != 0)
    die("TCP_CONGESTION");
}

void enter_message_mode(int fd, const Options& options) {
  const int mode = DDP_MODE_MESSAGE;
  const int progress = options.is_caller_driven ? DDP_PROGRESS_CALLER : DDP_PROGRESS_THREAD;
  if (setsockopt(fd, SOL_DDP, DDP_MODE, &mode, sizeof mode) != 0) die("DDP_MODE");
  if (setsockopt(fd, SOL_DDP, DDP_DEPTHS, &options.depths, sizeof options.depths) != 0)
    die("DDP_DEPTHS");
  if (setsockopt(fd, SOL_DDP, DDP_PROGRESS, &progress, sizeof progress) != 0) die("DDP_PROGRESS");
  char engine[16]{};
  if (options.engine == nullptr) return;
  std::strncpy(engine, options.engine, sizeof engine - 1);
  if (setsockopt(fd, SOL_DDP, DDP_ENGINE, engine, sizeof engine) != 0) die("DDP_ENGINE");
}

int make_socket(const Options& options) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  set_congestion_control(fd, options.congestion_control);
  const int off = 0;
  // Plain TCP answers ENOPROTOOPT, and there is no CRC to switch off.
  if (options.is_without_mpa_crc) setsockopt(fd, SOL_DDP, DDP_CRC, &off, sizeof off);
  if (options.depths.send != 0) enter_message_mode(fd, options);
  return fd;
}

sockaddr_in address_of(const Options& options) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(options.port));
  if (inet_pton(AF_INET, options.address, &address.sin_addr) != 1) {
    errno = EINVAL;
    die(options.address);
  }
  return address;
}

}  // namespace

Options start(int argc, char** argv) {
  Options options;
  options.what = argc > 1 ? argv[1] : "";
  for (int i = 2; i < argc; i++) {
    if (!read_option(argv[i], options)) {
      std::fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[i]);
      std::exit(2);
    }
  }
  base::crc32c_init();
  pin_to(options.cpu);
  return options;
}

int listen_and_print_port(const Options& options) {
  const int fd = make_socket(options);
  sockaddr_in address = address_of(options);
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

int connect_to(const Options& options) {
  const int fd = make_socket(options);
  sockaddr_in address = address_of(options);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die("connect");
  return fd;
}

void check_engine(int fd, const Options& options) {
  ddp_status status{};
  socklen_t size = sizeof status;
  if (getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &size) != 0) die("DDP_STATUS");
  if (options.engine == nullptr || std::strcmp(status.engine, options.engine) == 0) return;
  std::fprintf(stderr, "the connection runs over engine %s: %s\n", status.engine, status.memory);
  std::exit(1);
}

void set_nodelay(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) die("TCP_NODELAY");
}

}  // namespace ddpsock::bench
