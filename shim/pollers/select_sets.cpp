// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/select_sets.h"

#include <algorithm>
#include <bit>

namespace ddpsock::shim {
namespace {

// As Linux has it.
constexpr short kIn = POLLIN | POLLRDNORM | POLLRDBAND, kInEnded = POLLHUP | POLLERR;
constexpr short kOut = POLLOUT | POLLWRNORM | POLLWRBAND, kOutEnded = POLLERR;

short events_of(const SelectSets& sets, int fd) {
  short events = 0;
  if (is_in(sets.readers, fd)) events |= kIn;
  if (is_in(sets.writers, fd)) events |= kOut;
  if (is_in(sets.others, fd)) events |= POLLPRI;
  return events;
}

void clear(fd_set* set, int count) {
  if (set != nullptr) memset(set, 0, bytes_for(count));
}

int put(fd_set* set, int fd) {
  words_of(set)[fd / kBitsPerWord] |= 1ul << (fd % kBitsPerWord);
  return 1;
}

}  // namespace

SelectedFds::SelectedFds(const SelectSets& sets, int count) : sets_(sets), count_(count) {
  for (int first = 0; first < count; first += kBitsPerWord) {
    const int number = first / kBitsPerWord;
    unsigned long left = word_of(sets.readers, number) | word_of(sets.writers, number) |
                         word_of(sets.others, number);
    if (count - first < kBitsPerWord) left &= (1ul << (count - first)) - 1;
    for (; left != 0; left &= left - 1) {
      if (size_ == kMost) {
        is_whole_ = false;
        return;
      }
      const int fd = first + std::countr_zero(left);
      fds_[size_++] = {fd, events_of(sets, fd), 0};
    }
  }
}

int SelectedFds::answer() const {
  const std::span<const pollfd> all{fds_.data(), size_};
  for (const pollfd& one : all)
    if ((one.revents & POLLNVAL) != 0) return -1;
  const auto is_reader = [](const pollfd& one) {
    return (one.events & kIn) != 0 && (one.revents & (kIn | kInEnded)) != 0;
  };
  const auto is_writer = [](const pollfd& one) {
    return (one.events & kOut) != 0 && (one.revents & (kOut | kOutEnded)) != 0;
  };
  const auto is_other = [](const pollfd& one) { return (one.events & one.revents & POLLPRI) != 0; };
  // What is ready may be nothing that select() tells of; then the sets are asked about again.
  if (std::ranges::none_of(all, [=](const pollfd& one) {
        return is_reader(one) || is_writer(one) || is_other(one);
      }))
    return 0;
  clear(sets_.readers, count_);
  clear(sets_.writers, count_);
  clear(sets_.others, count_);
  int bits = 0;
  for (const pollfd& one : all) {
    if (is_reader(one)) bits += put(sets_.readers, one.fd);
    if (is_writer(one)) bits += put(sets_.writers, one.fd);
    if (is_other(one)) bits += put(sets_.others, one.fd);
  }
  return bits;
}

}  // namespace ddpsock::shim
