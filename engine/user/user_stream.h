// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The byte stream of the user engine: one process's view of a record in the arena, which has all
// the state and is shared with every process that holds the socket. Each direction has a lease and
// is touched only under it. Files: rx.cpp receives, tx.cpp sends, scan.cpp looks without taking,
// start.cpp is MPA start-up, failure.cpp ends a connection, user_stream.cpp is the object's life.
#ifndef DDPSOCK_ENGINE_USER_USER_STREAM_H_
#define DDPSOCK_ENGINE_USER_USER_STREAM_H_

#include <optional>

#include "engine/one_sided.h"
#include "engine/shm/segment.h"
#include "engine/stream.h"
#include "engine/user/arena.h"
#include "engine/user/chunk.h"
#include "engine/user/io_cursor.h"
#include "engine/user/reading_habit.h"
#include "engine/user/record.h"
#include "mpa/startup_frame.h"
#include "rdmap/terminate.h"
#include "stream/hello.h"

namespace ddpsock::engine {

class UserStream final : public Stream {
 public:
  UserStream(Arena& arena, Record& record)
      : arena_(arena), r_(record), rx_(record.rx), tx_(record.tx) {}

  Io send(int fd, std::span<const iovec> from, int flags) override {
    return count_error(r_.sent, send_now(fd, from, flags));
  }
  Io recv(int fd, std::span<const iovec> to, int flags) override {
    return count_error(r_.received, recv_now(fd, to, flags));
  }
  Io readable(int fd) override;
  bool is_recv_ready(int fd) override;
  Io shutdown(int fd, int how) override;
  void set_receive_low_water(int bytes) override;
  Io on_connected(int fd, bool wait) override;
  void release(int fd) override;
  Glance glance() const override;
  void let_bells_lie(uint32_t thread) override {
    lazy_thread_.store(thread, std::memory_order_relaxed);
    habit_.on_poller();
  }
  void settle(int fd) override;
  void leave_memory(int fd) override;
  bool set_push_option(int name, int value) override;
  bool get_push_option(int name, int& value) override;
  StreamStatus status() const override;

  Status<> begin_one_sided(int fd, OneSided& queue_pair) override;
  void end_one_sided() override;
  Result<bool> one_sided_crc(int fd) override;
  Status<> announce(int fd) override;
  Result<size_t> send_fpdus(int fd, std::span<const Bytes> from) override;
  Result<size_t> receive_fpdus(int fd, std::span<const MutBytes> to) override;

 private:
  friend class Hold;
  Io send_now(int fd, std::span<const iovec> from, int flags);
  Io recv_now(int fd, std::span<const iovec> to, int flags);
  static Io count_error(Counters& direction, Io io);
  class LaneSender;
  class Receiver;
  class Scan;
  class Sender;

  // start.cpp. 0 when FPDUs may flow in that direction, an errno value otherwise; EPROTOTYPE when
  // the connection turned out to be plain, kEndOfStream when the peer closed before it began.
  static constexpr int kEndOfStream = -1;
  int prepare_to_send(int fd, int flags);
  int start_sending(int fd, int flags);
  int start_receiving(int fd, int flags);
  int await_start_frame(int fd);
  int receive_start_frame(int fd, int flags);
  ssize_t look_at_start(int fd, MutBytes out, int flags);
  int accept_start_frame(int fd, mpa::StartupView view);
  int reject(int fd, const char* why);
  bool buffer_start_bytes(int fd, size_t n);
  void free_received();
  int send_start_frame(int fd, int flags, bool is_rejected = false);
  int sniff(int fd, int flags);
  void note_started();

  // failure.cpp. Each ends the connection and returns the errno that the call in progress reports.
  int fail_protocol(int fd, rdmap::TermCode code, Bytes segment);
  int fail_crc(int fd);
  int fail_lost(int fd, const char* why);
  int fail_refused(int fd, int error, const char* why);
  // An FPDU that is not stream data. 0: it meant nothing here.
  int take_control(int fd, Bytes fpdu);
  int refuse_control(int fd, Bytes fpdu);
  bool is_stream_segment(const uint8_t* p) const;
  void send_terminate(int fd, rdmap::TermCode code, Bytes segment);
  void end_connection(int fd, const char* why);

