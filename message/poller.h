// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the Domain's thread sleeps in: sockets to become ready, a time, or somebody's wake(). By
// io_uring where the kernel lets us, by epoll elsewhere (doc/decisions/0032-io-uring.md).
#ifndef DDPSOCK_MESSAGE_POLLER_H_
#define DDPSOCK_MESSAGE_POLLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/fd.h"

namespace ddpsock::message {

// A connection in the Domain: its slot, and a number that tells it from those before it there.
constexpr uint64_t make_id(uint32_t serial, uint32_t slot) {
  return uint64_t{serial} << 32 | slot;
}
constexpr uint32_t slot_of(uint64_t id) {
  return static_cast<uint32_t>(id);
}
constexpr uint32_t serial_of(uint64_t id) {
  return static_cast<uint32_t>(id >> 32);
}

class Poller {
 public:
  enum class Kind : uint8_t { kAny, kEpoll, kUring };
  // nullptr: no descriptors or no memory. kUring, too, is answered by epoll where it is refused.
  static std::unique_ptr<Poller> make(Kind kind);

  struct Ready {
    uint64_t id = 0;
    uint32_t events = 0;  // EPOLL*; kRetired
  };
  // retire() is done: the slot may be used again.
  static constexpr uint32_t kRetired = 1u << 31;

  virtual ~Poller() = default;
  virtual const char* name() const = 0;  // static text

  // From any thread. Slots below `count` may be used from now on; false: no memory.
  virtual bool reserve(uint32_t count) = 0;
  // From any thread. One event of `events` (EPOLLIN, EPOLLOUT) on `fd`, once; more than was asked
  // for may be told. `fd` stays open until it is given to retire().
  virtual void arm(int fd, uint64_t id, uint32_t events) = 0;
  virtual void disarm(int fd, uint64_t id) = 0;
  // Closes `fd`; true: has done so. Otherwise wait() will say when.
  [[nodiscard]] virtual bool retire(base::UniqueFd fd, uint64_t id) = 0;
  // Ends the wait that is going on, or the next one.
  virtual void wake() = 0;

  // The rest is for one thread, which calls adopt() first.
  virtual void adopt() = 0;
  // How many of `out` are ready; perhaps none. Nothing: the program has closed our descriptors.
  virtual std::optional<size_t> wait(std::span<Ready> out, Time until) = 0;
  // Makes new ones, in which nothing is armed. False: none to be had now.
  virtual bool reopen() = 0;
};

// Descriptors of the library's own begin here.
inline constexpr int kHighFd = 1000;
// Moved above what programs use for themselves; the original is closed.
base::UniqueFd move_high(base::UniqueFd fd);

// nullptr where there are none; `make` above chooses.
std::unique_ptr<Poller> make_epoll_poller();
std::unique_ptr<Poller> make_uring_poller();

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_POLLER_H_
