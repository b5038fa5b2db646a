// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What was accepted for sending arrives, whatever becomes of the process or thread that sent it,
// and then an end that is no error if all was read that was sent to it.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "kernel.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

struct Fate {
  const char* name;
  void (*meet)();
  bool is_seen;  // by a preloaded library
};

void PrintTo(const Fate& fate, std::ostream* out) {
  *out << fate.name;
}

const Fate kFates[] = {{"_exit", [] { _exit(0); }, true},
                       {"exit", [] { exit(0); }, true},
                       {"quick_exit", [] { quick_exit(0); }, true},
                       {"exit_group", [] { syscall(SYS_exit_group, 0); }, true},
                       {"SIGKILL", [] { raise(SIGKILL); }, false}};

class EndingsInMemory : public TcpTest {};
class OfAProcess : public EndingsInMemory, public testing::WithParamInterface<Fate> {};
INSTANTIATE_TEST_SUITE_P(Fates, OfAProcess, testing::ValuesIn(kFates),
                         [](const auto& p) { return p.param.name; });

// A process that runs `body` and meets its fate.
class Doomed {
 public:
  Doomed(const Fate& fate, const std::function<void()>& body) {
    pid_ = fork();
    if (pid_ != 0) return;
    alarm(20);
    body();
    fate.meet();
  }
  ~Doomed() { await(); }
  Doomed(const Doomed&) = delete;
  void await() {
    if (pid_ <= 0) return;
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

const std::string& much() {
  static const std::string bytes = pattern(16 << 20);
  return bytes;
}

// What the process that ends has been told was sent.
class Accepted {
 public:
  Accepted()
      : count_(static_cast<std::atomic<size_t>*>(mmap(
            nullptr, sizeof(size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Accepted() { munmap(count_, sizeof(size_t)); }
  Accepted(const Accepted&) = delete;
  void add(size_t n) { *count_ += n; }
  size_t count() const { return *count_; }

 private:
  std::atomic<size_t>* count_;
};

void await_readable(int set) {
  epoll_event event;
  while (epoll_wait(set, &event, 1, -1) < 0 && errno == EINTR) continue;
}

void watch(int set, int fd) {
  epoll_event event{EPOLLIN | EPOLLET, {.fd = fd}};
  epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

// What it brings is told once, and not to who receives.
void expect_first_send_in_vain(int fd) {
  EXPECT_EQ(send(fd, "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_TRUE(kernel_poll(fd, 0, kSoon) & POLLHUP);
  EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_ERROR), EPIPE);
  EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_ERROR), 0);
  expect_end_of_stream(fd);
}

// Answers once, and then sends what is taken.
void serve_until_refused(int listener, Accepted& accepted) {
  const Fd set(epoll_create1(0));
  watch(set.get(), listener);
  await_readable(set.get());
  const int fd = accept(listener, nullptr, nullptr);
  make_nonblocking(fd);
  watch(set.get(), fd);
  char byte;
  for (int i = 0; i < 2; ++i) {
    while (recv(fd, &byte, 1, 0) < 0) await_readable(set.get());
    if (i == 0) send_all(fd, "a");
  }
  for (size_t at = 0; at < much().size();) {
    const ssize_t n = send(fd, much().data() + at, std::min<size_t>(much().size() - at, 50'000), 0);
    if (n < 0) break;
    at += static_cast<size_t>(n);
    accepted.add(static_cast<size_t>(n));
  }
}

TEST_P(OfAProcess, AllThatWasAcceptedArrives) {
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Listener listener = listen_loopback();
    Accepted accepted;
    Doomed server(GetParam(), [&] { serve_until_refused(listener.fd.get(), accepted); });
    const Fd client = dial(listener.address);
    send_all(client.get(), "q");
    EXPECT_EQ(recv_exactly(client.get(), 1), "a");
    send_all(client.get(), "g");
    server.await();
    const std::string got = recv_to_end(client.get());
    EXPECT_GT(accepted.count(), 0u);
    EXPECT_EQ(got.size(), accepted.count());
    EXPECT_TRUE(is_same(got, std::string_view(much()).substr(0, got.size())));
    expect_end_of_stream(client.get());
  }
}

// Who has read all that was sent to it ends without a reset, however busy the connection was.
TEST_P(OfAProcess, WhoHasReadAllLeavesAnEnd) {
  constexpr size_t kMessages = 40, kSize = 100;
  for (int round = 0; round < 25 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Listener listener = listen_loopback();
    Doomed server(GetParam(), [&] {
      const int fd = accept_one(listener.fd.get()).release();
      recv_exactly(fd, kMessages * kSize);
      send_all(fd, "done");
    });
    const Fd client = dial(listener.address);
    for (size_t i = 0; i < kMessages; ++i) send_all(client.get(), pattern(kSize));
    server.await();
    if (GetParam().is_seen) {
      const short events = kernel_poll(client.get(), POLLIN | POLLRDHUP, kSoon);
      EXPECT_EQ(events & (POLLERR | POLLHUP), 0);
    }
    EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), 0);
    EXPECT_EQ(recv_to_end(client.get()), "done");
    expect_end_of_stream(client.get());
    expect_first_send_in_vain(client.get());
  }
}

// The same where each waits for the other: in memory nobody then looks at what was rung for.
TEST_P(OfAProcess, AConversationEndsWithoutAReset) {
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Listener listener = listen_loopback();
    Doomed server(GetParam(), [&] {
      const int fd = accept_one(listener.fd.get()).release();
      for (int i = 0; i < 50; ++i) send_all(fd, recv_exactly(fd, 10));
    });
    const Fd client = dial(listener.address);
    for (int i = 0; i < 50; ++i) {
      send_all(client.get(), "0123456789");
      EXPECT_EQ(recv_exactly(client.get(), 10), "0123456789");
    }
    server.await();
    if (GetParam().is_seen) {
      const short events = kernel_poll(client.get(), POLLIN | POLLRDHUP, kSoon);
      EXPECT_EQ(events, POLLIN | POLLRDHUP);
    }
    expect_end_of_stream(client.get());
    expect_first_send_in_vain(client.get());
  }
}

// Also to who asks before it reads.
TEST_P(OfAProcess, IsAnEndToPollers) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Listener listener = listen_loopback();
    Doomed server(GetParam(), [&] {
      const int fd = accept_one(listener.fd.get()).release();
      for (int i = 0; i < 50; ++i) send_all(fd, recv_exactly(fd, 10));
      send_all(fd, "last");
    });
    const Fd client = dial(listener.address);
    for (int i = 0; i < 50; ++i) {
      send_all(client.get(), "0123456789");
      EXPECT_EQ(recv_exactly(client.get(), 10), "0123456789");
    }
    server.await();
    const Fd set(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{EPOLLIN | EPOLLRDHUP, {.fd = client.get()}};
    ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, client.get(), &event), 0);
    for (const bool has_read : {false, true}) {
      pollfd one{client.get(), POLLIN | POLLRDHUP, 0};
      EXPECT_EQ(poll(&one, 1, kSoon), 1);
      EXPECT_EQ(one.revents, POLLIN | POLLRDHUP) << has_read;
      EXPECT_EQ(epoll_wait(set.get(), &event, 1, kSoon), 1);
      EXPECT_EQ(event.events, uint32_t{EPOLLIN | EPOLLRDHUP}) << has_read;
      if (has_read) break;
      EXPECT_EQ(recv_exactly(client.get(), 4), "last");
    }
    EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), 0);
    expect_end_of_stream(client.get());
    expect_first_send_in_vain(client.get());
  }
}

