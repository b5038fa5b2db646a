// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What poll, ppoll, select and pselect say of several descriptors at once: all that is so, and
// nothing else, whoever reads, writes, ends or closes meanwhile. There is no epoll set in this
// process: where there is one bells do not lie (reading_habit.h).
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "kernel.h"
#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr int kRounds = 1000, kOrderRounds = 500;
constexpr short kSelectable = POLLIN | POLLOUT | POLLPRI;
using Asked = std::vector<pollfd>;

// Puts what is so into `revents`; what the call returns.
struct Call {
  const char* name;
  int (*ask)(Asked& asked, int milliseconds, const sigset_t* mask);
  bool is_select, takes_mask;
};

void PrintTo(const Call& call, std::ostream* out) {
  *out << call.name;
}

timespec to_timespec(int milliseconds) {
  return {milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
}

int by_poll(Asked& asked, int milliseconds, const sigset_t*) {
  return poll(asked.data(), asked.size(), milliseconds);
}

int by_ppoll(Asked& asked, int milliseconds, const sigset_t* mask) {
  const timespec time = to_timespec(milliseconds);
  return ppoll(asked.data(), asked.size(), milliseconds < 0 ? nullptr : &time, mask);
}

// Counts descriptors, as poll() does, after it was seen that the bits are as many as it said.
template <typename Wait>
int by_sets(Asked& asked, Wait wait) {
  std::array<fd_set, 3> sets;
  for (fd_set& set : sets) FD_ZERO(&set);
  constexpr std::array<short, 3> kEvents{POLLIN, POLLOUT, POLLPRI};
  int end = 0;
  for (const pollfd& one : asked) {
    end = std::max(end, one.fd + 1);
    for (size_t i = 0; i < sets.size(); ++i)
      if (one.fd >= 0 && (one.events & kEvents[i]) != 0) FD_SET(one.fd, &sets[i]);
  }
  const int bits = wait(end, sets);
  if (bits < 0) return bits;
  int seen = 0, count = 0;
  for (pollfd& one : asked) {
    one.revents = 0;
    for (size_t i = 0; one.fd >= 0 && i < sets.size(); ++i)
      if (FD_ISSET(one.fd, &sets[i])) one.revents |= kEvents[i];
    count += one.revents != 0 ? 1 : 0;
  }
  for (int fd = 0; fd < end; ++fd)
    for (fd_set& set : sets) seen += FD_ISSET(fd, &set) ? 1 : 0;
  EXPECT_EQ(bits, seen);
  return count;
}

int by_select(Asked& asked, int milliseconds, const sigset_t*) {
  return by_sets(asked, [=](int end, std::array<fd_set, 3>& sets) {
    timeval time{milliseconds / 1000, (milliseconds % 1000) * 1000};
    const int64_t before = now_ms();
    const int result =
        select(end, &sets[0], &sets[1], &sets[2], milliseconds < 0 ? nullptr : &time);
    if (result >= 0 && milliseconds > 0) {
      const int64_t left = time.tv_sec * 1000 + time.tv_usec / 1000;
      EXPECT_LE(left, milliseconds);
      EXPECT_GE(left, milliseconds - (now_ms() - before) - 2);
    }
    return result;
  });
}

int by_pselect(Asked& asked, int milliseconds, const sigset_t* mask) {
  return by_sets(asked, [=](int end, std::array<fd_set, 3>& sets) {
    const timespec time = to_timespec(milliseconds);
    return pselect(end, &sets[0], &sets[1], &sets[2], milliseconds < 0 ? nullptr : &time, mask);
  });
}

const std::array<Call, 4> kCalls{{{"poll", by_poll, false, false},
                                  {"ppoll", by_ppoll, false, true},
                                  {"select", by_select, true, false},
                                  {"pselect", by_pselect, true, true}}};

// Where shared memory is to be had it is in use when this returns.
Pair joined_pair() {
  Pair pair = connected_pair();
  for (const int fd : {pair.client.get(), pair.server.get()})
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  for (int time = 0; time < 3; ++time) {
    expect_alive(pair.client.get(), pair.server.get());
    expect_alive(pair.server.get(), pair.client.get());
  }
  return pair;
}

class PollAnswers : public TcpTest, public testing::WithParamInterface<Call> {
 protected:
  int ask(Asked& asked, int milliseconds = 0, const sigset_t* mask = nullptr) const {
    return GetParam().ask(asked, milliseconds, mask);
  }
  // Of those, what is so of each.
  std::vector<short> answer(Asked asked, int milliseconds = 0) const {
    for (pollfd& one : asked) one.revents = 0x5555;
    const int count = ask(asked, milliseconds);
    std::vector<short> all;
    for (const pollfd& one : asked) all.push_back(one.revents);
    const auto told = std::count_if(all.begin(), all.end(), [](short r) { return r != 0; });
    EXPECT_EQ(count, told) << strerror(errno);
    return all;
  }
  using Answer = std::vector<short>;

  Pair a_ = joined_pair(), b_ = joined_pair();
  const int in_a_ = a_.server.get(), in_b_ = b_.server.get();
  const int out_a_ = a_.client.get(), out_b_ = b_.client.get();
};

INSTANTIATE_TEST_SUITE_P(All, PollAnswers, testing::ValuesIn(kCalls),
                         [](const auto& call) { return std::string(call.param.name); });

TEST_P(PollAnswers, AllThatIsReadyIsReported) {
  for (int round = 0; round < 20; ++round) {
    const Asked both{{in_a_, POLLIN, 0}, {in_b_, POLLIN | POLLOUT, 0}};
    EXPECT_EQ(answer(both), (Answer{0, POLLOUT}));
    send_all(out_a_, "a");
    await_queued(in_a_, 1);
    EXPECT_EQ(answer(both), (Answer{POLLIN, POLLOUT}));
    send_all(out_b_, "b");
    await_queued(in_b_, 1);
    EXPECT_EQ(answer(both, -1), (Answer{POLLIN, POLLIN | POLLOUT}));
    EXPECT_EQ(answer({{in_a_, POLLOUT, 0}, {in_b_, POLLIN, 0}}, 50), (Answer{POLLOUT, POLLIN}));
    EXPECT_EQ(recv_exactly(in_a_, 1), "a");
    EXPECT_EQ(answer(both, 50), (Answer{0, POLLIN | POLLOUT}));
    EXPECT_EQ(recv_exactly(in_b_, 1), "b");
  }
}

TEST_P(PollAnswers, WithWhatIsNoDescriptor) {
  const int closed = closed_number();
  send_all(out_a_, "a");
  await_queued(in_a_, 1);
  if (GetParam().is_select) {
    Asked asked{{in_a_, POLLIN, 0}, {closed, POLLIN, 0}};
    EXPECT_EQ(ask(asked), -1);
    EXPECT_EQ(errno, EBADF);
    return;
  }
  for (int round = 0; round < 10; ++round)
    EXPECT_EQ(answer({{-1, POLLIN, 0}, {in_a_, POLLIN, 0}, {-5, POLLOUT, 0}}),
              (Answer{0, POLLIN, 0}));
  EXPECT_EQ(answer({{closed, POLLIN, 0}, {in_a_, POLLIN, 0}}), (Answer{POLLNVAL, POLLIN}));
  a_.server.close();
  send_all(out_b_, "b");
  await_queued(in_b_, 1);
  EXPECT_EQ(answer({{in_a_, POLLIN, 0}, {in_b_, POLLIN, 0}}), (Answer{POLLNVAL, POLLIN}));
}

TEST_P(PollAnswers, OfOneThatIsNamedTwice) {
  if (GetParam().is_select) return;
  const Fd copy(dup(in_a_));
  send_all(out_a_, "a");
  await_queued(in_a_, 1);
  EXPECT_EQ(answer({{in_a_, POLLIN, 0},
                    {in_a_, POLLOUT, 0},
                    {copy.get(), POLLIN | POLLOUT, 0},
                    {in_a_, POLLRDNORM | POLLWRNORM, 0},
                    {in_a_, 0, 0}}),
            (Answer{POLLIN, POLLOUT, POLLIN | POLLOUT, POLLRDNORM | POLLWRNORM, 0}));
}

TEST_P(PollAnswers, ManyStreams) {
  std::vector<Pair> pairs;
  Asked asked;
  for (const int count : {20, 70}) {
    while (int(pairs.size()) < count) {
      pairs.push_back(joined_pair());
      asked.push_back({pairs.back().server.get(), POLLIN, 0});
    }
    for (int round = 0; round < 20; ++round) {
      Answer expected(asked.size(), 0);
      for (const size_t number : {size_t(round) % pairs.size(), pairs.size() - 1}) {
        send_all(pairs[number].client.get(), "x");
        await_queued(pairs[number].server.get(), expected[number] == 0 ? 1 : 2);
        expected[number] = POLLIN;
      }
      EXPECT_EQ(answer(asked, -1), expected);
      for (size_t i = 0; i < asked.size(); ++i) {
        char bytes[4];
        if (expected[i] != 0) {
          EXPECT_GT(recv(asked[i].fd, bytes, sizeof bytes, MSG_DONTWAIT), 0);
        }
      }
      EXPECT_EQ(answer(asked), Answer(asked.size(), 0));
    }
  }
}

// Where another thread writes to one and then to another, who asks about the second and then about
// the first does not see the second alone. Between them, and behind them, are many that are idle,
// and a stream that is always ready.
class PollOrder : public PollAnswers {
 protected:
  void expect_order(int first, int write_first, int second, int write_second) {
    std::vector<Pair> idle;
    Asked all{{second, POLLIN, 0}};
    const auto add_idle = [&](size_t count) {
      while (idle.size() < count) {
        idle.push_back(joined_pair());
        all.push_back({idle.back().server.get(), POLLIN, 0});
      }
    };
    add_idle(20);
    constexpr int kHigh = 500;  // select() goes by numbers
    const Fd last(fcntl(first, F_DUPFD_CLOEXEC, kHigh));
    all.push_back({last.get(), POLLIN, 0});
    const size_t at = all.size() - 1;
    add_idle(40);
    send_all(idle.back().client.get(), "always");
    std::atomic<int> done{0};
    std::jthread writer([&] {
      for (int round = 0; round < kOrderRounds; ++round) {
        while (done.load() < round) std::this_thread::yield();
        if (done.load() > kOrderRounds) return;
        EXPECT_EQ(write(write_first, "1", 1), 1);
        EXPECT_EQ(write(write_second, "2", 1), 1);
      }
    });
    const int64_t until = now_ms() + kSoon;  // enough, where processors are rare
    for (int round = 0; round < kOrderRounds && !HasFailure() && now_ms() < until; ++round) {
      Answer seen = answer(all);
      for (; seen.front() == 0; seen = answer(all)) std::this_thread::yield();
      EXPECT_EQ(seen[at], POLLIN) << round;
      char byte;
      EXPECT_EQ(read(second, &byte, 1), 1);
      EXPECT_EQ(read(first, &byte, 1), 1);
      done.store(round + 1);
    }
    done.store(kOrderRounds + 1);
  }
};

INSTANTIATE_TEST_SUITE_P(All, PollOrder, testing::ValuesIn(kCalls),
                         [](const auto& call) { return std::string(call.param.name); });

TEST_P(PollOrder, OfTwoStreams) {
  expect_order(in_a_, out_a_, in_b_, out_b_);
}

TEST_P(PollOrder, OfAStreamAndAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd in(ends[0]), out(ends[1]);
  expect_order(in_a_, out_a_, in.get(), out.get());
}

TEST_P(PollOrder, OfAPipeAndAStream) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd in(ends[0]), out(ends[1]);
  expect_order(in.get(), out.get(), in_b_, out_b_);
}

