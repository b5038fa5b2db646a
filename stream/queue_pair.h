// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a byte stream sees of the queue pair whose FPDUs lie between its chunks: one-sided
// operations of a stream (doc/decisions/0034-one-sided-between-chunks.md). What that sees of the
// stream is one_sided_way.h.
#ifndef DDPSOCK_STREAM_QUEUE_PAIR_H_
#define DDPSOCK_STREAM_QUEUE_PAIR_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "base/bytes.h"

namespace ddpsock::engine {

// Whole FPDUs on their way from whoever received them to whoever advances the queue pair: one of
// each at a time. Without a lock, because the first may be in a signal handler.
class FpduFifo {
 public:
  static constexpr size_t kSize = 256 * 1024;  // more than the largest FPDU

  // False: no memory.
  bool open() {
    if (!bytes_) bytes_.reset(new (std::nothrow) uint8_t[kSize]);
    return bytes_ != nullptr;
  }
  bool is_empty() const { return head_.load() == tail_.load(); }
  // Everything has been taken, and what it says been done.
  bool is_done() const { return done_.load() == tail_.load(); }
  // What was taken up to now is done.
  void note_done() { done_.store(head_.load(std::memory_order_relaxed)); }

  // All of it or, for want of room, nothing.
  bool push(Bytes fpdu) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (fpdu.size() > kSize - (tail - head_.load(std::memory_order_acquire))) return false;
    const size_t at = tail % kSize;
    const size_t first = std::min(fpdu.size(), kSize - at);
    std::memcpy(bytes_.get() + at, fpdu.data(), first);
    std::memcpy(bytes_.get(), fpdu.data() + first, fpdu.size() - first);
    tail_.store(tail + fpdu.size(), std::memory_order_release);
    return true;
  }

  // Fills `to` in order; how many bytes.
  size_t pop(std::span<const MutBytes> to) {
    uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    size_t taken = 0;
    for (MutBytes range : to) {
      while (!range.empty() && head != tail) {
        const size_t at = head % kSize;
        const size_t n = std::min({range.size(), kSize - at, static_cast<size_t>(tail - head)});
        std::memcpy(range.data(), bytes_.get() + at, n);
        range = range.subspan(n);
        head += n;
        taken += n;
      }
    }
    head_.store(head, std::memory_order_release);
    return taken;
  }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  std::atomic<uint64_t> head_{0};
  std::atomic<uint64_t> tail_{0};
  std::atomic<uint64_t> done_{0};
};

class OneSided {
 public:
  // The queue pair is to be advanced soon, by another thread or a later call: the connection is
  // free again, or has ended. Async-signal-safe; called with leases held.
  virtual void wake() = 0;
  // What has arrived is done when it returns, so that stream bytes which came later may be
  // delivered. REQUIRES: the stream's receive lease.
  virtual void take_in() = 0;
  // The program is about to send: what was posted before goes first, as far as it need not wait for
  // the peer. 0, or EAGAIN: the kernel refused. REQUIRES: the stream's send lease.
  virtual int flush() = 0;

  FpduFifo arrived;

 protected:
  ~OneSided() = default;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_QUEUE_PAIR_H_
