// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The verbs the transparency tests are written in: an ordinary TCP program's handful of helpers,
// made of libc calls only. Nothing here knows that a library may be loaded in front of libc.
//
// A helper that cannot do its work adds a test failure, with errno, and returns what it has; every
// test has a deadline (TcpTest), so a helper may block.
#ifndef DDPSOCK_TESTS_SHIM_TCP_H_
#define DDPSOCK_TESTS_SHIM_TCP_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace ddpsock::shim_tests {

// How this run of the program was started. Tests behave the same in all columns; only the helpers
// that make sockets, and the few tests that check the column itself, ask.
enum class Column {
  kNative,     // no preload
  kOff,        // the library is loaded, rules say off
  kDdp,        // both ends of each connection are in DDPMODE, with the user engine
  kShm,        // the same, in shared memory
  kPrefer,     // as programs have it by default: rules say prefer, and memory serves
  kOneSided,   // as kDdp, and all connections have begun with one-sided operations
  kRawServer,  // rules say prefer; listeners are made behind the library's back
  kRawClient,  // rules say prefer; connecting sockets are made behind the library's back
  kUndecided,  // as kRawClient, and in another network namespace: who connects is not known
  kOtherUser,  // as kDdp, rules say prefer; connecting sockets are another user's
};
// kDdp, kShm, kPrefer, kOneSided and kOtherUser.
bool is_in_ddp_mode();
bool is_in_memory();  // kShm and kPrefer
// kDdp, kShm and kOneSided: rules require DDPMODE.
bool is_ddp_mode_required();
Column column();  // from the environment variable SHIM_TEST_COLUMN; kNative without it

// Every test gets a deadline and starts with SIGPIPE ignored.
class TcpTest : public testing::Test {
 protected:
  TcpTest() { start_deadline(); }
  ~TcpTest() override;
  static void start_deadline(unsigned seconds = 20);
};

// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void close();

 private:
  int fd_ = -1;
};

struct Listener {
  Fd fd;
  sockaddr_in address{};  // own_address() and a port the kernel chose
};

struct Pair {
  Fd client, server;
};

// Without a port: where this column's clients find its listeners, and where they are themselves.
sockaddr_in own_address();
sockaddr_in client_address();
Fd make_client_socket(int type_flags = 0);
Fd make_raw_client_socket();  // behind the library's back, in every column
Listener listen_loopback(int backlog = 64, int type_flags = 0);
int connect_to(int fd, const sockaddr_in& address);
Fd dial(const sockaddr_in& address);
Fd accept_one(int listener);
Pair connected_pair();  // connects, then accepts, in this thread

void send_all(int fd, std::string_view bytes);
std::string recv_exactly(int fd, size_t count);
std::string recv_to_end(int fd);
void expect_end_of_stream(int fd);  // recv gives 0, twice
void expect_alive(int a, int b);    // a message passes each way

int closed_number();  // one that no descriptor has now
void make_nonblocking(int fd);
bool is_nonblocking(int fd);
int queued_bytes(int fd);  // FIONREAD
// Waits until FIONREAD says `count`.
void await_queued(int fd, int count);
void set_option(int fd, int level, int option, int value);
int get_option(int fd, int level, int option);
void set_timeout(int fd, int option, int milliseconds);
// Writes until the kernel refuses (O_NONBLOCK is not touched), after the `from` bytes written
// before. Returns how many are written then, which are pattern(n, seed).
size_t fill_until_refused(int fd, uint32_t seed, size_t piece = 16 * 1024, size_t from = 0);

// `count` bytes that differ from place to place and from seed to seed; a prefix of any longer one.
std::string pattern(size_t count, uint32_t seed = 1);
// Compares byte strings too long to print: says where they differ first.
testing::AssertionResult is_same(std::string_view got, std::string_view expected);
size_t random_size(std::mt19937& random, size_t least, size_t most);

// Does this thread or process, of this host, sleep in the kernel?
bool is_asleep(pid_t thread);
void await_asleep(pid_t thread);

// Time since some start.
int64_t now_ms();
void sleep_ms(int milliseconds);

// A forked process that runs `body`; test failures in it count when it is waited for. It has its
// own deadline and is killed, if still there, by the destructor.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void expect_success();
  void kill_now();  // SIGKILL, and waits
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

}  // namespace ddpsock::shim_tests

#endif  // DDPSOCK_TESTS_SHIM_TCP_H_
