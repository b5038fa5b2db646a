// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// poll, ppoll, select and pselect: the kernel's, corrected where readiness.h says, and memory's
// where that knows (memory_answer.h).
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "base/wake.h"
#include "shim/calls.h"
#include "shim/fd_table.h"
#include "shim/pollers/memory_answer.h"
#include "shim/pollers/readiness.h"
#include "shim/pollers/select_sets.h"
#include "shim/pollers/watched_sets.h"
#include "shim/program_memory.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

constexpr short kReadable = POLLIN | POLLRDNORM;
// With these a recv() returns at once; and to look for a whole FPDU would take the error away.
constexpr short kEnded = POLLERR | POLLHUP;

constexpr short kWritable = POLLOUT | POLLWRNORM;

// Readable, and not merely at an end.
bool is_readable(short events) {
  return (events & kReadable) != 0 && (events & kEnded) == 0;
}
bool is_writable(short events) {
  return (events & kWritable) != 0 && (events & kEnded) == 0;
}

bool is_zero(const timespec* timeout) {
  return timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
}

bool has_ended(int fd) {
  pollfd now{fd, 0, 0};
  return real.poll(&now, 1, 0) > 0;
}

bool is_correctable(int fd, bool is_for_reading, bool is_for_writing) {
  return needs_correction(fd, is_for_reading) || (is_for_reading && may_hear_bells(fd)) ||
         (is_for_writing && may_be_full(fd));
}

// Who asks about a set from outside relies on the kernel.
void leave_sets_to_kernel(const pollfd* fds, nfds_t count) {
  tell_kernel();
  if (!is_any_set_watched()) return;
  for (nfds_t i = 0; i < count; ++i) share_set(fds[i].fd);
}

bool is_any_served(const pollfd* fds, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i)
    if (is_served(fds[i].fd)) return true;
  return false;
}

bool is_any_correctable(const pollfd* fds, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i)
    if (is_served(fds[i].fd) && is_correctable(fds[i].fd, (fds[i].events & kReadable) != 0,
                                               (fds[i].events & kWritable) != 0))
      return true;
  return false;
}

bool is_any_end_untrue(const pollfd* fds, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i)
    if ((fds[i].revents & kEnded) != 0 && untrue_at_end(fds[i].fd) != 0) return true;
  return false;
}

// Corrects what was reported; returns how many descriptors have nothing left to report.
int withdraw_untrue(pollfd* fds, nfds_t count) {
  int withdrawn = 0;
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].revents == 0) continue;
    short untrue = 0;
    if (!is_report_true(fds[i].fd, is_readable(fds[i].revents))) untrue |= kReadable;
    if (is_writable(fds[i].revents) && !is_room_report_true(fds[i].fd)) untrue |= kWritable;
    if ((fds[i].revents & kEnded) != 0) untrue |= untrue_at_end(fds[i].fd);
    fds[i].revents = static_cast<short>(fds[i].revents & ~untrue);
    if (fds[i].revents == 0) ++withdrawn;
  }
  return withdrawn;
}

bool has_end(const pollfd* fds, nfds_t count) {
  short all = 0;
  for (nfds_t i = 0; i < count; ++i) all |= fds[i].revents;
  return (all & kEnded) != 0;
}

// Where the kernel has told its error to a call that keeps it for the next one: the end is left.
int add_kept_errors(pollfd* fds, nfds_t count, int reported) {
  if (reported <= 0 || !has_end(fds, count)) [[likely]]
    return reported;
  for (nfds_t i = 0; i < count; ++i)
    if ((fds[i].revents & kEnded) == POLLHUP && has_kept_error(fds[i].fd))
      fds[i].revents |= POLLERR;
  return reported;
}

// With what only the kernel knows, where it has to be asked.
int report(MemoryAnswer& look, std::span<pollfd> asked) {
  int others = 0;
  for (bool is_asked = look.needs_kernel(); is_asked;) {
    const base::KeepErrno keep;
    const int reported = real.poll(asked.data(), asked.size(), 0);
    if (reported < 0) return 0;
    look.leave_to_kernel();
    withdraw_untrue(asked.data(), asked.size());
    add_kept_errors(asked.data(), asked.size(), reported);
    const auto now = std::count_if(asked.begin(), asked.end(),
                                   [](const pollfd& one) { return one.revents != 0; });
    // Nothing is left out that was ready before another's report: it may be known to memory, and
    // so on.
    is_asked = now > std::exchange(others, now) && look.find();
  }
  return look.put();
}

