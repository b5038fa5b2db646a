// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a byte stream (stream/stream.h) and the queue pair whose FPDUs lie between its chunks see of
// each other: one-sided operations of a stream (doc/decisions/0034-one-sided-between-chunks.md).
#ifndef DDPSOCK_ENGINE_ONE_SIDED_H_
#define DDPSOCK_ENGINE_ONE_SIDED_H_

#include <errno.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "base/bytes.h"
#include "base/result.h"

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

// The part of a stream that a queue pair uses: its FPDUs travel between those of the stream.
class FpduWay {
 public:
  // begin_one_sided() is this process's from then on, and `queue_pair` must stay until no call is
  // running after end_one_sided(). EOPNOTSUPP: the peer, the engine or another process that has
  // them says no. ENOTCONN: not decided yet. ENOMEM.
  virtual Status<> begin_one_sided(int /*fd*/, OneSided& /*queue_pair*/) {
    return fail_errno(EOPNOTSUPP);
  }
  virtual void end_one_sided() {}
  // What the peer's start-up frame says: whether FPDUs have CRCs. EAGAIN before it has come,
  // EOPNOTSUPP if the peer says no.
  virtual Result<bool> one_sided_crc(int /*fd*/) { return fail_errno(EOPNOTSUPP); }
  // Makes sure that our start-up frame is on its way, so that the peer's comes. EAGAIN, ENOTCONN.
  virtual Status<> announce(int /*fd*/) { return fail_errno(EOPNOTSUPP); }
  // Hands over FPDUs from the front of `from`, whole ones only; how many bytes. Never waits.
  // EAGAIN: the kernel refused. EBUSY: another call is sending; try again, or after
  // OneSided::wake().
  virtual Result<size_t> send_fpdus(int /*fd*/, std::span<const Bytes> /*from*/) {
    return fail_errno(EOPNOTSUPP);
  }
  // Fills `to` with FPDUs that are not of the stream; 0: the peer's FIN, or the stream has failed.
  // Stream bytes before them are kept for recv(). Never waits. EAGAIN, EBUSY as above.
  virtual Result<size_t> receive_fpdus(int /*fd*/, std::span<const MutBytes> /*to*/) {
    return fail_errno(EOPNOTSUPP);
  }
  // The stream's own FPDUs carry so much at most.
  virtual uint32_t max_chunk() const { return 0; }

 protected:
  ~FpduWay() = default;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_ONE_SIDED_H_
