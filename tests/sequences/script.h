// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is run: a sequence of calls, made from a seed and from nothing else, so that the same seed
// is the same program in every column, on every machine and in every run.
//
// Calls name descriptors by slots, not by numbers: a call whose slot is empty, because the call
// that would have filled it was left out or failed, is made on -1 and answers EBADF everywhere. So
// any part of a sequence is a sequence too, and can be shrunk.
#ifndef DDPSOCK_TESTS_SEQUENCES_SCRIPT_H_
#define DDPSOCK_TESTS_SEQUENCES_SCRIPT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ddpsock::sequences {

constexpr int kSlots = 12;
// Who calls: threads of one process, and processes that are made by a sequence.
constexpr int kThreads = 3, kProcesses = 2, kActors = kThreads + kProcesses;
constexpr bool is_process(int actor) {
  return actor >= kThreads;
}

enum class Kind : uint8_t {
  kPair,          // client slot, server slot, nonblocking (1 client, 2 server)
  kListen,        // slot, nonblocking
  kSocket,        // slot, nonblocking
  kConnect,       // slot, listener's slot
  kAccept,        // slot, listener's slot, how
  kSend,          // slot, size, flags, how
  kReceive,       // slot, size, flags, how
  kFill,          // slot: until the kernel refuses
  kDrain,         // slot: all that was sent and not received
  kPoll,          // how, timeout, three of slot * 65536 + events
  kEpollCreate,   // slot
  kEpollControl,  // set's slot, operation, slot, events
  kEpollWait,     // set's slot, room, timeout, how
  kAwait,         // slot, by which poller that libc does not see, timeout
  kShutdown,      // slot, direction, how
  kClose,         // slot, how
  kDup,           // slot, target slot, how
  kNonblocking,   // slot, on, how
  kGetOption,     // slot, which
  kSetOption,     // slot, which, value
  kQueued,        // slot, how
  kName,          // slot, whose
  kOpen,          // slot, what; a second slot
  kPass,          // UNIX socket's slot, slot of what is passed
  kTake,          // UNIX socket's slot, slot for what was passed
  kSendFile,      // slot, size
  kSplice,        // slot, size, out
  kFork,          // process, how
  kVfork,         // slot, what the child does
  kExec,          // how
  kLimit,         // what a process does to itself
  kRefused,       // slot, which call that is not for connections
  kAio,           // slot, unused, out
  kShell,         // slot, how
  // Done to an actor, by who runs the sequence.
  kSignal,  // actor, how
  kCancel,  // actor
  kEnd,     // process, how
  kStop,    // process, on
  kNumber,
};

struct Op {
  Kind kind;
  uint8_t actor;
  std::array<int32_t, 5> argument;
};

constexpr size_t kMostOps = 40;
struct Script {
  size_t count;
  std::array<Op, kMostOps> ops;
};

Script generate(uint64_t seed);
std::string to_text(const Op& op);

// The tables that numbers in `argument` point into.
struct Name {
  int value;
  const char* text;
};
struct Option {
  int level, name;
  const char* text;
  std::array<int, 2> values;  // that are set
};
constexpr size_t kOptionCount = 29;
extern const std::array<Option, kOptionCount> kOptions;
enum class Queued : uint8_t { kFionread, kRawFionread, kOutgoing, kAtMark, kNumber };
enum class Opened : uint8_t { kNull, kFile, kPipe, kEventFd, kUnixPair, kNumber };
enum class HowToFork : uint8_t { kFork, kForkAlone, kSyscallClone, kRawClone, kNumber };
enum class Unseen : uint8_t { kPoll, kEpoll, kEdges, kNested, kRing, kSignal, kNumber };
enum class Limit : uint8_t {
  kRoot,
  kFiles,
  kAddressSpace,
  kFileSize,
  kUser,
  kFilterOfMemory,
  kFilterOfSockets,
  kNumber
};
enum class Refused : uint8_t {
  kPread,
  kPwrite,
  kSeek,
  kTruncate,
  kSync,
  kTerminal,
  kStat,
  kListen,
  kBind,
  kConnect,
  kAccept,
  kNumber
};
enum class Shell : uint8_t { kSystem, kPopen, kSpawn, kNumber };
enum class HowToEnd : uint8_t { kExit, kRawExit, kKill, kNumber };

constexpr int kSenders = 13, kReceivers = 13;
constexpr int kWithFlags = 7;  // the first ones
constexpr int kByFile = 12;    // the last one
extern const std::array<const char*, kSenders> kSenderNames;
extern const std::array<const char*, kReceivers> kReceiverNames;
constexpr int kPollers = 6;
extern const std::array<const char*, kPollers> kPollerNames;

}  // namespace ddpsock::sequences

#endif  // DDPSOCK_TESTS_SEQUENCES_SCRIPT_H_