TEST_P(PollAnswers, EndsBesideAStreamThatIsNeverRead) {
  send_all(out_b_, "b");
  await_queued(in_b_, 1);
  const short ended = GetParam().is_select ? POLLIN : POLLIN | POLLRDHUP;
  const Asked both{{in_a_, POLLIN | POLLRDHUP, 0}, {in_b_, POLLIN, 0}};
  EXPECT_EQ(answer(both), (Answer{0, POLLIN}));
  EXPECT_EQ(shutdown(out_a_, SHUT_WR), 0);
  EXPECT_EQ(answer(both), (Answer{ended, POLLIN}));
  expect_end_of_stream(in_a_);
  EXPECT_EQ(answer(both), (Answer{ended, POLLIN}));
  // The other way goes on.
  send_all(in_a_, "back");
  EXPECT_EQ(recv_exactly(out_a_, 4), "back");
  EXPECT_EQ(shutdown(in_a_, SHUT_WR), 0);
  const short both_ended = GetParam().is_select ? POLLIN : POLLIN | POLLRDHUP | POLLHUP;
  EXPECT_EQ(answer(both), (Answer{both_ended, POLLIN}));
  EXPECT_EQ(answer({{in_a_, POLLOUT, 0}, {in_b_, POLLOUT, 0}}),
            (Answer{short(GetParam().is_select ? POLLOUT : POLLOUT | POLLHUP), POLLOUT}));
}

