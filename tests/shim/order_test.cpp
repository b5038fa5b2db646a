// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What became ready first is reported first, or together with the rest, whatever the descriptors of
// an epoll set are. Programs count on it: a client takes back a subscription on one connection,
// another publishes on the next.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernel.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr int kRounds = 1000;

// An epoll set whose members are known by small numbers.
class Set {
 public:
  int get() const { return fd_.get(); }
  void add(int fd, uint64_t number, uint32_t events = EPOLLIN) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = number;
    EXPECT_EQ(epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event), 0) << strerror(errno);
  }
  // The members that are ready, in the order in which they are reported.
  std::vector<uint64_t> wait(int room, int milliseconds = kSoon) const {
    std::array<epoll_event, 64> events{};
    const int count = epoll_wait(fd_.get(), events.data(), room, milliseconds);
    EXPECT_GE(count, 0) << strerror(errno);
    std::vector<uint64_t> numbers;
    for (int i = 0; i < count; ++i) numbers.push_back(events[size_t(i)].data.u64);
    return numbers;
  }

 private:
  Fd fd_{epoll_create1(EPOLL_CLOEXEC)};
};

bool has(const std::vector<uint64_t>& numbers, uint64_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

// Returns when what was sent to `fd`, of which all before has been read, has come.
void await_arrival(int fd) {
  EXPECT_EQ(kernel_poll(fd, POLLIN, kSoon), POLLIN);
}

// Something that is made ready, is not a stream, and is watched beside streams.
class Other {
 public:
  virtual ~Other() = default;
  virtual int fd() const = 0;
  virtual void make_ready() = 0;  // is ready when this returns
  virtual void drain() = 0;
};

class Pipe : public Other {
 public:
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe(ends), 0);
    in_ = Fd(ends[0]);
    out_ = Fd(ends[1]);
  }
  int fd() const override { return in_.get(); }
  void make_ready() override { EXPECT_EQ(write(out_.get(), "p", 1), 1); }
  void drain() override {
    char byte;
    EXPECT_EQ(read(in_.get(), &byte, 1), 1);
  }

 private:
  Fd in_, out_;
};

class Fifo : public Other {
 public:
  Fifo() {
    const char* directory = getenv("TMPDIR");
    std::string path = std::string(directory != nullptr ? directory : "/tmp") + "/order.XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    const std::string name = path + "/fifo";
    EXPECT_EQ(mkfifo(name.c_str(), 0600), 0);
    fd_ = Fd(open(name.c_str(), O_RDWR | O_CLOEXEC));
    unlink(name.c_str());
    rmdir(path.c_str());
  }
  int fd() const override { return fd_.get(); }
  void make_ready() override { EXPECT_EQ(write(fd_.get(), "f", 1), 1); }
  void drain() override {
    char byte;
    EXPECT_EQ(read(fd_.get(), &byte, 1), 1);
  }

 private:
  Fd fd_;
};

class Event : public Other {
 public:
  int fd() const override { return fd_.get(); }
  void make_ready() override { EXPECT_EQ(eventfd_write(fd_.get(), 1), 0); }
  void drain() override {
    eventfd_t value;
    EXPECT_EQ(eventfd_read(fd_.get(), &value), 0);
  }

 private:
  Fd fd_{eventfd(0, EFD_CLOEXEC)};
};

class Timer : public Other {
 public:
  int fd() const override { return fd_.get(); }
  void make_ready() override {
    const itimerspec soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = 1}};
    EXPECT_EQ(timerfd_settime(fd_.get(), 0, &soon, nullptr), 0);
    EXPECT_EQ(kernel_poll(fd_.get(), POLLIN, kSoon), POLLIN);
  }
  void drain() override {
    uint64_t times;
    EXPECT_EQ(read(fd_.get(), &times, sizeof times), ssize_t{sizeof times});
  }

 private:
  Fd fd_{timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)};
};

class Local : public Other {
 public:
  Local() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    in_ = Fd(ends[0]);
    out_ = Fd(ends[1]);
  }
  int fd() const override { return in_.get(); }
  void make_ready() override { EXPECT_EQ(send(out_.get(), "u", 1, 0), 1); }
  void drain() override {
    char byte;
    EXPECT_EQ(recv(in_.get(), &byte, 1, 0), 1);
  }

 private:
  Fd in_, out_;
};

