// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Servers whose threads pass connections around: one waits in an epoll set, takes out what is ready
// and hands it to workers, who answer and put it back, or close it, while others are added. Whoever
// waits hears of each connection that is in the set, and of none that is not.
#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <queue>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr std::string_view kRequest = "request!", kAnswer = "answered";

class PassedAround : public TcpTest {
 protected:
  static constexpr uint32_t kConnections = 10, kWorkers = 3;
  static constexpr int kRounds = 300, kLifetime = 10;  // requests, of a connection

  // One place is one connection after another.
  struct Place {
    Pair pair;
    uint32_t generation = 0;
    int served = 0;
    std::atomic<bool> is_in_set = false, is_closed = false;
  };

  static uint64_t data_of(uint32_t number, const Place& place) {
    return uint64_t{place.generation} << 32 | number;
  }
  int put_in(uint32_t number) {
    Place& place = places_[number];
    place.is_in_set = true;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = data_of(number, place);
    return epoll_ctl(set_.get(), EPOLL_CTL_ADD, place.pair.server.get(), &event);
  }

  // Takes out what is ready until `kRounds` requests of each connection have come.
  void wait_for_requests() {
    for (int left = kRounds * static_cast<int>(kConnections); left > 0 && !HasFailure();) {
      std::array<epoll_event, 32> events;
      const int count = epoll_wait(set_.get(), events.data(), events.size(), 10'000);
      ASSERT_GT(count, 0) << left << " requests have not come";
      for (const epoll_event& event : std::span(events).first(static_cast<size_t>(count))) {
        const auto number = static_cast<uint32_t>(event.data.u64);
        ASSERT_LT(number, kConnections);
        Place& place = places_[number];
        ASSERT_TRUE(place.is_in_set.exchange(false)) << "told of what it has taken out";
        ASSERT_EQ(uint64_t{event.data.u64}, data_of(number, place)) << "told of one that is closed";
        ASSERT_EQ(epoll_ctl(set_.get(), EPOLL_CTL_DEL, place.pair.server.get(), nullptr), 0);
        hand_to_worker(number);
        --left;
      }
    }
  }

  void hand_to_worker(uint32_t number) {
    const std::lock_guard lock(mutex_);
    work_.push(number);
    has_work_.notify_one();
  }

  void answer() {
    for (;;) {
      uint32_t number;
      {
        std::unique_lock lock(mutex_);
        has_work_.wait(lock, [this] { return !work_.empty() || is_over_; });
        if (work_.empty()) return;
        number = work_.front();
        work_.pop();
      }
      Place& place = places_[number];
      EXPECT_EQ(recv_exactly(place.pair.server.get(), kRequest.size()), kRequest);
      send_all(place.pair.server.get(), kAnswer);
      if (++place.served < kLifetime) {
        EXPECT_EQ(put_in(number), 0);
      } else {
        place.pair.server.close();
        place.is_closed = true;
      }
    }
  }

  // As who accepts it does.
  void come(uint32_t number) {
    Place& place = places_[number];
    place.pair = connected_pair();
    place.served = 0;
    ++place.generation;
    place.is_closed = false;
    ASSERT_EQ(put_in(number), 0);
  }

  std::array<Place, kConnections> places_;
  Fd set_{epoll_create1(EPOLL_CLOEXEC)};
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::queue<uint32_t> work_;
  bool is_over_ = false;
};

TEST_F(PassedAround, EachIsToldOfWhileItIsAMember) {
  for (uint32_t number = 0; number < kConnections; ++number) come(number);
  std::vector<std::thread> workers;
  for (uint32_t i = 0; i < kWorkers; ++i) workers.emplace_back([this] { answer(); });
  std::thread waiter([this] { wait_for_requests(); });
  for (int round = 1; round <= kRounds && !HasFailure(); ++round) {
    for (Place& place : places_) send_all(place.pair.client.get(), kRequest);
    for (uint32_t number = 0; number < kConnections && !HasFailure(); ++number) {
      Place& place = places_[number];
      EXPECT_EQ(recv_exactly(place.pair.client.get(), kAnswer.size()), kAnswer);
      if (round % kLifetime != 0) continue;
      expect_end_of_stream(place.pair.client.get());
      while (!place.is_closed) std::this_thread::yield();
      if (round < kRounds) come(number);
    }
  }
  waiter.join();
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    has_work_.notify_all();
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace
}  // namespace ddpsock::shim_tests
