// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The byte stream of the user engine: one process's view of a record in the arena, which has all
// the state and is shared with every process that holds the socket. Each direction has a lease and
// is touched only under it. Files: user_stream.cpp is the object's life, identity.cpp says whether
// a number is still its socket's, start.cpp is MPA start-up, rx.cpp receives, tx.cpp sends,
// scan.cpp looks without taking, failure.cpp ends a connection; raw.cpp, departure.cpp and
// turning.cpp are the way back to plain TCP; memory.cpp brings the bytes into shared memory,
// memory_tx.cpp and memory_rx.cpp send and receive there, leaving.cpp brings them back or ends
// them; one_sided.cpp and one_sided_rx.cpp share the connection with a queue pair.
#ifndef DDPSOCK_ENGINE_USER_USER_STREAM_H_
#define DDPSOCK_ENGINE_USER_USER_STREAM_H_

#include <optional>

#include "engine/one_sided.h"
#include "engine/shm/segment.h"
#include "engine/stream.h"
#include "engine/user/chunk.h"
#include "engine/user/chunk_reader.h"
#include "engine/user/io_cursor.h"
#include "engine/user/reading_habit.h"
#include "engine/user/relatives/arena.h"
#include "engine/user/relatives/record.h"
#include "mpa/startup_frame.h"
#include "rdmap/terminate.h"
#include "stream/hello.h"

namespace ddpsock::engine {

class Descriptor;
class Hold;
class Patience;
struct RawMessage;

// identity.cpp. SO_COOKIE, 0 if the kernel does not say. errno is kept.
uint64_t cookie_of(int fd);
void set_naming(StreamEngine::Naming names);

class UserStream final : public Stream {
 public:
  // The record's cookie has just been compared, or read.
  UserStream(Arena& arena, Record& record)
      : arena_(arena), r_(record), rx_(record.rx), tx_(record.tx), inbox_(record.rx.inbox) {}

  Io send(int fd, std::span<const iovec> from, int flags) override {
    return count_error(r_.sent, send_now(fd, from, flags));
  }
  Io recv(int fd, std::span<const iovec> to, int flags) override {
    return count_error(r_.received, recv_now(fd, to, flags));
  }
  Io readable(int fd) override;
  bool is_recv_ready(int fd) override;
  bool is_send_ready(int fd) override;
  Io shutdown(int fd, int how) override;
  void set_receive_low_water(int bytes) override;
  Io on_connected(int fd, bool wait) override;
  void release(int fd) override;
  void before_exit(int fd) override;
  void await_calls() override;
  Glance glance() const override;
  bool has_memory_room() const override;
  void let_bells_lie(uint32_t thread) override {
    lazy_thread_.store(thread, std::memory_order_relaxed);
    habit_.on_poller();
  }
  void settle(int fd) override;
  void leave_memory(int fd) override;
  PlainReturn return_to_plain(int fd) override;
  int judge_error(int error) override;
  void note_linger(bool is_resetting) override;
  bool set_kept_option(int name, int value) override;
  bool get_kept_option(int name, int& value) override;
  StreamStatus status() const override;

  Status<> begin_one_sided(int fd, OneSided& queue_pair) override;
  void end_one_sided() override;
  Result<bool> one_sided_crc(int fd) override;
  Status<> announce(int fd) override;
  Result<size_t> send_fpdus(int fd, std::span<const Bytes> from) override;
  Result<size_t> receive_fpdus(int fd, std::span<const MutBytes> to) override;

 private:
  friend class Hold;
  friend class Descriptor;
  class Departure;
  class Receiver;
  class Scan;
  class Sender;

  // user_stream.cpp
  static Io count_error(Counters& direction, Io io);
  void take_unread_words(int fd);
  void take_unread_words_beside_relatives(int fd);
  void finish_release();

  // identity.cpp. `fd`, or -1 if it is another's by now. For after a sleep: the direction that the
  // caller holds is no longer `is_asleep`.
  int still(int fd) {
    base::note_wake();
    return still_named(fd);
  }
  // The same, once the sleep has been noted.
  int still_named(int fd);
  bool is_my_cookie(int fd) const;
  bool is_same_socket(int fd) const override { return is_my_cookie(fd); }

  // rx.cpp
  Io recv_now(int fd, std::span<const iovec> to, int flags);
  // What lay in the peer's lane comes next (Inbox::beyond).
  bool is_beyond_next() const { return inbox_.is_beyond_next(rx_.msn, rx_.mo); }
  void reach_beyond();
  size_t show(const BlockChain& bytes, IoCursor& to, bool is_truncating);
  size_t deliver_ready(IoCursor& to, bool is_truncating);
  Io recv_stages(int fd, IoCursor& cursor, int flags);
  void note_fpdu_read();

