// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Only the thread that waits ever enters the ring: completions are work that the kernel does in the
// thread that has asked for it, and in a thread of the program that would end its system calls by
// EINTR. Others leave a note in the slot and wake the thread. What it re-arms itself goes to the
// kernel with the wait that follows, in one call.
//
// A request holds the socket open whatever the program closes. So the thread closes descriptors
// that it may have asked about, after it has taken the requests back.
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

#include "base/effort.h"
#include "base/own_ring.h"
#include "base/process.h"
#include "base/sys.h"
#include "message/bell.h"
#include "message/poller.h"
#include "message/ring_or_fork.h"

namespace ddpsock::message {
namespace {

constexpr unsigned kSubmissions = 64, kCompletions = 1024;
// A wake-up that is lost, because the program has closed the descriptor for it, lasts no longer.
constexpr Duration kLongestSleep = Duration::from_ms(1'000);
// Serials begin at 1, so that these are no connections'.
constexpr uint64_t kWake = 0, kIgnored = 1;
// In the slot's half of an id: the request asks for room to write.
constexpr uint64_t kForWriting = 1u << 30;

class UringPoller final : public Poller {
 public:
  ~UringPoller() override {
    close();
    note_number_gone();
  }
  const char* name() const override { return "io_uring"; }

  bool open();
  bool reserve(uint32_t count) override;
  void arm(int fd, uint64_t id, uint32_t events) override;
  void disarm(int fd, uint64_t id) override;
  bool retire(base::UniqueFd fd, uint64_t id) override;
  void wake() override;
  void adopt() override;
  std::optional<size_t> wait(std::span<Ready> out, Time until) override;
  bool reopen() override;

 private:
  struct Slot {
    uint32_t serial = 0;
    int fd = -1;
    uint64_t cookie = 0;  // of fd, once it is retiring
    uint32_t next = 0;    // in the list of notes, plus 1; 0: the last
    uint16_t wanted = 0;  // POLLIN, POLLOUT: to be asked for
    uint16_t asked = 0;   // the kernel has been, or will be with the next submission
    bool is_noted = false;
    bool is_unwanted = false;  // what is asked is to be taken back
    bool is_retiring = false;
  };
  static constexpr size_t kRetiredAtOnce = 32;

  bool set_up();
  void close();
  void note_number_gone();

  // With mutex_.
  Slot& slot(uint64_t id) { return slots_[slot_of(id)]; }
  void note(uint64_t id);
  io_uring_sqe* next_request();
  bool ask(Slot& s, uint32_t at, uint16_t events);
  bool take_back(Slot& s, uint32_t at);

  // The thread's.
  bool carry_out_notes();
  size_t retire_noted(std::span<Ready> out);
  size_t collect(std::span<Ready> out);
  bool take(const io_uring_cqe& done, Ready& to);
  void wake_unless_mine();

  io_uring ring_{};
  bool is_open_ = false;
  bool is_number_new_ = false;  // and no fork can be under way
  bool is_registered_ = false;  // ring_ with the thread
  bool is_wake_asked_ = false;
  std::array<char, 64> rings_;  // what the kernel takes from the bell
  std::array<uint64_t, kRetiredAtOnce> retiring_{};
  size_t retiring_count_ = 0;

  Bell bell_;
  std::atomic<bool> is_lost_{false};
  std::atomic<uint32_t> thread_{0};

  std::mutex mutex_;
  std::unique_ptr<Slot[]> slots_;
  uint32_t slot_count_ = 0;
  uint32_t first_note_ = 0;  // slot plus 1
};

void UringPoller::close() {
  if (!std::exchange(is_open_, false)) return;
  io_uring_queue_exit(&ring_);
  base::own_ring.store(-1);
}

void UringPoller::note_number_gone() {
  if (std::exchange(is_number_new_, false)) end_ring();
}

bool UringPoller::open() {
  ring_ = {};
  is_open_ = false;
  is_number_new_ = begin_ring();
  if (set_up() && bell_.open()) return true;
  close();
  note_number_gone();
  return false;
}

bool UringPoller::set_up() {
  io_uring_params params{};
  const auto make = [&](unsigned flags) {
    params = {};
    params.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | flags;
    params.cq_entries = kCompletions;
    return io_uring_queue_init_params(kSubmissions, &ring_, &params);
  };
  int error = make(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
  if (error == -EINVAL) error = make(0);  // before Linux 6.1
  if (error != 0) return false;
  is_open_ = true;
  constexpr unsigned kNeeded = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_FAST_POLL;
  if ((params.features & kNeeded) != kNeeded) return false;
  // A child has one of its own; that the parent's sockets stay open must not be up to it.
  io_uring_ring_dontfork(&ring_);
  const int high = base::sys.fcntl(ring_.ring_fd, F_DUPFD_CLOEXEC, kHighFd);
  if (high >= 0) {
    base::close_own(ring_.ring_fd);
    ring_.ring_fd = ring_.enter_ring_fd = high;
  }
  base::own_ring.store(ring_.ring_fd);
  return true;
}

void UringPoller::adopt() {
  thread_.store(base::thread_id());
  is_wake_asked_ = false;
  io_uring_enable_rings(&ring_);
  // The thread needs no descriptor then, which the program could close or its children inherit.
  is_registered_ = io_uring_register_ring_fd(&ring_) == 1;
  if (is_registered_) {
    base::close_own(std::exchange(ring_.ring_fd, -1));
    base::own_ring.store(-1);
  }
  note_number_gone();
}

bool UringPoller::reopen() {
  io_uring before = ring_;
  if (!open()) {
    ring_ = before;
    base::own_ring.store(ring_.ring_fd);
    is_open_ = true;
    return false;
  }
  // Its number may be another's by now. The thread gives it up through the new one.
  before.ring_fd = ring_.ring_fd;
  if (is_registered_) io_uring_unregister_ring_fd(&before);
  before.ring_fd = -1;
  io_uring_queue_exit(&before);
  {
    const std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < slot_count_; ++i) slots_[i].asked = 0;
  }
  adopt();
  return true;
}

bool UringPoller::reserve(uint32_t count) {
  const std::lock_guard lock(mutex_);
  if (count <= slot_count_) return true;
  std::unique_ptr<Slot[]> slots(new (std::nothrow) Slot[count]);
  if (!slots) return false;
  std::copy_n(slots_.get(), slot_count_, slots.get());
  slots_ = std::move(slots);
  slot_count_ = count;
  return true;
}

void UringPoller::note(uint64_t id) {
  Slot& s = slot(id);
  if (s.serial != serial_of(id)) s = {.serial = serial_of(id)};
  if (s.is_noted) return;
  s.is_noted = true;
  s.next = first_note_;
  first_note_ = slot_of(id) + 1;
}

void UringPoller::arm(int fd, uint64_t id, uint32_t events) {
  {
    const std::lock_guard lock(mutex_);
    note(id);
    Slot& s = slot(id);
    s.fd = fd;
    s.wanted = static_cast<uint16_t>(s.wanted | events);
    if ((s.wanted & ~s.asked) == 0) return;
  }
  wake_unless_mine();
}

void UringPoller::disarm(int, uint64_t id) {
  const std::lock_guard lock(mutex_);
  note(id);
  slot(id).wanted = 0;
  slot(id).is_unwanted = true;
}

bool UringPoller::retire(base::UniqueFd fd, uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    const Slot& before = slot(id);
    const bool is_unknown = before.serial != serial_of(id);
    if (is_unknown || (before.asked == 0 && !before.is_noted)) return true;
    note(id);
    Slot& s = slot(id);
    s.cookie = socket_cookie(fd.get());
    s.fd = fd.release();
    s.is_unwanted = s.is_retiring = true;
  }
  wake_unless_mine();
  return false;
}

void UringPoller::wake() {
  if (!bell_.ring()) is_lost_.store(true);
}

void UringPoller::wake_unless_mine() {
  if (thread_.load(std::memory_order_relaxed) != base::thread_id()) wake();
}

io_uring_sqe* UringPoller::next_request() {
  io_uring_sqe* request = io_uring_get_sqe(&ring_);
  if (request != nullptr) return request;
  ++base::effort.system_calls;
  io_uring_submit(&ring_);
  return io_uring_get_sqe(&ring_);
}

bool UringPoller::ask(Slot& s, uint32_t at, uint16_t event) {
  io_uring_sqe* request = next_request();
  if (request == nullptr) return false;
  io_uring_prep_poll_add(request, s.fd, event);
  request->user_data = make_id(s.serial, at) | (event == POLLOUT ? kForWriting : 0);
  s.asked = static_cast<uint16_t>(s.asked | event);
  return true;
}

bool UringPoller::take_back(Slot& s, uint32_t at) {
  for (const uint16_t event : {POLLIN, POLLOUT}) {
    if ((s.asked & event) == 0) continue;
    io_uring_sqe* request = next_request();
    if (request == nullptr) return false;
    io_uring_prep_poll_remove(request,
                              make_id(s.serial, at) | (event == POLLOUT ? kForWriting : 0));
    request->user_data = kIgnored;
    s.asked = static_cast<uint16_t>(s.asked & ~event);
  }
  s.is_unwanted = false;
  return true;
}

// False: some are left for the next time.
bool UringPoller::carry_out_notes() {
  const std::lock_guard lock(mutex_);
  if (!is_wake_asked_) {
    io_uring_sqe* request = next_request();
    if (request == nullptr) return false;
    io_uring_prep_recv(request, bell_.fd(), rings_.data(), rings_.size(), 0);
    request->user_data = kWake;
    is_wake_asked_ = true;
  }
  while (first_note_ != 0) {
    const uint32_t at = first_note_ - 1;
    Slot& s = slots_[at];
    if (s.is_retiring && retiring_count_ == retiring_.size()) return false;
    if (s.is_unwanted && !take_back(s, at)) return false;
    if (s.is_retiring) {
      retiring_[retiring_count_++] = make_id(s.serial, at);
    } else {
      for (const uint16_t event : {POLLIN, POLLOUT})
        if ((s.wanted & ~s.asked & event) != 0 && !ask(s, at, event)) return false;
      s.wanted = 0;
    }
    first_note_ = s.next;
    s.next = 0;
    s.is_noted = false;
  }
  return true;
}

// The kernel has been told of everything about them.
size_t UringPoller::retire_noted(std::span<Ready> out) {
  ++base::effort.system_calls;
  io_uring_submit(&ring_);
  size_t count = 0;
  while (count < out.size() && retiring_count_ != 0) {
    const uint64_t id = retiring_[--retiring_count_];
    Slot retired;
    {
      const std::lock_guard lock(mutex_);
      retired = std::exchange(slot(id), {});
    }
    // A program that closes whatever it sees may have been quicker, and the number be another's.
    if (socket_cookie(retired.fd) == retired.cookie) base::close_own(retired.fd);
    out[count++] = {id, kRetired};
  }
  return count;
}

bool UringPoller::take(const io_uring_cqe& done, Ready& to) {
  if (done.user_data == kWake) {
    is_wake_asked_ = false;
    // 0: its other end is closed.
    if (done.res <= 0 && done.res != -EAGAIN && done.res != -EINTR) is_lost_.store(true);
    return false;
  }
  // Taken back, or the answer to that.
  if (done.user_data == kIgnored || done.res == -ECANCELED) return false;
  const uint64_t id = done.user_data & ~kForWriting;
  const uint16_t event = (done.user_data & kForWriting) != 0 ? POLLOUT : POLLIN;
  const std::lock_guard lock(mutex_);
  Slot& s = slot(id);
  if (s.serial != serial_of(id)) return false;
  s.asked = static_cast<uint16_t>(s.asked & ~event);
  to = {id, done.res < 0 ? uint32_t{POLLERR} : static_cast<uint32_t>(done.res)};
  return true;
}

size_t UringPoller::collect(std::span<Ready> out) {
  size_t count = 0;
  io_uring_cqe* done = nullptr;
  while (count < out.size() && io_uring_peek_cqe(&ring_, &done) == 0) {
    if (take(*done, out[count])) ++count;
    io_uring_cqe_seen(&ring_, done);
  }
  return count;
}

std::optional<size_t> UringPoller::wait(std::span<Ready> out, Time until) {
  if (is_lost_.exchange(false)) return std::nullopt;
  const bool is_all = carry_out_notes();
  if (retiring_count_ != 0) return retire_noted(out);
  const Duration left =
      until == kNever ? kLongestSleep : std::min(until - base::now(), kLongestSleep);
  __kernel_timespec most{};
  if (is_all && left.ns > 0) most = {left.ns / 1'000'000'000, left.ns % 1'000'000'000};
  io_uring_cqe* done = nullptr;
  ++base::effort.system_calls;
  const int error = io_uring_submit_and_wait_timeout(&ring_, &done, 1, &most, nullptr);
  if (error == -EBADF || error == -EBADFD || error == -EOPNOTSUPP || error == -EINVAL) {
    return std::nullopt;
  }
  return collect(out);
}

}  // namespace

std::unique_ptr<Poller> make_uring_poller() {
  std::unique_ptr<UringPoller> made(new (std::nothrow) UringPoller);
  if (!made || !made->open()) return nullptr;
  return made;
}

}  // namespace ddpsock::message
