// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a stream comes to lie in memory shared with its peer. The side that connected offers memory
// in its hello; the other joins when it reads that, and says so in the memory itself. Then either
// end moves both directions there, at a moment at which the kernel has nothing of either that it
// could lose: from then on the wire carries octets that say nothing, and a reset destroys nothing.
// Until then the wire serves: so neither side ever waits for the other, but for pauses of a
// millisecond at most, and what cannot be had costs speed and nothing else.
#include "stream/memory_start.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

#include "base/effort.h"
#include "base/socket_option.h"
#include "base/spin.h"
#include "base/sys.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/kernel_socket.h"
#include "stream/lanes.h"
#include "stream/leaving.h"
#include "stream/memory_rx.h"
#include "stream/memory_tx.h"
#include "stream/raw.h"
#include "stream/sender.h"
#include "stream/spill_keeping.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

// A process that forks to serve a connection holds it twice for a moment.
constexpr uint8_t kMostAttempts = 32;
// What shared memory costs at the start is worth more than it saves a connection that ends with
// less than that; after so many in a row the next offers it when it goes on.
constexpr uint64_t kBytesOfAShortLife = 256 * 1024;
constexpr uint64_t kFpdusOfAShortLife = 2;
constexpr uint32_t kShortLives = 8;
// Writable, and what is offered with the FPDU that follows.
constexpr uint64_t kRoomForAnOffer = 8192;
constinit std::atomic<uint32_t> short_lives{0};

MemoryState reason_for(Errno error) {
  switch (to_int(error)) {
    case EACCES:
    case EPERM:
    case ENOENT:
      return MemoryState::kNotAllowed;
    case EPROTO:
      return MemoryState::kBadOffer;
    default:
      return MemoryState::kNoMemory;
  }
}

