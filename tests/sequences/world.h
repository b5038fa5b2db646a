// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What all who take part in a sequence share: a mapping that threads, forked children and executed
// programs see alike, and beside it what each process knows of its own descriptors.
#ifndef DDPSOCK_TESTS_SEQUENCES_WORLD_H_
#define DDPSOCK_TESTS_SEQUENCES_WORLD_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "script.h"

namespace ddpsock::sequences {

constexpr int kNumbers = 256;        // descriptors of a sequence are below
constexpr int kWorldNumber = 900;    // of the mapping, far above them
constexpr int kPatternNumber = 901;  // of a file of the bytes that are sent
constexpr int kConnections = 32;
constexpr size_t kTextSize = 400;
constexpr size_t kMostBytes = 12 * 1024 * 1024;  // more than TCP takes unread

// Which sockets are made behind the library's back, so that they are a peer without it.
enum class Plain : uint8_t { kNobody, kClients, kServers };

// One direction of a connection, as those who took part know it: the model.
struct Direction {
  std::atomic<uint64_t> sent, received;
  std::atomic<bool> is_full;            // the kernel has refused, and nothing was received since
  std::atomic<bool> is_ended;           // by shutdown, at the sending end
  std::atomic<bool> is_unwanted;        // by shutdown, at the receiving end
  std::atomic<bool> was_filled;         // with how much, nobody knows
  std::atomic<bool> is_cut;             // by a reset, of which the receiving end has been told
  std::atomic<bool> is_broken_off;      // a sender of much ended in its call: as for was_filled
  std::atomic<int> receive_timeout_ms;  // of who receives
  std::atomic<uint32_t> urgent;         // bytes that may not come with the others
};
struct Connection {
  std::atomic<int> client_port;
  Direction from[2];  // the client's, the server's
};

struct Actor {
  std::atomic<uint32_t> ordered, done;  // counts of calls
  std::atomic<uint32_t> asked;          // the last of them that is for its own thread
  std::atomic<uint32_t> op;
  std::atomic<pid_t> thread, process;
  std::atomic<bool> exists, is_stopped;
  // The directions whose bytes its call under way may take, or may be told of: one bit each. One
  // event that wakes two of whom one takes what the other was woken for has no one right answer.
  std::atomic<uint64_t> takes, sees;
  // That in which its call under way sends more than may find room, in the same way.
  std::atomic<uint64_t> fills;
  // Until when the call under way ends by itself, 0 if it need not: then it is waited for.
  std::atomic<int> timeout_ms;
  std::array<char, kTextSize> text;
};

// What a descriptor refers to.
struct Object {
  enum class What : uint8_t { kNothing, kListener, kStream, kSet, kOther } what;
  int8_t connection, side;
};
// One member of an epoll set.
struct Watch {
  int set, fd;
  uint32_t events;
  uint64_t told;  // what had come when it was told of last
};

// What a process knows of its descriptors: copied by fork, handed over at exec.
struct Process {
  std::array<int, kSlots> slots;
  std::array<Object, kNumbers> objects;
  std::array<Watch, 64> watches;
  int watch_count;
  int actor;
};

struct World {
  Plain plain;
  int patience_ms;
  Script script;
  uint64_t seed;
  std::atomic<uint32_t> step;
  std::atomic<size_t> index;  // of the sequence under way, among those to run
  std::array<Actor, kActors> actors;
  std::array<Connection, kConnections> connections;
  std::atomic<int> connection_count;
  std::atomic<int> handled_signals;
  // What was passed through UNIX sockets and not taken yet.
  std::array<Object, 16> passed;
  std::atomic<uint32_t> pass_count, take_count;
  Process handed_over;
  std::atomic<uint32_t> log_size;
  std::array<char, 64 * 1024> log;

  void say(const char* format, ...) __attribute__((format(printf, 2, 3)));
};

// Of an actor whose call under way will not return.
void break_off(Actor& actor);

extern World* world;    // mapped by who runs sequences
extern Process myself;  // of this process

void create_world();
void map_world();

// `size` bytes, kMostBytes at most, that stand at `position` of what `side` of a connection sends.
const char* bytes_at(int connection, int side, uint64_t position, size_t size);

// /proc's word on a thread, at a number above those of sequences; then: does it sleep, or is it
// stopped?
int open_status(pid_t process, pid_t thread);
bool is_asleep(int status_fd);
void sleep_us(int microseconds);
int64_t now_ms();
void wait_for_change(std::atomic<uint32_t>& word, uint32_t from, int microseconds);
void wake(std::atomic<uint32_t>& word);

}  // namespace ddpsock::sequences

#endif  // DDPSOCK_TESTS_SEQUENCES_WORLD_H_
