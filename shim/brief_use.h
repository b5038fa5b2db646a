// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A SocketUse for the calls of message mode that are over in a few hundred instructions: it costs
// no locked one, because whoever destroys what they use has the other processors pass a barrier
// first (membarrier). Nothing in it may sleep. Where it is empty, ask by a SocketUse: the kernel
// knows no such barrier, a signal handler interrupts another such call, there are too many threads,
// or the descriptor is none in message mode.
#ifndef DDPSOCK_SHIM_BRIEF_USE_H_
#define DDPSOCK_SHIM_BRIEF_USE_H_

#include <atomic>
#include <cstdint>

#include "message/handle.h"
#include "shim/fd_table.h"

namespace ddpsock::shim {

class BriefUse {
 public:
  [[gnu::always_inline]] explicit BriefUse(int fd) {
    Mark* mark = my_mark;
    if (mark == nullptr) [[unlikely]]
      mark = take_mark();
    if (mark->handle.load(std::memory_order_relaxed) != nullptr) return;
    const Socket* socket = socket_at(fd);
    if (socket == nullptr || socket->phase.load(std::memory_order_acquire) != Phase::kMessage)
      return;
    message::Handle* handle = socket->message.load(std::memory_order_acquire);
    if (handle == nullptr) return;
    mark->frame = this;
    mark->handle.store(handle, std::memory_order_relaxed);
    // In the other processor's eyes the store comes first by the barrier that await_brief_uses()
    // has it pass; here the compiler must not turn them round.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const bool is_still = socket_at(fd) == socket &&
                          socket->message.load(std::memory_order_acquire) == handle &&
                          !handle->is_foreign();
    if (is_still) [[likely]] {
      handle_ = handle;
      mark_ = mark;
    } else {
      mark->handle.store(nullptr, std::memory_order_release);
    }
  }
  ~BriefUse() {
    if (mark_ != nullptr) mark_->handle.store(nullptr, std::memory_order_release);
  }
  BriefUse(const BriefUse&) = delete;
  BriefUse& operator=(const BriefUse&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }
  message::Handle* operator->() const { return handle_; }

  // Where on the stack that of the calling thread lies, if it is in one; and that a signal handler
  // has jumped out of it.
  static const void* frame_of_thread() {
    const Mark* mark = my_mark;
    const bool is_in_one =
        mark != nullptr && mark->handle.load(std::memory_order_relaxed) != nullptr;
    return is_in_one ? mark->frame : nullptr;
  }
  static void leave() { my_mark->handle.store(nullptr, std::memory_order_release); }

 private:
  friend class BriefUses;

  // What a thread is using. Alone on its line.
  struct alignas(64) Mark {
    std::atomic<const void*> handle{nullptr};
    const void* frame = nullptr;
    std::atomic<uint32_t> thread{0};  // whose it is; 0: nobody's yet
    uint32_t generation = 0;          // of its process: a forked child's thread has another name
  };
  static constexpr unsigned kMarks = 256;
  static Mark marks[kMarks];
  static Mark none;  // of threads that get no mark: looks used
  [[gnu::tls_model("initial-exec")]] static thread_local constinit Mark* my_mark;
  [[gnu::noinline, gnu::cold]] static Mark* take_mark();

  message::Handle* handle_ = nullptr;
  Mark* mark_ = nullptr;
};

// Before a connection in message mode is entered: has the kernel prepare the barrier.
void allow_brief_uses();
// `handle` is in no Socket any more, and no other call uses it: destroys it once no such call does.
// One that does for long, as that which this thread has interrupted, is waited for by later calls.
void destroy_after_brief_uses(message::Handle& handle);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_BRIEF_USE_H_