  // tx.cpp
  Io send_now(int fd, std::span<const iovec> from, int flags);
  Io broken_pipe(int fd, int flags);
  Io sent_or_error(size_t sent, int error);
  int flush_tail(int fd, bool may_wait);
  // What the kernel has not taken of FPDUs that it has begun. 0, or the errno of a failed stream.
  int keep_tail(int fd, IoCursor bytes, size_t size);
  // The kernel refused and the call may wait, until `deadline`, which the first wait sets. 0: try
  // again.
  int await_room(Descriptor& fd, std::optional<Time>& deadline, bool has_sent);

  // scan.cpp
  Io peek(int fd, std::span<const iovec> to, int flags);
  Io readable_on_wire(int fd);
  size_t look_behind_border(IoCursor* to, bool is_truncating);
  bool is_border(uint32_t msn);
  bool is_left_behind();
  uint64_t octets_before_wire();
  void prepare_look(int fd);

  // start.cpp. 0 when FPDUs may flow in that direction, an errno value otherwise; EPROTOTYPE when
  // the connection turned out to be plain, kEndOfStream when the peer closed before it began.
  static constexpr int kEndOfStream = -1;
  int prepare_to_send(int fd, int flags);
  int start_sending(int fd, int flags);
  int start_receiving(int fd, int flags);
  int decide_before_writing(int fd);
  int decide(int fd, Peer verdict);
  Io go_on_as_plain(int fd, std::span<const iovec> to, int flags);
  static mpa::Sniff judge_first(Bytes seen);
  int await_start_frame(int fd, bool may_wait, Time patience);
  void answer(int fd);
  int receive_start_frame(int fd, int flags);
  ssize_t look_at_start(int& fd, MutBytes out, int flags);
  int accept_start_frame(int fd, mpa::StartupView view);
  int reject(int fd, const char* why);
  bool buffer_start_bytes(int fd, size_t n);
  // kHurried: nothing can go on before the peer's.
  enum class Frame : uint8_t { kUsual, kRejected, kHurried };
  int send_start_frame(int fd, int flags, Frame kind = Frame::kUsual);
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
  void send_terminate(int fd, rdmap::TermCode code, Bytes segment);
  void end_connection(int fd, const char* why);

  // raw.cpp: the messages by which a connection returns to plain TCP.
  bool speaks_raw() const { return (r_.peer_features & DDPSOCK_FEATURE_RAW) != 0; }
  bool is_raw_message(const uint8_t* fpdu) const;
  int take_raw_message(int fd, Bytes ulpdu);
  void keep_error(int error);
  Io end_of_stream();
  Io end_turned(size_t got, Io io);
  void answer_raw(int fd, const RawMessage& question);
  int take_mark(int fd, uint32_t repeated);
  int send_mark(int fd, Bytes repeated);
  int send_raw_message(int fd, uint32_t kind, uint32_t number, Bytes body, Bytes behind);
  bool has_all_been_seen(uint32_t msn_seen) const;
  void note_turning();
  bool become_plain(int fd);

  // departure.cpp: the side that asks.
  PlainReturn start_for_departure(int fd);
  bool try_to_hold(Hold& hold, int fd);

  // turning.cpp: calls while one direction is plain. REQUIRES: the lease of the direction.
  bool is_turned() const { return r_.state.load(std::memory_order_acquire) > StreamState::kOpen; }
  Io send_turned(int fd, std::span<const iovec> from, int flags);
  Io recv_turned(int fd, IoCursor& to, int flags, size_t got, Patience& patience);
  Io peek_turned(int fd, std::span<const iovec> to, int flags);
  int await_again(int& fd, int flags, Patience& patience, bool has_part);
  bool pass_over_repeated(int& fd, int flags, Patience& patience, bool has_part, Io& io);
  bool pass_over_what_is_there(int fd, Io& io);
  Io readable_turned(int fd);
  bool is_recv_ready_turned(int fd);

  // memory.cpp. What this process has mapped, once both ends have joined; nothing otherwise.
  class InLane;
  class OutLane;
  void offer_memory(stream::Hello& hello);
  void note_invitation(const stream::Hello& hello);
  int try_to_join(int fd);
  void notice_joining(int fd);
  void notice_joining_while_receiving(int fd);
  void withdraw_offer();
  MemoryState memory_state() const;
  bool on_joined(int fd, MemoryState before);
  void drop_memory(int fd, bool is_last);
  void drop_descriptor();
  bool is_joined() const {
    return r_.memory.state.load(std::memory_order_acquire) == MemoryState::kJoined;
  }
  bool may_send_in_memory(int fd);
  void begin_sending_in_memory(int fd);
  Io send_before_memory(int fd, std::span<const iovec> from, int flags);
  bool is_at_memory();
  bool is_near_memory() const {
    const bool may_be = segment_.load(std::memory_order_relaxed) != nullptr || inbox_.has_beyond();
    return may_be && is_wire_near_memory();
  }
  bool is_wire_near_memory() const;
  void begin_receiving_in_memory();
  // While FPDUs are sent that come before what is in memory.
  class FpdusUnderWay {
   public:
    FpdusUnderWay(UserStream& stream, shm::Segment& segment) : s_(stream), segment_(segment) {}
    ~FpdusUnderWay();
    FpdusUnderWay(const FpdusUnderWay&) = delete;

