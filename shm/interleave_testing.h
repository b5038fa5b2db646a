// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For tests: runs two small threads of atomic operations in every order that a processor with store
// buffers (x86 and weaker in nothing that the protocol needs) could show. Each operation of a
// Word is a point where the other thread may run or a buffered store may reach memory.
#ifndef DDPSOCK_SHM_INTERLEAVE_TESTING_H_
#define DDPSOCK_SHM_INTERLEAVE_TESTING_H_

#include <ucontext.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace ddpsock::engine::shm {

class Interleaver {
 public:
  // The threads' code and a check that runs after each step. All must start from what `reset`
  // makes.
  struct Program {
    std::function<void()> reset;
    std::array<std::function<void()>, 2> threads;
    std::function<bool()> is_sound;  // false: the promise is broken in this state
  };

  struct Outcome {
    uint64_t runs = 0;
    uint64_t broken = 0;  // runs in which is_sound() failed or nobody could go on
  };

  // Depth first through all choices; stops at the first broken run if told so.
  Outcome explore(Program& program, bool stop_at_first) {
    current = this;
    Outcome outcome;
    choices_.clear();
    do {
      at_ = 0;
      ++outcome.runs;
      if (!run(program)) {
        ++outcome.broken;
        if (stop_at_first) break;
      }
    } while (advance());
    current = nullptr;
    return outcome;
  }

  // Called by the threads.
  static Interleaver* current;
  void step() { swapcontext(&fibers_[running_].context, &scheduler_); }
  // Blocks the running thread until `is_ready` holds.
  void wait_until(std::function<bool()> is_ready) {
    fibers_[running_].waits_for = std::move(is_ready);
    step();
    fibers_[running_].waits_for = nullptr;
  }
  void buffer(uint64_t* word, uint64_t value) { fibers_[running_].stores.push_back({word, value}); }
  void drain() {
    while (!fibers_[running_].stores.empty()) flush_one(running_);
  }
  uint64_t read(const uint64_t* word) const {
    const auto& stores = fibers_[running_].stores;
    for (auto s = stores.rbegin(); s != stores.rend(); ++s)
      if (s->word == word) return s->value;
    return *word;
  }

 private:
  struct Store {
    uint64_t* word;
    uint64_t value;
  };
  struct Fiber {
    ucontext_t context;
    std::array<uint8_t, 64 * 1024> stack;
    std::function<void()>* body = nullptr;
    std::function<bool()> waits_for;
    std::deque<Store> stores;
    bool is_done = false;
  };
  struct Choice {
    unsigned taken, of;
  };

  void flush_one(unsigned who) {
    Store s = fibers_[who].stores.front();
    fibers_[who].stores.pop_front();
    *s.word = s.value;
  }

  static void enter(unsigned who) {
    Fiber& f = current->fibers_[who];
    (*f.body)();
    f.is_done = true;
    current->step();
  }

  void start(Program& program) {
    program.reset();
    for (unsigned i = 0; i < 2; ++i) {
      Fiber& f = fibers_[i];
      f.body = &program.threads[i];
      f.is_done = false;
      f.waits_for = nullptr;
      f.stores.clear();
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, reinterpret_cast<void (*)()>(enter), 1, i);
    }
  }

  unsigned choose(unsigned of) {
    if (at_ == choices_.size()) choices_.push_back({0, of});
    assert(choices_[at_].of == of);
    return choices_[at_++].taken;
  }

  // True if the run came to its end soundly.
  bool run(Program& program) {
    start(program);
    for (;;) {
      std::array<std::pair<bool, unsigned>, 4> possible;  // is a flush, of whom
      unsigned count = 0;
      for (unsigned i = 0; i < 2; ++i) {
        const Fiber& f = fibers_[i];
        if (!f.is_done && (!f.waits_for || f.waits_for())) possible[count++] = {false, i};
        if (!f.stores.empty()) possible[count++] = {true, i};
      }
      if (count == 0) return fibers_[0].is_done && fibers_[1].is_done;
      const auto [is_flush, who] = possible[choose(count)];
      if (is_flush) {
        flush_one(who);
      } else {
        running_ = who;
        swapcontext(&scheduler_, &fibers_[who].context);
      }
      if (!program.is_sound()) return false;
    }
  }

  bool advance() {
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().of)
      choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    return true;
  }

  ucontext_t scheduler_;
  std::array<Fiber, 2> fibers_;
  unsigned running_ = 0;
  std::vector<Choice> choices_;
  size_t at_ = 0;
};
inline Interleaver* Interleaver::current = nullptr;

// Looks like std::atomic to the code under test.
class Word {
 public:
  uint64_t load(std::memory_order) const {
    Interleaver::current->step();
    return Interleaver::current->read(&value);
  }
  void store(uint64_t v, std::memory_order order) {
    Interleaver::current->step();
    Interleaver::current->buffer(&value, v);
    if (order == std::memory_order_seq_cst) Interleaver::current->drain();
  }
  uint64_t exchange(uint64_t v, std::memory_order) {
    Interleaver::current->step();
    Interleaver::current->drain();
    return std::exchange(value, v);
  }
  bool compare_exchange_strong(uint64_t& expected, uint64_t v, std::memory_order) {
    Interleaver::current->step();
    Interleaver::current->drain();
    if (value != expected) {
      expected = value;
      return false;
    }
    value = v;
    return true;
  }
  uint64_t fetch_or(uint64_t v, std::memory_order) {
    Interleaver::current->step();
    Interleaver::current->drain();
    return std::exchange(value, value | v);
  }

  uint64_t value = 0;  // in memory, as a third party sees it
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_INTERLEAVE_TESTING_H_
