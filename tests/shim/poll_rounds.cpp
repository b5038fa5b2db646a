// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// poll_rounds N [CALL [STREAMS [SIZE [PLACE [pipe]]]]]   N questions and answers of SIZE bytes,
// over one stream of several after the other, by non-blocking ends that wait for all of them by
// CALL (poll, ppoll, select, pselect). PLACE: `alone`, both ends in one thread, so that nobody ever
// waits; `two`, `one`: in two processes on two CPUs, on one. With `pipe` each also waits for a pipe
// that nothing comes from. Prints the microseconds a round took.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

constexpr int kLeast = 20;  // until both ends are in memory
std::vector<char> message(8);
std::string_view call = "poll";

void expect(bool is_true) {
  if (!is_true) _exit(1);
}

// One end of all the streams.
class End {
 public:
  void add(int fd) {
    const int on = 1;
    expect(fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    all_.push_back({fd, POLLIN, 0});
  }
  void add_pipe() {
    int pipes[2];
    expect(pipe(pipes) == 0);
    all_.push_back({pipes[0], POLLIN, 0});
  }
  void send_on(size_t number) {
    const char* at = message.data();
    for (size_t left = message.size(); left > 0;) {
      const ssize_t n = send(all_[number].fd, at, left, MSG_NOSIGNAL);
      expect(n > 0);
      at += n;
      left -= static_cast<size_t>(n);
    }
  }
  // Which one a message came from.
  size_t receive() {
    for (size_t got = 0;;) {
      const size_t number = wait();
      const ssize_t n = recv(all_[number].fd, message.data() + got, message.size() - got, 0);
      expect(n > 0);
      got += static_cast<size_t>(n);
      if (got == message.size()) return number;
    }
  }

 private:
  size_t wait() {
    const bool is_set = call == "select" || call == "pselect";
    expect((is_set ? select_all() : poll_all()) == 1);
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].revents != 0) return i;
    expect(false);
    return 0;
  }
  int poll_all() {
    return call == "poll" ? poll(all_.data(), all_.size(), -1)
                          : ppoll(all_.data(), all_.size(), nullptr, nullptr);
  }
  int select_all() {
    fd_set readers;
    FD_ZERO(&readers);
    int end = 0;
    for (const pollfd& one : all_) {
      FD_SET(one.fd, &readers);
      end = one.fd >= end ? one.fd + 1 : end;
    }
    const int count = call == "select" ? select(end, &readers, nullptr, nullptr, nullptr)
                                       : pselect(end, &readers, nullptr, nullptr, nullptr, nullptr);
    for (pollfd& one : all_) one.revents = FD_ISSET(one.fd, &readers) ? POLLIN : short{0};
    return count;
  }

  std::vector<pollfd> all_;
};

void run_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  expect(sched_setaffinity(0, sizeof set, &set) == 0);
}

void serve(End& end, int rounds) {
  for (int i = 0; i < rounds; ++i) end.send_on(end.receive());
}

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

struct Listener {
  explicit Listener(int backlog) : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    expect(bind(fd, where(), size) == 0 && listen(fd, backlog) == 0 &&
           getsockname(fd, where(), &size) == 0);
  }
  sockaddr* where() { return reinterpret_cast<sockaddr*>(&address); }
  int dial() {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    expect(connect(client, where(), size) == 0);
    return client;
  }
  int fd;
  sockaddr_in address{};
  socklen_t size = sizeof address;
};

}  // namespace

int main(int argc, char** argv) {
  alarm(60);
  const auto argument = [=](int n, const char* otherwise) {
    return argc > n ? argv[n] : otherwise;
  };
  const int rounds = std::atoi(argument(1, "1"));
  call = argument(2, "poll");
  const int streams = std::atoi(argument(3, "1"));
  message.resize(std::strtoul(argument(4, "8"), nullptr, 10));
  const std::string_view place = argument(5, "alone");
  const bool has_pipe = argc > 6;
  const int all = (kLeast * streams) + rounds;

  // To see whether that works, as Python does it: who only makes a set waits for no edges.
  expect(close(epoll_create1(0)) == 0);
  Listener listener(streams);
  End here, there;
  const bool is_alone = place == "alone";
  int done[2];
  expect(pipe(done) == 0);
  const pid_t server = is_alone ? 0 : fork();
  if (!is_alone) run_on(server == 0 && place == "two" ? 1 : 0);
  const bool is_server = !is_alone && server == 0;
  for (int i = 0; i < streams; ++i) {
    if (!is_server) here.add(listener.dial());
    if (is_alone || is_server) there.add(accept(listener.fd, nullptr, nullptr));
  }
  if (has_pipe) here.add_pipe();
  if (has_pipe) there.add_pipe();
  if (is_server) {
    serve(there, all);
    // The client must not find an end among the answers.
    char none;
    expect(close(done[1]) == 0 && read(done[0], &none, 1) == 0);
    return 0;
  }
  double start = 0;
  for (int i = 0; i < all; ++i) {
    if (i == all - rounds) start = now_us();
    const auto number = static_cast<size_t>(i % streams);
    here.send_on(number);
    if (is_alone) serve(there, 1);
    expect(here.receive() == number);
  }
  std::printf("%.3f\n", (now_us() - start) / rounds);
  expect(close(done[1]) == 0);
  int status = 0;
  if (server != 0) expect(waitpid(server, &status, 0) == server);
  return status == 0 ? 0 : 1;
}
