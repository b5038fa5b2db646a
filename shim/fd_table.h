// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which of the process's descriptors are sockets of ours. Looked up on every intercepted call: one
// load while there are none, a bounds check and a second load afterwards. No locks; every function
// may run in a signal handler.
//
// In a vfork child, which runs in its parent's memory with descriptors of its own, and in a thread
// that has its own, the functions that change the table do nothing: what they close stays open in
// the parent, or in the other threads.
#ifndef DDPSOCK_SHIM_FD_TABLE_H_
#define DDPSOCK_SHIM_FD_TABLE_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/unfinished.h"
#include "shim/socket.h"

namespace ddpsock::shim {

// Descriptors from here on pass through. The kernel's own default ceiling (fs.nr_open).
inline constexpr unsigned kMaxFds = 1u << 20;

using FdSlot = std::atomic<Socket*>;
// Null until the first socket of ours. Hidden, and not only by the version script, so that the
// wrappers address it directly.
[[gnu::visibility("hidden")]] extern constinit std::atomic<FdSlot*> fd_table;

inline bool is_any_ours() {
  return fd_table.load(std::memory_order_acquire) != nullptr;
}

inline Socket* socket_at(int fd) {
  FdSlot* table = fd_table.load(std::memory_order_acquire);
  if (table == nullptr || static_cast<unsigned>(fd) >= kMaxFds) [[likely]]
    return nullptr;
  return table[fd].load(std::memory_order_acquire);
}

inline bool is_ours(int fd) {
  return __builtin_expect(socket_at(fd) != nullptr, 0);
}

// Is a call on `fd` served by anything but libc? Not where it is decided to be plain TCP, even if
// the Socket that says so is another's by then.
inline bool is_served(int fd) {
  const Socket* socket = socket_at(fd);
  if (socket == nullptr) [[likely]]
    return false;
  return socket->phase.load(std::memory_order_acquire) != Phase::kPlain || socket_at(fd) != socket;
}

// Keeps the Socket of `fd` from being retired while a call uses it.
class SocketUse : private base::Unfinished {
 public:
  explicit SocketUse(int fd);
  SocketUse(const SocketUse&) = delete;
  SocketUse& operator=(const SocketUse&) = delete;
  // noexcept(false): giving a stream up may end in a cancellation point.
  ~SocketUse() noexcept(false) {
    if (socket_ != nullptr) end();
  }

  explicit operator bool() const { return socket_ != nullptr; }
  Socket* operator->() const { return socket_; }
  Socket& operator*() const { return *socket_; }
  Phase phase() const { return socket_->phase.load(std::memory_order_acquire); }

 private:
  static void abandon(base::Unfinished& use);
  void end();

  Socket* socket_ = nullptr;
  uint32_t generation_ = 0;
};

// Asked while is_any_ours(): does this process run in the memory of the one that it came from?
bool is_vfork_child();

// The calling thread has descriptors of its own from now on, a copy that it closes some of: its
// numbers are not those of the table any more.
void note_own_descriptors();

// Asked while is_any_ours(): does the caller have other descriptors than the table is about? A
// thread with its own, or a vfork child.
bool has_other_descriptors();

// Enters `fd`, with a new Socket; what was there before is dropped. nullptr: out of memory, beyond
// kMaxFds, or has_other_descriptors(). The first call maps the table (address space only). The
// caller holds the descriptor open; wrap the result in a SocketUse before it may be closed.
Socket* enter_fd(int fd);

// `to` is a duplicate of `from` now.
void share_fd(int from, int to);

// `fd` is about to be closed by the program. Retires the Socket with its last descriptor; returns
// when no call of another thread is at work on `fd`, but for those that sleep, which look again.
void drop_fd(int fd);
void drop_fd_range(unsigned first, unsigned last);

// `fd` is not the socket that it was: closed without our knowing, and another's by now, which is
// left alone.
void forget_stale_fd(int fd);
// The same if `fd` is still entered as `socket`.
void forget_stale_fd(int fd, const Socket& socket);

// A call has just returned `fd` as new: an entry left there is stale.
inline void drop_stale_fd(int fd) {
  if (is_ours(fd)) forget_stale_fd(fd);
}

// A descriptor that `socket` is entered by, `fd` if it is that; -1: none is left.
int number_of(const Socket& socket, int fd);

// One more than the highest descriptor that was ever entered.
int fds_end();

// How a descriptor came to be connected, and why it is plain TCP, kept for every descriptor below
// kMaxFds in one byte: enough for DDP_MODE to choose a role later and for DDP_STATUS.
enum class Origin : uint8_t { kUnknown = 0, kConnected = 1, kAccepted = 2 };
struct Hint {
  Origin origin;
  const char* reason;  // static text; "" if never judged
};
// `reason` must be static text; of more than 62 different ones, the later ones are not kept.
void set_hint(int fd, Origin origin, const char* reason);
Hint hint_of(int fd);

// Through std::atomic_ref only: clang would evaluate a million constructors of std::atomic.
extern constinit uint8_t fd_hints[kMaxFds];
inline void set_origin(int fd, Origin origin) {
  if (static_cast<unsigned>(fd) < kMaxFds)
    std::atomic_ref(fd_hints[fd]).store(std::to_underlying(origin), std::memory_order_relaxed);
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_FD_TABLE_H_