   private:
    UserStream& s_;
    shm::Segment& segment_;
  };

  // memory_tx.cpp
  class MemorySender;
  Io send_in_memory(int fd, std::span<const iovec> from, int flags);
  Io send_on_wire(int fd, IoCursor& rest, int flags);
  bool may_send_in_vain(int error, size_t published);
  bool has_promised_room() const;

  // memory_rx.cpp
  class MemoryReceiver;
  size_t look_into_memory(IoCursor& to, bool is_truncating);
  bool rest_between_looks(int& fd);
  Io peek_in_memory(int fd, std::span<const iovec> to, int flags);
  bool is_ready_in_memory(int fd);
  size_t bytes_in_memory();
  bool is_next_in_memory(int fd);
  bool has_bytes_left(int fd);
  void note_end_in_memory();

  // leaving.cpp
  bool take_counted_octets(int fd, uint64_t stays, Duration patience);
  void wake_peers_writer();
  void end_in_memory(int fd);
  void end_receiving(int fd);
  void fail_in_memory();
  void close_for_sending();
  bool is_reset_in_vain(size_t since) const;
  void leave_as_writer(int fd);
  void send_fpdus_for_good(int fd);
  bool close_lanes(int fd, bool is_sender = false);
  void await_writer();
  bool has_left_a_sleeper();
  int go_on_beyond_memory();
  bool is_beyond_reach() const {
    return r_.memory.receiving.load(std::memory_order_relaxed) == Way::kMemory &&
           segment_.load(std::memory_order_relaxed) == nullptr;
  }
  // Nobody has left memory that this process has not mapped: the peer takes no FPDU.
  bool is_sending_beyond_reach() const {
    return r_.memory.sending.load(std::memory_order_relaxed) == Way::kMemory &&
           segment_.load(std::memory_order_relaxed) == nullptr;
  }
  int send_on_wire_again(int fd);
  int empty_lane(int fd);
  MemoryState left_state() const;
  bool is_in_memory() const {
    const shm::Segment* segment = segment_.load(std::memory_order_acquire);
    return segment != nullptr && segment->has_moved() &&
           (r_.memory.receiving != Way::kWireAgain || r_.memory.sending != Way::kWireAgain);
  }
  bool take_octets_beyond(int fd);

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
  enum class Drain : uint8_t {
    kEmpty,
    kNoRoom,    // until the caller has taken what there is
    kNoMemory,  // and there is nothing to take
    kForeign,
    kOver,
    kLost,
    kFailed,
  };
  struct Drained {
    Drain end;
    int error;  // kLost, kFailed: an errno value
  };
  Drained drain(int fd, std::optional<size_t>& most);
  Drained judge_silence(int fd);
  Drained drain_and_take_in(int fd, std::optional<size_t>& most);
  Drain take_fpdus(int fd, uint32_t end, uint32_t& taken, int& error);
  bool begin_draining(int fd);
  int settle_held(int fd);
  int free_window(int fd);
  void drop_ready();
  Io recv_one_sided(int fd, std::span<const iovec> to, int flags);
  Io recv_drained(int fd, IoCursor& to, int flags, size_t& got, bool& is_foreign,
                  Patience& patience);
  int await_more(int& fd, int flags, Patience& patience, bool has_part);
  size_t readable_one_sided(int fd);
  bool is_recv_ready_one_sided(int fd);

  // Does FPDUs' way begin only with the peer's frame?
  bool is_awaited() const { return r_.is_strict || r_.peer == Peer::kRequired; }
  bool is_state(StreamState s) const { return r_.state.load(std::memory_order_acquire) == s; }
  void count_crc() { r_.received.crcs_checked.add(1); }
  ChunkReader reader() const { return {rx_.msn, rx_.mo, r_.has_crc, speaks_raw()}; }
  // Behind an FPDU of the stream.
  void advance(const Fpdu& fpdu) {
    rx_.msn = fpdu.msn;
    rx_.mo = fpdu.mo;
    r_.received.bytes.add(fpdu.payload);
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
  Inbox& inbox_;
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