class Accepting : public Other {
 public:
  int fd() const override { return listener_.fd.get(); }
  void make_ready() override {
    client_ = dial(listener_.address);
    EXPECT_EQ(kernel_poll(fd(), POLLIN, kSoon), POLLIN);
  }
  void drain() override {
    const Fd server = accept_one(fd());
    client_.close();
  }

 private:
  Listener listener_ = listen_loopback();
  Fd client_;
};

// A set of its own, with a pipe in it.
class Nested : public Other {
 public:
  Nested() { set_.add(pipe_.fd(), 0); }
  int fd() const override { return set_.get(); }
  void make_ready() override { pipe_.make_ready(); }
  void drain() override { pipe_.drain(); }

 private:
  Pipe pipe_;
  Set set_;
};

struct Kind {
  const char* name;
  std::unique_ptr<Other> (*make)();
  int rounds = kRounds;
};
template <typename T>
std::unique_ptr<Other> make() {
  return std::make_unique<T>();
}
constexpr Kind kKinds[] = {{"Pipe", make<Pipe>},    {"Fifo", make<Fifo>},
                           {"Event", make<Event>},  {"Timer", make<Timer>},
                           {"Local", make<Local>},  {"Listener", make<Accepting>, 200},
                           {"Nested", make<Nested>}};

class Order : public TcpTest {
 protected:
  static constexpr uint64_t kOther = 100;

  static Pair joined_pair() {
    Pair pair = connected_pair();
    for (const int fd : {pair.client.get(), pair.server.get()})
      set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    for (int time = 0; time < 3; ++time) {
      expect_alive(pair.client.get(), pair.server.get());
      expect_alive(pair.server.get(), pair.client.get());
    }
    return pair;
  }

  Pair a_ = joined_pair(), b_ = joined_pair();
};

// The kernel must have forgotten those of the round before: it leaves them in their old order.
TEST_F(Order, StreamsComeInTheOrderInWhichTheyWereWritten) {
  Pair c = joined_pair();
  const std::array<Pair*, 3> pairs{&a_, &b_, &c};
  Set set;
  for (size_t i = 0; i < pairs.size(); ++i) set.add(pairs[i]->server.get(), i);
  EXPECT_TRUE(set.wait(8, 0).empty());
  std::vector<uint64_t> written{0, 1, 2};
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    std::next_permutation(written.begin(), written.end());
    for (const uint64_t i : written) {
      send_all(pairs[i]->client.get(), "x");
      await_arrival(pairs[i]->server.get());
    }
    const std::vector<uint64_t> ready = set.wait(8);
    for (const uint64_t i : ready) EXPECT_EQ(recv_exactly(pairs[i]->server.get(), 1), "x");
    EXPECT_EQ(ready, written) << round;
    EXPECT_TRUE(set.wait(8, 0).empty());
  }
}

// Where the first bytes came is what counts, as on TCP, and all that comes after them belongs
// there.
TEST_F(Order, MoreForAStreamThatIsReadyDoesNotPutItBack) {
  Set set;
  set.add(a_.server.get(), 1);
  set.add(b_.server.get(), 2);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const bool is_second_first = round % 2 == 1;
    const Pair& older = is_second_first ? b_ : a_;
    const Pair& younger = is_second_first ? a_ : b_;
    send_all(older.client.get(), "1");
    await_arrival(older.server.get());
    send_all(younger.client.get(), "x");
    await_arrival(younger.server.get());
    send_all(older.client.get(), "2");
    EXPECT_EQ(set.wait(16),
              (is_second_first ? std::vector<uint64_t>{2, 1} : std::vector<uint64_t>{1, 2}))
        << round;
    EXPECT_EQ(recv_exactly(older.server.get(), 2), "12");
    EXPECT_EQ(recv_exactly(younger.server.get(), 1), "x");
    EXPECT_TRUE(set.wait(16, 0).empty());
  }
}