// Of streams that are always ready by the time that they were awaited, the kernel would never be
// asked with the mask. A thread's own.
[[gnu::tls_model("initial-exec")]] thread_local constinit Time mask_asked_at{};
[[gnu::tls_model("initial-exec")]] thread_local constinit uint64_t mask_asked = 0;

// True: it came, and errno says so.
bool is_signal_let_in(const sigset_t& mask) {
  constexpr Duration kEvery = Duration::from_ms(1);
  uint64_t signals;
  memcpy(&signals, &mask, sizeof signals);  // as many as the kernel has
  const Time now = base::now();
  if (signals == mask_asked && now - mask_asked_at < kEvery) return false;
  mask_asked = signals;
  mask_asked_at = now;
  const timespec at_once{};
  return real.ppoll(nullptr, 0, &at_once, &mask) != 0;
}

// What is ready, if memory knows of something that is; it is awaited a little if `may_sleep`. 0:
// the kernel is to be asked. -1: a signal came that `mask` lets in. Apart from its caller for its
// stack.
template <unsigned kItems>
[[gnu::noinline]] int look_in_memory(std::span<pollfd> asked, bool may_sleep,
                                     const sigset_t* mask) {
  MemoryAnswer::Room<kItems> room;
  MemoryAnswer look(asked, room);
  if (!look.find()) {
    if (may_sleep && mask != nullptr && is_signal_let_in(*mask)) return -1;
    if (may_sleep) look.spin();
    if (!look.has_found()) look.settle();
    look.find();
  }
  return look.has_found() ? report(look, asked) : 0;
}

int look_in_memory(std::span<pollfd> asked, const PollDeadline& deadline) {
  if (!engine::MemoryPart::is_memory_in_use()) return 0;
  const unsigned places = MemoryAnswer::places_for(asked);
  const bool may_look = deadline.mask() == nullptr || is_sound(deadline.mask(), sizeof(uint64_t));
  if (places == 0 || places > MemoryAnswer::kMost || !may_look) return 0;
  base::cancellation_point();
  const bool may_sleep = !deadline.is_over();
  return places <= MemoryAnswer::kFew
             ? look_in_memory<MemoryAnswer::kFew>(asked, may_sleep, deadline.mask())
             : look_in_memory<MemoryAnswer::kMost>(asked, may_sleep, deadline.mask());
}

// `wait(deadline)` is the kernel's poll for the rest of the time.
template <typename Wait>
int poll_corrected(pollfd* fds, nfds_t count, const PollDeadline& deadline, Wait wait) {
  for (;;) {
    const int reported = wait(deadline);
    if (reported <= 0) return reported;
    const int left = reported - withdraw_untrue(fds, count);
    if (left > 0 || deadline.is_over()) return left;
    if (!deadline.rest_after_vain_round()) return -1;
    if (const int found = look_in_memory({fds, count}, deadline); found != 0) return found;
  }
}

// Nothing is correctable, unless an end that no program asks for, and each hears of, is untrue.
template <typename Wait>
int poll_for_ends(pollfd* fds, nfds_t count, const PollDeadline& deadline, Wait wait) {
  int reported = wait(deadline);
  if (reported <= 0 || !has_end(fds, count)) [[likely]]
    return reported;
  if (is_any_end_untrue(fds, count)) reported = poll_corrected(fds, count, deadline, wait);
  return add_kept_errors(fds, count, reported);
}

// What a retry needs is kept on the stack; longer sets than this are not corrected.
constexpr int kMostSelected = 4096;
using SetWords = unsigned long[kMostSelected / kBitsPerWord];

bool is_any_served(const SelectSets& sets, int count) {
  if (count > kMostSelected) return false;  // a negative one has none
  for (int fd = 0; fd < count; ++fd)
    if (is_served(fd) && (is_in(sets.readers, fd) || is_in(sets.writers, fd))) return true;
  return false;
}

