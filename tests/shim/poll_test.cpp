// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every call that waits for readiness, as a program makes it: poll, ppoll, select, pselect, and the
// epoll waits.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "calls.h"
#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// One call in the shape "wait for `events` (POLLIN, POLLOUT) of one descriptor": the events that
// came, 0 for a timeout, -1 for an error.
struct Poller {
  const char* name;
  int (*wait)(int fd, short events, int milliseconds, const sigset_t* mask);
  bool takes_mask;
};

void PrintTo(const Poller& poller, std::ostream* out) {
  *out << poller.name;
}

timespec to_timespec(int milliseconds) {
  return {milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
}

int by_poll(int fd, short events, int milliseconds, const sigset_t*) {
  pollfd one{fd, events, 0};
  const int count = poll(&one, 1, milliseconds);
  return count > 0 ? one.revents : count;
}

int by_ppoll(int fd, short events, int milliseconds, const sigset_t* mask) {
  pollfd one{fd, events, 0};
  const timespec time = to_timespec(milliseconds);
  const int count = ppoll(&one, 1, milliseconds < 0 ? nullptr : &time, mask);
  return count > 0 ? one.revents : count;
}

struct Sets {
  Sets(int fd, short events) {
    FD_ZERO(&in);
    FD_ZERO(&out);
    if (events & POLLIN) FD_SET(fd, &in);
    if (events & POLLOUT) FD_SET(fd, &out);
  }
  int result(int fd, int count) const {
    if (count <= 0) return count;
    return (FD_ISSET(fd, &in) ? POLLIN : 0) | (FD_ISSET(fd, &out) ? POLLOUT : 0);
  }
  fd_set in, out;
};

int by_select(int fd, short events, int milliseconds, const sigset_t*) {
  Sets sets(fd, events);
  timeval time{milliseconds / 1000, (milliseconds % 1000) * 1000};
  return sets.result(
      fd, select(fd + 1, &sets.in, &sets.out, nullptr, milliseconds < 0 ? nullptr : &time));
}

int by_pselect(int fd, short events, int milliseconds, const sigset_t* mask) {
  Sets sets(fd, events);
  const timespec time = to_timespec(milliseconds);
  return sets.result(
      fd, pselect(fd + 1, &sets.in, &sets.out, nullptr, milliseconds < 0 ? nullptr : &time, mask));
}

// The bits of EPOLLIN and so on are those of POLLIN and so on.
template <typename Wait>
int by_epoll(int fd, short events, const Wait& wait) {
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = static_cast<uint32_t>(events);
  event.data.fd = fd;
  EXPECT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event), 0) << strerror(errno);
  event = {};
  const int count = wait(epoll.get(), &event);
  EXPECT_TRUE(count <= 0 || event.data.fd == fd);
  return count > 0 ? static_cast<int>(event.events) : count;
}

int by_epoll_wait(int fd, short events, int milliseconds, const sigset_t*) {
  return by_epoll(fd, events, [&](int epoll, epoll_event* event) {
    return epoll_wait(epoll, event, 1, milliseconds);
  });
}

int by_epoll_pwait(int fd, short events, int milliseconds, const sigset_t* mask) {
  return by_epoll(fd, events, [&](int epoll, epoll_event* event) {
    return epoll_pwait(epoll, event, 1, milliseconds, mask);
  });
}

int by_epoll_pwait2(int fd, short events, int milliseconds, const sigset_t* mask) {
  const timespec time = to_timespec(milliseconds);
  return by_epoll(fd, events, [&](int epoll, epoll_event* event) {
    return epoll_pwait2(epoll, event, 1, milliseconds < 0 ? nullptr : &time, mask);
  });
}

const std::array<Poller, 7> kPollers{{{"poll", by_poll, false},
                                      {"ppoll", by_ppoll, true},
                                      {"select", by_select, false},
                                      {"pselect", by_pselect, true},
                                      {"epoll_wait", by_epoll_wait, false},
                                      {"epoll_pwait", by_epoll_pwait, true},
                                      {"epoll_pwait2", by_epoll_pwait2, true}}};