// Nobody has looked at the set before.
TEST_F(Order, TheFirstAnswerOfASetIsInOrder) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    Pair a = joined_pair(), b = joined_pair();
    Set set;
    set.add(a.server.get(), 1);
    set.add(b.server.get(), 2);
    for (const Pair* pair : {&b, &a}) {
      send_all(pair->client.get(), "x");
      await_arrival(pair->server.get());
    }
    EXPECT_EQ(set.wait(16), (std::vector<uint64_t>{2, 1})) << round;
  }
}

// The program has slept for the first of them, and the kernel still lists where it was rung.
TEST_F(Order, OldBellsTakeNobodysRoom) {
  std::vector<Pair> pairs;
  Set set;
  for (uint64_t i = 0; i < 9; ++i) {
    pairs.push_back(joined_pair());
    set.add(pairs[i].server.get(), i);
  }
  std::vector<uint64_t> written{0, 1, 2, 3, 4, 5, 6, 7, 8};
  for (int round = 0; round < 100 && !HasFailure(); ++round) {
    EXPECT_TRUE(set.wait(16, 1).empty());  // it has slept
    std::next_permutation(written.begin(), written.end());
    for (int time = 0; time < 2; ++time) {
      std::reverse(written.begin(), written.end());
      for (const uint64_t i : written) {
        send_all(pairs[i].client.get(), "x");
        await_arrival(pairs[i].server.get());
      }
      sleep_ms(1);  // the kernel is asked
      EXPECT_EQ(set.wait(16), written) << round;
      for (const Pair& pair : pairs) EXPECT_EQ(recv_exactly(pair.server.get(), 1), "x");
      EXPECT_TRUE(set.wait(16, 0).empty());
    }
  }
}

class OrderBeside : public Order, public testing::WithParamInterface<Kind> {
 protected:
  const std::unique_ptr<Other> other_ = GetParam().make();
};

TEST_P(OrderBeside, WhatWasReadyBeforeAStreamIsReportedWithIt) {
  Set set;
  set.add(other_->fd(), kOther);
  set.add(a_.server.get(), 1);
  for (int round = 0; round < GetParam().rounds && !HasFailure(); ++round) {
    other_->make_ready();
    send_all(a_.client.get(), "x");
    EXPECT_TRUE(has(set.wait(8), kOther)) << round;
    EXPECT_EQ(recv_exactly(a_.server.get(), 1), "x");
    other_->drain();
  }
}

TEST_P(OrderBeside, WhatBecomesReadyBeforeAStreamIsReportedWithIt) {
  Set set;
  set.add(a_.server.get(), 1);
  set.add(other_->fd(), kOther);
  std::atomic<int> done{0}, made{0};
  const int rounds = GetParam().rounds;
  std::jthread writer([&] {
    for (int round = 0; round < rounds; ++round) {
      while (done.load() < round) std::this_thread::yield();
      if (done.load() > rounds) return;
      other_->make_ready();
      made.store(round + 1);
      send_all(a_.client.get(), "x");
    }
  });
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const std::vector<uint64_t> ready = set.wait(8);
    EXPECT_TRUE(has(ready, kOther)) << round;
    while (made.load() == round) std::this_thread::yield();
    EXPECT_EQ(recv_exactly(a_.server.get(), 1), "x");
    other_->drain();
    // The kernel still lists both, and would look at them one after the other.
    EXPECT_TRUE(set.wait(8, 0).empty());
    done.store(HasFailure() ? rounds + 1 : round + 1);
  }
}

TEST_P(OrderBeside, AStreamThatWasReadyBeforeIsReportedWithIt) {
  Set set;
  set.add(other_->fd(), kOther);
  set.add(a_.server.get(), 1);
  std::atomic<int> done{0}, made{0};
  const int rounds = GetParam().rounds;
  std::jthread writer([&] {
    for (int round = 0; round < rounds; ++round) {
      while (done.load() < round) std::this_thread::yield();
      if (done.load() > rounds) return;
      send_all(a_.client.get(), "x");
      await_arrival(a_.server.get());
      other_->make_ready();
      made.store(round + 1);
    }
  });
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const std::vector<uint64_t> ready = set.wait(8);
    EXPECT_TRUE(has(ready, 1)) << round;
    while (made.load() == round) std::this_thread::yield();
    EXPECT_EQ(recv_exactly(a_.server.get(), 1), "x");
    other_->drain();
    // The kernel still lists both, and would look at them one after the other.
    EXPECT_TRUE(set.wait(8, 0).empty());
    done.store(HasFailure() ? rounds + 1 : round + 1);
  }
}

