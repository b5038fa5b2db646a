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

// One for each thread, for as long as it lives: the end of a ring interrupts, some milliseconds
// later, whatever call the thread is then in (EINTR). One request at a time, a poll that is told of
// once.
struct Ring {
  static constexpr uint64_t kPoll = 1, kRemoval = 2;
  pid_t owner;  // a child has its parent's memory, and not its ring
  int fd;
  io_uring_params about;
  char* queues;
  io_uring_sqe* requests;
  bool is_pending;

  bool is_there() {
    if (owner != gettid()) open();
    return queues != nullptr && requests != nullptr;
  }
  void open();
  char* map(size_t size, uint64_t which) {
    void* at =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(which));
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
  }
  uint32_t* word(uint32_t offset) { return reinterpret_cast<uint32_t*>(queues + offset); }
  void ask(const io_uring_sqe& request);
  // Enters with `count` requests until there are `wanted` answers. -1: errno.
  long enter(unsigned count, unsigned wanted) {
    return kernel_call(SYS_io_uring_enter, fd, count, wanted, IORING_ENTER_GETEVENTS, nullptr, 0);
  }
  unsigned take_answers();
  void forget_pending();
};

void Ring::open() {
  *this = {};
  owner = gettid();
  const long low = kernel_call(SYS_io_uring_setup, 4, &about);
  if (low < 0) return;
  fd = static_cast<int>(kernel_call(SYS_fcntl, low, F_DUPFD_CLOEXEC, kPatternNumber + 1));
  kernel_call(SYS_close, low);
  queues = map(about.cq_off.cqes + about.cq_entries * sizeof(io_uring_cqe), IORING_OFF_SQ_RING);
  requests = reinterpret_cast<io_uring_sqe*>(
      map(about.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
}

void Ring::ask(const io_uring_sqe& request) {
  std::atomic_ref tail(*word(about.sq_off.tail));
  const uint32_t at = tail.load() & *word(about.sq_off.ring_mask);
  requests[at] = request;
  word(about.sq_off.array)[at] = at;
  tail.store(tail.load() + 1, std::memory_order_release);
}

unsigned Ring::take_answers() {
  std::atomic_ref head(*word(about.cq_off.head)), tail(*word(about.cq_off.tail));
  const uint32_t last = tail.load(std::memory_order_acquire);
  const unsigned count = last - head.load();
  head.store(last, std::memory_order_release);
  return count;
}

// Of a wait without an answer, or one that was jumped out of.
void Ring::forget_pending() {
  if (!is_pending) return;
  io_uring_sqe removal{};
  removal.opcode = IORING_OP_POLL_REMOVE;
  removal.fd = -1;
  removal.addr = kPoll;
  removal.user_data = kRemoval;
  ask(removal);
  unsigned answers = 0;
  for (unsigned new_ones = 1; answers < 2; new_ones = 0) {
    if (enter(new_ones, 2 - answers) < 0 && errno != EINTR) abort();
    answers += take_answers();
  }
  is_pending = false;
}

thread_local Ring own_ring;

class RingPoll : public Poller {
 public:
  explicit RingPoll(int fd) : fd_(fd) {
    if (own_ring.is_there()) own_ring.forget_pending();
  }
  ~RingPoll() override { own_ring.forget_pending(); }
  long wait(int timeout_ms) override {
    if (!own_ring.is_there()) return -1;
    const bool is_new = !own_ring.is_pending;
    if (is_new) {
      io_uring_sqe poll{};
      poll.opcode = IORING_OP_POLL_ADD;
      poll.fd = fd_;
      poll.poll32_events = POLLIN;
      poll.user_data = Ring::kPoll;
      own_ring.ask(poll);
      own_ring.is_pending = true;
    }
    const long result = own_ring.enter(is_new ? 1 : 0, timeout_ms < 0 ? 1 : 0);
    if (result < 0) return result;
    if (own_ring.take_answers() == 0) return 0;
    own_ring.is_pending = false;
    return 1;
  }

 private:
  const int fd_;
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
  // Behind a mark it counts FPDUs, where TCP counts bytes.
  if (is_below_mark(fd, 1)) return answer.add("not certain");
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
      return by(RingPoll(fd));
    default:
      return by(Signals(fd));
  }
}

}  // namespace ddpsock::sequences
