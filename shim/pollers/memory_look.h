// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One look of an epoll_wait() at the streams in shared memory of its set, or several: nothing may
// be reported while something that was ready before it is left out (doc/design.md decision 3, I10).
// What a pass over the streams finds was ready by then; what a *later* pass still finds empty was
// not ready before that. So passes go on until one adds nothing, and the kernel, which knows the
// rest, is asked between them.
//
// Keeps the streams from being closed while it lives; nobody sleeps meanwhile, but for a thread
// that changes the set.
#ifndef DDPSOCK_SHIM_POLLERS_MEMORY_LOOK_H_
#define DDPSOCK_SHIM_POLLERS_MEMORY_LOOK_H_

#include <array>
#include <limits>
#include <memory>
#include <span>

#include "shim/fd_table.h"
#include "shim/pollers/memory_watch.h"

namespace ddpsock::shim {

class MemoryLook {
  static constexpr int kNone = std::numeric_limits<int>::max();
  struct Item {
    explicit Item(int number) : use(number), fd(number) {}

    SocketUse use;
    WatchedStream* watch = nullptr;
    engine::MemoryPart* stream = nullptr;
    int fd;
    uint32_t version = 0;  // of the watch
    unsigned place = 0;
    bool is_on_wire = false;
    uint32_t news = 0, kernel_news = 0;
    uint64_t kernel_data = 0;  // by which the kernel reports it
    bool is_known = false;
    uint64_t position = 0, ready_since = 0;
    // So many events that are no streams are reported before it.
    int others_before = kNone;
    int kernel_event = kNone;  // the place in the kernel's answer
  };

 public:
  // Most sets hold few of the streams that they would have room for, and threads, coroutines and
  // signal handlers with small stacks wait for those too.
  static constexpr unsigned kFew = 8, kAll = StreamTable::kMost;
  template <unsigned kItems>
  struct Room {
    Room() {}
    ~Room() {}
    // Only as many as there are streams are made.
    union {
      std::array<Item, kItems> items;
    };
    std::array<uint64_t, kItems> order;
    std::array<int, kItems> wires;
  };
  static bool is_few(WatchedSet& set) { return set.members().streams().end() <= kFew; }

  // What comes into the set meanwhile and has no room is not looked at.
  template <unsigned kItems>
  MemoryLook(WatchedSet& set, Room<kItems>& room)
      : set_(set), items_(room.items.data()), order_(room.order.data()), wires_(room.wires.data()) {
    look(kItems);
  }
  // noexcept(false): as SocketUse's.
  ~MemoryLook() noexcept(false) {
    // The last first: they are a chain (base/unfinished.h).
    while (count_ > 0) std::destroy_at(&items_[--count_]);
  }
  MemoryLook(const MemoryLook&) = delete;
  MemoryLook& operator=(const MemoryLook&) = delete;

  // `events` will be reported in any case, and need not be found.
  void know(std::span<const epoll_event> events);
  // Passes until one adds nothing; to have made this is the first. True: that, or the first of a
  // later call, has added something.
  bool find();
  // Waits a little for something to find, without sleeping, where that is worth it.
  bool spin();
  // Streams of which, as of the last pass, the kernel may know more: some of their bytes come as
  // FPDUs, or their end has come.
  std::span<const int> wires();

  // Adds what was found to `count` events that are there: in the order in which it became ready,
  // or, where there is not room for all, what was left out last first. The bells of these streams
  // may lie from now on. How many there are now, at most `room`.
  int put(epoll_event* events, int count, int room);

 private:
  void look(unsigned most);
  void add(WatchedStream& w, unsigned place);
  bool pass();
  bool note(unsigned i, const engine::Glance& glance);
  static bool is_wanted(const Item& item);
  static bool is_current(const Item& item) { return item.watch->is(item.fd, item.version); }
  static uint32_t news_of(const Item& item, const engine::Glance& glance);
  void sort_found();
  int match(const epoll_event* events, int count);
  int put_all(epoll_event* events, int count, int all);
  // The first that was found of which `is` is true; nullptr: none.
  template <typename Is>
  Item* find_item(Is is);
  Item& found_item(unsigned n) { return items_[order_[n] % kAll]; }
  static bool is_writable(const Item& item);
  uint32_t take(Item& item, uint64_t& data);

  WatchedSet& set_;
  Item* const items_;      // the first `count_` are made
  uint64_t* const order_;  // numbers of items with news, as they were found, and then sorted
  int* const wires_;
  unsigned count_ = 0, found_ = 0;
  uint32_t peer_cpu_ = 0;  // where one of the peers last ran, as Glance has it
  bool is_first_pass_told_ = false;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_MEMORY_LOOK_H_