int tcp_option(int fd, int name) {
  return base::socket_option(fd, IPPROTO_TCP, name).value_or(0);
}
bool is_set_to_reset(int fd) {
  const auto value = base::socket_option<linger>(fd, SOL_SOCKET, SO_LINGER);
  return value && value->l_onoff != 0 && value->l_linger == 0;
}
bool is_all_acknowledged(int fd) {
  int unacknowledged = 1;
  return base::sys.ioctl(fd, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

// While FPDUs are sent that come before what is in memory.
class FpdusUnderWay {
 public:
  FpdusUnderWay(Connection& c, shm::Segment& segment) : c_(c), segment_(segment) {}
  FpdusUnderWay(const FpdusUnderWay&) = delete;
  ~FpdusUnderWay() {
    segment_.lane_from(c_.r.memory.end).writer.fpdus.store(c_.tx.msn, std::memory_order_release);
    segment_.end_fpdus(c_.r.memory.end);
  }

 private:
  Connection& c_;
  shm::Segment& segment_;
};

}  // namespace

static bool on_joined(Connection& c, int fd, MemoryState before);

// Mapped, and known to the other threads.
static Result<shm::Segment::Made> make_memory(Connection& c) {
  Memory& m = c.r.memory;
  auto made = shm::Segment::make();
  if (!made) {
    m.state = MemoryState::kNoMemory;
    return made;
  }
  MemoryPart::note_memory_in_use();
  m.end = shm::End::kConnected;
  m.offer = {static_cast<uint32_t>(getpid()), static_cast<uint32_t>(made->fd.get()), made->secret};
  c.segment.store(made->segment, std::memory_order_release);
  return made;
}

// Until the peer has joined.
static void keep_descriptor(Connection& c, shm::Segment::Made& made) {
  c.memfd_file = shm::file_of(made.fd.get());
  c.memfd = std::move(made.fd);
}

void offer_memory(Connection& c, stream::Hello& hello) {
  Memory& m = c.r.memory;
  const auto tell = [&] {
    hello.memory = stream::MemoryOffer{m.offer.pid, m.offer.fd, m.offer.secret};
  };
  if (c.r.role != Role::kInitiator) return;
  // Made for a frame that the kernel had no room for.
  if (m.state == MemoryState::kOffered && !c.tx.is_started && c.memfd.is_valid()) return tell();
  if (m.state != MemoryState::kUnasked) return;
  if (!c.r.wants_memory) {
    m.state = MemoryState::kNotWanted;
    return;
  }
  if (c.r.offers_later) return;
  auto made = make_memory(c);
  if (!made) return;
  const bool is_sole = c.arena.records.is_sole_holder(&c.r);
  auto unasked = MemoryState::kUnasked;
  if (!is_sole || !m.state.compare_exchange_strong(unasked, MemoryState::kOffered)) {
    c.segment.store(nullptr, std::memory_order_release);
    made->segment->unmap();
    if (!is_sole) m.state = MemoryState::kShared;
    return;
  }
  keep_descriptor(c, *made);
  tell();
}

// Other threads may look at what is mapped from now on, so it stays.
int offer_memory_later(Connection& c, int fd) {
  Memory& m = c.r.memory;
  if (!c.rx.is_started || c.r.sent.fpdus.value() < kFpdusOfAShortLife || c.tx.is_shut ||
      c.r.is_one_sided || send_memory(fd).free() < kRoomForAnOffer)
    return 0;
  c.r.offers_later = false;
  auto unasked = MemoryState::kUnasked;
  if (m.state != unasked) return 0;
  const bool is_sole = c.arena.records.is_sole_holder(&c.r);
  if (!is_sole || (c.r.peer_features & DDPSOCK_FEATURE_LATER) == 0) {
    m.state.compare_exchange_strong(unasked,
                                    is_sole ? MemoryState::kNotWanted : MemoryState::kShared);
    return 0;
  }
  auto made = make_memory(c);
  if (!made) return 0;
  shm::Segment& segment = *made->segment;
  segment.lane_from(m.end).writer.fpdus.store(c.tx.msn, std::memory_order_relaxed);
  if (Hold receive(c, c.rx.lease); receive.try_take()) InLane(c)->note_fpdu(c.rx.msn);
  const bool is_still_sole = c.arena.records.is_sole_holder(&c.r);
  if (!is_still_sole || !m.state.compare_exchange_strong(unasked, MemoryState::kOffered)) {
    segment.joining().withdraw();
    if (!is_still_sole) m.state.compare_exchange_strong(unasked, MemoryState::kShared);
    m.sending = Way::kWireAgain;
    return 0;
  }
  keep_descriptor(c, *made);
  int error = 0;
  if (segment.begin_fpdus(m.end)) {
    const FpdusUnderWay under_way(c, segment);
    error = send_memory_offer(c, fd, {m.offer.pid, m.offer.fd, m.offer.secret});
  }
  if (error == 0) return 0;
  segment.joining().withdraw();
  m.state = MemoryState::kNotWanted;
  m.sending = Way::kWireAgain;
  drop_descriptor(c);
  // The kernel says it once; of other errors the program's own bytes hear the same.
  return is_told_once(error) ? error : 0;
}

void note_life(const Connection& c) {
  if (c.r.role != Role::kInitiator || !c.r.wants_memory) return;
  const uint64_t bytes = c.r.sent.bytes.value() + c.r.received.bytes.value();
  const uint32_t before = short_lives.load(std::memory_order_relaxed);
  if (bytes >= kBytesOfAShortLife) {
    if (before != 0) short_lives.store(0, std::memory_order_relaxed);
  } else if (before < kShortLives) {
    short_lives.store(before + 1, std::memory_order_relaxed);
  }
}

bool are_lives_short() {
  return short_lives.load(std::memory_order_relaxed) >= kShortLives;
}

// One is enough.
void note_invitation(Connection& c, const stream::MemoryOffer& offer) {
  Memory& m = c.r.memory;
  if (c.r.role != Role::kResponder || m.state != MemoryState::kUnasked) return;
  if (!c.r.wants_memory) {
    m.state = MemoryState::kNotWanted;
    return;
  }
  m.end = shm::End::kAccepted;
  m.offer = {offer.pid, offer.fd, offer.secret};
  auto unasked = MemoryState::kUnasked;
  m.state.compare_exchange_strong(unasked, MemoryState::kInvited);
}

// REQUIRES: the receive lease, and that the start-up frame is read. The mapping is there before the
// question who else holds the stream: a child forked after it has it too. Memory that was joined
// before gets what the peer writes, and this end would never see it: the connection ends. 0, or the
// errno value of that.
int try_to_join(Connection& c, int fd) {
  Memory& m = c.r.memory;
  // FPDUs that are being sent would not be counted.
  Hold hold(c, c.tx.lease);
  if (!hold.try_take()) return 0;
  const bool is_last_attempt = ++m.attempts >= kMostAttempts;
  if (!c.arena.records.is_sole_holder(&c.r)) {
    if (is_last_attempt) m.state = MemoryState::kShared;
    return 0;
  }
  const auto segment = shm::Segment::open(m.offer);
  if (!segment) {
    m.state = reason_for(segment.error());
    return 0;
  }
  MemoryPart::note_memory_in_use();
  c.segment.store(*segment, std::memory_order_release);
  const bool is_sole = c.arena.records.is_sole_holder(&c.r);
  (*segment)->lane_from(m.end).writer.fpdus.store(c.tx.msn, std::memory_order_relaxed);
  const bool may_join = is_sole && on_joined(c, fd, MemoryState::kInvited);
  if (may_join && (*segment)->joining().join()) {
    InLane(c)->note_fpdu(c.rx.msn);
    return 0;
  }
  c.segment.store(nullptr, std::memory_order_release);
  (*segment)->unmap();
  if (may_join) {
    m.state = MemoryState::kBadOffer;
    return fail_lost(c, fd, "somebody else has joined the shared memory of this connection");
  }
  if (!is_sole && is_last_attempt) m.state = MemoryState::kShared;
  return 0;
}

// Has the peer joined what we offered? REQUIRES: the send lease.
static void notice_joining(Connection& c, int fd) {
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment != nullptr && segment->joining().is_joined()) on_joined(c, fd, MemoryState::kOffered);
}