// The bell of an earlier message, which the kernel still lists, says nothing of this one.
TEST_P(OrderBeside, BeforeAStreamItIsReportedBeforeIt) {
  Set set;
  set.add(a_.server.get(), 1);
  set.add(other_->fd(), kOther);
  for (int round = 0; round < GetParam().rounds && !HasFailure(); ++round) {
    if (round % 8 == 0) {
      std::jthread writer([&] {
        sleep_ms(1);
        send_all(a_.client.get(), "x");
      });
      EXPECT_EQ(set.wait(8), std::vector<uint64_t>{1}) << round;
      EXPECT_EQ(recv_exactly(a_.server.get(), 1), "x");
      EXPECT_TRUE(set.wait(8, 0).empty());
    }
    other_->make_ready();
    send_all(a_.client.get(), "x");
    await_arrival(a_.server.get());
    EXPECT_EQ(set.wait(8), (std::vector<uint64_t>{kOther, 1})) << round;
    EXPECT_EQ(recv_exactly(a_.server.get(), 1), "x");
    other_->drain();
    EXPECT_TRUE(set.wait(8, 0).empty());
  }
}

// The kernel knows where the other came between two of them.
TEST_P(OrderBeside, BetweenTwoStreamsItIsReportedBetweenThem) {
  Set set;
  set.add(a_.server.get(), 1);
  set.add(other_->fd(), kOther);
  set.add(b_.server.get(), 2);
  for (int round = 0; round < GetParam().rounds && !HasFailure(); ++round) {
    EXPECT_TRUE(set.wait(8, round % 8 == 0 ? 1 : 0).empty());
    const bool is_second_first = round % 2 == 1;
    const Pair& older = is_second_first ? b_ : a_;
    const Pair& younger = is_second_first ? a_ : b_;
    send_all(older.client.get(), "x");
    await_arrival(older.server.get());
    other_->make_ready();
    send_all(younger.client.get(), "x");
    await_arrival(younger.server.get());
    const std::vector<uint64_t> ready = set.wait(8);
    ASSERT_EQ(ready.size(), 3u);
    if (round % 8 == 0) {
      EXPECT_EQ(ready[1], kOther) << round;
    }
    EXPECT_EQ(std::find(ready.begin(), ready.end(), is_second_first ? 2u : 1u) <
                  std::find(ready.begin(), ready.end(), is_second_first ? 1u : 2u),
              true)
        << round;
    EXPECT_EQ(recv_exactly(older.server.get(), 1), "x");
    EXPECT_EQ(recv_exactly(younger.server.get(), 1), "x");
    other_->drain();
  }
}

// One place, two that are ready: the older goes first, and then the younger.
TEST_P(OrderBeside, WithRoomForOneTheOlderGoesFirst) {
  Set set;
  set.add(a_.server.get(), 1);
  set.add(other_->fd(), kOther);
  for (int round = 0; round < GetParam().rounds && !HasFailure(); ++round) {
    const bool is_stream_first = round % 3 == 1;
    if (!is_stream_first) other_->make_ready();
    send_all(a_.client.get(), "x");
    await_arrival(a_.server.get());
    if (is_stream_first) other_->make_ready();
    for (const uint64_t expected : {is_stream_first ? 1 : kOther, is_stream_first ? kOther : 1}) {
      const std::vector<uint64_t> ready = set.wait(1);
      ASSERT_EQ(ready.size(), 1u);
      EXPECT_EQ(ready[0], expected) << round;
      if (ready[0] == 1) {
        EXPECT_EQ(recv_exactly(a_.server.get(), 1), "x");
      } else {
        other_->drain();
      }
    }
    // Only now has the kernel forgotten that they were.
    EXPECT_TRUE(set.wait(1, 0).empty());
  }
}

// A stream that always has bytes does not keep the others from being seen.
TEST_P(OrderBeside, IsSeenBesideAStreamThatIsNeverRead) {
  Set set;
  set.add(a_.server.get(), 1);
  set.add(other_->fd(), kOther);
  send_all(a_.client.get(), "x");
  for (int round = 0; round < 100 && !HasFailure(); ++round) {
    EXPECT_EQ(set.wait(1), std::vector<uint64_t>{1}) << round;
    other_->make_ready();
    int looks = 1;
    while (looks < 4 && !has(set.wait(1), kOther)) ++looks;
    EXPECT_LE(looks, 2) << round;
    other_->drain();
  }
}