class Poll : public TcpTest {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

class PollCalls : public Poll, public testing::WithParamInterface<Poller> {
 protected:
  int wait(int fd, short events, int milliseconds, const sigset_t* mask = nullptr) const {
    return GetParam().wait(fd, events, milliseconds, mask);
  }
};

TEST_P(PollCalls, TimesOut) {
  for (const int milliseconds : {0, 50}) {
    const int64_t start = now_ms();
    EXPECT_EQ(wait(server_, POLLIN, milliseconds), 0);
    EXPECT_GE(now_ms() - start, milliseconds - 1);
    EXPECT_LT(now_ms() - start, milliseconds + 1000);
  }
}

TEST_P(PollCalls, ReadableUntilAllIsRead) {
  send_all(client_, "abc");
  for (int left = 3; left > 0; --left) {
    EXPECT_EQ(wait(server_, POLLIN, 3000), POLLIN);
    recv_exactly(server_, 1);
  }
  EXPECT_EQ(wait(server_, POLLIN, 0), 0);
  send_all(server_, "x");
  EXPECT_EQ(wait(client_, POLLIN, 3000), POLLIN);
}

TEST_P(PollCalls, IsWokenByData) {
  std::jthread sender([&] {
    sleep_ms(30);
    send_all(client_, "x");
  });
  EXPECT_EQ(wait(server_, POLLIN, -1), POLLIN);
}

TEST_P(PollCalls, WritableUntilFull) {
  EXPECT_EQ(wait(client_, POLLIN | POLLOUT, 0), POLLOUT);
  size_t filled = fill_until_refused(client_, 5);
  // The library's thread may be behind with draining the peer, and makes room after the refusal, as
  // a peer that reads does. So much holds then: what is called writable takes something, and that
  // comes to an end. In shared memory filler that is acknowledged may be called writable.
  int writable = 0;
  const bool may_be_early = column() == Column::kOneSided || is_in_memory();
  while ((writable = wait(client_, POLLOUT, 0)) == POLLOUT && may_be_early) {
    const size_t before = filled;
    filled = fill_until_refused(client_, 5, 16 * 1024, before);
    if (column() == Column::kOneSided) {
      ASSERT_GT(filled, before);
    }
  }
  EXPECT_EQ(writable, 0);
  std::jthread reader(
      [&] { EXPECT_TRUE(is_same(recv_exactly(server_, filled), pattern(filled, 5))); });
  EXPECT_EQ(wait(client_, POLLOUT, 5000), POLLOUT);
}

TEST_P(PollCalls, TheEndIsReadable) {
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(wait(server_, POLLIN, 3000), POLLIN);
  expect_end_of_stream(server_);
  EXPECT_EQ(wait(server_, POLLIN, 0), POLLIN);
}

TEST_P(PollCalls, ListenerIsReadable) {
  const Listener listener = listen_loopback();
  EXPECT_EQ(wait(listener.fd.get(), POLLIN, 0), 0);
  const Fd client = dial(listener.address);
  EXPECT_EQ(wait(listener.fd.get(), POLLIN, 3000), POLLIN);
  const Fd server = accept_one(listener.fd.get());
  EXPECT_EQ(wait(listener.fd.get(), POLLIN, 0), 0);
}

TEST_P(PollCalls, OtherKindsOfDescriptors) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd in(ends[0]), out(ends[1]);
  EXPECT_EQ(wait(in.get(), POLLIN, 0), 0);
  EXPECT_EQ(write(out.get(), "x", 1), 1);
  EXPECT_EQ(wait(in.get(), POLLIN, 0), POLLIN);
  EXPECT_EQ(wait(out.get(), POLLOUT, 0), POLLOUT);
}

void ignore_signal(int) {}

// The mask is in force for the wait alone: a signal that waits outside is let in.
TEST_P(PollCalls, MaskLetsAPendingSignalIn) {
  if (!GetParam().takes_mask) return;
  signal(SIGUSR2, ignore_signal);
  sigset_t blocked, empty;
  sigemptyset(&empty);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  raise(SIGUSR2);
  EXPECT_EQ(wait(server_, POLLIN, 20, nullptr), 0);
  EXPECT_EQ(wait(server_, POLLIN, 3000, &empty), -1);
  EXPECT_EQ(errno, EINTR);
  sigset_t now;
  pthread_sigmask(SIG_UNBLOCK, &blocked, &now);
  EXPECT_EQ(sigismember(&now, SIGUSR2), 1);
  signal(SIGUSR2, SIG_DFL);
}

INSTANTIATE_TEST_SUITE_P(All, PollCalls, testing::ValuesIn(kPollers), call_name<Poller>);

TEST_F(Poll, ManyAtOnce) {
  std::vector<Pair> pairs;
  std::vector<pollfd> all;
  for (int number = 0; number < 50; ++number) {
    pairs.push_back(connected_pair());
    all.push_back({pairs.back().server.get(), POLLIN, 0});
  }
  for (const size_t number : {0u, 17u, 49u}) send_all(pairs[number].client.get(), "x");
  all[20].fd = -1;
  all[21].fd = closed_number();
  ASSERT_EQ(poll(all.data(), all.size(), 3000), 4);
  for (size_t number = 0; number < all.size(); ++number) {
    const bool has_data = number == 0 || number == 17 || number == 49;
    EXPECT_EQ(all[number].revents, has_data ? POLLIN : number == 21 ? POLLNVAL : 0) << number;
  }
}

TEST_F(Poll, HangupAndErrorNeedNotBeAsked) {
  send_all(client_, "unread");
  await_queued(server_, 6);
  pair_.server.close();
  pollfd one{client_, 0, 0};
  EXPECT_EQ(poll(&one, 1, 3000), 1);
  EXPECT_EQ(one.revents, POLLERR | POLLHUP);
}