// A program that only receives would keep the descriptor for good.
void notice_joining_while_receiving(Connection& c, int fd) {
  // Another thread was sending when the answer came.
  if ((c.r.peer_features & DDPSOCK_FEATURE_JOINS) == 0) withdraw_offer(c);
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || !segment->joining().is_joined()) return;
  Hold hold(c, c.tx.lease);
  if (hold.try_take()) on_joined(c, fd, MemoryState::kOffered);
}

// The peer says that it will not join. Keeping the offer would cost a descriptor. The mapping stays
// until the end, because other threads may be looking at it.
void withdraw_offer(Connection& c) {
  if (c.r.memory.state != MemoryState::kOffered) return;
  Hold hold(c, c.tx.lease);
  if (!hold.try_take()) return;
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || !segment->joining().withdraw()) return;
  c.r.memory.state = MemoryState::kNotWanted;
  c.r.memory.sending = Way::kWireAgain;
  drop_descriptor(c);
}

MemoryState memory_state(const Connection& c) {
  const MemoryState state = c.r.memory.state.load(std::memory_order_acquire);
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  const bool has_joined =
      state == MemoryState::kOffered && segment != nullptr && segment->joining().is_joined();
  return has_joined ? MemoryState::kJoined : state;
}

// Bells must not wait for one another (Nagle) or for more (cork); what the program has set comes
// back if the stream leaves the memory. False: it is not `before` any more, another thread has left
// perhaps. REQUIRES: the send lease.
static bool on_joined(Connection& c, int fd, MemoryState before) {
  Memory& m = c.r.memory;
  if (m.state.load(std::memory_order_relaxed) != before) return false;
  if (is_set_to_reset(fd)) note_linger(c, true);
  m.unsent_limit = tcp_option(fd, TCP_NOTSENT_LOWAT);
  m.had_nodelay = tcp_option(fd, TCP_NODELAY) != 0;
  m.had_cork = tcp_option(fd, TCP_CORK) != 0;
  if (!m.state.compare_exchange_strong(before, MemoryState::kJoined)) return false;
  m.has_set_options.store(true, std::memory_order_release);
  if (m.had_cork) base::set_socket_option(fd, IPPROTO_TCP, TCP_CORK, 0);
  if (!m.had_nodelay) base::set_socket_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (c.tx.is_shut) note_end_in_memory(c);
  drop_descriptor(c);
  return true;
}

void drop_descriptor(Connection& c) {
  if (!c.memfd.is_valid()) return;
  if (shm::file_of(c.memfd.get()) == c.memfd_file) {
    c.memfd.reset();
  } else {
    static_cast<void>(c.memfd.release());  // closed by the program, and perhaps another's by now
  }
}

// A reader that is no faster than its writer would stay behind for good, and the stream on the
// wire. For as long as it reads, and a small part of this thread's time, whatever it writes to: who
// does not read is not waited for. REQUIRES: the send lease.
static bool let_reader_catch_up(const Connection& c, const shm::Lane& out) {
  constexpr uint32_t kFpdusOfAnExchange = 16;
  constexpr Duration kMostPause = Duration::from_ms(1), kMostRest = Duration::from_us(20);
  constexpr int64_t kPartOfTime = 20;
  constexpr int kLooksPerClock = 32;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local Time next_pause{};
  if (c.tx.msn < kFpdusOfAnExchange) return false;
  const Time start = base::now();
  if (start < next_pause) return false;
  const auto expected = [&] { return out.reader.next_fpdu.load(std::memory_order_acquire); };
  ++base::effort.spins;
  Time now = start, last_read = start;
  uint32_t seen = expected();
  while (seen != c.tx.msn && now - start < kMostPause && now - last_read < kMostRest) {
    sched_yield();
    for (int i = 0; i < kLooksPerClock && expected() != c.tx.msn; ++i) base::Spin::relax();
    now = base::now();
    if (const uint32_t before = std::exchange(seen, expected()); before != seen) last_read = now;
  }
  next_pause = now + Duration{kPartOfTime * (now - start).ns};
  if (seen != c.tx.msn) ++base::effort.vain_spins;
  return seen == c.tx.msn;
}

