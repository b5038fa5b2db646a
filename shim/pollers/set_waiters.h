// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who may wait in an epoll set: threads of this process, which are counted (set_wait.h), and those
// of a child that has it too since a fork. Zero memory: nobody. Any thread.
#ifndef DDPSOCK_SHIM_POLLERS_SET_WAITERS_H_
#define DDPSOCK_SHIM_POLLERS_SET_WAITERS_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::shim {

class SetWaiters {
 public:
  void enter() { inside_.fetch_add(1); }
  // True: nobody is left inside. REQUIRES: entered, in this process.
  bool leave() { return inside_.fetch_sub(1) == 1; }
  bool is_any_inside() const { return inside_.load() > 0; }
  // Has nobody but the caller the set, as far as is known?
  bool is_one_alone() const { return inside_.load() <= 1 && !has_forked_.load(); }

  // False: the last that came was the thread `id` too.
  bool note_last(uint32_t id) { return last_.load() != id && last_.exchange(id) != id; }
  // Did no other thread ever wait here since, nor may one of a child?
  bool is_only(uint32_t id) const {
    return !has_forked_.load(std::memory_order_relaxed) &&
           last_.load(std::memory_order_relaxed) == id;
  }

  // Before a fork: a child has the set too, and must find in it what was asked for.
  void note_fork() { has_forked_.store(true); }
  // In the child nobody is inside.
  void begin_in_child() { inside_.store(0, std::memory_order_relaxed); }
  // Another set, which no child has.
  void begin() { has_forked_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> last_;
  std::atomic<int> inside_;
  std::atomic<bool> has_forked_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_SET_WAITERS_H_
