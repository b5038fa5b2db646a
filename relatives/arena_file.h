// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_ARENA_FILE_H_
#define DDPSOCK_RELATIVES_ARENA_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace ddpsock::engine {

struct ArenaHead;

// Whose a process is, if it is one user's and one group's; none otherwise.
struct Identity {
  static Identity of_caller();
  bool is_one = false;
  uid_t user = 0;
  gid_t group = 0;
};

// The file of an arena, as this process has it: a descriptor and the mapping of its head. Parts are
// mapped as they come into use; none is ever unmapped. Fixed once made, so any thread may ask.
class ArenaFile {
 public:
  // `head` is mapped from `fd`, which becomes the arena's; -1: memory without a file.
  ArenaFile(ArenaHead& head, int fd);

  ArenaHead& head() const { return head_; }
  // Memory without a file, all of it mapped in one piece behind the head. Nothing survives exec.
  bool is_anonymous() const { return fd_ < 0; }
  // Close-on-exec; -1 where it could not be had (RLIMIT_FSIZE, no memfd).
  int fd() const { return fd_; }
  // The program may have closed or replaced it.
  bool has_fd() const { return is_mine(fd_); }
  // fd(), or where the program has closed or replaced that, another descriptor of the same, from a
  // relative that still has it; the caller gives it back(). -1 if there is none.
  int find_fd() const;
  void give_back(int fd) const;

  // nullptr: no address space for it (RLIMIT_AS), or no descriptor any more.
  void* map_part(size_t offset, size_t size) const;

  // Has this process the users and groups, real, effective and saved, of who made the arena, and
  // would a program that it executes? Else the program could write where that one reads.
  bool is_among_equals() const;

 private:
  bool is_mine(int fd) const;

  ArenaHead& head_;
  const int fd_;
  ino_t inode_ = 0;
  dev_t device_ = 0;
  Identity creator_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_ARENA_FILE_H_
