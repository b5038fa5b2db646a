// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// poll, ppoll, select and pselect: the kernel's, corrected where readiness.h says.
#include <errno.h>
#include <string.h>

#include "base/wake.h"
#include "shim/calls.h"
#include "shim/fd_table.h"
#include "shim/pollers/memory_glances.h"
#include "shim/pollers/readiness.h"
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

void await_bytes_in_memory(const pollfd* fds, nfds_t count) {
  MemoryGlances glances;
  for (nfds_t i = 0; i < count; ++i)
    if (is_served(fds[i].fd) && (fds[i].events & kReadable) != 0) glances.add(fds[i].fd);
  glances.await_bytes();
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

// `wait(deadline)` is the kernel's poll for the rest of the time.
template <typename Wait>
int poll_corrected(pollfd* fds, nfds_t count, const PollDeadline& deadline, Wait wait) {
  for (;;) {
    if (!deadline.is_over()) await_bytes_in_memory(fds, count);
    const int reported = wait(deadline);
    if (reported <= 0) return reported;
    const int left = reported - withdraw_untrue(fds, count);
    if (left > 0 || deadline.is_over()) return left;
    if (!deadline.rest_after_vain_round()) return -1;
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

// Descriptor sets of any length: programs allocate longer ones than FD_SETSIZE. What a retry needs
// is kept on the stack; longer sets than this are not corrected.
constexpr int kMostSelected = 4096;
constexpr int kBitsPerWord = 8 * sizeof(unsigned long);
using SetWords = unsigned long[kMostSelected / kBitsPerWord];

unsigned long* words_of(fd_set* set) {
  return reinterpret_cast<unsigned long*>(set);
}
bool is_in(const fd_set* set, int fd) {
  return set != nullptr &&
         (reinterpret_cast<const unsigned long*>(set)[fd / kBitsPerWord] >> (fd % kBitsPerWord) &
          1) != 0;
}
size_t bytes_for(int count) {
  return static_cast<size_t>((count + kBitsPerWord - 1) / kBitsPerWord) * sizeof(unsigned long);
}

struct SelectSets {
  fd_set* readers;
  fd_set* writers;
  fd_set* others;

  bool are_sound(int count) const {
    if (count <= 0) return true;
    const size_t size = bytes_for(count);
    return (readers == nullptr || is_sound(readers, size)) &&
           (writers == nullptr || is_sound(writers, size)) &&
           (others == nullptr || is_sound(others, size));
  }
  bool is_any_correctable(int count) const {
    for (int fd = 0; fd < count; ++fd)
      if (is_served(fd) && (is_in(readers, fd) || is_in(writers, fd)) &&
          is_correctable(fd, is_in(readers, fd), is_in(writers, fd)))
        return true;
    return false;
  }

  void await_bytes_in_memory(int count) const {
    MemoryGlances glances;
    for (int fd = 0; fd < count; ++fd)
      if (is_served(fd) && is_in(readers, fd)) glances.add(fd);
    glances.await_bytes();
  }

  void leave_sets_to_kernel(int count) const {
    tell_kernel();
    if (!is_any_set_watched() || count > kMostSelected) return;
    for (int fd = 0; fd < count; ++fd)
      if (is_in(readers, fd)) share_set(fd);
  }

  int withdraw_untrue(int count) const {
    int withdrawn = 0;
    for (int fd = 0; fd < count; ++fd) {
      if (!is_ours(fd) || (!is_in(readers, fd) && !is_in(writers, fd))) continue;
      // select() does not tell data, or room, from an end.
      const bool is_data = is_in(readers, fd) && is_correctable(fd, true, false) && !has_ended(fd);
      if (!is_report_true(fd, is_data)) withdrawn += remove(readers, fd);
      if (is_in(writers, fd) && may_be_full(fd) && !has_ended(fd) && !is_room_report_true(fd))
        withdrawn += remove(writers, fd);
    }
    return withdrawn;
  }

 private:
  static int remove(fd_set* set, int fd) {
    words_of(set)[fd / kBitsPerWord] &= ~(1ul << (fd % kBitsPerWord));
    return 1;
  }
};

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
    if (!deadline.is_over()) sets.await_bytes_in_memory(count);
    const int reported = wait(deadline);
    if (reported <= 0) return reported;
    const int left = reported - sets.withdraw_untrue(count);
    if (left > 0 || deadline.is_over()) return left;
    saved.restore();
    if (!deadline.rest_after_vain_round()) return -1;
  }
}

bool passes(const SelectSets& sets, int count) {
  return count < 0 || count > kMostSelected || !sets.is_any_correctable(count);
}

}  // namespace

