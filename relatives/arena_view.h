// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An arena seen from outside, by another process of the same user (ddpstat). Only reads the file,
// and never maps it: its owner may truncate it. Takes no lock and leaves no mark. What it reads was
// written by others and while they were at work: every size, index and enumeration is bounded, text
// may be torn and a record may be half the one before; nothing worse.
#ifndef DDPSOCK_RELATIVES_ARENA_VIEW_H_
#define DDPSOCK_RELATIVES_ARENA_VIEW_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace ddpsock::engine {

struct DirectionStatistics {
  uint64_t bytes = 0, fpdus = 0, bytes_copied = 0, errors = 0;
  uint64_t system_calls = 0, waits = 0, spins = 0, vain_spins = 0;
};

struct AddressView {
  uint8_t family = 0;  // 4, 6, or 0: not known
  uint16_t port = 0;
  std::array<uint8_t, 16> host{};
};

enum class ConnectionState : uint8_t { kStarting, kOpen, kFailed, kEnded };

// Requests of a connection in message mode.
struct WorkStatistics {
  uint64_t posted = 0, completed = 0, failed = 0;
  uint64_t outstanding() const { return posted > completed ? posted - completed : 0; }
};

struct ConnectionStatistics {
  uint32_t index = 0;  // in its arena; with `cookie` a name for it
  uint64_t cookie = 0;
  std::vector<int> holders;  // process ids, each in its own pid namespace
  ConnectionState state = ConnectionState::kStarting;
  bool is_initiator = false, is_proved = false, has_crc = false;
  bool is_message = false;    // message mode; otherwise a byte stream
  int opened_as = -1;         // the descriptor
  uint32_t mpa_revision = 0;  // the peer's; 0: not known yet
  uint32_t max_payload = 0;
  uint64_t crcs_checked = 0;
  AddressView local, remote;
  DirectionStatistics sent, received;
  uint64_t bells_rung = 0;
  std::string verdict, failure;
  // Message mode. What it does not count stays 0 above: copies, system calls, waits, spins, bells.
  WorkStatistics sends, receives;  // of sends: all work but receives
  std::string engine, progress;    // which serves; who moves its bytes
  uint32_t terminate = 0;          // as ddp_completion has it; 0: none

  // Shared memory.
  bool is_in_memory = false;
  std::string memory;                // why it is there, or not
  std::array<uint8_t, 16> secret{};  // the same at both ends, all zero if there is none
  uint64_t ring_written = 0, ring_seen_read = 0;  // our lane: published, and known to be read
  uint64_t ring_read = 0;                         // the peer's lane: taken
};

struct ProcessStatistics {
  int pid = 0;  // in its own pid namespace
  uint32_t plain_connections = 0;
  std::string last_plain_reason;
};

struct ArenaStatistics {
  std::vector<ProcessStatistics> processes;  // that have ever held a stream, or may; not all live
  std::vector<ConnectionStatistics> connections;
};

// `fd` is what a process has under the name kArenaName; stays the caller's. EPROTO: not an arena;
// ENOEXEC: one of another build of ddpsock; EAGAIN: not set up yet; other: the kernel's answer.
Result<ArenaStatistics> read_arena(int fd);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_ARENA_VIEW_H_
