// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A connection's own duplicate of its socket, for what the program's number means may change while
// calls are running; and what the Domain's thread waits for on it, and until when.
#ifndef DDPSOCK_MESSAGE_WATCH_H_
#define DDPSOCK_MESSAGE_WATCH_H_

#include <fcntl.h>
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/sys.h"
#include "message/domain.h"

namespace ddpsock::message {

// With the connection's lock, but for what is said to be free of it.
class Watch {
 public:
  explicit Watch(Domain& domain) : domain_(domain) {}
  // `is_of_edges`: what the program has not read keeps the socket readable, so that only what comes
  // is of interest; an epoll set that has the socket for edges is watched then. The thread serves
  // `c`; nullptr: it is left to callers. EMFILE, ENOMEM.
  Status<> open(int fd, bool is_of_edges, Progress* c) {
    const int copy = base::sys.fcntl(fd, F_DUPFD_CLOEXEC, kHighFd);
    socket_.reset(copy >= 0 ? copy : base::sys.fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!socket_.is_valid()) return fail_errno(EMFILE);
    if (is_of_edges) {
      edges_ = move_high(base::UniqueFd(base::sys.epoll_create1(EPOLL_CLOEXEC)));
      if (!edges_.is_valid()) return fail_errno(EMFILE);
      epoll_event wanted{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = 0}};
      if (base::sys.epoll_ctl(edges_.get(), EPOLL_CTL_ADD, socket_.get(), &wanted) != 0)
        return fail_errno(ENOMEM);
    }
    if (c != nullptr && (id_ = domain_.enter(*c)) == 0) return fail_errno(ENOMEM);
    return {};
  }
  int fd() const { return socket_.get(); }
  bool has_thread() const { return id_ != 0; }

  // The thread waits for one event of `events` (EPOLL*).
  void arm(uint32_t events) {
    if ((events & ~armed_) == 0) return;
    domain_.arm(watched(), id_, events);
    armed_ = events;
  }
  // Which has come; or all that was armed is gone.
  void take_event() {
    armed_ = 0;
    epoll_event edge;
    if (edges_.is_valid()) base::sys.epoll_wait(edges_.get(), &edge, 1, 0);
  }
  void disarm() {
    if (id_ != 0) domain_.disarm(watched(), id_);
  }

  // Free, from here on. The thread is to look at `at`.
  void look_at(Time at) {
    deadline_ns_.store(at.ns, std::memory_order_relaxed);
    if (id_ != 0 && at != kNever) domain_.wake_by(at);
  }
  // ... soon, whatever look_at() says until it does.
  void wake() {
    is_woken_.store(true);
    domain_.wake_by(Time{});
  }
  void note_served() { is_woken_.store(false); }
  Time deadline() const {
    return is_woken_.load() ? Time{} : Time{deadline_ns_.load(std::memory_order_relaxed)};
  }

  // For leave(), which is not with the lock, as this is.
  uint64_t id() const { return id_; }
  // The thread is out of it afterwards; then retire() closes the socket.
  void leave(uint64_t id) const {
    if (id != 0) domain_.leave(id);
  }
  void retire(uint64_t id) {
    if (id != 0) domain_.retire(std::move(edges_.is_valid() ? edges_ : socket_), id);
    socket_.reset();
  }
  // In a forked child: what is the parent's must not stay open for its sake.
  void abandon() { socket_.reset(); }

 private:
  int watched() const { return edges_.is_valid() ? edges_.get() : socket_.get(); }

  Domain& domain_;
  base::UniqueFd socket_, edges_;
  uint64_t id_ = 0;     // in the Domain; 0: driven by the caller
  uint32_t armed_ = 0;  // EPOLL* that the thread waits for
  std::atomic<int64_t> deadline_ns_{kNever.ns};
  std::atomic<bool> is_woken_{false};
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_WATCH_H_
