// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process that executes a program ends its other threads where they are. Their calls stop first,
// each where the record is whole: before it has taken a direction, or at the end of a sleep, whose
// mark stays. Who finds that mark in the record of one that has ended goes on from there.
#ifndef DDPSOCK_STREAM_STANDSTILL_H_
#define DDPSOCK_STREAM_STANDSTILL_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::engine {

class SleepMark;

class Standstill {
 public:
  // For all threads of this process but the calling one, until end(), or for a second: a signal
  // handler of who executes may want what somebody stands with. Nests, also over threads. Calls at
  // work go on to their next such place.
  static void begin();
  static void end();

  // One load. Behind taking a direction, or clearing the mark of a sleep, and a full barrier:
  // either it is seen here, or who began it sees what the caller has taken.
  static bool is_wanted() { return state_.load(std::memory_order_seq_cst) != 0; }
  // REQUIRES: is_wanted(). False where it is another process's or the caller's own, and where its
  // time is over.
  static bool concerns_caller();
  // Returns when there is none. Like any sleep: who comes back asks what its number means now.
  static void wait();
  // For who has just cleared the mark of its sleep, and is_wanted(): waits with the mark set.
  // False: this is a child that a signal handler forked meanwhile; the mark is its parent's.
  static bool wait_asleep(SleepMark& mark);

 private:
  // How many there are, and above that the process: in a child forked meanwhile there is none.
  alignas(64) static constinit std::atomic<uint64_t> state_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_STANDSTILL_H_
