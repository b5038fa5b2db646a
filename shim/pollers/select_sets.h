// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The descriptor sets of a select(), of any length: programs allocate longer ones than FD_SETSIZE.
// And what they ask for as poll() has it.
#ifndef DDPSOCK_SHIM_POLLERS_SELECT_SETS_H_
#define DDPSOCK_SHIM_POLLERS_SELECT_SETS_H_

#include <poll.h>
#include <string.h>
#include <sys/select.h>

#include <array>
#include <cstddef>
#include <span>

#include "shim/program_memory.h"

namespace ddpsock::shim {

constexpr int kBitsPerWord = 8 * sizeof(unsigned long);

inline unsigned long* words_of(fd_set* set) {
  return reinterpret_cast<unsigned long*>(set);
}
inline unsigned long word_of(const fd_set* set, int number) {
  return set != nullptr ? reinterpret_cast<const unsigned long*>(set)[number] : 0;
}
inline bool is_in(const fd_set* set, int fd) {
  return (word_of(set, fd / kBitsPerWord) >> (fd % kBitsPerWord) & 1) != 0;
}
inline size_t bytes_for(int count) {
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
};

// The descriptors below `count` that are in the sets, if they are not too many to be looked at.
class SelectedFds {
 public:
  SelectedFds(const SelectSets& sets, int count);

  bool is_whole() const { return is_whole_; }
  std::span<pollfd> asked() { return {fds_.data(), size_}; }
  // What was asked has its answer, which goes into the sets. The number of bits there; -1, and the
  // sets are as they were: one of the descriptors is none.
  int answer() const;

 private:
  static constexpr size_t kMost = 64;

  const SelectSets& sets_;
  const int count_;
  std::array<pollfd, kMost> fds_;
  size_t size_ = 0;
  bool is_whole_ = true;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_SELECT_SETS_H_
