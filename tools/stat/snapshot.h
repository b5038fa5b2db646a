// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What ddpstat knows at one moment: the processes with the library, and the connections that at
// least one of them holds.
#ifndef DDPSOCK_TOOLS_STAT_SNAPSHOT_H_
#define DDPSOCK_TOOLS_STAT_SNAPSHOT_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "relatives/arena_view.h"
#include "tools/stat/processes.h"

namespace ddpsock::stat {

struct ProcessRow {
  int pid = 0;
  std::string program;
  size_t connections = 0;  // in DDPMODE
  uint32_t plain = 0;      // plain TCP connections made so far
  std::string plain_reason;
  std::string obstacle;  // why its connections cannot be seen; "" if they can
};

// A name for a connection from one snapshot to the next.
struct ConnectionKey {
  FileId arena;
  uint32_t index = 0;
  uint64_t cookie = 0;
  auto operator<=>(const ConnectionKey&) const = default;
};

struct Connection {
  ConnectionKey key;
  int pid = 0;  // the first of those that hold it
  std::string program;
  std::vector<int> holders;  // of this user
  engine::ConnectionStatistics data;
  // Bytes that lie in shared memory, not read yet; nullopt: not known, as the peer cannot be seen.
  std::optional<uint64_t> ring_to_read, ring_to_peer;

  std::string engine() const {
    if (data.is_message) return data.engine;
    return data.is_in_memory ? "shm" : "user";
  }
};

struct Snapshot {
  Time at{};
  int64_t unix_ms = 0;
  std::vector<ProcessRow> processes;    // by pid
  std::vector<Connection> connections;  // by pid and descriptor
  int hidden = 0;
};

// nullopt: /proc cannot be read.
std::optional<Snapshot> take_snapshot();

// For tests: what the arenas say about the processes found.
struct ArenaContents {
  FileId id;
  engine::ArenaStatistics statistics;
  const char* obstacle = nullptr;  // it cannot be read, and why
};
Snapshot join(const Scan& scan, std::vector<ArenaContents> arenas);

// Drops what does not match any of `wanted` (pid, program, or :PORT of either end), if there is
// any.
void filter(Snapshot& snapshot, const std::vector<std::string>& wanted);

}  // namespace ddpsock::stat

#endif  // DDPSOCK_TOOLS_STAT_SNAPSHOT_H_
