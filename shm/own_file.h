// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A memfd that stays open for peers to take from /proc/PID/fd, for as long as this object lives:
// not in forked children, which close it, and not in place of another that the program has put at
// its number since (closefrom).
#ifndef DDPSOCK_SHM_OWN_FILE_H_
#define DDPSOCK_SHM_OWN_FILE_H_

#include <cstddef>

#include "base/fd.h"
#include "shm/sealed_file.h"

namespace ddpsock::engine::shm {

class OwnFile {
 public:
  // None, where `fd` is not valid.
  explicit OwnFile(base::UniqueFd fd);
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  // -1: there is none.
  int number() const { return fd_.get(); }

 private:
  base::UniqueFd fd_;
  const FileId id_;
  const size_t place_;  // among those that children close
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_OWN_FILE_H_
