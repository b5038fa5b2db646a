// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process that executes a program ends its other threads where they are. Their calls stop first,
// each where the record is whole, and stay there as if asleep: who finds a mark of sleep in the
// record of one that has ended goes on from there.
#ifndef DDPSOCK_ENGINE_USER_STANDSTILL_H_
#define DDPSOCK_ENGINE_USER_STANDSTILL_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::engine {

class SleepMark;

class Standstill {
 public:
  // For all threads of this process but the calling one, until end(). Nests, also over threads.
  // Calls at work go on to their next such place.
  static void begin();
  static void end();

  // The caller holds a direction, has done nothing since it took it or slept, and has no mark set.
  static bool is_wanted() { return state_.load(std::memory_order_seq_cst) != 0; }
  // 0 when there is none, or at once where it is another process's or the caller's own. After a
  // second in any case: a signal handler of who executes may want the direction. EINTR: in a child
  // that a handler forked meanwhile; the mark and the direction are its parent's.
  static int stand(SleepMark& mark);

 private:
  // How many there are, and behind that the process: in a child forked meanwhile there is none.
  static constinit std::atomic<uint64_t> state_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_STANDSTILL_H_