bool is_any_correctable(const SelectSets& sets, int count) {
  for (int fd = 0; fd < count; ++fd)
    if (is_served(fd) && (is_in(sets.readers, fd) || is_in(sets.writers, fd)) &&
        is_correctable(fd, is_in(sets.readers, fd), is_in(sets.writers, fd)))
      return true;
  return false;
}

int look_in_memory(const SelectSets& sets, int count, const PollDeadline& deadline) {
  if (!engine::MemoryPart::is_memory_in_use()) return 0;
  SelectedFds fds(sets, count);
  if (!fds.is_whole()) return 0;
  const int found = look_in_memory(fds.asked(), deadline);
  return found > 0 ? std::max(fds.answer(), 0) : found;
}

void leave_sets_to_kernel(const SelectSets& sets, int count) {
  tell_kernel();
  if (!is_any_set_watched() || count > kMostSelected) return;
  for (int fd = 0; fd < count; ++fd)
    if (is_in(sets.readers, fd)) share_set(fd);
}

int remove(fd_set* set, int fd) {
  words_of(set)[fd / kBitsPerWord] &= ~(1ul << (fd % kBitsPerWord));
  return 1;
}

int withdraw_untrue(const SelectSets& sets, int count) {
  int withdrawn = 0;
  for (int fd = 0; fd < count; ++fd) {
    const bool is_reader = is_in(sets.readers, fd), is_writer = is_in(sets.writers, fd);
    if (!is_ours(fd) || (!is_reader && !is_writer)) continue;
    // select() does not tell data, or room, from an end.
    const bool is_data = is_reader && is_correctable(fd, true, false) && !has_ended(fd);
    if (!is_report_true(fd, is_data)) withdrawn += remove(sets.readers, fd);
    if (is_writer && may_be_full(fd) && !has_ended(fd) && !is_room_report_true(fd))
      withdrawn += remove(sets.writers, fd);
  }
  return withdrawn;
}

// What the program asked for, to ask it again.
class SavedSets {
 public:
  SavedSets(const SelectSets& sets, int count) : sets_(sets), bytes_(bytes_for(count)) {
    copy(readers_, sets.readers);
    copy(writers_, sets.writers);
    copy(others_, sets.others);
  }
  void restore() const {
    copy(sets_.readers, readers_);
    copy(sets_.writers, writers_);
    copy(sets_.others, others_);
  }

 private:
  void copy(unsigned long* to, const fd_set* from) const {
    if (from != nullptr) memcpy(to, from, bytes_);
  }
  void copy(fd_set* to, const unsigned long* from) const {
    if (to != nullptr) memcpy(to, from, bytes_);
  }

  const SelectSets& sets_;
  size_t bytes_;
  SetWords readers_, writers_, others_;
};

template <typename Wait>
int select_corrected(const SelectSets& sets, int count, const PollDeadline& deadline, Wait wait) {
  const SavedSets saved(sets, count);
  for (;;) {
    const int reported = wait(deadline);
    if (reported <= 0) return reported;
    const int left = reported - withdraw_untrue(sets, count);
    if (left > 0 || deadline.is_over()) return left;
    saved.restore();
    if (!deadline.rest_after_vain_round()) return -1;
    if (const int found = look_in_memory(sets, count, deadline); found != 0) return found;
  }
}

}  // namespace

int own_poll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (!is_sound_array(fds, count)) return real.poll(fds, count, timeout_ms);
  leave_sets_to_kernel(fds, count);
  if (!is_any_ours()) [[likely]]
    return real.poll(fds, count, timeout_ms);
  const bool is_any = is_any_served(fds, count);
  const PollDeadline deadline = PollDeadline::after_ms(timeout_ms);
  if (const int found = is_any ? look_in_memory({fds, count}, deadline) : 0; found != 0)
    return found;
  const bool is_correctable = is_any && is_any_correctable(fds, count);
  if (!is_correctable && !engine::MemoryPart::is_memory_in_use())
    return add_kept_errors(fds, count,
                           base::woken(real.poll(fds, count, timeout_ms), timeout_ms != 0));
  const auto wait = [=](const PollDeadline& d) {
    return base::woken(real.poll(fds, count, d.left_ms()), timeout_ms != 0);
  };
  return is_correctable ? add_kept_errors(fds, count, poll_corrected(fds, count, deadline, wait))
                        : poll_for_ends(fds, count, deadline, wait);
}