TEST_P(PollAnswers, OnesOwnShutdown) {
  send_all(out_b_, "b");
  await_queued(in_b_, 1);
  EXPECT_EQ(answer({{in_a_, POLLIN, 0}, {in_b_, POLLIN, 0}}), (Answer{0, POLLIN}));
  EXPECT_EQ(shutdown(in_a_, SHUT_RD), 0);
  const short ended = GetParam().is_select ? POLLIN : POLLIN | POLLRDHUP;
  EXPECT_EQ(answer({{in_a_, POLLIN | POLLRDHUP, 0}, {in_b_, POLLIN, 0}}), (Answer{ended, POLLIN}));
}

// Its kernel says so, and no word in memory.
TEST_P(PollAnswers, AKilledPeerBesideAStreamThatIsNeverRead) {
  for (int round = 0; round < 5; ++round) {
    Pair pair = connected_pair();
    const int fd = pair.server.get();
    Child peer([&] {
      pair.server.close();
      for (int time = 0; time < 3; ++time) {
        send_all(pair.client.get(), "x");
        EXPECT_EQ(recv_exactly(pair.client.get(), 1), "y");
      }
      pause();
    });
    pair.client.close();
    for (int time = 0; time < 3; ++time) {
      EXPECT_EQ(recv_exactly(fd, 1), "x");
      send_all(fd, "y");
    }
    const Asked both{{fd, POLLIN, 0}, {in_b_, POLLIN, 0}};
    if (round == 0) send_all(out_b_, "b");
    await_queued(in_b_, 1);
    EXPECT_EQ(answer(both), (Answer{0, POLLIN}));
    peer.kill_now();
    int64_t until = now_ms() + kSoon;
    Answer seen = answer(both);
    while ((seen[0] & POLLIN) == 0 && now_ms() < until) seen = answer(both);
    EXPECT_EQ(seen[1], POLLIN);
    EXPECT_NE(seen[0] & POLLIN, 0);
    // It stays so.
    for (int time = 0; time < 100; ++time) EXPECT_NE(answer(both)[0] & POLLIN, 0);
  }
}

