// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which processes of this user run with the library, as /proc tells. Nothing here stops them, and
// any of them may end between two questions: then it is not there.
#ifndef DDPSOCK_TOOLS_STAT_PROCESSES_H_
#define DDPSOCK_TOOLS_STAT_PROCESSES_H_

#include <sys/types.h>

#include <compare>
#include <string>
#include <vector>

#include "base/fd.h"

namespace ddpsock::stat {

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileId&) const = default;
};

struct Process {
  int pid = 0;
  int pid_inside = 0;  // in its own pid namespace
  std::string program;
  // The memory its streams live in, and a descriptor of it if the process still has one. With one
  // it may as well be somebody who merely looks (ddpstat): the arena tells.
  FileId arena;
  base::UniqueFd arena_fd;
  bool is_mapped = false;  // surely
  bool has_ring = false;   // an io_uring, or the library for them
  bool has_arena() const { return arena != FileId{}; }
};

struct Scan {
  std::vector<Process> processes;  // with the library, or with an arena; by pid
  int hidden = 0;                  // of this user, but /proc does not show what they have
};

// Processes whose effective user is this process's. False: /proc cannot be read.
bool scan_processes(Scan& scan);

// For tests. What /proc/PID/status says, in `text`; false: not such a text.
struct Status {
  std::string program;
  uid_t uid = 0;
  int pid_inside = 0;
};
bool parse_status(const std::string& text, Status& status);

// What /proc/PID/maps says, in `text`: is the library there, and an arena?
struct Maps {
  bool has_library = false;
  bool has_ring_library = false;
  FileId arena;
};
Maps parse_maps(const std::string& text);

}  // namespace ddpsock::stat

#endif  // DDPSOCK_TOOLS_STAT_PROCESSES_H_
