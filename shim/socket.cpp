// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/socket.h"

#include <sys/mman.h>

#include "base/process.h"
#include "message/handle.h"
#include "shim/log.h"
#include "shim/message_socket.h"

namespace ddpsock::shim {
namespace {

// generation:24 | fds:20 | calls:20
constexpr unsigned kFieldBits = 20;
constexpr uint64_t kField = (uint64_t{1} << kFieldBits) - 1;
constexpr uint64_t kOneCall = 1;
constexpr uint64_t kOneFd = uint64_t{1} << kFieldBits;
constexpr unsigned kGenerationShift = 2 * kFieldBits;
constexpr uint32_t kGenerationMask = (1u << (64 - kGenerationShift)) - 1;

uint32_t generation_of(uint64_t word) {
  return static_cast<uint32_t>(word >> kGenerationShift);
}
uint32_t fds_of(uint64_t word) {
  return static_cast<uint32_t>(word >> kFieldBits & kField);
}
uint32_t calls_of(uint64_t word) {
  return static_cast<uint32_t>(word & kField);
}
uint64_t make_word(uint32_t generation, uint32_t fds, uint32_t calls) {
  return uint64_t{generation & kGenerationMask} << kGenerationShift | uint64_t{fds} << kFieldBits |
         calls;
}

// The word as this process must read it: a parent's running calls do not run here.
uint64_t in_this_process(uint64_t word) {
  const uint32_t now = base::process_generation() & kGenerationMask;
  return generation_of(word) == now ? word : make_word(now, fds_of(word), 0);
}

constexpr uint32_t kChunkSockets = 512;
constexpr uint32_t kMaxChunks = 2048;
constinit std::atomic<Socket*> chunks[kMaxChunks];

// A stack of free sockets by number (1-based; 0 ends it), with a tag in the upper half that makes
// each pop's compare-exchange notice a pop and push in between.
constinit std::atomic<uint64_t> free_head{0};
constinit std::atomic<uint32_t> next_unused{0};

Socket* socket_by_number(uint32_t number) {
  const uint32_t index = number - 1;
  Socket* chunk = chunks[index / kChunkSockets].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk[index % kChunkSockets];
}

bool map_chunk(uint32_t index) {
  if (chunks[index].load(std::memory_order_acquire) != nullptr) return true;
  void* p = mmap(nullptr, kChunkSockets * sizeof(Socket), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  Socket* none = nullptr;
  if (!chunks[index].compare_exchange_strong(none, static_cast<Socket*>(p)))
    munmap(p, kChunkSockets * sizeof(Socket));
  return true;
}

Socket* pop_free() {
  uint64_t head = free_head.load(std::memory_order_acquire);
  for (;;) {
    const auto number = static_cast<uint32_t>(head);
    if (number == 0) return nullptr;
    Socket* socket = socket_by_number(number);
    const uint64_t next = ((head >> 32) + 1) << 32 | socket->next_free;
    if (free_head.compare_exchange_weak(head, next, std::memory_order_acq_rel)) return socket;
  }
}

uint32_t number_of(const Socket& socket) {
  for (uint32_t c = 0; c < kMaxChunks; ++c) {
    const Socket* chunk = chunks[c].load(std::memory_order_acquire);
    if (chunk == nullptr) break;
    if (&socket >= chunk && &socket < chunk + kChunkSockets)
      return c * kChunkSockets + static_cast<uint32_t>(&socket - chunk) + 1;
  }
  __builtin_unreachable();
}

void push_free(Socket& socket) {
  const uint32_t number = number_of(socket);
  uint64_t head = free_head.load(std::memory_order_relaxed);
  uint64_t next;
  do {
    socket.next_free = static_cast<uint32_t>(head);
    next = ((head >> 32) + 1) << 32 | number;
  } while (!free_head.compare_exchange_weak(head, next, std::memory_order_acq_rel));
}

Socket* take_unused() {
  uint32_t index = next_unused.load(std::memory_order_relaxed);
  do {
    if (index == kChunkSockets * kMaxChunks || !map_chunk(index / kChunkSockets)) return nullptr;
  } while (!next_unused.compare_exchange_weak(index, index + 1, std::memory_order_acq_rel));
  return socket_by_number(index + 1);
}

}  // namespace

void References::reset() {
  word_.store(make_word(base::process_generation(), 1, 0), std::memory_order_release);
}

bool References::try_begin_call() {
  uint64_t word = word_.load(std::memory_order_acquire);
  uint64_t next;
  do {
    if (fds_of(word) == 0) return false;
    next = in_this_process(word) + kOneCall;
  } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel));
  return true;
}

