// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/stat/snapshot.h"

#include <errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <tuple>

#include "shm/lane.h"

namespace ddpsock::stat {
namespace {

constexpr char kRings[] = "it has io_uring, by which its sockets are taken to be used";

using Secret = std::array<uint8_t, 16>;

const char* obstacle_for(int error) {
  switch (error) {
    case ENOEXEC:
      return "runs another build of ddpsock, whose statistics cannot be read";
    case EAGAIN:
      return "";  // has just begun
    case EPROTO:
      return "what it shows as its statistics is not that";
    default:
      return "its statistics cannot be read";
  }
}

// More than a ring holds means that the two numbers were not read at one moment, or are a lie.
std::optional<uint64_t> bytes_between(uint64_t read, uint64_t written) {
  const uint64_t n = written - read;
  if (n <= engine::shm::kRingSize) return n;
  return written < read ? std::optional<uint64_t>(0) : std::nullopt;
}

void measure_rings(std::vector<Connection>& connections) {
  std::map<std::pair<Secret, bool>, const Connection*> ends;
  for (const Connection& c : connections)
    if (c.data.secret != Secret{}) ends[{c.data.secret, c.data.is_initiator}] = &c;
  for (Connection& c : connections) {
    if (!c.data.is_in_memory) continue;
    const auto peer = ends.find({c.data.secret, !c.data.is_initiator});
    if (peer == ends.end()) continue;
    const engine::ConnectionStatistics& there = peer->second->data;
    c.ring_to_read = bytes_between(c.data.ring_read, there.ring_written);
    c.ring_to_peer = bytes_between(there.ring_read, c.data.ring_written);
  }
}

bool is_port(const std::string& wanted, const engine::ConnectionStatistics& c) {
  return wanted == ":" + std::to_string(c.local.port) ||
         wanted == ":" + std::to_string(c.remote.port);
}

using Members = std::map<std::pair<FileId, int>, size_t>;  // by arena and pid inside

const ArenaContents* find_arena(const std::vector<ArenaContents>& arenas, const FileId& id) {
  const auto found = std::ranges::find(arenas, id, &ArenaContents::id);
  return found != arenas.end() ? &*found : nullptr;
}

// The rows of those that use the library, and which row is whose.
Members add_processes(const Scan& scan, const std::vector<ArenaContents>& arenas,
                      std::vector<ProcessRow>& rows) {
  Members members;
  for (const Process& p : scan.processes) {
    const ArenaContents* arena = p.has_arena() ? find_arena(arenas, p.arena) : nullptr;
    const char* obstacle = "";
    if (arena != nullptr && arena->obstacle != nullptr) {
      obstacle = arena->obstacle;
    } else if (arena != nullptr) {
      const bool is_member =
          p.is_mapped ||
          std::ranges::find(arena->statistics.processes, p.pid_inside,
                            &engine::ProcessStatistics::pid) != arena->statistics.processes.end();
      if (!is_member) continue;
    } else if (p.has_arena()) {
      obstacle = "has closed the descriptor of its statistics";
    }
    if (p.has_arena()) members.try_emplace({p.arena, p.pid_inside}, rows.size());
    ProcessRow& row = rows.emplace_back();
    row.pid = p.pid;
    row.program = p.program;
    row.obstacle = obstacle;
    // Nothing tells of a process that never had a stream; this is why it has none.
    if (!p.has_arena() && p.has_ring) row.plain_reason = kRings;
  }
  return members;
}

}  // namespace

Snapshot join(const Scan& scan, std::vector<ArenaContents> arenas) {
  Snapshot snapshot;
  snapshot.hidden = scan.hidden;
  const Members members = add_processes(scan, arenas, snapshot.processes);
  for (ArenaContents& arena : arenas) {
    for (engine::ProcessStatistics& p : arena.statistics.processes) {
      const auto member = members.find({arena.id, p.pid});
      if (member == members.end()) continue;
      ProcessRow& row = snapshot.processes[member->second];
      row.plain = p.plain_connections;
      if (row.plain > 0) row.plain_reason = std::move(p.last_plain_reason);
    }
    for (engine::ConnectionStatistics& data : arena.statistics.connections) {
      Connection c;
      c.key = {arena.id, data.index, data.cookie};
      for (const int holder : data.holders) {
        const auto member = members.find({arena.id, holder});
        if (member == members.end()) continue;
        ProcessRow& row = snapshot.processes[member->second];
        ++row.connections;
        c.holders.push_back(row.pid);
        if (c.pid == 0) std::tie(c.pid, c.program) = std::tie(row.pid, row.program);
      }
      if (c.holders.empty()) continue;
      c.data = std::move(data);
      snapshot.connections.push_back(std::move(c));
    }
  }
  std::ranges::sort(snapshot.connections, {},
                    [](const Connection& c) { return std::tuple(c.pid, c.data.opened_as, c.key); });
  measure_rings(snapshot.connections);
  return snapshot;
}

std::optional<Snapshot> take_snapshot() {
  Scan scan;
  if (!scan_processes(scan)) return std::nullopt;
  std::vector<ArenaContents> arenas;
  for (const Process& p : scan.processes) {
    if (!p.arena_fd.is_valid() || find_arena(arenas, p.arena) != nullptr) continue;
    ArenaContents& arena = arenas.emplace_back();
    arena.id = p.arena;
    if (auto read = engine::read_arena(p.arena_fd.get()); read) {
      arena.statistics = std::move(*read);
    } else {
      arena.obstacle = obstacle_for(to_int(read.error()));
    }
  }
  Snapshot snapshot = join(scan, std::move(arenas));
  snapshot.at = base::now();
  using std::chrono::milliseconds, std::chrono::system_clock;
  snapshot.unix_ms =
      std::chrono::duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return snapshot;
}

void filter(Snapshot& snapshot, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return;
  const auto names = [&](int pid, const std::string& program) {
    return std::ranges::any_of(
        wanted, [&](const std::string& w) { return w == program || w == std::to_string(pid); });
  };
  std::erase_if(snapshot.connections, [&](const Connection& c) {
    const bool is_held = std::ranges::any_of(c.holders, [&](int pid) { return names(pid, ""); });
    const bool is_met =
        std::ranges::any_of(wanted, [&](const std::string& w) { return is_port(w, c.data); });
    return !is_held && !is_met && !names(c.pid, c.program);
  });
  std::erase_if(snapshot.processes, [&](const ProcessRow& p) {
    return !names(p.pid, p.program) &&
           std::ranges::none_of(snapshot.connections, [&](const Connection& c) {
             return std::ranges::find(c.holders, p.pid) != c.holders.end();
           });
  });
}

}  // namespace ddpsock::stat
