// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <new>

#include "base/sys.h"
#include "message/bell.h"
#include "message/poller.h"

namespace ddpsock::message {
namespace {

constexpr uint64_t kWake = 0;  // no connection's id
constexpr size_t kEventsAtOnce = 64;
// Closing an epoll set wakes nobody who waits in it.
constexpr int64_t kLongestSleepMs = 1'000;

class EpollPoller final : public Poller {
 public:
  const char* name() const override { return "epoll"; }
  bool reserve(uint32_t) override { return true; }

  void arm(int fd, uint64_t id, uint32_t events) override {
    epoll_event event{.events = events | EPOLLONESHOT, .data = {.u64 = id}};
    const int set = epoll_fd_.load();
    if (base::sys.epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0 || errno != ENOENT) return;
    base::sys.epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  }

  void disarm(int fd, uint64_t) override {
    base::sys.epoll_ctl(epoll_fd_.load(), EPOLL_CTL_DEL, fd, nullptr);
  }

  bool retire(base::UniqueFd fd, uint64_t id) override {
    disarm(fd.get(), id);
    return true;
  }

  void wake() override {
    if (!bell_.ring()) is_lost_.store(true);
  }

  void adopt() override {}

  std::optional<size_t> wait(std::span<Ready> out, Time until) override {
    if (is_lost_.exchange(false)) return std::nullopt;
    std::array<epoll_event, kEventsAtOnce> events;
    const auto most = static_cast<int>(std::min(out.size(), events.size()));
    const int64_t ms = until == kNever ? kLongestSleepMs
                                       : std::min((until - base::now()).ceil_ms(), kLongestSleepMs);
    const int n = base::sys.epoll_wait(epoll_fd_.load(), events.data(), most, static_cast<int>(ms));
    if (n < 0) return errno == EINTR ? std::optional<size_t>(0) : std::nullopt;
    size_t count = 0;
    for (const epoll_event& event : std::span(events).first(static_cast<size_t>(n))) {
      if (event.data.u64 == kWake) {
        bell_.drain();
      } else {
        out[count++] = {event.data.u64, event.events};
      }
    }
    return count;
  }

  bool reopen() override {
    base::UniqueFd epoll_fd = move_high(base::UniqueFd(base::sys.epoll_create1(EPOLL_CLOEXEC)));
    if (!epoll_fd.is_valid() || !bell_.open()) return false;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kWake}};
    if (base::sys.epoll_ctl(epoll_fd.get(), EPOLL_CTL_ADD, bell_.fd(), &event) != 0) return false;
    epoll_fd_.store(epoll_fd.release());
    return true;
  }

 private:
  std::atomic<int> epoll_fd_{-1};
  std::atomic<bool> is_lost_{false};
  Bell bell_;
};

}  // namespace

base::UniqueFd move_high(base::UniqueFd fd) {
  const int high = base::sys.fcntl(fd.get(), F_DUPFD_CLOEXEC, kHighFd);
  return high >= 0 ? base::UniqueFd(high) : std::move(fd);
}

std::unique_ptr<Poller> make_epoll_poller() {
  std::unique_ptr<EpollPoller> made(new (std::nothrow) EpollPoller);
  if (!made || !made->reopen()) return nullptr;
  return made;
}

std::unique_ptr<Poller> Poller::make(Kind kind) {
  std::unique_ptr<Poller> made;
  if (kind != Kind::kEpoll) made = make_uring_poller();
  if (!made) made = make_epoll_poller();
  return made;
}

}  // namespace ddpsock::message
