// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The byte stream of the user engine. The object is the connection's whole state and lives in the
// arena, where every process that holds the socket sees it; each direction has a lease and is
// touched only under it. Files: rx.cpp receives, tx.cpp sends, scan.cpp looks without taking,
// start.cpp is MPA start-up, failure.cpp ends a connection, user_stream.cpp is the object's life.
#ifndef DDPSOCK_ENGINE_USER_USER_STREAM_H_
#define DDPSOCK_ENGINE_USER_USER_STREAM_H_

#include <atomic>

#include "base/lease.h"
#include "engine/stream.h"
#include "engine/user/arena.h"
#include "engine/user/chunk.h"
#include "engine/user/io_cursor.h"
#include "rdmap/terminate.h"

namespace ddpsock::engine {

class UserStream final : public Stream {
 public:
  UserStream(Arena& arena, const StreamAttr& attr);

  Io send(int fd, std::span<const iovec> from, int flags) override;
  Io recv(int fd, std::span<const iovec> to, int flags) override;
  Io readable(int fd) override;
  bool is_recv_ready(int fd) override;
  Io shutdown(int fd, int how) override;
  void set_receive_low_water(int bytes) override;
  Io on_connected(int fd, bool wait) override;
  void release(int fd) override;
  StreamStatus status() const override;

  // Gives the blocks back: for the collector of what dead processes held.
  void free_blocks();

 private:
  friend class Hold;
  class Receiver;
  class Scan;
  class Sender;

  // Bytes read from the kernel and not yet delivered, in order: perhaps the rest of a verified
  // FPDU, then the beginning of the next. [beg, end) of a block, or of the caller's stack while a
  // call runs.
  struct Rx {
    base::Lease lease;
    uint32_t msn = DDP_FIRST_MSN;  // of the Send in progress
    uint32_t mo = 0;               // how much of it has come; our own peers send it in one segment
    uint32_t block = Arena::kNoBlock;
    uint32_t beg = 0, end = 0;  // the buffered bytes
    uint32_t left = 0;          // payload of the verified FPDU in front that is not delivered yet
    uint32_t skip = 0;          // its pad and CRC bytes in the buffer after that
    uint32_t queued = 0;        // the kernel has at least so many unread bytes
    int32_t error = 0;          // an errno that waits for the next call
    int32_t low_water = 1;      // SO_RCVLOWAT
    bool has_kept_byte =
        false;  // the last CRC byte of the FPDU in front is still in the kernel (I1)
    bool has_queue_hints = false;  // TCP_INQ is on
    bool is_started = false;       // the peer's start-up frame was read
  };
  struct Tx {
    base::Lease lease;
    uint32_t msn = DDP_FIRST_MSN;
    uint32_t credit = 0;  // bytes, overhead included, that the kernel is sure to take in whole
    uint32_t tail_block =
        Arena::kNoBlock;  // the rest of an FPDU that the kernel cut in spite of that
    uint32_t tail_beg = 0, tail_end = 0;
    bool is_started = false;  // our start-up frame was sent
  };
  struct Counters {
    uint64_t bytes_sent = 0, bytes_received = 0, fpdus_sent = 0, fpdus_received = 0,
             crcs_checked = 0;
  };

  // start.cpp. 0 when FPDUs may flow in that direction, an errno value otherwise; EPROTOTYPE when
  // the connection turned out to be plain, kEndOfStream when the peer closed before it began.
  static constexpr int kEndOfStream = -1;
  int prepare_to_send(int fd, int flags);
  int start_sending(int fd, int flags);
  int start_receiving(int fd, int flags);
  int await_start_frame(int fd);
  int receive_start_frame(int fd, int flags);
  int accept_start_frame(int fd, Bytes frame);
  bool buffer_start_bytes(int fd, size_t n);
  void free_received();
  int send_start_frame(int fd, int flags);
  size_t write_start_frame(MutBytes out);
  int sniff(int fd, int flags);
  void note_started();

  // failure.cpp. Each ends the connection and returns the errno that the call in progress reports.
  int fail_protocol(int fd, rdmap::TermCode code, Bytes segment);
  int fail_crc(int fd);
  int fail_lost(int fd, const char* why);
  int fail_refused(int fd, int error, const char* why);
  // An FPDU that is not stream data. 0: it meant nothing here.
  int take_control(int fd, Bytes fpdu);
  bool is_stream_segment(const uint8_t* p) const;
  void send_terminate(int fd, rdmap::TermCode code, Bytes segment);
  void end_connection(int fd, const char* why);

  Io peek(int fd, std::span<const iovec> to, int flags);
  Io broken_pipe(int fd, int flags);
  int flush_tail(int fd, bool may_wait);
  void finish_release();

  bool is_state(StreamState s) const { return state_.load(std::memory_order_acquire) == s; }
  void count_crc() { ++counters_.crcs_checked; }
  void count_received(uint32_t payload) {
    counters_.bytes_received += payload;
    ++counters_.fpdus_received;
  }
  void count_sent(uint32_t chunks, size_t payload) {
    counters_.bytes_sent += payload;
    counters_.fpdus_sent += chunks;
  }

  Arena& arena_;
  std::atomic<StreamState> state_{StreamState::kStarting};
  std::atomic<bool> is_dying_{false};  // the last holder has released it
  std::atomic<bool> has_crc_{true};    // until the start-up frames agree otherwise
  const Role role_;
  Peer peer_;
  const bool is_strict_;
  const bool wants_crc_;
  uint8_t peer_revision_ = 0;
  bool is_peer_ddpsock_ = false;
  uint16_t peer_features_ = 0;
  uint32_t max_payload_;
  std::atomic<const char*> failure_{nullptr};
  Duration start_timeout_;
  Time opened_at_;
  Time sniff_until_{};
  Rx rx_;
  Tx tx_;
  Counters counters_;
};
static_assert(sizeof(UserStream) <= Arena::kRecordSize);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_USER_STREAM_H_