TEST_F(Poll, SelectCountsBitsAndClearsTheRest) {
  const Pair other = connected_pair();
  send_all(client_, "x");
  await_queued(server_, 1);
  fd_set in, out;
  FD_ZERO(&in);
  FD_ZERO(&out);
  for (const int fd : {server_, other.server.get()}) FD_SET(fd, &in);
  FD_SET(server_, &out);
  timeval time{2, 0};
  EXPECT_EQ(select(other.server.get() + 1, &in, &out, nullptr, &time), 2);
  EXPECT_TRUE(FD_ISSET(server_, &in));
  EXPECT_FALSE(FD_ISSET(other.server.get(), &in));
  EXPECT_TRUE(FD_ISSET(server_, &out));
}

TEST_F(Poll, SelectCountsItsTimeDown) {
  fd_set in;
  FD_ZERO(&in);
  FD_SET(server_, &in);
  timeval time{0, 50'000};
  EXPECT_EQ(select(server_ + 1, &in, nullptr, nullptr, &time), 0);
  EXPECT_EQ(time.tv_sec * 1'000'000 + time.tv_usec, 0);
  EXPECT_FALSE(FD_ISSET(server_, &in));
  const int closed = closed_number();
  FD_SET(closed, &in);
  EXPECT_EQ(select(closed + 1, &in, nullptr, nullptr, &time), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(Poll, PollThenABlockingSendNeverWaitsForGood) {
  for (int i = 0; i < 3; ++i) expect_alive(client_, server_);
  const std::string piece = pattern(16'384);
  set_timeout(client_, SO_SNDTIMEO, 3000);
  size_t pieces = 0;
  for (pollfd one{client_, POLLOUT, 0}; poll(&one, 1, 0) == 1; ++pieces) {
    ASSERT_LT(pieces, 10'000u);
    ASSERT_EQ(send(client_, piece.data(), piece.size(), 0), ssize_t(piece.size()));
  }
  for (size_t i = 0; i < pieces; ++i)
    ASSERT_TRUE(is_same(recv_exactly(server_, piece.size()), piece));
  EXPECT_GT(pieces, 0u);
  pollfd one{client_, POLLOUT, 0};
  EXPECT_EQ(poll(&one, 1, 3000), 1);
  send_all(client_, piece);
  EXPECT_TRUE(is_same(recv_exactly(server_, piece.size()), piece));
}

TEST_F(Poll, BesideAThreadThatSleepsInSend) {
  for (int i = 0; i < 3; ++i) expect_alive(client_, server_);
  const std::string bytes = pattern(30'000'000);
  Sleeper writer([&] { send_all(client_, bytes); });
  pollfd both{client_, POLLIN | POLLOUT, 0};
  // It fills what there is bit by bit.
  while (poll(&both, 1, 0) == 1) sleep_ms(1);
  EXPECT_TRUE(is_same(recv_exactly(server_, bytes.size()), bytes));
  writer.join();
  EXPECT_EQ(poll(&both, 1, 3000), 1);
}

TEST_F(Poll, PollThenABlockingRecvNeverWaits) {
  std::mt19937 random(21);
  const std::string bytes = pattern(2'000'000);
  std::jthread sender([&] {
    std::mt19937 sizes(22);
    for (size_t at = 0, piece = 0; at < bytes.size(); at += piece) {
      piece = std::min(random_size(sizes, 1, 20'000), bytes.size() - at);
      send_all(client_, bytes.substr(at, piece));
    }
  });
  set_timeout(server_, SO_RCVTIMEO, 3000);
  std::string got;
  while (got.size() < bytes.size()) {
    pollfd one{server_, POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, 3000), 1);
    char buffer[30'000];
    const ssize_t count =
        recv(server_, buffer, random_size(random, 1, sizeof buffer), MSG_DONTWAIT);
    ASSERT_GT(count, 0) << strerror(errno);
    got.append(buffer, size_t(count));
  }
  EXPECT_TRUE(is_same(got, bytes));
}

class PollTimes : public TcpTest {};

TEST_F(PollTimes, ThatAreNoneAreRefused) {
  const Pair pair = connected_pair();
  const int fd = pair.server.get();
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{EPOLLIN, {.fd = fd}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, fd, &event), 0);
  fd_set readers;
  FD_ZERO(&readers);
  FD_SET(fd, &readers);
  pollfd one{fd, POLLIN, 0};
  const auto expect_invalid = [](int result) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, EINVAL);
  };
  for (const timespec& time : {timespec{-1, 0}, timespec{0, -1}, timespec{0, 1'000'000'000}}) {
    expect_invalid(ppoll(&one, 1, &time, nullptr));
    expect_invalid(pselect(fd + 1, &readers, nullptr, nullptr, &time, nullptr));
    expect_invalid(epoll_pwait2(set.get(), &event, 1, &time, nullptr));
  }
  for (timeval time : {timeval{-1, 0}, timeval{0, -1}})
    expect_invalid(select(fd + 1, &readers, nullptr, nullptr, &time));
  send_all(pair.client.get(), "x");
  timeval long_time{0, 3'000'000};
  EXPECT_EQ(select(fd + 1, &readers, nullptr, nullptr, &long_time), 1);
}

}  // namespace
}  // namespace ddpsock::shim_tests