References::Left References::end_call(uint32_t generation) {
  uint64_t word = word_.load(std::memory_order_acquire);
  uint64_t next;
  do {
    const uint64_t mine = in_this_process(word);
    const bool is_counted =
        generation_of(mine) == (generation & kGenerationMask) && calls_of(mine) != 0;
    // The child of a fork inside the call: nothing of the call is left to take back. One more call
    // than none is reported, so that it never looks like the last.
    if (!is_counted) return {fds_of(mine), 1};
    next = mine - kOneCall;
  } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel));
  return {fds_of(next), calls_of(next)};
}

bool References::try_add_fd() {
  uint64_t word = word_.load(std::memory_order_acquire);
  uint64_t next;
  do {
    if (fds_of(word) == 0) return false;
    next = in_this_process(word) + kOneFd;
  } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel));
  return true;
}

References::Left References::drop_fd() {
  uint64_t word = word_.load(std::memory_order_acquire);
  uint64_t next;
  do {
    next = in_this_process(word) - kOneFd;
  } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel));
  return {fds_of(next), calls_of(next)};
}

Socket* take_socket() {
  Socket* socket = pop_free();
  if (socket == nullptr) socket = take_unused();
  if (socket == nullptr) return nullptr;
  socket->stream.store(nullptr, std::memory_order_relaxed);
  socket->message.store(nullptr, std::memory_order_relaxed);
  socket->reason.store("", std::memory_order_relaxed);
  socket->receive_low_water.store(1, std::memory_order_relaxed);
  socket->phase.store(Phase::kIdle, std::memory_order_relaxed);
  socket->wish.store(Wish::kNone, std::memory_order_relaxed);
  socket->mode.store(Mode::kPlain, std::memory_order_relaxed);
  socket->role.store(engine::Role::kInitiator, std::memory_order_relaxed);
  socket->wants_crc.store(true, std::memory_order_relaxed);
  socket->engine.store(EngineChoice::kDefault, std::memory_order_relaxed);
  socket->is_nonblocking.store(false, std::memory_order_relaxed);
  socket->has_offered.store(false, std::memory_order_relaxed);
  socket->references.reset();
  return socket;
}

void drop_dead_stream(Socket& socket, int fd) {
  engine::Stream* stream = socket.stream.exchange(nullptr, std::memory_order_acq_rel);
  if (stream != nullptr) stream->release(fd);
}

// Which engine served in the end.
static void log_close(const Socket& socket, int fd) {
  const engine::Stream* stream = socket.stream.load(std::memory_order_acquire);
  if (stream == nullptr) return;
  const engine::StreamStatus status = stream->status();
  log_connection("close", fd, "stream", status.engine, status.memory);
}

void retire_socket(Socket& socket, int fd) {
  const Phase phase = socket.phase.load(std::memory_order_acquire);
  if (phase == Phase::kListening && fd >= 0) forget_listener(fd);
  if (phase == Phase::kStream && is_logging()) log_close(socket, fd);
  drop_dead_stream(socket, fd);
  if (message::Handle* handle = socket.message.exchange(nullptr)) {
    // What a parent has published is not its child's to take back.
    if (fd >= 0 && !handle->is_foreign()) withdraw_offer(socket, fd);
    handle->destroy();
  }
  push_free(socket);
}

}  // namespace ddpsock::shim
