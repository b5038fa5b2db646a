// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The byte stream of the user engine, as its callers see it: each call goes to the part that does
// it (connection.h). What a call does is said in stream/stream.h.
#ifndef DDPSOCK_STREAM_USER_STREAM_H_
#define DDPSOCK_STREAM_USER_STREAM_H_

#include "stream/closing.h"
#include "stream/connection.h"
#include "stream/departure.h"
#include "stream/identity.h"
#include "stream/kernel_socket.h"
#include "stream/leaving.h"
#include "stream/looks.h"
#include "stream/memory_brief.h"
#include "stream/memory_rx.h"
#include "stream/memory_start.h"
#include "stream/memory_tx.h"
#include "stream/one_sided.h"
#include "stream/one_sided_rx.h"
#include "stream/one_sided_way.h"
#include "stream/rx.h"
#include "stream/start.h"
#include "stream/stream.h"
#include "stream/tx.h"
#include "stream/watching.h"

namespace ddpsock::engine {

// The program is told of `error` now. Errors of the way there may come on a living connection
// (IP_RECVERR, SO_ERROR) and say nothing of its end.
inline int note_told(Connection& c, int error) {
  if (error == ECONNRESET || error == ETIMEDOUT) [[unlikely]]
    c.r.is_loss_told.store(true, std::memory_order_relaxed);
  return error;
}

// As a queue pair sees it that shares the connection.
class UserOneSidedWay final : public OneSidedWay {
 public:
  explicit UserOneSidedWay(Connection& c) : c_(c) {}

  Status<> begin(int fd, OneSided& queue_pair) override {
    return begin_one_sided(c_, fd, queue_pair);
  }
  void end() override { end_one_sided(c_); }
  Result<bool> has_crc(int fd) override { return one_sided_crc(c_, fd); }
  Status<> announce(int fd) override { return engine::announce(c_, fd); }
  Result<size_t> send_fpdus(int fd, std::span<const Bytes> from) override {
    return engine::send_fpdus(c_, fd, from);
  }
  Result<size_t> receive_fpdus(int fd, std::span<const MutBytes> to) override {
    return engine::receive_fpdus(c_, fd, to);
  }
  uint32_t max_chunk() const override { return c_.r.max_payload; }

 private:
  Connection& c_;
};

class UserStream final : public Stream {
 public:
  // The record's cookie has just been compared, or read.
  UserStream(Arena& arena, Record& record) : c_(arena, record, *this) {}

  Io send(int fd, std::span<const iovec> from, int flags) override {
    if (from.size() == 1) {
      if (const auto io = send_briefly(c_, fd, from[0], flags)) return count_error(c_.r.sent, *io);
    }
    return count_error(c_.r.sent, send_now(c_, fd, from, flags));
  }
  Io recv(int fd, std::span<const iovec> to, int flags) override {
    if (to.size() == 1) {
      if (const auto io = receive_briefly(c_, fd, to[0], flags)) return *io;
    }
    return count_error(c_.r.received, recv_now(c_, fd, to, flags));
  }
  Io readable(int fd, bool may_lag) override { return engine::readable(c_, fd, may_lag); }
  bool is_recv_ready(int fd) override { return engine::is_recv_ready(c_, fd); }
  bool is_send_ready(int fd) override { return engine::is_send_ready(c_, fd); }
  Io shutdown(int fd, int how) override { return engine::shutdown(c_, fd, how); }
  void set_receive_low_water(int bytes) override { c_.rx.low_water = std::max(bytes, 1); }
  int receive_low_water() const override { return c_.rx.low_water; }
  Io on_connected(int fd, bool wait) override { return engine::on_connected(c_, fd, wait); }
  int await_established(int fd, Direction direction) override {
    return engine::await_established(fd, direction == Direction::kSend ? SO_SNDTIMEO : SO_RCVTIMEO);
  }
  void release(int fd) override { engine::release(c_, fd); }
  void before_exit(int fd) override { engine::before_exit(c_, fd); }
  void outlive(int fd) override { engine::outlive(c_, fd); }
  int outliving() const override { return engine::outliving(c_); }
  void await_calls(Time give_up) override { engine::await_calls(c_, give_up); }
  Glance glance() const override { return engine::glance(c_); }
  bool want_order() override { return engine::want_order(c_); }
  bool has_memory_room() const override { return engine::has_memory_room(c_); }
  void set_watcher(uint32_t thread) override {
    c_.lazy_thread.store(thread, std::memory_order_relaxed);
    c_.habit.on_poller();
  }
  bool is_open_in_memory() const override { return engine::is_open_in_memory(c_); }
  void note_poller(uint32_t thread) override { c_.habit.on_own_poller(thread); }
  bool may_have_stale_bell() const override { return engine::may_have_stale_bell(c_); }
  void settle(int fd) override { engine::settle(c_, fd); }
  void leave_memory(int fd) override { engine::leave_memory(c_, fd); }
  PlainReturn return_to_plain(int fd) override { return engine::return_to_plain(c_, fd); }
  int judge_error(int error) override {
    const int judged = engine::judge_error(c_, error);
    return note_told(c_, judged != 0 ? judged : engine::take_kept_error(c_));
  }
  void keep_error(int error) override { engine::keep_error(c_, error); }
  bool has_kept_error() const override { return engine::has_kept_error(c_); }
  short untrue_at_end() const override { return engine::untrue_at_end(c_); }
  void note_linger(bool is_resetting) override { engine::note_linger(c_, is_resetting); }
  bool set_kept_option(int name, int value) override {
    return engine::set_kept_option(c_, name, value);
  }
  bool get_kept_option(int name, int& value) override {
    return engine::get_kept_option(c_, name, value);
  }
  StreamStatus status() const override;
  // `event` is one that its verdict explains.
  void tell(Observer::Event event) { tell_event(c_, event, c_.r.verdict.data()); }

  OneSidedWay& one_sided_way() override { return way_; }
  uint64_t cookie() const override { return c_.r.cookie; }

 private:
  bool is_same_socket(int fd) const override { return is_my_cookie(c_, fd); }
  Io count_error(Counters& direction, Io io) {
    const bool is_error =
        io.error != 0 && io.error != EAGAIN && io.error != EINTR && io.error != EPROTOTYPE;
    if (is_error) [[unlikely]] {
      direction.errors.add(1);
      if (is_watched()) tell_event(c_, Observer::Event::kError, nullptr, io.error);
      note_told(c_, io.error);
    }
    return io;
  }

  Connection c_;
  UserOneSidedWay way_{c_};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_USER_STREAM_H_
