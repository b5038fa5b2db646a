// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/socket.h"

#include <sys/mman.h>

#include "message/handle.h"
#include "shim/brief_use.h"
#include "shim/log.h"
#include "shim/message_socket.h"

namespace ddpsock::shim {
namespace {

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
  socket->is_required.store(false, std::memory_order_relaxed);
  socket->engine.store(EngineChoice::kDefault, std::memory_order_relaxed);
  socket->is_nonblocking.store(false, std::memory_order_relaxed);
  socket->early_looks.store(0, std::memory_order_relaxed);
  socket->kernel_asked_at.store(0, std::memory_order_relaxed);
  socket->has_more_in_kernel.store(false, std::memory_order_relaxed);
  socket->tells_queue.store(false, std::memory_order_relaxed);
  socket->has_offered.store(false, std::memory_order_relaxed);
  socket->is_given.store(false, std::memory_order_relaxed);
  socket->is_stray.store(false, std::memory_order_relaxed);
  socket->inquiry = {};
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
  if (phase == Phase::kStream && is_logging()) log_close(socket, fd);
  drop_dead_stream(socket, fd);
  if (message::Handle* handle = socket.message.exchange(nullptr)) {
    // What a parent has published is not its child's to take back.
    if (fd >= 0 && !handle->is_foreign()) withdraw_offer(socket, fd);
    destroy_after_brief_uses(*handle);
  }
  push_free(socket);
}

}  // namespace ddpsock::shim