// Whatever was asked for: pollers report errors to all.
TEST_P(OfAProcess, IsAnEndWhateverIsAskedFor) {
  for (const int round : {0, 1, 2, 3}) {
    SCOPED_TRACE(round);
    const bool is_shut = (round & 1) != 0, is_nonblocking = (round & 2) != 0;
    const Listener listener = listen_loopback();
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const Fd go(ends[1]), start(ends[0]);
    Doomed server(GetParam(), [&] {
      const int fd = accept_one(listener.fd.get()).release();
      for (int i = 0; i < 50; ++i) send_all(fd, recv_exactly(fd, 10));
      char byte;
      EXPECT_EQ(read(start.get(), &byte, 1), 1);
    });
    const Fd client = dial(listener.address);
    for (int i = 0; i < 50; ++i) {
      send_all(client.get(), "0123456789");
      EXPECT_EQ(recv_exactly(client.get(), 10), "0123456789");
    }
    if (is_shut) {
      EXPECT_EQ(shutdown(client.get(), SHUT_WR), 0);
    }
    EXPECT_EQ(write(go.get(), "g", 1), 1);
    server.await();
    if (is_nonblocking) make_nonblocking(client.get());
    const int always = is_shut ? POLLHUP : 0;
    for (const short events : {POLLRDHUP, POLLIN, POLLOUT, POLLPRI, 0}) {
      pollfd one{client.get(), events, 0};
      const int ready = (events & ~POLLPRI) | always;
      EXPECT_EQ(poll(&one, 1, ready != 0 ? kSoon : 20), ready != 0 ? 1 : 0);
      EXPECT_EQ(one.revents, ready) << events;
      const timespec none{};
      EXPECT_EQ(ppoll(&one, 1, &none, nullptr), ready != 0 ? 1 : 0);
      EXPECT_EQ(one.revents, ready) << events;
    }
    const Fd set(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{EPOLLRDHUP, {.fd = client.get()}};
    ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, client.get(), &event), 0);
    EXPECT_EQ(epoll_wait(set.get(), &event, 1, kSoon), 1);
    EXPECT_EQ(event.events, static_cast<uint32_t>(POLLRDHUP | always));
    EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), 0);
    expect_end_of_stream(client.get());
  }
}

