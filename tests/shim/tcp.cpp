// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/kernel_call.h"
#include "ddpsock/ddpsock.h"
#include "elsewhere.h"

namespace ddpsock::shim_tests {
namespace {

constexpr unsigned kChildSeconds = 30;
constexpr uid_t kOtherUser = 12345;  // whom nobody is
constexpr int kSkipped = 77;         // to meson

void fail_errno(const char* call) {
  ADD_FAILURE() << call << ": " << strerror(errno);
}

// The raw twins make sockets of which a preloaded library learns nothing: a peer without it.
int open_socket(bool is_raw, int type_flags) {
  const int type = SOCK_STREAM | SOCK_CLOEXEC | type_flags;
  const int fd = is_raw ? static_cast<int>(base::kernel_call(SYS_socket, AF_INET, type, 0))
                        : socket(AF_INET, type, 0);
  if (fd < 0) fail_errno("socket");
  return fd;
}

// A socket stays in the namespace in which it was made.
void enter_namespace(int number) {
  if (base::kernel_call(SYS_setns, number, CLONE_NEWNET) != 0) fail_errno("setns");
}

sockaddr_in address_of(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

// The kernel's call is for this thread, libc's for all.
void become(uid_t user) {
  constexpr uid_t kSame = static_cast<uid_t>(-1);
  if (base::kernel_call(SYS_setresuid, kSame, user, kSame) != 0) fail_errno("setresuid");
}

Fd open_socket_of(uid_t user, bool is_raw, int type_flags) {
  become(user);
  Fd fd(open_socket(is_raw, type_flags));
  become(0);
  return fd;
}

Fd open_client_socket(bool is_raw, int type_flags) {
  if (column() == Column::kOtherUser) return open_socket_of(kOtherUser, is_raw, type_flags);
  const bool is_elsewhere = column() == Column::kUndecided;
  if (is_elsewhere) enter_namespace(kNamespaceElsewhere);
  Fd fd(open_socket(is_raw, type_flags));
  if (is_elsewhere) enter_namespace(kNamespaceHere);
  return fd;
}

bool is_client_raw() {
  return column() == Column::kRawClient || column() == Column::kUndecided;
}

}  // namespace

bool is_ddp_mode_required() {
  return column() == Column::kDdp || column() == Column::kShm || column() == Column::kOneSided;
}

bool is_in_ddp_mode() {
  return is_ddp_mode_required() || column() == Column::kPrefer || column() == Column::kOtherUser;
}

bool is_in_memory() {
  return column() == Column::kShm || column() == Column::kPrefer;
}

Column column() {
  const char* name = getenv("SHIM_TEST_COLUMN");
  const std::string_view text = name ? name : "native";
  if (text == "native") return Column::kNative;
  if (text == "off") return Column::kOff;
  if (text == "ddp") return Column::kDdp;
  if (text == "shm") return Column::kShm;
  if (text == "prefer") return Column::kPrefer;
  if (text == "one_sided") return Column::kOneSided;
  if (text == "raw_server") return Column::kRawServer;
  if (text == "raw_client") return Column::kRawClient;
  if (text == "undecided") return Column::kUndecided;
  if (text == "other_user") return Column::kOtherUser;
  fprintf(stderr, "SHIM_TEST_COLUMN: unknown column %s\n", name);
  abort();
}

void TcpTest::start_deadline(unsigned seconds) {
  if (column() == Column::kOtherUser && geteuid() != 0) {
    fprintf(stderr, "only the superuser gives sockets to others\n");
    exit(kSkipped);
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGALRM, SIG_DFL);
  alarm(seconds);
}

TcpTest::~TcpTest() {
  alarm(0);
}

void Fd::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

sockaddr_in own_address() {
  return address_of(column() == Column::kUndecided ? DDPSOCK_TESTS_ADDRESS_HERE : "127.0.0.1");
}

sockaddr_in client_address() {
  return address_of(column() == Column::kUndecided ? DDPSOCK_TESTS_ADDRESS_ELSEWHERE : "127.0.0.1");
}

Fd make_client_socket(int type_flags) {
  return open_client_socket(is_client_raw(), type_flags);
}

Fd make_raw_client_socket() {
  return open_client_socket(true, 0);
}

Listener listen_loopback(int backlog, int type_flags) {
  const bool is_raw = column() == Column::kRawServer;
  Listener result;
  result.fd = Fd(open_socket(is_raw, type_flags));
  const int fd = result.fd.get();
  result.address = own_address();
  socklen_t length = sizeof result.address;
  auto* address = reinterpret_cast<sockaddr*>(&result.address);
  if ((is_raw ? base::kernel_call(SYS_bind, fd, address, length) : bind(fd, address, length)) != 0)
    fail_errno("bind");
  if (getsockname(fd, address, &length) != 0) fail_errno("getsockname");
  if ((is_raw ? base::kernel_call(SYS_listen, fd, backlog) : listen(fd, backlog)) != 0)
    fail_errno("listen");
  return result;
}

namespace {

// As a program does that has more to say than bytes.
void begin_one_sided(int fd) {
  if (column() != Column::kOneSided || ddp_event_fd == nullptr) return;
  const int saved = errno;
  if (ddp_event_fd(fd) < 0) fail_errno("ddp_event_fd");
  errno = saved;
}

}  // namespace

int connect_to(int fd, const sockaddr_in& address) {
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  if (is_client_raw())
    return static_cast<int>(base::kernel_call(SYS_connect, fd, where, sizeof address));
  const int result = connect(fd, where, sizeof address);
  if (result == 0) begin_one_sided(fd);
  return result;
}

Fd dial(const sockaddr_in& address) {
  Fd fd = make_client_socket();
  if (connect_to(fd.get(), address) != 0) fail_errno("connect");
  return fd;
}

Fd accept_one(int listener) {
  if (column() == Column::kRawServer)
    return Fd(
        static_cast<int>(base::kernel_call(SYS_accept4, listener, nullptr, nullptr, SOCK_CLOEXEC)));
  Fd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (fd.get() < 0) fail_errno("accept4");
  if (fd.get() >= 0) begin_one_sided(fd.get());
  return fd;
}

Pair connected_pair() {
  Listener listener = listen_loopback();
  Pair pair;
  pair.client = dial(listener.address);
  pair.server = accept_one(listener.fd.get());
  return pair;
}

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), 0);
    if (sent <= 0) return fail_errno("send");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string recv_exactly(int fd, size_t count) {
  std::string bytes(count, '\0');
  size_t have = 0;
  while (have < count) {
    const ssize_t got = recv(fd, bytes.data() + have, count - have, 0);
    if (got < 0) fail_errno("recv");
    if (got == 0) ADD_FAILURE() << "end of stream after " << have << " of " << count << " bytes";
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

std::string recv_to_end(int fd) {
  std::string bytes;
  char buffer[64 * 1024];
  for (;;) {
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got < 0) fail_errno("recv");
    if (got <= 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
  }
}

void expect_end_of_stream(int fd) {
  for (int time = 0; time < 2; ++time) {
    char byte;
    EXPECT_EQ(recv(fd, &byte, 1, 0), 0) << strerror(errno);
  }
}

void expect_alive(int a, int b) {
  send_all(a, "from a to b");
  EXPECT_EQ(recv_exactly(b, 11), "from a to b");
  send_all(b, "from b to a");
  EXPECT_EQ(recv_exactly(a, 11), "from b to a");
}

int closed_number() {
  const int fd = dup(STDERR_FILENO);
  ::close(fd);
  return fd;
}

void make_nonblocking(int fd) {
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) fail_errno("F_SETFL");
}

bool is_nonblocking(int fd) {
  return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

int queued_bytes(int fd) {
  int count = -1;
  if (ioctl(fd, FIONREAD, &count) != 0) fail_errno("FIONREAD");
  return count;
}

void await_queued(int fd, int count) {
  const int64_t deadline = now_ms() + 5000;
  while (queued_bytes(fd) != count && now_ms() < deadline) sleep_ms(1);
  ASSERT_EQ(queued_bytes(fd), count);
}

void set_option(int fd, int level, int option, int value) {
  if (setsockopt(fd, level, option, &value, sizeof value) != 0) fail_errno("setsockopt");
}

int get_option(int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  if (getsockopt(fd, level, option, &value, &length) != 0) fail_errno("getsockopt");
  return value;
}

void set_timeout(int fd, int option, int milliseconds) {
  const timeval time{milliseconds / 1000, (milliseconds % 1000) * 1000};
  if (setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) != 0) fail_errno("setsockopt");
}

size_t fill_until_refused(int fd, uint32_t seed, size_t piece, size_t from) {
  constexpr size_t kMost = 16 * 1024 * 1024;
  const std::string bytes = pattern(kMost, seed);
  size_t total = from;
  while (total < kMost) {
    const ssize_t sent =
        send(fd, bytes.data() + total, std::min(piece, kMost - total), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      EXPECT_EQ(errno, EAGAIN);
      return total;
    }
    total += static_cast<size_t>(sent);
  }
  ADD_FAILURE() << "never refused";
  return total;
}

std::string pattern(size_t count, uint32_t seed) {
  std::string bytes(count, '\0');
  uint32_t state = seed * 2654435761u + 1;
  for (char& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

testing::AssertionResult is_same(std::string_view got, std::string_view expected) {
  if (got == expected) return testing::AssertionSuccess();
  size_t at = 0;
  while (at < std::min(got.size(), expected.size()) && got[at] == expected[at]) ++at;
  return testing::AssertionFailure()
         << got.size() << " bytes for " << expected.size() << ", the same up to " << at;
}

size_t random_size(std::mt19937& random, size_t least, size_t most) {
  return std::uniform_int_distribution<size_t>(least, most)(random);
}

bool is_asleep(pid_t thread) {
  char path[64], text[512] = {};
  snprintf(path, sizeof path, "/proc/%d/stat", thread);
  const Fd file(open(path, O_RDONLY | O_CLOEXEC));
  if (read(file.get(), text, sizeof text - 1) <= 0) return false;
  const char* after_name = strrchr(text, ')');
  return after_name != nullptr && after_name[2] == 'S';
}

void await_asleep(pid_t thread) {
  while (!is_asleep(thread)) sched_yield();
}

int64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1000} + time.tv_nsec / 1'000'000;
}

void sleep_ms(int milliseconds) {
  const timespec time{milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
  nanosleep(&time, nullptr);
}

Child::Child(const std::function<void()>& body) {
  fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) fail_errno("fork");
  if (pid_ != 0) return;
  alarm(kChildSeconds);
  body();
  fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

Child::~Child() {
  if (pid_ > 0) kill_now();
}

void Child::expect_success() {
  int status = -1;
  EXPECT_EQ(waitpid(std::exchange(pid_, -1), &status, 0) > 0, true) << strerror(errno);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "child's wait status " << status;
}

void Child::kill_now() {
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, -1), nullptr, 0);
}

}  // namespace ddpsock::shim_tests
