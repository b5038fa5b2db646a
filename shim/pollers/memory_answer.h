// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What memory says of the streams that a poll() or select() asks about. It says it of those of
// which only bytes and room can be told: both directions lie in memory and are open. All else is
// the kernel's, which is asked too where there is anything else, and now and then all the same
// (doc/decisions/0064-poll-and-select-from-memory.md).
//
// Keeps the streams from being closed while it lives. Any thread, signal handlers too.
#ifndef DDPSOCK_SHIM_POLLERS_MEMORY_ANSWER_H_
#define DDPSOCK_SHIM_POLLERS_MEMORY_ANSWER_H_

#include <poll.h>

#include <array>
#include <memory>
#include <span>

#include "shim/fd_table.h"

namespace ddpsock::shim {

class MemoryAnswer {
  struct Item {
    explicit Item(int fd) : use(fd) {}

    SocketUse use;
    engine::Stream* stream = nullptr;
    unsigned place = 0;  // in what was asked
    short wanted = 0;    // of what memory knows
    short ready = 0;
    bool is_sure = false;   // nothing else can be told of it
    bool is_left = false;   // to the kernel, which has told something else
    bool has_more = false;  // the kernel tells something else now
  };

 public:
  // Threads, coroutines and signal handlers with small stacks poll few.
  static constexpr unsigned kFew = 8, kMost = 64;
  template <unsigned kItems>
  struct Room {
    Room() {}
    ~Room() {}
    // Only as many as there are streams are made.
    union {
      std::array<Item, kItems> items;
    };
  };
  // So many places does it take to look at what is `asked`; kMost + 1: more. 0: there is nothing to
  // look at.
  static unsigned places_for(std::span<const pollfd> asked);

  // REQUIRES: kItems are enough.
  template <unsigned kItems>
  MemoryAnswer(std::span<pollfd> asked, Room<kItems>& room)
      : asked_(asked), items_(room.items.data()) {
    look(kItems);
  }
  // noexcept(false): as SocketUse's.
  ~MemoryAnswer() noexcept(false) {
    // The last first: they are a chain (base/unfinished.h).
    while (count_ > 0) std::destroy_at(&items_[--count_]);
  }
  MemoryAnswer(const MemoryAnswer&) = delete;
  MemoryAnswer& operator=(const MemoryAnswer&) = delete;

  // Looks at all of them. True: something was found that had not been.
  bool find();
  bool has_found() const;
  // Waits a little for something to find, without sleeping, where that is worth it.
  void spin();
  // The kernel is about to be asked: it shall tell the truth about all of them.
  void settle();

  // Has the kernel anything to say before that is reported?
  bool needs_kernel();
  // It was asked just now, and what was asked has its answer: that is kept where memory does not
  // know all.
  void leave_to_kernel();
  // Adds what was found. How many descriptors have something to report; 0: what was taken for
  // theirs is not, or not any more.
  int put();

 private:
  void look(unsigned most);
  bool note(Item& item);
  void note_killed();
  static bool has_room(const Item& item, int fd);
  int fd_of(const Item& item) const { return asked_[item.place].fd; }

  const std::span<pollfd> asked_;
  Item* const items_;  // the first `count_` are made
  unsigned count_ = 0;
  bool has_others_ = false;
  bool is_kernel_asked_ = false;
  bool is_turn_ = false;   // it is the kernel's, of which one of them was last told so long ago
  uint32_t peer_cpu_ = 0;  // where one of the peers last ran, as Glance has it
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_MEMORY_ANSWER_H_