int own_poll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (!is_sound_array(fds, count)) return real.poll(fds, count, timeout_ms);
  leave_sets_to_kernel(fds, count);
  if (!is_any_ours()) [[likely]]
    return real.poll(fds, count, timeout_ms);
  const bool is_correctable = is_any_correctable(fds, count);
  if (!is_correctable && !engine::MemoryPart::is_memory_in_use())
    return add_kept_errors(fds, count,
                           base::woken(real.poll(fds, count, timeout_ms), timeout_ms != 0));
  const auto wait = [=](const PollDeadline& deadline) {
    return base::woken(real.poll(fds, count, deadline.left_ms()), timeout_ms != 0);
  };
  const PollDeadline deadline = PollDeadline::after_ms(timeout_ms);
  return is_correctable ? add_kept_errors(fds, count, poll_corrected(fds, count, deadline, wait))
                        : poll_for_ends(fds, count, deadline, wait);
}

int own_ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!is_sound_array(fds, count)) return real.ppoll(fds, count, timeout, mask);
  leave_sets_to_kernel(fds, count);
  if (!is_any_ours() || !is_timeout(timeout)) [[likely]]
    return real.ppoll(fds, count, timeout, mask);
  const bool may_sleep = !is_zero(timeout);
  const bool is_correctable = is_any_correctable(fds, count);
  if (!is_correctable && !engine::MemoryPart::is_memory_in_use())
    return add_kept_errors(fds, count,
                           base::woken(real.ppoll(fds, count, timeout, mask), may_sleep));
  const auto wait = [=](const PollDeadline& deadline) {
    timespec left;
    return base::woken(real.ppoll(fds, count, deadline.left(left), mask), may_sleep);
  };
  const PollDeadline deadline = PollDeadline::after(timeout, mask);
  return is_correctable ? add_kept_errors(fds, count, poll_corrected(fds, count, deadline, wait))
                        : poll_for_ends(fds, count, deadline, wait);
}

int own_select(int count, fd_set* readers, fd_set* writers, fd_set* others, timeval* timeout) {
  const SelectSets sets{readers, writers, others};
  if (!sets.are_sound(count)) return real.select(count, readers, writers, others, timeout);
  sets.leave_sets_to_kernel(count);
  const bool is_time = timeout == nullptr || (timeout->tv_sec >= 0 && timeout->tv_usec >= 0);
  if (!is_any_ours() || !is_time) [[likely]]
    return real.select(count, readers, writers, others, timeout);
  timespec whole{};
  if (timeout != nullptr) whole = {.tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec * 1000};
  const bool may_sleep = timeout == nullptr || !is_zero(&whole);
  if (passes(sets, count))
    return base::woken(real.select(count, readers, writers, others, timeout), may_sleep);
  const PollDeadline deadline = PollDeadline::after(timeout != nullptr ? &whole : nullptr);
  const int result = select_corrected(sets, count, deadline, [=](const PollDeadline& d) {
    timespec left;
    const timespec* rest = d.left(left);
    timeval tv{};
    if (rest != nullptr) tv = {.tv_sec = rest->tv_sec, .tv_usec = rest->tv_nsec / 1000};
    return base::woken(
        real.select(count, readers, writers, others, rest != nullptr ? &tv : nullptr), may_sleep);
  });
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
  sets.leave_sets_to_kernel(count);
  if (!is_any_ours() || !is_timeout(timeout)) [[likely]]
    return real.pselect(count, readers, writers, others, timeout, mask);
  const bool may_sleep = !is_zero(timeout);
  if (passes(sets, count))
    return base::woken(real.pselect(count, readers, writers, others, timeout, mask), may_sleep);
  return select_corrected(
      sets, count, PollDeadline::after(timeout, mask), [=](const PollDeadline& deadline) {
        timespec left;
        return base::woken(real.pselect(count, readers, writers, others, deadline.left(left), mask),
                           may_sleep);
      });
}

}  // namespace ddpsock::shim
