// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Pollers that libc does not see: bare system calls, io_uring, signals. What they say of a socket
// may be more than what is there (a start-up frame, a bell), so whoever is told looks, and if there
// is nothing waits again, as programs do. What is there, or comes, they have to tell of.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "act.h"
#include "actors.h"
#include "base/kernel_call.h"

namespace ddpsock::sequences {
namespace {

using base::kernel_call;

class Poller {
 public:
  virtual ~Poller() = default;
  // Told of something new only: whoever begins looks first.
  virtual bool is_for_edges() const { return false; }
  // 1: told. 0: not now. -1: errno.
  virtual long wait(int timeout_ms) = 0;
};

class PollCall : public Poller {
 public:
  explicit PollCall(int fd) : polled_{fd, POLLIN, 0} {}
  long wait(int timeout_ms) override { return kernel_call(SYS_poll, &polled_, 1, timeout_ms); }

 private:
  pollfd polled_;
};

class EpollCalls : public Poller {
 public:
  EpollCalls(int fd, uint32_t how, bool is_nested) : is_for_edges_((how & EPOLLET) != 0) {
    inner_ = make_set(fd, EPOLLIN | how);
    if (is_nested) outer_ = make_set(inner_, EPOLLIN);
  }
  ~EpollCalls() override {
    kernel_call(SYS_close, inner_);
    if (outer_ >= 0) kernel_call(SYS_close, outer_);
  }
  bool is_for_edges() const override { return is_for_edges_; }
  long wait(int timeout_ms) override {
    epoll_event event{};
    return kernel_call(SYS_epoll_wait, outer_ >= 0 ? outer_ : inner_, &event, 1, timeout_ms);
  }

 private:
  static int make_set(int member, uint32_t events) {
    const int set = static_cast<int>(kernel_call(SYS_epoll_create1, EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = events;
    kernel_call(SYS_epoll_ctl, set, EPOLL_CTL_ADD, member, &event);
    return set;
  }
  const bool is_for_edges_;
  int inner_, outer_ = -1;
};

// One request at a time: a poll that is told of once.
class Ring : public Poller {
 public:
  explicit Ring(int fd) : fd_(fd) {
    ring_ = static_cast<int>(kernel_call(SYS_io_uring_setup, 4, &about_));
    if (ring_ < 0) return;
    size_ = about_.cq_off.cqes + about_.cq_entries * sizeof(io_uring_cqe);
    queues_ = map(size_, IORING_OFF_SQ_RING);
    requests_ = reinterpret_cast<io_uring_sqe*>(map(kRequestsSize, IORING_OFF_SQES));
  }
  ~Ring() override {
    if (queues_ != nullptr) munmap(queues_, size_);
    if (requests_ != nullptr) munmap(requests_, kRequestsSize);
    if (ring_ >= 0) kernel_call(SYS_close, ring_);
  }
  long wait(int timeout_ms) override {
    if (queues_ == nullptr || requests_ == nullptr) return -1;
    const bool is_new = !is_pending_;
    if (is_new) ask();
    const long result = kernel_call(SYS_io_uring_enter, ring_, is_new ? 1 : 0,
                                    timeout_ms < 0 ? 1 : 0, IORING_ENTER_GETEVENTS, nullptr, 0);
    if (result < 0) return result;
    std::atomic_ref head(*word(about_.cq_off.head)), tail(*word(about_.cq_off.tail));
    if (head.load() == tail.load(std::memory_order_acquire)) return 0;
    head.store(head.load() + 1, std::memory_order_release);
    is_pending_ = false;
    return 1;
  }

 private:
  static constexpr size_t kRequestsSize = 4 * sizeof(io_uring_sqe);
  char* map(size_t size, uint64_t which) {
    void* at =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring_, static_cast<off_t>(which));
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
  }
  uint32_t* word(uint32_t offset) { return reinterpret_cast<uint32_t*>(queues_ + offset); }
  void ask() {
    requests_[0] = {};
    requests_[0].opcode = IORING_OP_POLL_ADD;
    requests_[0].fd = fd_;
    requests_[0].poll32_events = POLLIN;
    word(about_.sq_off.array)[*word(about_.sq_off.tail) & *word(about_.sq_off.ring_mask)] = 0;
    std::atomic_ref tail(*word(about_.sq_off.tail));
    tail.store(tail.load() + 1, std::memory_order_release);
    is_pending_ = true;
  }

  const int fd_;
  int ring_;
  io_uring_params about_{};
  size_t size_ = 0;
  char* queues_ = nullptr;
  io_uring_sqe* requests_ = nullptr;
  bool is_pending_ = false;
};

class Signals : public Poller {
 public:
  explicit Signals(int fd) : fd_(fd), flags_(fcntl(fd, F_GETFL)) {
    sigemptyset(&set_);
    sigaddset(&set_, signal_of_io());
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    const f_owner_ex owner{F_OWNER_TID, gettid()};
    fcntl(fd, F_SETOWN_EX, &owner);
    fcntl(fd, F_SETSIG, signal_of_io());
    fcntl(fd, F_SETFL, flags_ | O_ASYNC);
  }
  ~Signals() override {
    fcntl(fd_, F_SETFL, flags_);
    while (wait(0) == 1) {
    }
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
  }
  bool is_for_edges() const override { return true; }
  long wait(int timeout_ms) override {
    const timespec none{};
    const long got =
        timeout_ms < 0 ? sigwaitinfo(&set_, nullptr) : sigtimedwait(&set_, nullptr, &none);
    return got > 0 ? 1 : errno == EAGAIN ? 0 : -1;
  }

 private:
  const int fd_, flags_;
  sigset_t set_;
};

// What a program finds that was told. False: nothing, and it waits again.
bool look(int fd, Answer& answer) {
  char byte;
  const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return false;
  answer.add("told: ");
  answer.add_result(n);
  return true;
}

void await(Poller& poller, int fd, int timeout_ms, Answer& answer) {
  constexpr int kMost = 100;
  for (int i = 0; i < kMost; ++i) {
    if ((poller.is_for_edges() || i > 0) && look(fd, answer)) return;
    const long told = poller.wait(timeout_ms);
    if (told < 0) return answer.add_result(told);
    if (told == 0) return answer.add("nothing");
    if (!poller.is_for_edges() && look(fd, answer)) return;
  }
  answer.add("told without end");
}

}  // namespace

void act_on_unseen(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]), timeout_ms = op.argument[2];
  const Object object = object_of(fd);
  if (outgoing(object) == nullptr) return answer.add("no stream");
  if (timeout_ms < 0 && !claim(object, false)) return answer.add("not certain");
  const auto by = [&](auto poller) { await(poller, fd, timeout_ms, answer); };
  switch (static_cast<Unseen>(op.argument[1])) {
    case Unseen::kPoll:
      return by(PollCall(fd));
    case Unseen::kEpoll:
      return by(EpollCalls(fd, 0, false));
    case Unseen::kEdges:
      return by(EpollCalls(fd, EPOLLET, false));
    case Unseen::kNested:
      return by(EpollCalls(fd, 0, true));
    case Unseen::kRing:
      return by(Ring(fd));
    default:
      return by(Signals(fd));
  }
}

}  // namespace ddpsock::sequences