TEST_P(PollAnswers, SoManyBytesAsLowWaterAsksFor) {
  send_all(out_b_, "b");
  await_queued(in_b_, 1);
  set_option(in_a_, SOL_SOCKET, SO_RCVLOWAT, 10);
  const Asked both{{in_a_, POLLIN, 0}, {in_b_, POLLIN, 0}};
  for (int round = 0; round < 3; ++round) {
    send_all(out_a_, "123456789");
    await_queued(in_a_, 9);
    EXPECT_EQ(answer(both), (Answer{0, POLLIN}));
    send_all(out_a_, "x");
    await_queued(in_a_, 10);
    EXPECT_EQ(answer(both), (Answer{POLLIN, POLLIN}));
    EXPECT_EQ(recv_exactly(in_a_, 10), "123456789x");
    EXPECT_EQ(answer(both), (Answer{0, POLLIN}));
  }
}

// An octet that is urgent brings the stream back into the kernel.
TEST_P(PollAnswers, AnUrgentByteBesideAStreamThatIsNeverRead) {
  send_all(out_b_, "b");
  await_queued(in_b_, 1);
  const Asked both{{in_a_, POLLPRI, 0}, {in_b_, POLLIN | POLLPRI, 0}};
  EXPECT_EQ(answer(both), (Answer{0, POLLIN}));
  std::jthread reader;
  if (is_in_ddp_mode()) {
    // Both ends must be in calls for it. A recv() that takes would pass over the urgent byte.
    reader = std::jthread([&](const std::stop_token& stop) {
      char byte;
      while (!stop.stop_requested() && recv(in_a_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 0 &&
             errno == EAGAIN) {
        pollfd one{in_a_, POLLPRI, 0};
        if (poll(&one, 1, 10) != 0) return;
      }
    });
  }
  if (send(out_a_, "!", 1, MSG_OOB) != 1) {
    EXPECT_EQ(column(), Column::kOneSided) << strerror(errno);
    EXPECT_EQ(shutdown(out_a_, SHUT_WR), 0);  // ends the reader
    return;
  }
  const int64_t until = now_ms() + kSoon;
  Answer seen = answer(both);
  while (seen[0] == 0 && now_ms() < until) seen = answer(both);
  EXPECT_EQ(seen, (Answer{POLLPRI, POLLIN}));
}

void ignore_signal(int) {}

// While a peer answers each time before the wait becomes a sleep.
TEST_P(PollAnswers, ASignalThatTheMaskLetsInIsNotPutOff) {
  if (!GetParam().takes_mask) return;
  std::jthread echo([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Asked one{{in_a_, POLLIN, 0}};
      if (ask(one, 50) == 1) send_all(in_a_, recv_exactly(in_a_, 1));
    }
  });
  signal(SIGUSR2, ignore_signal);
  sigset_t blocked, empty;
  sigemptyset(&empty);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  raise(SIGUSR2);
  for (const sigset_t* mask : std::array<const sigset_t*, 2>{&blocked, &empty}) {
    constexpr int kMostRounds = 5000;  // of half a microsecond, where all is quiet
    bool has_come = false;
    for (int round = 0; round < kMostRounds && !has_come; ++round) {
      send_all(out_a_, "x");
      Asked one{{out_a_, POLLIN, 0}};
      const int count = ask(one, kSoon, mask);
      has_come = count == -1 && errno == EINTR;
      EXPECT_TRUE(has_come || count == 1);
      EXPECT_EQ(recv_exactly(out_a_, 1), "x");
    }
    EXPECT_EQ(has_come, mask == &empty);
  }
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  signal(SIGUSR2, SIG_DFL);
}