  // memory.cpp. What this process has mapped, once both ends have joined; nothing otherwise.
  std::optional<shm::LaneReader> reading_lane();
  shm::LaneReader reading_lane_of(shm::Segment* segment);
  std::optional<shm::LaneWriter> writing_lane();
  void offer_memory(stream::Hello& hello);
  void note_invitation(const stream::Hello& hello);
  int try_to_join(int fd);
  void notice_joining(int fd);
  void notice_joining_while_receiving(int fd);
  void withdraw_offer();
  MemoryState memory_state() const;
  void on_joined(int fd);
  void drop_memory(int fd, bool is_last);
  void drop_descriptor();
  int empty_lane(int fd);
  MemoryState left_state() const;
  void break_memory();
  bool is_joined() const {
    return r_.memory.state.load(std::memory_order_acquire) == MemoryState::kJoined;
  }
  size_t residue_before(uint32_t next_fpdu) const;
  shm::LaneReader::Bytes residue_at(size_t skip, size_t most);
  bool has_residue() const { return rx_.residue_beg < rx_.residue_end; }
  bool was_read_to_end();

  // one_sided.cpp. nullptr: this process has no queue pair.
  OneSided* queue_pair() const;
  void wake_waiting(bool is_send);
  // What to do with an FPDU that is not the stream's.
  enum class Offered : uint8_t {
    kTaken,
    kNoRoom,   // later
    kForeign,  // another process's, which will take it
    kUnasked,  // nobody has a queue pair, or no queue pair takes such
  };
  Offered offer_fpdu(Bytes fpdu);
  int hand_over(Bytes fpdu);
  Io send_one_sided(int fd, std::span<const iovec> from, int flags);
  Io send_piece(int fd, IoCursor& left, int flags);
  void give_way();

  // one_sided_rx.cpp. REQUIRES: the receive lease.
  enum class Drain : uint8_t { kEmpty, kNoRoom, kForeign, kOver, kLost, kFailed };
  struct Drained {
    Drain end;
    int error;  // kLost, kFailed: an errno value
  };
  Drained drain(int fd);
  Drained judge_silence(int fd);
  Drained drain_and_take_in(int fd);
  Drain take_fpdus(int fd, uint32_t end, uint32_t& taken, int& error);
  bool begin_draining(int fd);
  bool pool_residue();
  bool add_to_pool(const uint8_t* p, uint32_t n);
  void take_from_pool(IoCursor& to, size_t n, bool is_truncating);
  void show_pool(IoCursor to, size_t n, bool is_truncating);
  int settle_held(int fd);
  int free_window(int fd);
  void drop_pool();
  Io recv_one_sided(int fd, std::span<const iovec> to, int flags);
  Io recv_drained(int fd, IoCursor& to, int flags, size_t& got, bool& is_foreign);
  size_t readable_one_sided(int fd);
  bool is_recv_ready_one_sided(int fd);

  Io send_beside_lane(int fd, std::span<const iovec> from, int flags);
  struct LaneSight {
    size_t room = 0, seen = 0;
    int error = 0;
    bool has_ended = false;
  };
  LaneSight look_into_lane(int fd, std::span<const iovec> to, bool is_truncating);
  Io peek_beside_lane(int fd, std::span<const iovec> to, int flags);
  bool is_ready_beside_lane(int fd);
  size_t bytes_beside_wire();
  bool has_bytes_left();
  Io peek(int fd, std::span<const iovec> to, int flags);
  Io broken_pipe(int fd, int flags);
  int flush_tail(int fd, bool may_wait);
  void finish_release();

  bool is_state(StreamState s) const { return r_.state.load(std::memory_order_acquire) == s; }
  void count_crc() { r_.received.crcs_checked.add(1); }
  void count_received(uint32_t payload) {
    r_.received.bytes.add(payload);
    r_.received.fpdus.add(1);
  }
  void count_sent(uint32_t chunks, size_t payload) {
    r_.sent.bytes.add(payload);
    r_.sent.fpdus.add(chunks);
  }
  // REQUIRES: the lease of that direction.
  void count_effort(const base::Lease& lease) {
    if (base::effort.is_none()) return;
    (&lease == &tx_.lease ? r_.sent : r_.received).add(base::take_effort());
  }

  Arena& arena_;
  Record& r_;
  Rx& rx_;
  Tx& tx_;
  // This process's own; a forked child inherits it.
  std::atomic<shm::Segment*> segment_{nullptr};
  std::atomic<uint32_t> lazy_thread_{0};  // let_bells_lie
  ReadingHabit habit_;
  std::atomic<OneSided*> queue_pair_{nullptr};
  std::atomic<uint32_t> queue_pair_generation_{0};  // of the process whose it is
  std::atomic<int32_t> unanswered_{0};  // its Reads and atomics that the peer has still to answer
  base::UniqueFd memfd_;                // until the peer has joined
  shm::FileId memfd_file_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_USER_STREAM_H_
