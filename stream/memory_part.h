// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What pollers ask of the part of a stream that lies in memory shared with the peer, of which the
// kernel knows only what bells tell it.
#ifndef DDPSOCK_STREAM_MEMORY_PART_H_
#define DDPSOCK_STREAM_MEMORY_PART_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::engine {

// What can be seen of a stream without a system call or a lock.
struct Glance {
  bool may_be_in_memory = false;  // now or later
  bool is_in_memory = false;      // bytes come through memory shared with the peer
  bool is_wire_in_use = false;    // or, some of them, as FPDUs, of which this says nothing
  bool has_bytes = false;         // some are there
  bool may_have_ended = false;    // the peer's FIN, of which this says nothing else, may be there
  uint64_t position = 0;          // changes with each that comes
  uint64_t ready_since = 0;       // base::ticks(), behind want_order(); 0: not known
  uint32_t peer_cpu = 0;          // where the peer last ran, plus 1; 0 if not known
};

// A stream's; `fd`, threads and signals: as for all its calls.
class MemoryPart {
 public:
  // Has a stream of this process ever been in memory? If not, glance() need not be asked.
  static bool is_memory_in_use() { return is_memory_in_use_.load(std::memory_order_relaxed); }
  // Before one is.
  static void note_memory_in_use() { is_memory_in_use_.store(true, std::memory_order_relaxed); }

  virtual Glance glance() const = 0;
  // Glances shall tell since when there are bytes, of those that come in memory from now on. False:
  // it is not in memory yet, and has to be asked again.
  virtual bool want_order() = 0;
  // Is there room in that memory for bytes the other way? Apart, for it looks where the peer writes
  // with each byte that it reads.
  virtual bool has_memory_room() const = 0;
  // Both directions are open, as far as this end and the memory know, and no call has kept an error
  // for the next one: of an end or an error only the kernel may have something to tell.
  virtual bool is_open_in_memory() const = 0;

  // Thread `thread` (0: none) watches this stream by glances: where it reads all there is, the
  // kernel may go on calling the socket readable, until settle().
  virtual void set_watcher(uint32_t thread) = 0;
  // The same for as long as no thread of this process waits for edges and `thread` goes on asking:
  // it has polled this stream, by a glance first, and settles it before it asks the kernel.
  virtual void note_poller(uint32_t thread) = 0;
  // No bell was asked for: where there are no bytes, the kernel may call the socket readable.
  virtual bool may_have_stale_bell() const = 0;

  // Makes the kernel's word about readability true again, before somebody sleeps on it.
  virtual void settle(int fd) = 0;

 protected:
  ~MemoryPart() = default;

 private:
  static inline constinit std::atomic<bool> is_memory_in_use_{false};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_MEMORY_PART_H_
