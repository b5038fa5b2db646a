// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the kernel's copy of an epoll set differs in from what the program asked for, and when that
// must be told: changes that were put off, and quiet, in which the kernel is not to report bells.
// Both are over before anybody sleeps on the set or another looks at it (WatchedSet::tell_all()).
// Only keeps the books: who tells is WatchedSet. Zero memory: nothing is put off. Any thread.
#ifndef DDPSOCK_SHIM_POLLERS_DEFERRAL_H_
#define DDPSOCK_SHIM_POLLERS_DEFERRAL_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::shim {

class Deferral {
 public:
  // Of any set.
  static bool is_any_in_process() { return sets_.load(std::memory_order_acquire) != 0; }

  bool is_any() const { return is_any_.load(); }
  // A change was put off. True: nothing was until now.
  bool note_change() {
    has_changes_.store(true, std::memory_order_relaxed);
    if (is_any_.load(std::memory_order_relaxed)) return false;
    sets_.fetch_add(1);
    is_any_.store(true);
    return true;
  }
  bool has_changes() const { return has_changes_.load(std::memory_order_relaxed); }
  // True: there were some, and the caller tells them now.
  bool take_changes() { return has_changes_.exchange(false); }

  // After many questions between two sleeps: the kernel reports each bell of a stream in memory
  // once at most, and the set itself can be asked about all else.
  bool is_quiet() const { return is_quiet_.load(std::memory_order_relaxed); }
  // A question is about to be asked. True: there were so many that to begin quiet is worth it.
  bool note_question();
  void begin_quiet() {
    is_quiet_.store(true);
    if (!is_any_.exchange(true)) sets_.fetch_add(1);
  }
  // Where it was not worth it, it comes later the next time.
  void end_quiet();
  // Somebody is about to sleep.
  void note_sleep() {
    if (!is_quiet()) questions_.store(0, std::memory_order_relaxed);
  }

  // The caller tells all, from here until note_told().
  void begin_telling() {
    has_changes_.store(false);
    end_quiet();
  }
  void note_told() {
    if (is_any_.exchange(false)) sets_.fetch_sub(1);
  }
  // There is nobody to tell.
  void forget();
  // Another set, of which nothing is known yet.
  void begin() { quiet_after_.store(0, std::memory_order_relaxed); }

 private:
  static std::atomic<unsigned> sets_;  // that have something to tell
  std::atomic<bool> is_any_;
  std::atomic<bool> has_changes_;  // of the program's wish
  std::atomic<bool> is_quiet_;
  std::atomic<uint32_t> questions_;    // since the kernel was told last
  std::atomic<uint32_t> quiet_after_;  // so many, and kQuietAfter more
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_DEFERRAL_H_