// REQUIRES: the send lease, and that the start-up frame was sent. Our bytes may travel in memory
// from now on. Both directions move together, when each end has read what the other has sent as
// FPDUs, or its kernel has it.
static bool may_send_in_memory(Connection& c, int fd) {
  Memory& m = c.r.memory;
  if (m.state.load(std::memory_order_relaxed) == MemoryState::kOffered) notice_joining(c, fd);
  if (!c.is_joined() || m.has_left) return false;
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return false;
  const uint64_t phase = segment->phase();
  if (!segment->is_movable(phase)) return false;
  shm::Lane& in = segment->lane_from(other(m.end));
  shm::Lane& out = segment->lane_from(m.end);
  const bool is_all_read = in.reader.next_fpdu.load(std::memory_order_relaxed) ==
                           in.writer.fpdus.load(std::memory_order_acquire);
  if (!is_all_read) return segment->has_moved();
  const bool is_read = out.reader.next_fpdu.load(std::memory_order_acquire) == c.tx.msn;
  if (!is_read && !is_all_acknowledged(fd) && !let_reader_catch_up(c, out))
    return segment->has_moved();
  return segment->move(phase);
}

// REQUIRES: the send lease.
static void begin_sending_in_memory(Connection& c, int fd) {
  Memory& m = c.r.memory;
  on_joined(c, fd, MemoryState::kOffered);
  m.tx.must_ring = true;
  m.sending = Way::kMemory;
  if (is_watched()) tell_event(c, Observer::Event::kInMemory, "sends");
}

// Before all of an FPDU is in the kernel the stream must not move. REQUIRES: the send lease.
Io send_before_memory(Connection& c, int fd, std::span<const iovec> from, int flags) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  const Memory& m = c.r.memory;
  if (segment->stays_on_wire()) [[unlikely]] {
    send_fpdus_for_good(c, fd);
    return Sender(c, fd, from, flags).run();
  }
  if (may_send_in_memory(c, fd) || !segment->begin_fpdus(m.end)) {
    begin_sending_in_memory(c, fd);
    return send_in_memory(c, fd, from, flags);
  }
  const FpdusUnderWay under_way(c, *segment);
  return Sender(c, fd, from, flags).run();
}

bool is_at_memory(Connection& c) {
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || c.r.memory.receiving != Way::kWire || !c.rx.is_started) return false;
  if (c.inbox.left > 0 || c.rx.mo != 0 || !segment->has_moved()) return false;
  return c.rx.msn == InLane(c)->first_fpdu_in_memory();
}

bool is_wire_near_memory(const Connection& c) {
  const MemoryState state = c.r.memory.state.load(std::memory_order_relaxed);
  if (c.inbox.has_beyond()) return true;
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  return segment != nullptr && c.r.memory.receiving.load(std::memory_order_relaxed) == Way::kWire &&
         !segment->stays_on_wire() &&
         (state == MemoryState::kJoined || state == MemoryState::kOffered || segment->has_moved());
}

void begin_receiving_in_memory(Connection& c) {
  InLane(c)->note_octets(c.inbox.buffered());
  c.inbox.free_buffer(c.arena.blocks);
  c.rx.count.forget();
  c.rx.queued = 0;
  c.r.memory.receiving = Way::kMemory;
  if (is_watched()) tell_event(c, Observer::Event::kInMemory, "receives");
}

void drop_memory(Connection& c, int fd, bool is_last) {
  drop_descriptor(c);
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return;
  if (is_last) end_in_memory(c, fd);
  forget_spill(c);
  c.segment.store(nullptr, std::memory_order_release);
  segment->unmap();
}

// A program that has not mapped the memory sends without giving anything back: the kernel is told
// as well.
bool set_kept_option(Connection& c, int name, int value) {
  if (!c.r.memory.has_set_options) return false;
  if (name == TCP_NOTSENT_LOWAT) {
    c.r.memory.unsent_limit = value;
  } else {
    (name == TCP_NODELAY ? c.r.memory.had_nodelay : c.r.memory.had_cork) = value != 0;
  }
  return c.segment.load(std::memory_order_relaxed) != nullptr;
}

bool get_kept_option(Connection& c, int name, int& value) {
  const Memory& m = c.r.memory;
  if (!m.has_set_options) return false;
  value = name == TCP_NOTSENT_LOWAT ? m.unsent_limit.load()
          : name == TCP_NODELAY     ? m.had_nodelay
                                    : m.had_cork;
  return true;
}

}  // namespace ddpsock::engine