INSTANTIATE_TEST_SUITE_P(All, OrderBeside, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

// The peers of two streams; one of them waits until it may.
TEST_F(Order, NeverTheSecondStreamWithoutTheFirst) {
  Set set;
  set.add(b_.server.get(), 2);
  set.add(a_.server.get(), 1);
  std::atomic<int> done{0};
  std::jthread writer([&] {
    for (int round = 0; round < kRounds; ++round) {
      while (done.load() < round) std::this_thread::yield();
      if (done.load() > kRounds) return;
      send_all(a_.client.get(), "a");
      await_arrival(a_.server.get());
      send_all(b_.client.get(), "b");
    }
  });
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    EXPECT_TRUE(has(set.wait(8), 1)) << round;
    EXPECT_EQ(recv_exactly(b_.server.get(), 1), "b");
    EXPECT_EQ(recv_exactly(a_.server.get(), 1), "a");
    EXPECT_TRUE(set.wait(8, 0).empty());
    done.store(HasFailure() ? kRounds + 1 : round + 1);
  }
}

TEST_F(Order, OfTwoStreamsWithRoomForOneTheOlderGoesFirst) {
  Set set;
  set.add(b_.server.get(), 2);
  set.add(a_.server.get(), 1);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const bool is_second_first = round % 3 == 1;
    const Pair& older = is_second_first ? b_ : a_;
    const Pair& younger = is_second_first ? a_ : b_;
    send_all(older.client.get(), "x");
    await_arrival(older.server.get());
    send_all(younger.client.get(), "x");
    await_arrival(younger.server.get());
    EXPECT_EQ(set.wait(1), std::vector<uint64_t>{is_second_first ? 2u : 1u}) << round;
    EXPECT_EQ(recv_exactly(older.server.get(), 1), "x");
    EXPECT_EQ(set.wait(1), std::vector<uint64_t>{is_second_first ? 1u : 2u}) << round;
    EXPECT_EQ(recv_exactly(younger.server.get(), 1), "x");
    EXPECT_TRUE(set.wait(1, 0).empty());
  }
}

// The same with peers that are processes: the second sends when the first has told it by a pipe.
TEST_F(Order, NeverTheSecondPeerWithoutTheFirst) {
  Set set;
  set.add(b_.server.get(), 2);
  set.add(a_.server.get(), 1);
  Pipe go, told;
  Child first([&] {
    for (int round = 0; round < kRounds; ++round) {
      go.drain();
      send_all(a_.client.get(), "a");
      await_arrival(a_.server.get());
      told.make_ready();
    }
  });
  Child second([&] {
    for (int round = 0; round < kRounds; ++round) {
      told.drain();
      send_all(b_.client.get(), "b");
    }
  });
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    go.make_ready();
    EXPECT_TRUE(has(set.wait(8), 1)) << round;
    EXPECT_EQ(recv_exactly(b_.server.get(), 1), "b");
    EXPECT_EQ(recv_exactly(a_.server.get(), 1), "a");
    EXPECT_TRUE(set.wait(8, 0).empty());
  }
  if (HasFailure()) return;
  first.expect_success();
  second.expect_success();
}

// An end is an event like any other.
TEST_F(Order, TheEndOfOneStreamBeforeTheBytesOfAnother) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    Pair ending = joined_pair();
    Set set;
    set.add(b_.server.get(), 2);
    set.add(ending.server.get(), 1, EPOLLIN | EPOLLRDHUP);
    send_all(b_.client.get(), "x");
    EXPECT_TRUE(has(set.wait(8), 2));
    recv_exactly(b_.server.get(), 1);
    shutdown(ending.client.get(), SHUT_WR);
    EXPECT_EQ(kernel_poll(ending.server.get(), POLLRDHUP, kSoon), POLLRDHUP);
    send_all(b_.client.get(), "b");
    EXPECT_TRUE(has(set.wait(8), 1)) << round;
    recv_exactly(b_.server.get(), 1);
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