int own_ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!is_sound_array(fds, count)) return real.ppoll(fds, count, timeout, mask);
  leave_sets_to_kernel(fds, count);
  if (!is_any_ours() || !is_timeout(timeout)) [[likely]]
    return real.ppoll(fds, count, timeout, mask);
  const bool is_any = is_any_served(fds, count);
  const PollDeadline deadline = PollDeadline::after(timeout, mask);
  if (const int found = is_any ? look_in_memory({fds, count}, deadline) : 0; found != 0)
    return found;
  const bool may_sleep = !is_zero(timeout);
  const bool is_correctable = is_any && is_any_correctable(fds, count);
  if (!is_correctable && !engine::MemoryPart::is_memory_in_use())
    return add_kept_errors(fds, count,
                           base::woken(real.ppoll(fds, count, timeout, mask), may_sleep));
  const auto wait = [=](const PollDeadline& d) {
    timespec left;
    return base::woken(real.ppoll(fds, count, d.left(left), mask), may_sleep);
  };
  return is_correctable ? add_kept_errors(fds, count, poll_corrected(fds, count, deadline, wait))
                        : poll_for_ends(fds, count, deadline, wait);
}

int own_select(int count, fd_set* readers, fd_set* writers, fd_set* others, timeval* timeout) {
  const SelectSets sets{readers, writers, others};
  if (!sets.are_sound(count)) return real.select(count, readers, writers, others, timeout);
  leave_sets_to_kernel(sets, count);
  const bool is_time = timeout == nullptr || (timeout->tv_sec >= 0 && timeout->tv_usec >= 0);
  if (!is_any_ours() || !is_time) [[likely]]
    return real.select(count, readers, writers, others, timeout);
  timespec whole{};
  if (timeout != nullptr) whole = {.tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec * 1000};
  const bool may_sleep = timeout == nullptr || !is_zero(&whole);
  if (!is_any_served(sets, count))
    return base::woken(real.select(count, readers, writers, others, timeout), may_sleep);
  const PollDeadline deadline = PollDeadline::after(timeout != nullptr ? &whole : nullptr);
  int result = look_in_memory(sets, count, deadline);
  if (result == 0 && !is_any_correctable(sets, count))
    return base::woken(real.select(count, readers, writers, others, timeout), may_sleep);
  if (result == 0) {
    result = select_corrected(sets, count, deadline, [=](const PollDeadline& d) {
      timespec left;
      const timespec* rest = d.left(left);
      timeval tv{};
      if (rest != nullptr) tv = {.tv_sec = rest->tv_sec, .tv_usec = rest->tv_nsec / 1000};
      return base::woken(
          real.select(count, readers, writers, others, rest != nullptr ? &tv : nullptr), may_sleep);
    });
  }
  // Linux writes the time that is left back.
  timespec left;
  if (timeout != nullptr && deadline.left(left) != nullptr)
    *timeout = {.tv_sec = left.tv_sec, .tv_usec = left.tv_nsec / 1000};
  return result;
}

int own_pselect(int count, fd_set* readers, fd_set* writers, fd_set* others,
                const timespec* timeout, const sigset_t* mask) {
  const SelectSets sets{readers, writers, others};
  if (!sets.are_sound(count)) return real.pselect(count, readers, writers, others, timeout, mask);
  leave_sets_to_kernel(sets, count);
  if (!is_any_ours() || !is_timeout(timeout)) [[likely]]
    return real.pselect(count, readers, writers, others, timeout, mask);
  const bool may_sleep = !is_zero(timeout);
  if (!is_any_served(sets, count))
    return base::woken(real.pselect(count, readers, writers, others, timeout, mask), may_sleep);
  const PollDeadline deadline = PollDeadline::after(timeout, mask);
  if (const int found = look_in_memory(sets, count, deadline); found != 0) return found;
  if (!is_any_correctable(sets, count))
    return base::woken(real.pselect(count, readers, writers, others, timeout, mask), may_sleep);
  return select_corrected(sets, count, deadline, [=](const PollDeadline& d) {
    timespec left;
    return base::woken(real.pselect(count, readers, writers, others, d.left(left), mask),
                       may_sleep);
  });
}

}  // namespace ddpsock::shim
