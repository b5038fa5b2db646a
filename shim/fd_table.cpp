// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/fd_table.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process.h"
#include "message/handle.h"
#include "shim/pollers/epoll_watch.h"
#include "shim/pollers/watched_sets.h"
#include "shim/threads.h"
#include "stream/stream.h"

namespace ddpsock::shim {

constinit std::atomic<FdSlot*> fd_table{nullptr};
constinit uint8_t fd_hints[kMaxFds];

namespace {

constexpr size_t kTableBytes = kMaxFds * sizeof(FdSlot);

// The process that owns the memory. A vfork child differs from it; so would a forked child, were it
// not for note_process().
constinit std::atomic<pid_t> owner_pid{0};
constinit std::atomic<uint32_t> owner_generation{0};
// No slot from here on was ever used: bounds close_range(3, ~0).
constinit std::atomic<unsigned> slots_end{0};

// The process in which this thread has descriptors of its own. A child that it forks has them
// alone.
constinit thread_local uint32_t own_descriptors_of = 0;

void note_process() {
  owner_pid.store(getpid(), std::memory_order_relaxed);
  owner_generation.store(base::process_generation(), std::memory_order_release);
}

// A vfork child's numbers are not in the table: what lies at one of them its cookie tells.
bool is_named(int fd, const engine::Stream& stream) {
  const Socket* socket = socket_at(fd);
  return (socket != nullptr && socket->stream.load(std::memory_order_acquire) == &stream) ||
         is_vfork_child();
}

FdSlot* map_table() {
  FdSlot* table = fd_table.load(std::memory_order_acquire);
  if (table != nullptr) return table;
  if (!base::process_init()) return nullptr;
  void* p = mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  note_process();
  if (!fd_table.compare_exchange_strong(table, static_cast<FdSlot*>(p),
                                        std::memory_order_acq_rel)) {
    munmap(p, kTableBytes);
    return table;
  }
  // A child that calls vfork before it touches a socket of ours must not be mistaken for its own
  // vfork child. If this fails, only that case suffers.
  pthread_atfork(nullptr, nullptr, note_process);
  engine::user_stream_engine().set_naming(is_named);
  return static_cast<FdSlot*>(p);
}

void raise_slots_end(unsigned fd) {
  unsigned end = slots_end.load(std::memory_order_relaxed);
  while (end <= fd && !slots_end.compare_exchange_weak(end, fd + 1)) {
  }
}

// Gives up a descriptor in message mode. With the last one the connection ends before the number
// can be another's, whatever calls still run; it is kept from being retired meanwhile.
void replace_message(Socket& socket, int fd) {
  const uint32_t generation = base::process_generation();
  const bool is_kept = socket.references.try_begin_call(generation);
  References::Left left = socket.references.drop_fd();
  if (left.fds == 0) socket.message.load(std::memory_order_acquire)->close();
  if (is_kept) left = socket.references.end_call(generation);
  if (left.is_none()) retire_socket(socket, fd);
}

// Whose a number is whose entry goes.
enum class Owner : uint8_t {
  kSame,    // the socket's, until the caller has closed it
  kAnother  // perhaps another's already
};

// Gives up the reference that the slot of `fd` was.
void give_up(Socket& old, int fd, Owner owner) {
  const bool is_mine = owner == Owner::kSame;
  if (is_any_watched()) forget_watches_of(fd);
  forget_member(fd, is_mine);
  const int socket = is_mine ? fd : -1;
  if (old.message.load(std::memory_order_acquire) != nullptr) return replace_message(old, socket);
  // Kept from being retired by a call's end while that is awaited.
  const uint32_t generation = base::process_generation();
  const bool is_kept =
      is_mine && old.references.is_any_call() && old.references.try_begin_call(generation);
  References::Left left = old.references.drop_fd();
  if (is_kept) {
    if (engine::Stream* stream = old.stream.load(std::memory_order_acquire); stream != nullptr)
      stream->await_calls(base::now() + engine::Stream::kMostCallTime);
    left = old.references.end_call(generation);
  }
  if (left.is_none()) retire_socket(old, socket);
}

// Before the table denies the number to calls that sleep on it.
void outlive(int fd) {
  const Socket* socket = socket_at(fd);
  if (socket == nullptr || !socket->references.are_calls_on_last_fd()) return;
  const SocketUse use(fd);
  if (!use || use.phase() != Phase::kStream) return;
  if (engine::Stream* stream = use->stream.load(std::memory_order_acquire); stream != nullptr)
    stream->outlive(fd);
}

// Takes what is in the slot of `fd` out, or replaces it.
void replace(FdSlot* table, int fd, Socket* next, Owner owner) {
  Socket* old = table[fd].exchange(next, std::memory_order_seq_cst);
  if (old != nullptr) give_up(*old, fd, owner);
}

// Texts that hints refer to by number, 1-based.
constexpr unsigned kOriginBits = 2;
constexpr unsigned kMaxReasons = 62;
constinit std::atomic<const char*> reasons[kMaxReasons];

unsigned number_of_reason(const char* reason) {
  if (*reason == '\0') return 0;
  for (unsigned i = 0; i < kMaxReasons; ++i) {
    const char* known = nullptr;
    if (reasons[i].compare_exchange_strong(known, reason) || known == reason) return i + 1;
  }
  return 0;
}

}  // namespace

bool is_vfork_child() {
  // After _Fork or a raw fork, no handler ran; the generation tells.
  if (owner_generation.load(std::memory_order_acquire) != base::process_generation())
    note_process();
  return owner_pid.load(std::memory_order_relaxed) != getpid();
}

void note_own_descriptors() {
  own_descriptors_of = base::process_generation();
}

// Once the others have ended there is no other table.
bool has_other_descriptors() {
  if (own_descriptors_of == base::process_generation() &&
      other_threads() != OtherThreads::kPrograms)
    own_descriptors_of = 0;
  return own_descriptors_of == base::process_generation() || is_vfork_child();
}

SocketUse::SocketUse(int fd) : Unfinished(abandon) {
  begin();
  for (;;) {
    Socket* socket = socket_at(fd);
    if (socket == nullptr) return;
    generation_ = base::process_generation();
    if (!socket->references.try_begin_call(generation_)) {
      // Being retired by a close that has emptied the slot or will at once.
      if (socket_at(fd) == socket) return;
      continue;
    }
    socket_ = socket;
    if (socket_at(fd) == socket) return;
    end();
  }
}

void SocketUse::abandon(base::Unfinished& unfinished) {
  auto& use = static_cast<SocketUse&>(unfinished);
  if (use.socket_ != nullptr) use.end();
}

// Once, also if a signal handler jumps away meanwhile.
void SocketUse::end() {
  Socket* socket = std::exchange(socket_, nullptr);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const References::Left left = socket->references.end_call(generation_);
  if (left.is_none()) {
    retire_socket(*socket, -1);
  } else if (left.calls == 0 && socket->phase.load(std::memory_order_acquire) == Phase::kPlain) {
    drop_dead_stream(*socket, -1);
  }
}

Socket* enter_fd(int fd) {
  if (static_cast<unsigned>(fd) >= kMaxFds) return nullptr;
  FdSlot* table = map_table();
  if (table == nullptr || has_other_descriptors()) return nullptr;
  Socket* socket = take_socket();
  if (socket == nullptr) return nullptr;
  raise_slots_end(static_cast<unsigned>(fd));
  replace(table, fd, socket, Owner::kAnother);
  return socket;
}

void share_fd(int from, int to) {
  if (from == to || static_cast<unsigned>(to) >= kMaxFds || !is_any_ours() ||
      has_other_descriptors())
    return;
  const SocketUse use(from);
  if (!use || !use->references.try_add_fd()) return;
  raise_slots_end(static_cast<unsigned>(to));
  replace(fd_table.load(std::memory_order_acquire), to, &*use, Owner::kAnother);
}

void drop_fd(int fd) {
  if (!is_ours(fd) || has_other_descriptors()) return;
  outlive(fd);
  replace(fd_table.load(std::memory_order_acquire), fd, nullptr, Owner::kSame);
}

void forget_stale_fd(int fd) {
  if (!is_ours(fd) || has_other_descriptors()) return;
  replace(fd_table.load(std::memory_order_acquire), fd, nullptr, Owner::kAnother);
}

void forget_stale_fd(int fd, const Socket& socket) {
  if (socket_at(fd) != &socket || has_other_descriptors()) return;
  auto* entered = const_cast<Socket*>(&socket);
  FdSlot& slot = fd_table.load(std::memory_order_acquire)[fd];
  if (slot.compare_exchange_strong(entered, nullptr)) give_up(*entered, fd, Owner::kAnother);
}

void drop_fd_range(unsigned first, unsigned last) {
  if (!is_any_ours() || has_other_descriptors()) return;
  const unsigned end = slots_end.load(std::memory_order_acquire);
  for (unsigned fd = first; fd < end && fd <= last; ++fd) drop_fd(static_cast<int>(fd));
}

int number_of(const Socket& socket, int fd) {
  if (socket_at(fd) == &socket) return fd;
  const int end = fds_end();
  for (int other = 0; other < end; ++other)
    if (socket_at(other) == &socket) return other;
  return -1;
}

int fds_end() {
  return static_cast<int>(slots_end.load(std::memory_order_acquire));
}

void set_hint(int fd, Origin origin, const char* reason) {
  if (static_cast<unsigned>(fd) >= kMaxFds) return;
  std::atomic_ref(fd_hints[fd])
      .store(static_cast<uint8_t>(std::to_underlying(origin) | number_of_reason(reason)
                                                                   << kOriginBits),
             std::memory_order_relaxed);
}

Hint hint_of(int fd) {
  if (static_cast<unsigned>(fd) >= kMaxFds) return {Origin::kUnknown, ""};
  const uint8_t byte = std::atomic_ref(fd_hints[fd]).load(std::memory_order_relaxed);
  const unsigned number = byte >> kOriginBits;
  const char* reason = number == 0 ? "" : reasons[number - 1].load(std::memory_order_relaxed);
  return {static_cast<Origin>(byte & ((1u << kOriginBits) - 1)), reason};
}

}  // namespace ddpsock::shim