TEST_P(PollAnswers, AThreadThatIsAlwaysAnsweredIsCancelled) {
  static const Call* call;
  call = &GetParam();
  send_all(out_a_, "a");
  await_queued(in_a_, 1);
  pthread_t thread;
  int fd = in_a_;
  const auto run = [](void* arg) -> void* {
    const int64_t until = now_ms() + kSoon;
    while (now_ms() < until) {
      Asked one{{*static_cast<int*>(arg), POLLIN, 0}};
      call->ask(one, -1, nullptr);
    }
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, run, &fd), 0);
  sleep_ms(20);
  pthread_cancel(thread);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_EQ(recv_exactly(in_a_, 1), "a");
}

// Each wait is entered while bells of earlier messages may lie unread, and left by a message that
// comes at any moment of it.
TEST_P(PollAnswers, NobodySleepsThroughAMessage) {
  std::mt19937 random(31);
  Child peer([&] {
    std::mt19937 mine(32);
    for (int round = 0; round < 5 * kRounds; ++round) {
      Asked one{{in_a_, POLLIN, 0}};
      EXPECT_EQ(ask(one, kSoon), 1) << round;
      EXPECT_EQ(recv_exactly(in_a_, 1), "x");
      for (unsigned n = mine() % 4000; n > 0; --n) asm volatile("");
      send_all(in_a_, "y");
      if (HasFailure()) return;
    }
  });
  for (int round = 0; round < 5 * kRounds && !HasFailure(); ++round) {
    for (unsigned n = random() % 4000; n > 0; --n) asm volatile("");
    send_all(out_a_, "x");
    Asked both{{out_b_, POLLIN, 0}, {out_a_, POLLIN, 0}};
    if (round % 3 == 0) both.erase(both.begin());
    ASSERT_EQ(ask(both, kSoon), 1) << round;
    EXPECT_EQ(recv_exactly(out_a_, 1), "y");
  }
  if (!HasFailure()) peer.expect_success();
}

