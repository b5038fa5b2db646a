// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Signals and cancellation: SIGPIPE, EINTR with and without SA_RESTART, pthread_cancel of a call
// that waits. After each the connection is as good as before.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "calls.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

std::atomic<int> caught;

void count_signal(int) {
  ++caught;
}

void handle(int signal_number, int flags) {
  struct sigaction action{};
  action.sa_handler = count_signal;
  action.sa_flags = flags;
  sigaction(signal_number, &action, nullptr);
  caught = 0;
}

// Signals the thread it was made in every few milliseconds, so that one falls into a wait.
class Interrupter {
 public:
  Interrupter() : target_(pthread_self()), thread_([this] { run(); }) {}
  ~Interrupter() {
    is_over_ = true;
    thread_.join();
  }

 private:
  void run() {
    while (!is_over_) {
      sleep_ms(10);
      pthread_kill(target_, SIGUSR1);
    }
  }
  pthread_t target_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

class Signals : public TcpTest {
 protected:
  ~Signals() override { signal(SIGUSR1, SIG_DFL); }
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

// What lies unread of an earlier message, or was read by a call that slept, keeps no signal back.
TEST_F(Signals, EachMessageRaisesSigio) {
  sigset_t sigio;
  sigemptyset(&sigio);
  sigaddset(&sigio, SIGIO);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &sigio, nullptr), 0);
  const timespec at_once{}, long_enough{3, 0};
  const auto exchange = [&] {
    std::jthread sender([&] {
      sleep_ms(2);
      send_all(client_, "a");
    });
    EXPECT_EQ(recv_exactly(server_, 1), "a");
  };
  for (int round = 0; round < 12; ++round) exchange();
  ASSERT_EQ(fcntl(server_, F_SETOWN, getpid()), 0);
  ASSERT_EQ(fcntl(server_, F_SETFL, O_ASYNC), 0);
  for (int round = 0; round < 12; ++round) {
    while (sigtimedwait(&sigio, nullptr, &at_once) == SIGIO) {
    }
    send_all(client_, "b");
    ASSERT_EQ(sigtimedwait(&sigio, nullptr, &long_enough), SIGIO) << round;
    EXPECT_EQ(recv_exactly(server_, 1), "b");
    exchange();
  }
  EXPECT_EQ(fcntl(server_, F_SETFL, 0), 0);
  while (sigtimedwait(&sigio, nullptr, &at_once) == SIGIO) {
  }
  ASSERT_EQ(pthread_sigmask(SIG_UNBLOCK, &sigio, nullptr), 0);
}