// As of a close: it was not delivered.
TEST_P(OfAProcess, WhoHasNotReadAllLeavesAReset) {
  const Listener listener = listen_loopback();
  Doomed server(GetParam(), [&] {
    const int fd = accept_one(listener.fd.get()).release();
    recv_exactly(fd, 10);
    send_all(fd, "a");
    recv_exactly(fd, 10);
    await_queued(fd, 10);
  });
  const Fd client = dial(listener.address);
  send_all(client.get(), "0123456789");
  EXPECT_EQ(recv_exactly(client.get(), 1), "a");
  send_all(client.get(), "01234567890123456789");
  server.await();
  EXPECT_TRUE(kernel_poll(client.get(), POLLIN, kSoon) & POLLHUP);
  char byte;
  EXPECT_EQ(recv(client.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// The first bytes come by the wire: that they were read in part the memory does not say.
TEST_F(EndingsInMemory, WhoHasReadAPartOfTheFirstBytesLeavesAReset) {
  Pair pair = connected_pair();
  send_all(pair.client.get(), pattern(4096));
  EXPECT_EQ(recv_exactly(pair.server.get(), 10).size(), 10u);
  pair.server = Fd();
  EXPECT_EQ(send(pair.client.get(), "a", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// Its start-up frame comes behind what moved to memory, and is not the program's.
TEST_F(EndingsInMemory, WhoHasShutItsWritingSideFirstMeetsNoReset) {
  Pair pair = connected_pair();
  for (int i = 0; i < 3; ++i) {
    send_all(pair.client.get(), "a");
    recv_exactly(pair.server.get(), 1);
  }
  ASSERT_EQ(shutdown(pair.server.get(), SHUT_WR), 0);
  pair.client = Fd();
  EXPECT_EQ(send(pair.server.get(), "a", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  expect_end_of_stream(pair.server.get());
}

// The first send finds out, and says nothing of it.
TEST_F(EndingsInMemory, WhoHasShutBothDirectionsIsSentNothing) {
  using Steps = std::vector<int>;
  for (const Steps& steps : {Steps{SHUT_RDWR}, Steps{SHUT_RD, SHUT_WR}, Steps{SHUT_WR, SHUT_RD}}) {
    const Pair pair = connected_pair();
    expect_alive(pair.client.get(), pair.server.get());
    send_all(pair.server.get(), "last words");
    send_all(pair.client.get(), "unread");
    for (const int how : steps) ASSERT_EQ(shutdown(pair.server.get(), how), 0);
    EXPECT_EQ(send(pair.client.get(), "a", 1, MSG_NOSIGNAL), 1);
    EXPECT_EQ(send(pair.client.get(), "a", 1, MSG_NOSIGNAL), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(recv_exactly(pair.client.get(), 10), "last words");
    EXPECT_EQ(recv_exactly(pair.server.get(), 6), "unread");
  }
}

// Full as it is, the end has not come yet: what the first send brings is a reset, and is told.
TEST_F(EndingsInMemory, WhatASendInVainBringsToAFullReaderIsTold) {
  Pair pair = connected_pair();
  send_all(pair.client.get(), "a");
  EXPECT_EQ(recv_exactly(pair.server.get(), 1), "a");
  make_nonblocking(pair.client.get());
  while (send(pair.client.get(), much().data(), 65536, 0) > 0) continue;
  pair.client = Fd();
  EXPECT_EQ(send(pair.server.get(), "a", 1, MSG_NOSIGNAL), 1);
  EXPECT_TRUE(kernel_poll(pair.server.get(), 0, kSoon) & POLLHUP);
  const int error = get_option(pair.server.get(), SOL_SOCKET, SO_ERROR);
  EXPECT_TRUE(error == ECONNRESET || error == EPIPE) << strerror(error);
  EXPECT_EQ(get_option(pair.server.get(), SOL_SOCKET, SO_ERROR), 0);
}

// What came is no end, though all that the other was sent is read.
TEST_F(EndingsInMemory, WhoHasShutBothDirectionsIsToldOfWhatCame) {
  for (const bool is_asked : {true, false}) {
    const Pair pair = connected_pair();
    expect_alive(pair.client.get(), pair.server.get());
    ASSERT_EQ(shutdown(pair.server.get(), SHUT_RDWR), 0);
    expect_end_of_stream(pair.client.get());
    EXPECT_EQ(send(pair.client.get(), "a", 1, MSG_NOSIGNAL), 1);
    pollfd p{pair.server.get(), 0, 0};
    EXPECT_EQ(poll(&p, 1, 3000), 1);
    EXPECT_EQ(p.revents, POLLERR | POLLHUP);
    char byte;
    if (is_asked) {
      EXPECT_EQ(get_option(pair.server.get(), SOL_SOCKET, SO_ERROR), ECONNRESET);
    } else {
      EXPECT_EQ(recv(pair.server.get(), &byte, 1, 0), -1);
      EXPECT_EQ(errno, ECONNRESET);
    }
    expect_end_of_stream(pair.server.get());
  }
}

// A child of a vfork, and one of a fork, hold a copy each that means nothing to the connection.
TEST_F(EndingsInMemory, OfAChildAreNoEnds) {
  const Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  for (const Fate& fate : kFates) {
    Doomed(fate, [] {}).await();
    expect_alive(pair.client.get(), pair.server.get());
  }
  const pid_t child = vfork();
  if (child == 0) _exit(0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  expect_alive(pair.client.get(), pair.server.get());
}

void exit_at_once(int) {
  _exit(0);
}

// Wherever a handler interrupts it.
TEST_F(EndingsInMemory, OfAProcessThatExitsInAHandler) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Listener listener = listen_loopback();
    const pid_t server = fork();
    if (server == 0) {
      alarm(20);
      signal(SIGUSR1, exit_at_once);
      const int fd = accept_one(listener.fd.get()).release();
      for (;;) send_all(fd, recv_exactly(fd, 1));
    }
    const Fd client = dial(listener.address);
    for (int i = 0; i < 20 + round; ++i) {
      send_all(client.get(), "x");
      EXPECT_EQ(recv_exactly(client.get(), 1), "x");
    }
    EXPECT_EQ(kill(server, SIGUSR1), 0);
    EXPECT_EQ(waitpid(server, nullptr, 0), server);
    expect_end_of_stream(client.get());
  }
}

// Busy to the last byte, in one process: close() comes while bells are under way.
TEST_F(EndingsInMemory, OfABusyConnectionAreEnds) {
  for (int round = 0; round < 150 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Pair pair = connected_pair();
    constexpr size_t kTotal = 3000;
    std::jthread server([&, fd = std::move(pair.server)]() mutable {
      std::jthread writer([&] {
        for (size_t i = 0; i < kTotal / 50; ++i) send_all(fd.get(), pattern(50));
      });
      recv_exactly(fd.get(), kTotal);
      writer.join();
      fd.close();
    });
    std::jthread writer([&] {
      for (size_t i = 0; i < kTotal / 20; ++i) send_all(pair.client.get(), pattern(20));
    });
    EXPECT_EQ(recv_to_end(pair.client.get()).size(), kTotal);
    writer.join();
    expect_end_of_stream(pair.client.get());
    EXPECT_EQ(get_option(pair.client.get(), SOL_SOCKET, SO_ERROR), 0);
  }
}

// Neither reads before it has sent all: there must be as much room as TCP has.
TEST_F(EndingsInMemory, BothEndsSendAMegabyteBeforeTheyReceive) {
  for (const bool is_in_use : {false, true}) {
    const Pair pair = connected_pair();
    if (is_in_use) expect_alive(pair.client.get(), pair.server.get());
    const std::string a = pattern(1'000'000, 1), b = pattern(1'000'000, 2);
    std::jthread server([&] {
      send_all(pair.server.get(), b);
      EXPECT_TRUE(is_same(recv_exactly(pair.server.get(), a.size()), a));
    });
    send_all(pair.client.get(), a);
    EXPECT_TRUE(is_same(recv_exactly(pair.client.get(), b.size()), b));
  }
}

// A sender that has no room learns at once that nobody will make any.
TEST_P(OfAProcess, WhoWaitsForRoomIsToldOfTheEnd) {
  for (const bool is_polling : {false, true}) {
    const Listener listener = listen_loopback();
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const Fd go(ends[1]), start(ends[0]);
    Doomed server(GetParam(), [&] {
      const int fd = accept_one(listener.fd.get()).release();
      send_all(fd, recv_exactly(fd, 1));
      char byte;
      EXPECT_EQ(read(start.get(), &byte, 1), 1);
    });
    const Fd client = dial(listener.address);
    send_all(client.get(), "q");
    EXPECT_EQ(recv_exactly(client.get(), 1), "q");
    if (is_polling) fill_until_refused(client.get(), 1);
    std::jthread end([&] {
      sleep_ms(50);
      EXPECT_EQ(write(go.get(), "g", 1), 1);
      server.await();
    });
    if (is_polling) {
      pollfd p{client.get(), POLLOUT, 0};
      EXPECT_EQ(poll(&p, 1, 5000), 1);
      EXPECT_TRUE(p.revents & (POLLERR | POLLHUP));
    } else {
      while (send(client.get(), much().data(), much().size(), MSG_NOSIGNAL) >= 0) continue;
      EXPECT_TRUE(errno == ECONNRESET || errno == EPIPE) << strerror(errno);
    }
  }
}

// What the blocked call had sent by then is delivered, and no more.
TEST_F(EndingsInMemory, ShutdownOfTheWritingSideDuringAnothersSend) {
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Pair pair = connected_pair();
    expect_alive(pair.client.get(), pair.server.get());
    size_t sent = 0;
    std::jthread sender([&] {
      for (;;) {
        const ssize_t n =
            send(pair.client.get(), much().data() + sent, much().size() - sent, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += static_cast<size_t>(n);
      }
      EXPECT_EQ(errno, EPIPE);
    });
    sleep_ms(round * 7);
    EXPECT_EQ(shutdown(pair.client.get(), SHUT_WR), 0);
    sender.join();
    EXPECT_EQ(send(pair.client.get(), "x", 1, MSG_NOSIGNAL), -1);
    const std::string got = recv_to_end(pair.server.get());
    EXPECT_EQ(got.size(), sent);
    EXPECT_TRUE(is_same(got, std::string_view(much()).substr(0, got.size())));
    // The other way is still open.
    send_all(pair.server.get(), "still here");
    EXPECT_EQ(recv_exactly(pair.client.get(), 10), "still here");
  }
}

// Wherever it falls: what was sent is rung for, and nobody else is kept from sending.
TEST_F(EndingsInMemory, OfAThreadThatIsCancelled) {
  const Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  set_timeout(pair.server.get(), SO_RCVTIMEO, 3000);
  for (int round = 0; round < 200 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    std::atomic<size_t> sent{0};
    std::atomic<bool> has_begun{false};
    std::thread sender([&] {
      has_begun = true;
      for (;;) {
        send(pair.client.get(), "x", 1, 0);
        ++sent;
      }
    });
    while (!has_begun) sched_yield();
    char byte;
    for (int i = 0; i < round % 10; ++i) EXPECT_EQ(recv(pair.server.get(), &byte, 1, 0), 1);
    pthread_cancel(sender.native_handle());
    sender.join();
    send_all(pair.client.get(), "y");
    size_t got = static_cast<size_t>(round % 10);
    ssize_t n;
    while ((n = recv(pair.server.get(), &byte, 1, 0)) == 1 && byte == 'x') ++got;
    EXPECT_EQ(n, 1) << strerror(errno);
    EXPECT_GE(got, sent);
    EXPECT_LE(got, sent + 1);
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