// They take from each other what each was told of; none is told of what is not there for long, and
// all is read.
TEST_P(PollAnswers, TwoThreadsOnOneStream) {
  make_nonblocking(in_a_);
  std::atomic<int> got{0};
  const auto read_all = [&] {
    char byte;
    while (got.load() < kRounds) {
      Asked both{{in_a_, POLLIN, 0}, {in_b_, POLLIN, 0}};
      if (ask(both, 100) < 1) continue;
      if (both[1].revents != 0) return;
      const ssize_t n = recv(in_a_, &byte, 1, 0);
      if (n == 1) ++got;
      EXPECT_TRUE(n == 1 || errno == EAGAIN);
    }
  };
  std::jthread first(read_all), second(read_all);
  for (int round = 0; round < kRounds; ++round) {
    send_all(out_a_, "x");
    if (round % 100 == 0) sleep_ms(2);
  }
  const int64_t until = now_ms() + 2 * kSoon;
  while (got.load() < kRounds && now_ms() < until) sleep_ms(1);
  EXPECT_EQ(got.load(), kRounds);
  send_all(out_b_, "over");
}

TEST_P(PollAnswers, AForkedChildIsToldTheSame) {
  const Asked one{{in_a_, POLLIN, 0}};
  for (int round = 0; round < 10; ++round) {
    for (int time = 0; time < 3; ++time) {
      send_all(out_a_, "x");
      EXPECT_EQ(answer(one, kSoon), Answer{POLLIN});
      EXPECT_EQ(recv_exactly(in_a_, 1), "x");
    }
    Child child([&] {
      EXPECT_EQ(answer(one), Answer{0});
      send_all(out_a_, "y");
      EXPECT_EQ(answer(one, kSoon), Answer{POLLIN});
      EXPECT_EQ(recv_exactly(in_a_, 1), "y");
    });
    child.expect_success();
    EXPECT_EQ(answer(one), Answer{0});
  }
}

// A poller that no library sees is told the truth behind one that has slept.
TEST_P(PollAnswers, TheKernelKnowsAfterASleep) {
  const Asked one{{in_a_, POLLIN, 0}};
  for (int round = 0; round < 10; ++round) {
    send_all(out_a_, "x");
    EXPECT_EQ(answer(one, kSoon), Answer{POLLIN});
    EXPECT_EQ(recv_exactly(in_a_, 1), "x");
    EXPECT_EQ(answer(one, 5), Answer{0});
    EXPECT_EQ(kernel_poll(in_a_, POLLIN, 0), 0);
    send_all(out_a_, "x");
    EXPECT_EQ(kernel_poll(in_a_, POLLIN, kSoon), POLLIN);
    EXPECT_EQ(recv_exactly(in_a_, 1), "x");
  }
}

// No edge is lost in a set that is made when bells lie, and that is the kernel's, being shared.
TEST_P(PollAnswers, ThenEdges) {
  Child child([&] {
    make_nonblocking(in_a_);
    char bytes[16];
    for (int round = 0; round < 3; ++round) {
      send_all(out_a_, "x");
      EXPECT_EQ(answer({{in_a_, POLLIN, 0}}, kSoon), Answer{POLLIN});
      EXPECT_EQ(recv(in_a_, bytes, sizeof bytes, 0), 1);
    }
    const Fd set(epoll_create1(EPOLL_CLOEXEC)), copy(dup(set.get()));
    epoll_event event{EPOLLIN | EPOLLET, {.fd = in_a_}};
    EXPECT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, in_a_, &event), 0);
    for (int round = 0; round < 100 && !HasFailure(); ++round) {
      send_all(out_a_, "x");
      EXPECT_EQ(epoll_wait(copy.get(), &event, 1, kSoon), 1) << round;
      if (round % 2 == 0) {
        EXPECT_EQ(answer({{in_a_, POLLIN, 0}}, kSoon), Answer{POLLIN});
      }
      // All there is: whoever sees a short read need not ask again.
      EXPECT_EQ(recv(in_a_, bytes, sizeof bytes, 0), 1);
    }
  });
  child.expect_success();
}

