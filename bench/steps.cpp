// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts the instructions of a message, at both ends together: one process has both, sends and
// takes, and another steps it (ptrace). What the neighbours do to times they do not do to these.
//
//   steps send SIZE     message mode: a Send, polled for, and a receive posted again
//   steps read SIZE     message mode: a Read of memory from ddp_alloc(), to its completion
//   steps stream SIZE   a send() and the recv()s that take it, sockets as the rules have them
//
// The engine is the one that ddprun has chosen. Prints one JSON object, a message's share of each:
// instructions, locked ones, system calls. The library's thread stands still meanwhile, as it does
// while a program polls.
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bench/options.h"
#include "ddpsock/ddpsock.h"

namespace ddpsock::bench {
namespace {

constexpr int kMessages = 32, kWarmUp = 200;
constexpr unsigned kReceives = 32, kSeconds = 120;

void mark() {
  asm volatile("int3");
}

// --- the process that is stepped -------------------------------------------------------------

enum class What : uint8_t { kSend, kRead, kStream };

int make_socket(What what) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  const int mode = DDP_MODE_MESSAGE;
  if (what != What::kStream && setsockopt(fd, SOL_DDP, DDP_MODE, &mode, sizeof mode) != 0)
    die("socket in message mode");
  return fd;
}

struct Ends {
  int a, b;
};

Ends connect_ends(What what) {
  const int listener = make_socket(what);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* where = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, where, size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, where, &size) != 0)
    die("listen");
  const Ends ends{.a = make_socket(what), .b = -1};
  std::thread connecting([&] {
    if (connect(ends.a, where, size) != 0) die("connect");
  });
  const int b = accept(listener, nullptr, nullptr);
  if (b < 0 || (what != What::kStream && ddp_establish(b, 10'000) != 0)) die("accept");
  connecting.join();
  return {ends.a, b};
}

class Messages {
 public:
  Messages(const Ends& ends, size_t size, bool is_read)
      : ends_(ends), is_read_(is_read), out_(size), in_(size) {
    if (ddp_alloc(ends.b, size, DDP_REMOTE_READ, &there_) != 0 ||
        ddp_reg(ends.a, in_.data(), size, DDP_LOCAL_WRITE, &here_) != 0)
      die("memory");
    for (unsigned i = 0; i < kReceives; ++i)
      for (const int fd : {ends_.a, ends_.b}) post_receive(fd);
  }
  // From `from`: sent, found by a poll, and a receive posted in its place.
  void send_one(int from) {
    const iovec part{out_.data(), out_.size()};
    ddp_send_work work{};
    work.iov = &part;
    work.iov_count = 1;
    work.flags = DDP_SILENT | (out_.size() <= DDP_MAX_INLINE ? DDP_INLINE : 0u);
    if (ddp_post_send(from, &work, 1) != 1) die("ddp_post_send");
    const int to = from == ends_.a ? ends_.b : ends_.a;
    while (!has_completed(to, DDP_RECEIVED)) {
    }
    post_receive(to);
  }
  void read_one() {
    const ddp_read_work work{.cookie = 0,
                             .address = in_.data(),
                             .length = static_cast<uint32_t>(in_.size()),
                             .stag = here_.stag,
                             .remote_to = there_.to,
                             .remote_stag = there_.stag,
                             .flags = 0};
    if (ddp_post_read(ends_.a, &work, 1) != 1) die("ddp_post_read");
    while (!has_completed(ends_.a, DDP_READ)) {
    }
  }
  void send_all(int messages) {
    for (int i = 0; i < messages; ++i) send_one(i % 2 == 0 ? ends_.a : ends_.b);
  }
  void run(int messages) {
    if (!is_read_) return send_all(messages);
    for (int i = 0; i < messages; ++i) read_one();
  }

 private:
  void post_receive(int fd) {
    const iovec part{in_.data(), in_.size()};
    const ddp_recv_work work{.cookie = 0, .iov = &part, .iov_count = 1, .reserved = 0};
    if (ddp_post_recv(fd, &work, 1) != 1) die("ddp_post_recv");
  }
  static bool has_completed(int fd, ddp_kind kind) {
    std::array<ddp_completion, 4> done;  // NOLINT: filled by the call
    const int n = ddp_poll(fd, done.data(), done.size());
    if (n < 0) die("ddp_poll");
    for (int i = 0; i < n; ++i)
      if (done[static_cast<size_t>(i)].kind == kind) return true;
    return false;
  }

  const Ends ends_;
  const bool is_read_;
  ddp_region here_{}, there_{};
  std::vector<std::byte> out_, in_;
};

// A byte stream, its ends in turns.
class Stream {
 public:
  Stream(const Ends& ends, size_t size) : ends_(ends), bytes_(size) {
    for (const int fd : {ends.a, ends.b}) set_nodelay(fd);
  }
  void send_all(int messages) {
    for (int i = 0; i < messages; ++i) send_one(i % 2 == 0 ? ends_.a : ends_.b);
  }
  void run(int messages) { send_all(messages); }

 private:
  void send_one(int from) {
    const auto size = static_cast<ssize_t>(bytes_.size());
    if (send(from, bytes_.data(), bytes_.size(), 0) != size) die("send");
    for (ssize_t got = 0; got < size;) {
      const ssize_t n = recv(from == ends_.a ? ends_.b : ends_.a, bytes_.data(), bytes_.size(), 0);
      if (n <= 0) die("recv");
      got += n;
    }
  }

  const Ends ends_;
  std::vector<std::byte> bytes_;
};

template <typename Play>
[[noreturn]] void step_through(Play play) {
  play.send_all(kWarmUp);
  mark();
  // The library's thread, which may have taken over meanwhile, stands still.
  play.send_all(kWarmUp);
  play.run(2);
  mark();
  play.run(kMessages);
  mark();
  _exit(0);
}

[[noreturn]] void play(What what, size_t size) {
  alarm(kSeconds);
  const Ends ends = connect_ends(what);
  if (what == What::kStream) step_through(Stream(ends, size));
  step_through(Messages(ends, size, what == What::kRead));
}

// --- who steps it ----------------------------------------------------------------------------

enum class Kind : uint8_t { kPlain, kLocked, kSystemCall };

Kind kind_of(uint64_t bytes) {
  std::array<uint8_t, sizeof bytes> b;
  std::memcpy(b.data(), &bytes, sizeof bytes);
  if (b[0] == 0x0f && b[1] == 0x05) return Kind::kSystemCall;
  size_t at = 0;
  while (b[at] == 0x66 || b[at] == 0x64) ++at;
  if (b[at] == 0xf0) return Kind::kLocked;
  if ((b[at] & 0xf0) == 0x40) ++at;  // REX
  // xchg with memory locks by itself.
  const bool is_exchange = b[at] == 0x86 || b[at] == 0x87;
  return is_exchange && (b[at + 1] >> 6) != 3 ? Kind::kLocked : Kind::kPlain;
}

struct Counts {
  uint64_t instructions = 0, locked = 0, system_calls = 0;
};

class Stepper {
 public:
  explicit Stepper(pid_t child) : child_(child) {}

  Counts run() {
    await(SIGSTOP);
    ptrace(PTRACE_SETOPTIONS, child_, nullptr, PTRACE_O_EXITKILL);
    go_on(PTRACE_CONT);
    await(SIGTRAP);
    stop_others();
    go_on(PTRACE_CONT);
    await(SIGTRAP);
    Counts counts;
    for (;;) {
      const user_regs_struct registers = registers_of(child_);
      go_on(PTRACE_SINGLESTEP);
      await(SIGTRAP);
      const auto [known, is_new] = kinds_.try_emplace(registers.rip, Kind::kPlain);
      if (is_new) known->second = kind_of(word_at(registers.rip));
      if (is_mark(registers.rip)) break;
      ++counts.instructions;
      counts.locked += known->second == Kind::kLocked ? 1 : 0;
      counts.system_calls += known->second == Kind::kSystemCall ? 1 : 0;
    }
    return counts;
  }

 private:
  using Request = decltype(PTRACE_CONT);

  // Signals other than that of a step are the child's own.
  void await(int signal) {
    int status = 0;
    for (;;) {
      if (waitpid(child_, &status, __WALL) != child_ || !WIFSTOPPED(status))
        die("the process that is stepped has ended");
      if (WSTOPSIG(status) == signal) return;
      ptrace(PTRACE_CONT, child_, nullptr, WSTOPSIG(status));
    }
  }
  void go_on(Request how) { ptrace(how, child_, nullptr, nullptr); }
  static user_regs_struct registers_of(pid_t thread) {
    user_regs_struct registers{};
    if (ptrace(PTRACE_GETREGS, thread, nullptr, &registers) != 0) die("ptrace");
    return registers;
  }
  uint64_t word_at(uint64_t address) const {
    return static_cast<uint64_t>(ptrace(PTRACE_PEEKTEXT, child_, address, nullptr));
  }
  bool is_mark(uint64_t address) const { return (word_at(address) & 0xff) == 0xcc; }

  void stop_others() const {
    const std::string tasks = "/proc/" + std::to_string(child_) + "/task";
    DIR* dir = opendir(tasks.c_str());
    if (dir == nullptr) die(tasks.c_str());
    while (const dirent* entry = readdir(dir)) {
      const auto thread = static_cast<pid_t>(std::atoi(entry->d_name));
      if (thread <= 0 || thread == child_) continue;
      if (ptrace(PTRACE_SEIZE, thread, nullptr, PTRACE_O_EXITKILL) != 0) die("ptrace");
      stop_asleep(thread);
    }
    closedir(dir);
  }

  // Where it holds no lock.
  static void stop_asleep(pid_t thread) {
    for (;;) {
      int status = 0;
      if (ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 ||
          waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status))
        die("stopping a thread");
      const auto call = static_cast<int64_t>(registers_of(thread).orig_rax);
      if (call == SYS_epoll_wait || call == SYS_epoll_pwait || call == SYS_io_uring_enter) return;
      ptrace(PTRACE_CONT, thread, nullptr, nullptr);
      usleep(200);
    }
  }

  const pid_t child_;
  std::unordered_map<uint64_t, Kind> kinds_;
};

int run(What what, size_t size) {
  alarm(kSeconds);
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) die("ptrace");
    raise(SIGSTOP);
    play(what, size);
  }
  const Counts counts = Stepper(child).run();
  kill(child, SIGKILL);
  // Its threads, which are traced, come first.
  while (waitpid(-1, nullptr, __WALL) > 0) {
  }
  const auto share = [](uint64_t count) { return static_cast<double>(count) / kMessages; };
  std::printf("{\"instructions\": %.1f, \"locked\": %.2f, \"system_calls\": %.2f}\n",
              share(counts.instructions), share(counts.locked), share(counts.system_calls));
  return 0;
}

}  // namespace
}  // namespace ddpsock::bench

int main(int argc, char** argv) {
  using ddpsock::bench::What;
  const std::string what = argc == 3 ? argv[1] : "";
  const size_t size = argc == 3 ? std::strtoul(argv[2], nullptr, 10) : 0;
  if (size > 0 && what == "send") return ddpsock::bench::run(What::kSend, size);
  if (size > 0 && what == "read") return ddpsock::bench::run(What::kRead, size);
  if (size > 0 && what == "stream") return ddpsock::bench::run(What::kStream, size);
  std::fprintf(stderr, "usage: steps send|read|stream SIZE\n");
  return 2;
}