TEST_F(Signals, EveryWriterRaisesSigpipe) {
  handle(SIGPIPE, 0);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  int raised = 0;
  for (const Writer& writer : kWriters) {
    EXPECT_EQ(writer.write(client_, "abc", 3), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(caught, ++raised) << writer.name;
  }
}

TEST_F(Signals, NosignalRaisesNone) {
  handle(SIGPIPE, 0);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(send(client_, "abc", 3, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(caught, 0);
}

TEST_F(Signals, SigpipeKillsByDefault) {
  EXPECT_EXIT(
      {
        signal(SIGPIPE, SIG_DFL);
        shutdown(client_, SHUT_WR);
        send(client_, "abc", 3, 0);
      },
      testing::KilledBySignal(SIGPIPE), "");
}

TEST_F(Signals, EveryReaderIsInterrupted) {
  handle(SIGUSR1, 0);
  const Interrupter interrupter;
  char bytes[10];
  for (const Reader& reader : kReaders) {
    EXPECT_EQ(reader.read(server_, bytes, sizeof bytes), -1) << reader.name;
    EXPECT_EQ(errno, EINTR) << reader.name;
  }
}

TEST_F(Signals, EveryReaderIsRestarted) {
  handle(SIGUSR1, SA_RESTART);
  for (const Reader& reader : kReaders) {
    caught = 0;
    std::jthread sender([&] {
      // The first may come before the reader sleeps; of several one falls into its sleep.
      for (int i = 0; i < 1000 && caught < 5; ++i) sleep_ms(10);
      send_all(client_, "abc");
    });
    const Interrupter interrupter;
    char bytes[10];
    EXPECT_EQ(reader.read(server_, bytes, sizeof bytes), 3) << reader.name;
    EXPECT_GE(caught, 5) << reader.name;
  }
}

TEST_F(Signals, ATimeoutIsNotRestarted) {
  handle(SIGUSR1, SA_RESTART);
  set_timeout(server_, SO_RCVTIMEO, 5000);
  const Interrupter interrupter;
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EINTR);
}

TEST_F(Signals, WaitallInterruptedHalfWayGivesTheHalf) {
  handle(SIGUSR1, 0);
  send_all(client_, "abc");
  await_queued(server_, 3);
  const Interrupter interrupter;
  char bytes[10];
  EXPECT_EQ(recv(server_, bytes, sizeof bytes, MSG_WAITALL), 3);
  EXPECT_EQ(recv(server_, bytes, sizeof bytes, MSG_WAITALL), -1);
  EXPECT_EQ(errno, EINTR);
}

// The kernel restarts only a call that has nothing.
TEST_F(Signals, APartIsGivenThoughHandlersRestart) {
  handle(SIGUSR1, SA_RESTART);
  char bytes[10];
  constexpr int kAll = MSG_WAITALL;
  for (const int flags : {kAll, kAll | MSG_PEEK, kAll | MSG_TRUNC, 0}) {
    set_option(server_, SOL_SOCKET, SO_RCVLOWAT, flags == 0 ? 8 : 1);
    send_all(client_, "abc");
    await_queued(server_, 3);
    {
      const Interrupter interrupter;
      EXPECT_EQ(recv(server_, bytes, sizeof bytes, flags), 3) << flags;
    }
    if ((flags & MSG_PEEK) != 0) recv_exactly(server_, 3);
  }
  set_option(server_, SOL_SOCKET, SO_RCVLOWAT, 1);
  expect_alive(client_, server_);
}

TEST_F(Signals, APartThatComesInTheSleepIsGivenThoughHandlersRestart) {
  handle(SIGUSR1, SA_RESTART);
  std::jthread sender([&] {
    sleep_ms(50);
    send_all(client_, pattern(20'000));
  });
  std::string bytes(40'000, 0);
  const Interrupter interrupter;
  const ssize_t n = recv(server_, bytes.data(), bytes.size(), MSG_WAITALL);
  ASSERT_GT(n, 0);
  bytes.resize(static_cast<size_t>(n));
  bytes += recv_exactly(server_, 20'000 - bytes.size());
  EXPECT_TRUE(is_same(bytes, pattern(20'000)));
}

// Nor does a socket that must not wait sleep for the rest.
TEST_F(Signals, OfANonblockingSocketThePartIsGivenAtOnce) {
  make_nonblocking(server_);
  send_all(client_, "abc");
  await_queued(server_, 3);
  char bytes[10];
  EXPECT_EQ(recv(server_, bytes, sizeof bytes, MSG_WAITALL), 3);
}

TEST_F(Signals, AWriterInterruptedHalfWayGivesThePart) {
  handle(SIGUSR1, 0);
  const std::string bytes = pattern(32 * 1024 * 1024);
  ssize_t sent = 0;
  {
    const Interrupter interrupter;
    sent = send(client_, bytes.data(), bytes.size(), 0);
  }
  ASSERT_GT(sent, 0);
  ASSERT_LT(sent, ssize_t(bytes.size()));
  EXPECT_TRUE(is_same(recv_exactly(server_, size_t(sent)), bytes.substr(0, size_t(sent))));
  expect_alive(client_, server_);
}

TEST_F(Signals, AWriterOfAFullSocketIsInterrupted) {
  handle(SIGUSR1, 0);
  fill_until_refused(client_, 1);
  const Interrupter interrupter;
  ssize_t sent = 0;
  while (sent >= 0) sent = send(client_, pattern(200'000).data(), 200'000, 0);
  EXPECT_EQ(errno, EINTR);
}

TEST_F(Signals, NothingIsLostUnderAStormOfThem) {
  handle(SIGUSR1, SA_RESTART);
  const std::string bytes = pattern(8 * 1024 * 1024);
  std::jthread sender([&] {
    const Interrupter interrupter;
    send_all(client_, bytes);
  });
  const Interrupter interrupter;
  std::string got;
  while (got.size() < bytes.size()) {
    std::string buffer(50'000, '\0');
    const ssize_t count = recv(server_, buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    ASSERT_GT(count, 0) << strerror(errno);
    got.append(buffer, 0, size_t(count));
    if (got.size() % 3 == 0) sleep_ms(1);
  }
  EXPECT_TRUE(is_same(got, bytes));
}

TEST_F(Signals, PollersAreInterruptedEvenWithRestart) {
  handle(SIGUSR1, SA_RESTART);
  const Interrupter interrupter;
  pollfd one{server_, POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 5000), -1);
  EXPECT_EQ(errno, EINTR);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(server_, &set);
  EXPECT_EQ(select(server_ + 1, &set, nullptr, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINTR);
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, server_, &event), 0);
  EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 5000), -1);
  EXPECT_EQ(errno, EINTR);
}

TEST_F(Signals, AcceptIsInterrupted) {
  handle(SIGUSR1, 0);
  const Listener listener = listen_loopback();
  const Interrupter interrupter;
  EXPECT_EQ(accept(listener.fd.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINTR);
}

// A handler that talks over the very socket the interrupted call waits on.
int handler_fd = -1;
void send_in_handler(int) {
  EXPECT_TRUE(caught++ > 0 || send(handler_fd, "from the handler", 16, 0) == 16);
}

TEST_F(Signals, AHandlerMaySendOnTheSocketThatWaits) {
  handler_fd = server_;
  handle(SIGUSR1, SA_RESTART);
  struct sigaction action{};
  action.sa_handler = send_in_handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  const pthread_t waiter = pthread_self();
  std::jthread peer([&] {
    sleep_ms(30);
    pthread_kill(waiter, SIGUSR1);
    EXPECT_EQ(recv_exactly(client_, 16), "from the handler");
    send_all(client_, "ok");
  });
  EXPECT_EQ(recv_exactly(server_, 2), "ok");
}

class Cancellation : public Signals {
 protected:
  // Runs `call` in a thread, cancels it while it waits, and sees that it was cancelled. `begun`
  // returns once the thread has done what the caller wants to find done.
  static void expect_cancelled(
      void* (*call)(void*), int* fd, const std::function<void()>& begun = [] {}) {
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, call, fd), 0);
    begun();
    sleep_ms(30);
    ASSERT_EQ(pthread_cancel(thread), 0);
    void* result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
  }
};

template <size_t kIndex>
void* read_by(void* fd) {
  char bytes[10];
  kReaders[kIndex].read(*static_cast<int*>(fd), bytes, sizeof bytes);
  return nullptr;
}

template <size_t kIndex>
void* write_by(void* fd) {
  static const std::string bytes = pattern(1'000'000);
  while (kWriters[kIndex].write(*static_cast<int*>(fd), bytes.data(), bytes.size()) >= 0) continue;
  return nullptr;
}

void* accept_by(void* fd) {
  accept(*static_cast<int*>(fd), nullptr, nullptr);
  return nullptr;
}

void* poll_by(void* fd) {
  pollfd one{*static_cast<int*>(fd), POLLIN, 0};
  poll(&one, 1, -1);
  return nullptr;
}

TEST_F(Cancellation, OfEveryReader) {
  int fd = server_;
  for (auto* call : {read_by<0>, read_by<1>, read_by<2>, read_by<3>, read_by<4>}) {
    expect_cancelled(call, &fd);
    expect_alive(client_, server_);
  }
}

TEST_F(Cancellation, OfEveryWriter) {
  for (auto* call : {write_by<0>, write_by<1>, write_by<2>, write_by<3>, write_by<4>}) {
    pair_ = connected_pair();
    int fd = pair_.client.get();
    expect_cancelled(call, &fd, [this] {
      pollfd one{pair_.server.get(), POLLIN, 0};
      EXPECT_EQ(poll(&one, 1, 5'000), 1);
    });
    EXPECT_EQ(shutdown(fd, SHUT_WR), 0);
    EXPECT_GT(recv_to_end(pair_.server.get()).size(), 0u);
    send_all(pair_.server.get(), "the other way");
    EXPECT_EQ(recv_exactly(fd, 13), "the other way");
  }
}

TEST_F(Cancellation, OfAcceptAndPoll) {
  const Listener listener = listen_loopback();
  int fd = listener.fd.get();
  expect_cancelled(accept_by, &fd);
  expect_cancelled(poll_by, &fd);
  const Fd client = dial(listener.address);
  const Fd server = accept_one(fd);
  expect_alive(client.get(), server.get());
}

TEST_F(Cancellation, PendingActsBeforeAnyByteIsTaken) {
  for (int round = 0; round < 20; ++round) expect_alive(client_, server_);
  send_all(client_, "abc");
  await_queued(server_, 3);
  int fd = server_;
  pthread_t thread;
  auto call = [](void* arg) -> void* {
    pthread_cancel(pthread_self());
    return read_by<2>(arg);
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, call, &fd), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_EQ(recv_exactly(server_, 3), "abc");
}

TEST_F(Cancellation, PendingActsBeforeADescriptorIsClosed) {
  expect_alive(client_, server_);
  int fd = server_;
  pthread_t thread;
  auto call = [](void* arg) -> void* {
    pthread_cancel(pthread_self());
    close(*static_cast<int*>(arg));
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, call, &fd), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  expect_alive(client_, server_);
}

// At any instruction, of theirs or of the library's: iperf3 ends its threads so.
void* receive_for_ever(void* fd) {
  static char room[128 * 1024];
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  for (;;) recv(*static_cast<int*>(fd), room, sizeof room, 0);
}

void* send_for_ever(void* fd) {
  static char room[128 * 1024];
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  for (;;) send(*static_cast<int*>(fd), room, sizeof room, 0);
}

constexpr int kAsynchronousRounds = 30;

void cancel_soon(pthread_t thread, int round) {
  usleep(static_cast<useconds_t>(1000 + round * 137));
  ASSERT_EQ(pthread_cancel(thread), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

TEST_F(Cancellation, AsynchronousOfABusyReader) {
  for (int round = 0; round < kAsynchronousRounds && !HasFailure(); ++round) {
    pair_ = connected_pair();
    int fd = pair_.server.get();
    std::atomic<bool> is_over{false};
    std::jthread sender([&] {
      const std::string bytes(60'000, 'x');
      while (!is_over) send_all(pair_.client.get(), bytes);
      shutdown(pair_.client.get(), SHUT_WR);
    });
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, receive_for_ever, &fd), 0);
    cancel_soon(thread, round);
    is_over = true;
    recv_to_end(fd);
  }
}

TEST_F(Cancellation, AsynchronousOfABusyWriter) {
  for (int round = 0; round < kAsynchronousRounds && !HasFailure(); ++round) {
    pair_ = connected_pair();
    int fd = pair_.client.get();
    std::jthread reader([&] { recv_to_end(pair_.server.get()); });
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, send_for_ever, &fd), 0);
    cancel_soon(thread, round);
    EXPECT_EQ(shutdown(fd, SHUT_WR), 0);
  }
}

TEST_F(Cancellation, DisabledWaitsForTheBytes) {
  int fd = server_;
  pthread_t thread;
  auto call = [](void* arg) -> void* {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    EXPECT_EQ(recv_exactly(*static_cast<int*>(arg), 3), "abc");
    return arg;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, call, &fd), 0);
  pthread_cancel(thread);
  sleep_ms(20);
  send_all(client_, "abc");
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, &fd);
}

}  // namespace
}  // namespace ddpsock::shim_tests
