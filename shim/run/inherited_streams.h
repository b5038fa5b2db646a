// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which streams of this process a program finds that is about to be executed, and under which
// numbers. Asked where memory may not be allocated (exec.cpp).
#ifndef DDPSOCK_SHIM_RUN_INHERITED_STREAMS_H_
#define DDPSOCK_SHIM_RUN_INHERITED_STREAMS_H_

#include <spawn.h>

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>

#include "shim/fd_table.h"
#include "shim/stream_call.h"
#include "stream/stream.h"

namespace ddpsock::shim {

// Has the table a stream at `fd`?
inline bool is_stream(int fd) {
  if (!is_ours(fd)) return false;
  const SocketUse use(fd);
  return use && has_live_stream(use.phase());
}

// Streams' sockets that a program inherits under numbers of which the table knows nothing, or, as
// it is the parent's in a vfork child, something else.
class OtherNumbers {
 public:
  OtherNumbers();
  // Then there may be more.
  bool is_full() const { return count_ == numbers_.size(); }
  // The `index`-th of those under which a socket of this cookie is open too; -1: there are not so
  // many.
  int number_of(uint64_t cookie, size_t index = 0) const;

 private:
  struct Number {
    int fd;
    uint64_t cookie;
  };

  void note(int fd);

  static constexpr size_t kBits = 4096;

  // Of all streams' cookies the rest: most sockets are seen not to be one's.
  std::bitset<kBits> cookies_;
  std::array<Number, 64> numbers_;
  size_t count_ = 0;
};

class InheritedStreams {
 public:
  // `actions`: what posix_spawn does first, or null. `is_beside`: this process, or the one whose
  // vfork child this is, goes on beside the program.
  InheritedStreams(const posix_spawn_file_actions_t* actions, bool is_beside);
  InheritedStreams(const InheritedStreams&) = delete;
  InheritedStreams& operator=(const InheritedStreams&) = delete;

  // visit(fd, at) for each: the table's number, and where it is open, which is another in a vfork
  // child that has closed or replaced it.
  template <typename Visit>
  void visit(Visit visit) const {
    for (size_t i = 0; i < count_; ++i)
      if (is_first_of_its_stream(i)) visit(left_[i].fd, left_[i].at);
    for (int fd = next_; fd < end_; ++fd)
      if (const int at = number_left(fd); at >= 0) visit(fd, at);
  }
  // Or may there be one that could not be found?
  bool is_any() const { return count_ > 0 || next_ < end_ || !are_all_known_; }

  // Is the program started for the stream at `fd`? That is so under 0 to 2, as inetd's are, and
  // where a number was made for it. Others it has by accident; and also, under any number, what
  // this program was given so itself, which answers there behind what it starts beside it, or what
  // strayed to it in the same way.
  bool is_meant(int fd) const;
  // Those of the program's 0 to 2, a bit for each, that have strayed there.
  unsigned strayed() const;

 private:
  // The stream that the table has at `fd`, and which is open at `at`, is the program's `number`.
  struct Left {
    int fd, at, number;
    bool is_made;       // for the program
    bool is_inherited;  // false: close-on-exec
  };

  void find(int fd);
  void add(Left left);
  void remove_from(int first, int last);
  void apply();
  void apply_dup2(int from, int to);
  int number_left(int fd) const;
  bool is_first_of_its_stream(size_t i) const;
  bool does_stray(int fd) const;

  const posix_spawn_file_actions_t* const actions_;
  const bool is_beside_;
  const OtherNumbers others_;
  std::array<Left, 64> left_;
  size_t count_ = 0;
  const int end_ = fds_end();  // what others open meanwhile is not meant
  int next_ = 0;  // from here on they are looked for anew, and what is done to them is not known
  bool are_all_known_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_INHERITED_STREAMS_H_
