// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One member of an epoll set that is a stream and may lie in shared memory: what the program asked
// for, what the kernel knows of that, and what was reported last. In static memory, a cache line
// each; zero memory is a free one.
//
// Any thread reads one at any time, and finds out by its version that it has become another's. What
// the program asks for changes with a hold of the set (WatchedSet::Hold); what the kernel is told
// may be told by who was refused one too, and is about to ask it.
#ifndef DDPSOCK_SHIM_POLLERS_WATCHED_STREAM_H_
#define DDPSOCK_SHIM_POLLERS_WATCHED_STREAM_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>

#include "shim/fd_table.h"
#include "shim/pollers/set_place.h"
#include "stream/stream.h"

namespace ddpsock::shim {

// Runs `f(Stream&)` if `fd` is a stream in DDPMODE, which is not closed meanwhile.
template <typename F>
void with_stream(int fd, F f) {
  if (socket_at(fd) == nullptr) return;
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase())) return;
  engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  if (stream.is_behind(fd)) f(stream);
}

struct alignas(64) WatchedStream {
  std::atomic<int> fd;  // plus 1; 0: free
  // Raised whenever it is freed or deleted: who looks without a hold finds out that it is
  // another's.
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> events;         // as the program wants them
  std::atomic<uint32_t> kernel_events;  // as the kernel knows them
  std::atomic<uint64_t> data, kernel_data;
  std::atomic<uint64_t> reported;  // mark() of up to where, for edge-triggered ones
  std::atomic<uint64_t> seen;      // how far at `seen_at`
  std::atomic<int64_t> seen_at;
  std::atomic<bool> is_wanted;
  std::atomic<bool> is_in_kernel;
  std::atomic<bool> has_order;  // its writer notes times
  std::atomic<bool> has_lazy_bell;
  std::atomic<bool> is_hushed;  // the kernel is not to say that it is readable

  bool is(int number, uint32_t of_version) const {
    return fd.load(std::memory_order_acquire) == number + 1 && version.load() == of_version;
  }
  // A position of the stream that was here at `of_version`: no other's is equal.
  static uint64_t mark(uint32_t of_version, uint64_t position) {
    return position + (uint64_t{of_version} << 48);
  }
  // The stream that is known by `number`; again until it is in memory.
  void want_order(int number);

  // Nothing is known of what was reported. REQUIRES: free.
  void begin();
  // The program wants `event`, and the kernel knows that.
  void note_asked(const epoll_event& event);
  // Of who is refused the hold too.
  void free();

  // Of the member `number` of `set`: the kernel hears what it does not know yet, and is to say
  // again when it is readable.
  void tell(const SetPlace& set, int number);
  // As it is, hushed or not.
  void tell_but_hush(const SetPlace& set, int number);
  // False: nothing that is asked for can be left out, and it would be reported each time.
  bool can_be_hushed() const;
  // Of its readability the kernel is not to speak, until tell().
  void hush(const SetPlace& set, int number);
  // Whoever watches it from now on relies on the kernel.
  void give_up(const SetPlace& set, int number);

  // Whether the kernel has said that it is readable for the sake of a bell alone, as far as anyone
  // can see. Where that may be an old bell, or has been so for long, the stream's bells are
  // settled. Any thread. `stream` is that of `number`, and used by the caller.
  bool settle_if_for_bell(int number, engine::MemoryPart& stream);

 private:
  uint32_t events_for_kernel() const;
};
static_assert(sizeof(WatchedStream) == 64);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_WATCHED_STREAM_H_
