// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_SENDER_H_
#define DDPSOCK_STREAM_SENDER_H_

#include <sys/socket.h>

#include <optional>

#include "base/cancellation.h"
#include "stream/connection.h"
#include "stream/descriptor.h"
#include "stream/io_cursor.h"

namespace ddpsock::engine {

// What the kernel took is accounted for, whatever becomes of the thread. For calls that do not
// wait.
template <typename Call>
ssize_t without_cancellation(Call call) {
  const base::Uncancelled whole;
  return call();
}

// One send call. REQUIRES: the send lease is held, start-up is over in that direction or begins
// with it, no tail is pending.
class Sender {
 public:
  // What always fits a socket that is writable.
  static constexpr size_t kMinAllowance = 1024;

  // What a call may send together with the start-up frame.
  static constexpr uint32_t kMostWithFrame = 4096;

  Sender(Connection& c, int fd, std::span<const iovec> from, int flags);
  Sender(const Sender&) = delete;
  // Also of a thread that is cancelled inside.
  ~Sender() { uncork(); }
  // `frame` goes in front of the first chunk. REQUIRES: `from` is not longer than the above.
  Sender& begin_with(Bytes frame) {
    frame_ = frame;
    return *this;
  }
  Io run();
  // Hands over FPDUs of the queue pair instead, as many as the kernel is sure to take whole and one
  // at least; how many bytes. REQUIRES: `from` holds whole FPDUs and is not empty.
  Result<size_t> send_fpdus();

 private:
  static constexpr size_t kMaxBurstChunks = 32;
  static constexpr size_t kBurstOverhead = kMaxBurstChunks * (kChunkHeader + kMaxTrailer);
  static constexpr size_t kMaxBlocks = 3;  // two chunks of the largest size and more in each

  size_t allowance(size_t bytes);
  void spend(size_t bytes);
  uint32_t next_payload(size_t left, size_t allowed) const;
  void send_burst(size_t allowed);
  void send_contiguous(size_t bytes);
  uint8_t* write_chunk(uint8_t* p, uint32_t payload, uint32_t msn, IoCursor& from);
  void send_blocks(size_t allowed);
  int burst_flags() const;
  void cork();
  void uncork();
  void on_refusal();
  void on_cut(std::span<iovec> list, size_t taken);
  void keep_tail(IoCursor bytes, size_t size);
  Result<size_t> note_fpdus(size_t taken);

  Connection& c_;
  Tx& tx_;
  Descriptor fd_;
  IoCursor from_;
  Bytes frame_{};  // not sent yet
  const int flags_;
  std::optional<Time> deadline_;  // SO_SNDTIMEO, from the first wait on
  bool may_wait_;
  bool was_refused_ = false;
  std::optional<bool> may_cork_;
  bool is_corked_ = false;  // by this call
  size_t sent_ = 0;
  int error_ = 0;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_SENDER_H_
