// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a thread waits for bytes of a stream in shared memory: by receive calls that find none,
// blocking or again and again, or by a poller, which may be one that this library does not see.
// Only in the first case may a bell stay unread when a call returns, and does it pay to look a
// little longer before a call asks the kernel and fails; a bell also while the thread goes on
// asking pollers of this library, which look into memory themselves. Learnt from the calls: an
// empty one behind an empty one is what only the first case makes again and again; a single one
// between two that found bytes is a poller's, who reads to the end. What finds bytes at once tells
// nothing: who reads many small messages does so in either case, and each bell that it asks for by
// mistake is a system call of the writer's, as long as 30 small messages. Safe from any thread;
// what they tell it at the same time may be lost.
#ifndef DDPSOCK_STREAM_READING_HABIT_H_
#define DDPSOCK_STREAM_READING_HABIT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ddpsock::engine {

class ReadingHabit {
 public:
  // A call of `thread` ended that found no bytes at first. `has_spun`: it then waited for them
  // without sleeping, as only one that may sleep does.
  void on_empty(uint32_t thread, bool has_spun) {
    const bool is_first = !is_of(thread) || !was_empty_.load(std::memory_order_relaxed);
    was_empty_.store(true, std::memory_order_relaxed);
    if (!is_of(thread)) learn(thread, 0);
    if (has_spun)
      learn(thread, kSpun);
    else if (!is_first)
      learn(thread, std::max(score(), std::min(score() + 1, kMost)));
    else if (score() > 0)
      learn(thread, score() - 1);
  }
  // A call found bytes at once.
  void on_prompt(uint32_t thread) {
    if (is_of(thread) && was_empty_.load(std::memory_order_relaxed))
      was_empty_.store(false, std::memory_order_relaxed);
    if (polls(thread)) poller_credit_.store(credit() - 1, std::memory_order_relaxed);
  }
  // Somebody asked whether there are bytes.
  void on_poller() {
    if (score() != 0) score_.store(0, std::memory_order_relaxed);
  }

  // Of `thread`, as MemoryPart::note_poller() has it. Reading on without asking again unlearns it.
  void on_own_poller(uint32_t thread) {
    if (score() != 0) score_.store(0, std::memory_order_relaxed);
    if (poller_.load(std::memory_order_relaxed) != thread)
      poller_.store(thread, std::memory_order_relaxed);
    if (credit() != kMost) poller_credit_.store(kMost, std::memory_order_relaxed);
  }
  bool polls(uint32_t thread) const {
    return credit() > 0 && poller_.load(std::memory_order_relaxed) == thread;
  }

  bool waits_in_calls(uint32_t thread) const { return score() >= kConvinced && is_of(thread); }

  // This process waits for edges, by descriptors that are not known: an edge that is used up while
  // its bell lies unread is the last. From now on no bell may.
  static void note_edges() {
    if (!waits_for_edges()) has_edges_.store(true, std::memory_order_relaxed);
  }
  static bool waits_for_edges() { return has_edges_.load(std::memory_order_relaxed); }

  // Whether to look a little longer; after that has failed, less often.
  bool may_linger(uint32_t thread) {
    if (!waits_in_calls(thread)) return false;
    const uint32_t skip = skip_.load(std::memory_order_relaxed);
    if (skip > 0) skip_.store(skip - 1, std::memory_order_relaxed);
    return skip == 0;
  }
  void on_lingered(bool has_found) {
    const uint32_t failures =
        has_found ? 0 : std::min(failures_.load(std::memory_order_relaxed) + 1, kMostFailures);
    failures_.store(failures, std::memory_order_relaxed);
    skip_.store((uint32_t{1} << failures) - 1, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kConvinced = 8, kMost = 16, kSpun = 1024;
  static constexpr uint32_t kMostFailures = 4;

  uint32_t score() const { return score_.load(std::memory_order_relaxed); }
  uint32_t credit() const { return poller_credit_.load(std::memory_order_relaxed); }
  bool is_of(uint32_t thread) const { return thread_.load(std::memory_order_relaxed) == thread; }
  void learn(uint32_t thread, uint32_t score) {
    thread_.store(thread, std::memory_order_relaxed);
    score_.store(score, std::memory_order_relaxed);
  }

  static inline std::atomic<bool> has_edges_{false};

  std::atomic<uint32_t> thread_{0}, score_{0};
  std::atomic<uint32_t> failures_{0}, skip_{0};
  std::atomic<bool> was_empty_{false};  // the last call of thread_
  std::atomic<uint32_t> poller_{0}, poller_credit_{0};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_READING_HABIT_H_
