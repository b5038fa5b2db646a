// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/closing.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/socket_option.h"
#include "base/sys.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/kernel_socket.h"
#include "stream/leaving.h"
#include "stream/looks.h"
#include "stream/memory_rx.h"
#include "stream/memory_start.h"
#include "stream/spill_keeping.h"
#include "stream/start.h"
#include "stream/tx.h"
#include "stream/watching.h"

namespace ddpsock::engine {

// Who is killed on the way leaks a block, but frees none that is another's by then. So does who
// cannot map one, of those that follow it.
void free_blocks(Blocks& blocks, Record& r) {
  r.rx.inbox.clear(blocks);
  if (const uint32_t b = std::exchange(r.tx.tail_block, Blocks::kNoBlock); b != Blocks::kNoBlock)
    blocks.free(b);
}

Io shutdown(Connection& c, int fd, int how) {
  // What the kernel refuses has no effect.
  if (how == SHUT_WR || how == SHUT_RDWR) {
    // A peer that waits for our Reply gets it before the end.
    if (decide_before_writing(c, fd) == 0 && c.r.role == Role::kResponder && c.is_awaited() &&
        !c.tx.is_started)
      await_start_frame(c, fd, false, kNever);
    // The FIN falls between FPDUs: a send that is at work ends first. One that sleeps for want of
    // room has not begun its FPDU, and is woken by this as TCP would.
    Hold hold(c, c.tx.lease);
    if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0) {
      if (c.tx.tail_block != Blocks::kNoBlock) {
        keep_send_error(c, flush_tail(c, fd, true));
        if ((fd = still(c, fd)) < 0) return Io::fail(EBADF);
      }
      // Who goes on reading says what it is: the peer may pass the connection on. Not to one that
      // has ended: nobody may be there to read it, and the kernel would reset the connection.
      if (how == SHUT_WR && !c.tx.is_started && c.is_state(StreamState::kStarting) &&
          !is_ready_now(fd, POLLRDHUP))
        send_start_frame(c, fd, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (OneSided* q = c.queue_pair(); q != nullptr) q->flush();
      end_spill(c);
    }
    note_end_in_memory(c);
    if (c.r.memory.sending == Way::kMemory) close_for_sending(c);
  }
  // Before: whom it wakes in a send is told of an end of its own.
  const bool was_shut = c.tx.is_shut;
  if (how != SHUT_RD) c.tx.is_shut = true;
  if (base::sys.shutdown(fd, how) != 0) {
    const int error = errno;
    c.tx.is_shut = was_shut;
    return Io::fail(error);
  }
  if (how != SHUT_RD && is_watched()) tell_event(c, Observer::Event::kSentEnd, nullptr);
  if (how != SHUT_WR) c.rx.is_shut = true;
  if (c.tx.is_shut && c.rx.is_shut) close_for_receiving(c);
  return Io::ok(0);
}

// Will the kernel say so when the last number is closed, and not reset the connection?
static bool ends_with_fin(const Connection& c, int fd) {
  if (fd < 0 || !c.is_state(StreamState::kOpen) || bytes_queued(fd) > 0) return false;
  const auto wish = base::socket_option<linger>(fd, SOL_SOCKET, SO_LINGER);
  return !wish || wish->l_onoff == 0 || wish->l_linger != 0;
}

void release(Connection& c, int fd) {
  // Whose program has closed the number first.
  const base::UniqueFd outliving = take_outliving(c);
  if (fd < 0) fd = outliving.get();
  // What was closed unseen may be another's by now.
  const bool needs_socket = c.tx.tail_block != Blocks::kNoBlock || c.segment.load() != nullptr;
  if (needs_socket && fd >= 0 && !is_my_cookie(c, fd)) fd = -1;
  if (c.tx.tail_block != Blocks::kNoBlock) {
    Hold hold(c, c.tx.lease);
    if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0 && c.tx.tail_block != Blocks::kNoBlock)
      flush_tail(c, fd, true);
  }
  if (fd >= 0 && c.arena.records.may_be_shared(&c.r)) take_unread_words_beside_relatives(c, fd);
  const Named who = is_watched() ? name_of(c) : Named{};
  const bool has_fin = is_watched() && ends_with_fin(c, fd);
  const bool is_last = c.arena.records.release(&c.r);
  if (is_watched()) {
    if (is_last && has_fin)
      observer->happened(who, c.watched, Observer::Event::kSentEnd, nullptr, 0);
    observer->happened(who, c.watched, Observer::Event::kClosed, nullptr, 0);
  }
  if (is_last && fd >= 0) take_unread_words(c, fd);
  drop_memory(c, fd, is_last);
  if (!is_last) return;
  note_life(c);
  c.r.is_dying.store(true);
  finish_release(c);
}

// Of a peer that has sent nothing the start-up frame still comes, whatever this side does.
static bool do_octets_come(const Connection& c) {
  return c.is_in_memory() && c.r.memory.receiving != Way::kWire;
}

// What lies unread and is none of the stream's bytes (the peer's start-up frame, messages of the
// way back to plain TCP) must not make the kernel reset a connection that the program has read to
// the end. Whoever asks whether there is anything to receive takes such words first, and answers
// them; what it says of the rest is of no interest here. REQUIRES: the record is not another's yet.
void take_unread_words(Connection& c, int fd) {
  if (c.is_state(StreamState::kFailed) || do_octets_come(c)) return;
  // Asked, it would speak first.
  const bool is_unused = c.r.role == Role::kInitiator && c.is_awaited() && !c.tx.is_started;
  const base::KeepErrno keep;
  if (!is_unused && bytes_queued(fd) > 0 && is_my_cookie(c, fd)) is_recv_ready(c, fd);
}

// Each relative may take the other for the one that stays, though it has ended or is about to. So
// whoever leaves takes what lies there by then; one that is at work does it without our help.
void take_unread_words_beside_relatives(Connection& c, int fd) {
  if (do_octets_come(c) || bytes_queued(fd) == 0) return;
  // What may yet become a Request is for them to wait for: no verdict is due here.
  if (c.r.peer == Peer::kUnknown && !has_whole_request(fd)) return;
  {
    Hold hold(c, c.rx.lease);
    if (!hold.try_take()) return;
  }
  take_unread_words(c, fd);
}

void finish_release(Connection& c) {
  if (!c.r.is_dying.load()) return;
  // A relative may have died in a call.
  const auto is_mine = [](base::Lease& lease) {
    const auto outcome = lease.try_take_over();
    return outcome == base::Lease::Outcome::kAcquired ||
           outcome == base::Lease::Outcome::kInherited;
  };
  if (!is_mine(c.rx.lease)) return;
  if (!is_mine(c.tx.lease)) {
    c.rx.lease.release();
    return;
  }
  free_blocks(c.arena.blocks, c.r);
  c.arena.records.finish_release(&c.r);
}

}  // namespace ddpsock::engine
