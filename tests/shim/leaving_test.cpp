// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Connections that go where only the kernel serves them: passed to another process, given to a
// program that knows of no library, used for urgent data, spliced. What was sent before is there.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "ddpsock/ddpsock.h"
#include "passing.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// One-sided operations stay where they are: such a connection does not leave.
bool stays() {
  return column() == Column::kOneSided;
}

class Leaving : public TcpTest {
 protected:
  void SetUp() override {
    if (stays()) GTEST_SKIP() << "connections with one-sided operations do not leave";
  }
};

// Past any preload, as a program without the library has them.
std::string read_in_the_kernel(int fd, size_t count) {
  std::string got(count, 0);
  size_t have = 0;
  while (have < count) {
    long n;
    asm volatile("syscall"
                 : "=a"(n)
                 : "a"(SYS_read), "D"(fd), "S"(got.data() + have), "d"(count - have)
                 : "rcx", "r11", "memory");
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  got.resize(have);
  return got;
}

void write_in_the_kernel(int fd, std::string_view bytes) {
  long n;
  asm volatile("syscall"
               : "=a"(n)
               : "a"(SYS_write), "D"(fd), "S"(bytes.data()), "d"(bytes.size())
               : "rcx", "r11", "memory");
  EXPECT_EQ(n, static_cast<long>(bytes.size()));
}

// The usual server: a process that accepts and passes on, another that has no library and serves.
// `before` runs on both ends first.
void pass_on(const std::function<void(int client, int server)>& before, std::string_view unread) {
  Pair pair = connected_pair();
  UnixPair to_worker;
  before(pair.client.get(), pair.server.get());
  Child worker([&] {
    pair.server.close();
    pair.client.close();
    std::vector<Fd> passed = receive_passed(to_worker.far.get());
    ASSERT_EQ(passed.size(), 1u);
    const std::string request = read_in_the_kernel(passed[0].get(), unread.size() + 5);
    EXPECT_EQ(request, std::string(unread) + "hello");
    write_in_the_kernel(passed[0].get(), "answer");
  });
  send_all(pair.client.get(), unread);
  std::thread client([&] {
    send_all(pair.client.get(), "hello");
    EXPECT_EQ(recv_exactly(pair.client.get(), 6), "answer");
  });
  EXPECT_EQ(pass(to_worker.near.get(), {pair.server.get()}), 1) << strerror(errno);
  pair.server.close();
  client.join();
  worker.expect_success();
}

TEST_F(Leaving, PassedToAnotherProcessAtOnce) {
  pass_on([](int, int) {}, "");
}

TEST_F(Leaving, PassedToAnotherProcessWithItsRequestUnread) {
  pass_on([](int, int) {}, "GET / HTTP/1.0\r\n\r\n");
}

TEST_F(Leaving, PassedInTheMiddleOfAConversation) {
  pass_on([](int client, int server) { expect_alive(client, server); }, pattern(3000));
}

TEST_F(Leaving, PassedWhenPartWasRead) {
  pass_on(
      [](int client, int server) {
        expect_alive(client, server);
        send_all(client, "line\n");
        EXPECT_EQ(recv_exactly(server, 1), "l");
        EXPECT_EQ(recv_exactly(server, 4), "ine\n");
      },
      "rest");
}

TEST_F(Leaving, ManyInOneMessage) {
  std::vector<Pair> pairs;
  std::vector<int> fds;
  UnixPair passing;
  for (int i = 0; i < 10; ++i) pairs.push_back(connected_pair());
  for (Pair& p : pairs) fds.push_back(p.server.get());
  std::vector<std::thread> clients;
  for (Pair& p : pairs)
    clients.emplace_back([fd = p.client.get()] {
      send_all(fd, "hello");
      EXPECT_EQ(recv_exactly(fd, 6), "answer");
    });
  EXPECT_EQ(pass(passing.near.get(), fds), 1) << strerror(errno);
  std::vector<Fd> passed = receive_passed(passing.far.get());
  ASSERT_EQ(passed.size(), pairs.size());
  for (const Fd& fd : passed) {
    EXPECT_EQ(read_in_the_kernel(fd.get(), 5), "hello");
    write_in_the_kernel(fd.get(), "answer");
  }
  for (std::thread& t : clients) t.join();
}

// The peer is this very thread, and in no call of its own.
TEST_F(Leaving, PassedByTheThreadThatHasBothEnds) {
  Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  UnixPair passing;
  send_all(pair.client.get(), "hello");
  ASSERT_EQ(pass(passing.near.get(), {pair.server.get()}), 1) << strerror(errno);
  std::vector<Fd> passed = receive_passed(passing.far.get());
  ASSERT_EQ(passed.size(), 1u);
  EXPECT_EQ(recv_exactly(passed[0].get(), 5), "hello");
  // Both numbers are one socket, and both ends go on.
  expect_alive(pair.client.get(), passed[0].get());
  expect_alive(pair.client.get(), pair.server.get());
}

TEST_F(Leaving, TheConnectingSideIsPassed) {
  Pair pair = connected_pair();
  UnixPair passing;
  std::thread server([&] {
    send_all(pair.server.get(), "banner");
    EXPECT_EQ(recv_exactly(pair.server.get(), 5), "hello");
  });
  ASSERT_EQ(pass(passing.near.get(), {pair.client.get()}), 1) << strerror(errno);
  std::vector<Fd> passed = receive_passed(passing.far.get());
  ASSERT_EQ(passed.size(), 1u);
  EXPECT_EQ(read_in_the_kernel(passed[0].get(), 6), "banner");
  write_in_the_kernel(passed[0].get(), "hello");
  server.join();
}

// The peer waits in a poller of the kernel and reads without waiting.
TEST_F(Leaving, ThePeerIsAnEventLoop) {
  Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  make_nonblocking(pair.client.get());
  UnixPair passing;
  std::thread client([fd = pair.client.get()] {
    std::string got;
    while (got.size() < 6) {
      pollfd p{fd, POLLIN, 0};
      ASSERT_EQ(poll(&p, 1, 10'000), 1);
      char b[100];
      const ssize_t n = recv(fd, b, sizeof b, 0);
      if (n < 0) {
        ASSERT_EQ(errno, EAGAIN);
        continue;
      }
      ASSERT_GT(n, 0);
      got.append(b, static_cast<size_t>(n));
    }
    EXPECT_EQ(got, "answer");
  });
  ASSERT_EQ(pass(passing.near.get(), {pair.server.get()}), 1) << strerror(errno);
  std::vector<Fd> passed = receive_passed(passing.far.get());
  ASSERT_EQ(passed.size(), 1u);
  write_in_the_kernel(passed[0].get(), "answer");
  client.join();
}

// As ssh does: what poll() calls readable must be.
TEST_F(Leaving, ThePeerTakesEagainAfterAPollForAnError) {
  Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  make_nonblocking(pair.client.get());
  UnixPair passing;
  std::thread client([fd = pair.client.get()] {
    pollfd p{fd, POLLIN, 0};
    ASSERT_EQ(poll(&p, 1, 10'000), 1);
    char b[100];
    EXPECT_EQ(recv(fd, b, sizeof b, 0), 6) << strerror(errno);
  });
  ASSERT_EQ(pass(passing.near.get(), {pair.server.get()}), 1) << strerror(errno);
  std::vector<Fd> passed = receive_passed(passing.far.get());
  ASSERT_EQ(passed.size(), 1u);
  write_in_the_kernel(passed[0].get(), "answer");
  client.join();
}

TEST_F(Leaving, UrgentData) {
  Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  std::thread server([fd = pair.server.get()] {
    make_nonblocking(fd);
    std::string got, urgent;
    while (got.size() < 6 || urgent.empty()) {
      pollfd p{fd, POLLIN | POLLPRI, 0};
      ASSERT_EQ(poll(&p, 1, 10'000), 1);
      char b[10];
      if ((p.revents & POLLPRI) != 0 && urgent.empty()) {
        ASSERT_EQ(recv(fd, b, sizeof b, MSG_OOB), 1) << strerror(errno);
        urgent.assign(b, 1);
      }
      const ssize_t n = recv(fd, b, sizeof b, 0);
      ASSERT_TRUE(n > 0 || (n < 0 && errno == EAGAIN)) << n;
      if (n > 0) got.append(b, static_cast<size_t>(n));
    }
    EXPECT_EQ(urgent, "!");
    EXPECT_EQ(got, "abcdef");
  });
  send_all(pair.client.get(), "abc");
  EXPECT_EQ(send(pair.client.get(), "!", 1, MSG_OOB), 1) << strerror(errno);
  send_all(pair.client.get(), "def");
  server.join();
}

// A program that was told by edges only, and of the urgent byte by none yet.
TEST_F(Leaving, WhatIsBehindUrgentDataComesWithAnEdge) {
  Pair pair = connected_pair();
  const int fd = pair.server.get();
  make_nonblocking(fd);
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, fd, &event), 0);
  ASSERT_EQ(send(pair.client.get(), "!", 1, MSG_OOB), 1) << strerror(errno);
  const std::string bytes = pattern(64);
  send_all(pair.client.get(), bytes);
  std::string got;
  while (got.size() < bytes.size()) {
    ASSERT_EQ(epoll_wait(set.get(), &event, 1, 3000), 1) << "after " << got.size();
    char b[7];
    for (ssize_t n; (n = recv(fd, b, sizeof b, 0)) > 0;) got.append(b, static_cast<size_t>(n));
    ASSERT_EQ(errno, EAGAIN);
  }
  EXPECT_TRUE(is_same(got, bytes));
}

// Nothing waits there any more, not even for an urgent byte.
TEST_F(Leaving, WhoReadsNoMoreReadsAnEndBehindUrgentData) {
  Pair pair = connected_pair();
  const int fd = pair.server.get();
  expect_alive(pair.client.get(), fd);
  ASSERT_EQ(send(pair.client.get(), "!", 1, MSG_OOB), 1) << strerror(errno);
  ASSERT_EQ(shutdown(fd, SHUT_RD), 0);
  char byte;
  EXPECT_EQ(recv(fd, &byte, 1, MSG_DONTWAIT), 0) << strerror(errno);
}

bool comes_with_a_time_stamp(int from, int to) {
  send_all(from, "x");
  char byte;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(timeval))> control{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  EXPECT_EQ(recvmsg(to, &m, 0), 1);
  return CMSG_FIRSTHDR(&m) != nullptr;
}

// What the kernel alone knows is given, or was refused when it was asked for.
TEST_F(Leaving, TimeStampsAreGivenOrRefused) {
  for (const size_t unread : {size_t{0}, size_t{100'000}}) {
    SCOPED_TRACE(unread);
    Pair pair = connected_pair();
    const int client = pair.client.get(), server = pair.server.get();
    expect_alive(client, server);
    send_all(client, pattern(unread));
    const int on = 1;
    const int result = setsockopt(server, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
    if (result != 0) {
      EXPECT_EQ(errno, ENOPROTOOPT);
      EXPECT_GT(unread, 0u);
      EXPECT_TRUE(is_in_ddp_mode());
    }
    EXPECT_TRUE(is_same(recv_exactly(server, unread), pattern(unread)));
    // The kernel begins with it a little later.
    while (result == 0 && !comes_with_a_time_stamp(client, server)) {
    }
  }
}

bool is_stream(int fd) {
  ddp_status status{};
  socklen_t length = sizeof status;
  return getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &length) == 0 &&
         status.mode == DDP_MODE_STREAM;
}

TEST_F(Leaving, WhoeverSpokeLast) {
  for (const bool is_client : {true, false})
    for (const int times : {1, 2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << (is_client ? "client " : "server ") << times);
      Pair pair = connected_pair();
      const int client = pair.client.get(), server = pair.server.get();
      for (int i = 0; i < times; ++i)
        i % 2 == 0 ? expect_alive(client, server) : expect_alive(server, client);
      const int on = 1;
      EXPECT_EQ(setsockopt(is_client ? client : server, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on),
                0);
      expect_alive(client, server);
    }
}

struct Asker {
  enum class When : uint8_t { kNever, kBeforeListen, kBeforeAccept, kBeforeConnect } when;
  int option = SO_TIMESTAMP;
};

// Both ends as the program's rules want them, in every column.
Pair pair_with_time_stamps(const Asker& asker, bool& is_refused) {
  is_refused = false;
  const auto ask = [&](const Fd& fd, Asker::When now) {
    const int on = 1;
    if (asker.when != now || setsockopt(fd.get(), SOL_SOCKET, asker.option, &on, sizeof on) == 0)
      return;
    EXPECT_EQ(errno, ENOPROTOOPT);
    is_refused = true;
  };
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* where = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(listener.get(), where, length), 0);
  EXPECT_EQ(getsockname(listener.get(), where, &length), 0);
  ask(listener, Asker::When::kBeforeListen);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  ask(listener, Asker::When::kBeforeAccept);
  Pair pair{Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), Fd()};
  ask(pair.client, Asker::When::kBeforeConnect);
  EXPECT_EQ(connect(pair.client.get(), where, length), 0) << strerror(errno);
  pair.server = Fd(accept(listener.get(), nullptr, nullptr));
  return pair;
}

// The same for what is asked for before there is a connection. The rules of some columns only
// prefer DDPMODE.
TEST_F(Leaving, TimeStampsAskedForBeforeAreGivenOrRefused) {
  using enum Asker::When;
  bool is_refused;
  Pair without = pair_with_time_stamps({kNever}, is_refused);
  expect_alive(without.client.get(), without.server.get());
  const bool would_be_streams = is_stream(without.client.get());
  EXPECT_EQ(would_be_streams, column() != Column::kNative && column() != Column::kOff);
  for (const Asker& asker : {Asker{kBeforeListen},
                             {kBeforeAccept},
                             {kBeforeConnect},
                             {kBeforeListen, SO_TIMESTAMPNS},
                             {kBeforeConnect, SO_TIMESTAMPNS},
                             {kBeforeConnect, SO_TIMESTAMP_NEW}}) {
    SCOPED_TRACE(testing::Message() << int(asker.when) << " " << asker.option);
    Pair pair = pair_with_time_stamps(asker, is_refused);
    const int client = pair.client.get(), server = pair.server.get();
    expect_alive(client, server);
    EXPECT_EQ(is_refused, is_ddp_mode_required())
        << "only a rule that requires DDPMODE is a reason";
    EXPECT_EQ(is_stream(client), is_refused);
    EXPECT_EQ(is_stream(server), is_refused);
    const bool is_client = asker.when == kBeforeConnect;
    while (!is_refused &&
           !comes_with_a_time_stamp(is_client ? server : client, is_client ? client : server)) {
    }
  }
}

// `cat` without the library in its environment, as an inetd would start it.
void become_plain_cat(int fd, bool is_searched) {
  static char name[] = "cat";
  static char path[] = "PATH=/usr/bin:/bin";
  static char* arguments[] = {name, nullptr};
  static char* environment[] = {path, nullptr};
  dup2(fd, 0);
  dup2(fd, 1);
  is_searched ? execvpe(name, arguments, environment) : execve("/bin/cat", arguments, environment);
  _exit(127);
}

pid_t start_plain_cat(int fd) {
  const pid_t pid = fork();
  if (pid == 0) become_plain_cat(fd, false);
  return pid;
}

pid_t start_plain_cat_by_vfork(int fd) {
  const pid_t pid = vfork();
  if (pid == 0) become_plain_cat(fd, false);
  return pid;
}

template <typename Start>
void serve_by_cat(Start start, std::string_view unread) {
  Pair pair = connected_pair();
  fcntl(pair.client.get(), F_SETFD, FD_CLOEXEC);
  fcntl(pair.server.get(), F_SETFD, FD_CLOEXEC);
  send_all(pair.client.get(), unread);
  std::thread client([&] {
    send_all(pair.client.get(), "hello");
    EXPECT_EQ(recv_exactly(pair.client.get(), unread.size() + 5), std::string(unread) + "hello");
    send_all(pair.client.get(), "more");
    EXPECT_EQ(recv_exactly(pair.client.get(), 4), "more");
    shutdown(pair.client.get(), SHUT_WR);
    expect_end_of_stream(pair.client.get());
  });
  const pid_t pid = start(pair.server.get());
  pair.server.close();
  client.join();
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Leaving, AProgramWithoutTheLibrary) {
  serve_by_cat(start_plain_cat, "");
}

TEST_F(Leaving, AProgramWithoutTheLibraryThatHasItsRequest) {
  serve_by_cat(start_plain_cat, pattern(1000));
}

TEST_F(Leaving, AProgramWithoutTheLibraryByVfork) {
  serve_by_cat(start_plain_cat_by_vfork, pattern(1000));
}

void install(std::vector<sock_filter> filter, bool by_syscall) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  if (by_syscall) {
    ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0) << strerror(errno);
  } else {
    ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0) << strerror(errno);
  }
}

void forbid(const std::vector<uint32_t>& numbers, bool by_syscall) {
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const uint32_t number : numbers) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  install(std::move(filter), by_syscall);
}

// What sshd's sandbox forbids, and what it uses: read, write and poll.
void forbid_socket_calls(bool by_syscall) {
  forbid({SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_getsockopt, SYS_setsockopt},
         by_syscall);
}

// As sshd has it: a child that restricts itself, and a parent that holds the socket too and goes on
// when the child is done.
void serve_restricted(bool by_syscall) {
  Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  send_all(pair.client.get(), "early ");
  Child child([&] {
    forbid_socket_calls(by_syscall);
    std::string got;
    while (got.size() < 11) {
      pollfd p{pair.server.get(), POLLIN, 0};
      ASSERT_EQ(poll(&p, 1, 10'000), 1);
      char b[100];
      const ssize_t n = read(pair.server.get(), b, sizeof b);
      ASSERT_GT(n, 0) << strerror(errno);
      got.append(b, static_cast<size_t>(n));
    }
    EXPECT_EQ(got, "early hello");
    EXPECT_EQ(write(pair.server.get(), "answer", 6), 6);
  });
  send_all(pair.client.get(), "hello");
  EXPECT_EQ(recv_exactly(pair.client.get(), 6), "answer");
  child.expect_success();
  expect_alive(pair.client.get(), pair.server.get());
}

TEST_F(Leaving, AFilterThatForbidsSocketCalls) {
  serve_restricted(false);
}

TEST_F(Leaving, AFilterThatForbidsSocketCallsBySyscall) {
  serve_restricted(true);
}

// To the parent, though the child has asked for what there is.
TEST_F(Leaving, AResetMetBeforeAFilterIsToldStill) {
  Pair pair = connected_pair();
  send_all(pair.server.get(), "unread");
  await_queued(pair.client.get(), 6);
  pair.client.close();
  Child child([] { forbid_socket_calls(false); });
  child.expect_success();
  char byte;
  EXPECT_EQ(recv(pair.server.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// Nor does the program know by which calls a connection ends. The process has both ends, and is
// alone with them.
TEST_F(Leaving, AFilterThatForbidsWhatOnlyTheLibraryCalls) {
  for (const uint32_t number : {SYS_shmctl, SYS_shmdt, SYS_madvise, SYS_kill, SYS_pidfd_open}) {
    SCOPED_TRACE(number);
    Child child([&] {
      Pair pair = connected_pair();
      expect_alive(pair.client.get(), pair.server.get());
      forbid({number}, false);
      expect_alive(pair.client.get(), pair.server.get());
      Child heir([&] { expect_alive(pair.client.get(), pair.server.get()); });
      heir.expect_success();
      pair.client.close();
      expect_end_of_stream(pair.server.get());
      pair.server.close();
    });
    child.expect_success();
  }
}

struct Command {
  uint32_t number;
  uint32_t argument;
  uint32_t value;
};

// Of a call that the program makes too, with other arguments.
TEST_F(Leaving, AFilterThatForbidsACommandThatOnlyTheLibraryGives) {
  for (const Command& c : {Command{SYS_fcntl, 1, F_OFD_SETLK}, Command{SYS_madvise, 2, 23},
                           Command{SYS_ioctl, 1, FIONREAD}}) {
    SCOPED_TRACE(c.number);
    Child child([&] {
      Pair pair = connected_pair();
      expect_alive(pair.client.get(), pair.server.get());
      const auto argument = static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * c.argument);
      install({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, c.number, 0, 3),
               BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),
               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, c.value, 0, 1),
               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)},
              false);
      Child heir([&] { expect_alive(pair.client.get(), pair.server.get()); });
      heir.expect_success();
      const std::string much = pattern(300'000);
      std::thread sender([&] { send_all(pair.client.get(), much); });
      EXPECT_TRUE(is_same(recv_exactly(pair.server.get(), much.size()), much));
      sender.join();
      pollfd p{pair.server.get(), POLLIN, 0};
      EXPECT_EQ(poll(&p, 1, 0), 0);
      pair.client.close();
      expect_end_of_stream(pair.server.get());
      pair.server.close();
    });
    child.expect_success();
  }
}

// What the library looks for is not what a program needs to execute another.
TEST_F(Leaving, AProgramIsExecutedWhereAFilterForbidsToLookForIt) {
  for (const bool is_searched : {false, true}) {
    serve_by_cat(
        [=](int fd) {
          const pid_t pid = fork();
          if (pid != 0) return pid;
          forbid({SYS_faccessat, SYS_faccessat2, SYS_fgetxattr}, false);
          become_plain_cat(fd, is_searched);
          return pid;
        },
        "");
  }
}

size_t count_netlink_sockets() {
  size_t count = 0;
  for (int fd = 0; fd < 8192; ++fd) {
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_NETLINK) ++count;
  }
  return count;
}

// A program that gives up to ask the kernel who is there has no socket left that can.
TEST_F(Leaving, NothingToAskWithIsLeftBehindAFilter) {
  for (const bool is_own : {false, true}) {
    Pair pair = connected_pair();
    expect_alive(pair.client.get(), pair.server.get());
    Child child([&] {
      if (is_own) connected_pair();
      constexpr auto kFamily = static_cast<uint32_t>(offsetof(seccomp_data, args));
      install({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
               BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFamily),
               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)},
              is_own);
      EXPECT_EQ(count_netlink_sockets(), 0u);
      expect_alive(pair.client.get(), pair.server.get());
    });
    child.expect_success();
  }
}

// What asks which filters the kernel knows, and is refused, as libseccomp does.
TEST_F(Leaving, NotForAQuestionAboutSeccomp) {
  Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  EXPECT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, nullptr), -1);
  EXPECT_EQ(errno, EFAULT);
  uint32_t action = SECCOMP_RET_LOG;
  EXPECT_EQ(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action), 0);
  expect_alive(pair.client.get(), pair.server.get());
  if (!is_in_ddp_mode()) return;
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    ddp_status status{};
    socklen_t size = sizeof status;
    ASSERT_EQ(getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &size), 0);
    EXPECT_EQ(status.mode, uint32_t{DDP_MODE_STREAM}) << status.reason;
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
