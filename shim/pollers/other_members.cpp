// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/other_members.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cancellation.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/keep_errno.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

// epoll's flags beside what poll() knows.
constexpr uint32_t kPollEvents = 0x3fff;
constexpr Duration kBusy = Duration::from_ms(100);

// What the kernel says of a set. Null: not all of it, or nothing.
class Listing {
 public:
  explicit Listing(int set);
  // Three lines of another kind, then "tfd:        5 events:       19 data:               7 pos:0
  // ...".
  template <typename Visit>
  void each_line(Visit visit) const {
    for (const char* line = text_; (line = strstr(line, "tfd:")) != nullptr; ++line) visit(line);
  }
  bool is_whole() const { return is_whole_; }

 private:
  char text_[4096];
  bool is_whole_ = false;
};

Listing::Listing(int set) {
  snprintf(text_, sizeof text_, "/proc/self/fdinfo/%d", set);
  const base::KeepErrno keep;
  const base::Uncancelled whole;
  const int file = open(text_, O_RDONLY | O_CLOEXEC);
  size_t size = 0;
  ssize_t n = file >= 0 ? 1 : -1;
  while (n > 0 && size < sizeof text_ - 1) {
    n = real.read(file, text_ + size, sizeof text_ - 1 - size);
    if (n > 0) size += static_cast<size_t>(n);
  }
  if (file >= 0) base::close_own(file);
  is_whole_ = n == 0;
  text_[is_whole_ ? size : 0] = '\0';
}

}  // namespace

bool OtherMembers::is_listed(int set, int fd) {
  const Listing listing(set);
  bool is_there = !listing.is_whole();
  listing.each_line([&](const char* line) {
    int member = -1;
    is_there |= sscanf(line, "tfd: %d", &member) == 1 && member == fd;
  });
  return is_there;
}

void OtherMembers::learn(int set) {
  for (Member& m : members_) m.fd.store(0, std::memory_order_relaxed);
  end_.store(0, std::memory_order_relaxed);
  const Listing listing(set);
  has_more_.store(!listing.is_whole(), std::memory_order_relaxed);
  listing.each_line([&](const char* line) { learn_line(line); });
}

void OtherMembers::learn_line(const char* line) {
  int fd;
  unsigned events;
  unsigned long long data;
  if (sscanf(line, "tfd: %d events: %x data: %llx", &fd, &events, &data) != 3) {
    has_more_.store(true, std::memory_order_relaxed);
    return;
  }
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  add(fd, event);
}

void OtherMembers::add(int fd, const epoll_event& event) {
  Member* place = nullptr;
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end && place == nullptr; ++i)
    if (members_[i].fd.load(std::memory_order_acquire) == fd + 1) place = &members_[i];
  for (unsigned i = 0; i < kMost && place == nullptr; ++i) {
    int free = 0;
    if (!members_[i].fd.compare_exchange_strong(free, fd + 1)) continue;
    place = &members_[i];
    unsigned seen = end;
    while (seen <= i && !end_.compare_exchange_weak(seen, i + 1)) {
    }
  }
  if (place == nullptr) return has_more_.store(true, std::memory_order_release);
  place->data.store(event.data.u64, std::memory_order_relaxed);
  place->events.store(event.events, std::memory_order_release);
}

void OtherMembers::remove(int fd) {
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i) {
    int expected = members_[i].fd.load(std::memory_order_relaxed);
    if (expected == fd + 1) members_[i].fd.compare_exchange_strong(expected, 0);
  }
}

unsigned OtherMembers::count() const {
  unsigned count = has_more_.load(std::memory_order_relaxed) ? 1 : 0;
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i)
    if (members_[i].fd.load(std::memory_order_relaxed) != 0) ++count;
  return count;
}

bool OtherMembers::is_any() const {
  if (has_more_.load(std::memory_order_relaxed)) return true;
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i)
    if (members_[i].fd.load(std::memory_order_relaxed) != 0) return true;
  return false;
}

bool OtherMembers::has_data(uint64_t data) const {
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i)
    if (members_[i].fd.load(std::memory_order_acquire) != 0 &&
        members_[i].data.load(std::memory_order_relaxed) == data)
      return true;
  return false;
}

bool OtherMembers::may_be_ready(std::span<const int> streams) {
  std::array<pollfd, 2 * kMost> all;
  if (has_more_.load(std::memory_order_acquire) || streams.size() > kMost) return true;
  nfds_t count = 0;
  for (const int fd : streams) all[count++] = {fd, POLLIN | POLLRDHUP, 0};
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i) {
    const int fd = members_[i].fd.load(std::memory_order_acquire) - 1;
    const uint32_t events = members_[i].events.load(std::memory_order_relaxed);
    if (fd >= 0) all[count++] = {fd, static_cast<short>(events & kPollEvents), 0};
  }
  if (count == 0) return false;
  const int saved_errno = errno;
  const int ready = real.poll(all.data(), count, 0);
  errno = saved_errno;
  bool is_any = ready < 0;
  for (nfds_t i = 0; ready > 0 && i < count; ++i) {
    if ((all[i].revents & POLLNVAL) != 0) remove(all[i].fd);  // closed
    is_any |= all[i].revents != 0;
  }
  return is_any;
}

void OtherMembers::note_report() {
  busy_until_.store((base::now() + kBusy).ns, std::memory_order_relaxed);
}

bool OtherMembers::was_reported_lately() const {
  return base::now() < Time{busy_until_.load(std::memory_order_relaxed)};
}

}  // namespace ddpsock::shim