// What was written and not read, and nothing else, whatever is asked together.
class Model {
 public:
  Model(const Call& call, uint32_t seed) : call_(call), random_(seed) {
    for (size_t i = 0; i < kMembers; ++i) open(i);
  }

  void step() {
    const size_t i = random_() % kMembers;
    switch (random_() % 16) {
      case 0:
      case 1:
      case 2:
        return write_some(i);
      case 3:
      case 4:
      case 5:
        return read_some(i);
      case 6:
        if (random_() % 16 == 0) open(i);
        return;
      case 7:
        if (random_() % 16 == 0) end(i);
        return;
      default:
        return check();
    }
  }

 private:
  static constexpr size_t kStreams = 4, kMembers = 6;  // the others are pipes
  struct Member {
    Fd in, out;
    int unread = 0;
    bool has_ended = false;
    bool is_stream = false;
  };

  void open(size_t i) {
    Member& m = members_[i];
    m = Member{};
    m.is_stream = i < kStreams;
    if (m.is_stream) {
      Pair pair = joined_pair();
      m.in = std::move(pair.server);
      m.out = std::move(pair.client);
    } else {
      int ends[2] = {-1, -1};
      ASSERT_EQ(pipe(ends), 0);
      m.in = Fd(ends[0]);
      m.out = Fd(ends[1]);
    }
    if (random_() % 2 == 0) make_nonblocking(m.in.get());
  }
  void end(size_t i) {
    Member& m = members_[i];
    if (!m.is_stream || m.has_ended) return;
    ASSERT_EQ(shutdown(m.out.get(), SHUT_WR), 0);
    m.has_ended = true;
  }
  void write_some(size_t i) {
    Member& m = members_[i];
    if (m.has_ended || m.unread > 1000) return;
    const size_t count = 1 + random_() % 50;
    const std::string bytes = pattern(count);
    ASSERT_EQ(write(m.out.get(), bytes.data(), count), ssize_t(count));
    m.unread += int(count);
    await_queued(m.in.get(), m.unread);
  }
  void read_some(size_t i) {
    Member& m = members_[i];
    char buffer[64];
    if (m.unread == 0) return;
    const ssize_t n = read(m.in.get(), buffer, 1 + random_() % sizeof buffer);
    ASSERT_GT(n, 0);
    m.unread -= int(n);
  }
  short expected(const Member& m, short events) const {
    short all = m.unread > 0 || m.has_ended ? POLLIN : 0;
    if (m.has_ended && !call_.is_select) all |= POLLRDHUP;
    if (m.is_stream) all |= POLLOUT;
    return all & events;
  }
  void check() {
    constexpr std::array<short, 5> kEvents{POLLIN, POLLIN, POLLOUT, POLLIN | POLLOUT | POLLPRI,
                                           POLLIN | POLLRDHUP};
    Asked asked;
    std::vector<short> due;
    int count = 0;
    for (const Member& m : members_) {
      if (random_() % 3 == 0) continue;
      const short events = m.is_stream ? kEvents[random_() % kEvents.size()] : short{POLLIN};
      asked.push_back({m.in.get(), events, 0x5555});
      due.push_back(expected(m, call_.is_select ? short(events & kSelectable) : events));
      count += due.back() != 0 ? 1 : 0;
    }
    const int milliseconds = count > 0 && random_() % 2 == 0 ? -1 : 0;
    ASSERT_EQ(call_.ask(asked, milliseconds, nullptr), count) << strerror(errno);
    for (size_t i = 0; i < asked.size(); ++i)
      EXPECT_EQ(asked[i].revents, due[i]) << "events " << asked[i].events;
  }

  const Call& call_;
  std::mt19937 random_;
  std::array<Member, kMembers> members_;
};

TEST_P(PollAnswers, AreWhatAModelSays) {
  const char* more = getenv("DDPSOCK_SEEDS");
  const uint32_t seeds = more != nullptr ? uint32_t(atoi(more)) : 10;
  if (more != nullptr) start_deadline(10 + seeds);
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    Model model(GetParam(), seed);
    for (int step = 0; step < 500; ++step) {
      model.step();
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
