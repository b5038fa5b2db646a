// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a stream comes to lie in memory shared with its peer, and how it leaves it. The side that
// connected offers memory in its hello; the other joins when it reads that, and says so in the
// memory itself. Until then, and for what does not fit, the wire serves: so neither side ever waits
// for the other, and what cannot be had costs speed and nothing else.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "base/spin.h"
#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/user_stream.h"

namespace ddpsock::engine {
namespace {

// A process that forks to serve a connection holds it twice for a moment.
constexpr uint8_t kMostAttempts = 32;

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

shm::End other(shm::End end) {
  return end == shm::End::kConnected ? shm::End::kAccepted : shm::End::kConnected;
}

bool int_option(int fd, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return base::sys.getsockopt(fd, IPPROTO_TCP, name, &value, &size) == 0 && value != 0;
}
void set_int_option(int fd, int name, int value) {
  base::sys.setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value);
}

}  // namespace

const char* memory_text(MemoryState state) {
  switch (state) {
    case MemoryState::kUnasked:
      return "the peer has not offered shared memory";
    case MemoryState::kOffered:
      return "shared memory is offered, the peer has not joined";
    case MemoryState::kInvited:
      return "shared memory is offered by the peer, not joined yet";
    case MemoryState::kJoined:
      return "shared memory";
    case MemoryState::kNotWanted:
      return "shared memory is not wanted, or the peer is not proved";
    case MemoryState::kNoMemory:
      return "the kernel has no memory or descriptor for it";
    case MemoryState::kNotAllowed:
      return "the peer is another user's, hides, or is in another pid namespace";
    case MemoryState::kBadOffer:
      return "the memory that the peer offered is not what it said";
    case MemoryState::kShared:
      return "several processes held the connection when it began";
    case MemoryState::kLeft:
      return "left shared memory for a program that was executed";
    case MemoryState::kYielded:
      return "left shared memory for one-sided operations";
    case MemoryState::kBroken:
      return "the connection has ended";
  }
  return "";
}

std::optional<shm::LaneReader> UserStream::reading_lane() {
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  const auto state = r_.memory.state.load(std::memory_order_acquire);
  // The peer may write as soon as it has joined, before we have noticed.
  if (segment == nullptr || (state != MemoryState::kJoined && state != MemoryState::kOffered))
    return std::nullopt;
  return shm::LaneReader(segment->lane_from(other(r_.memory.end)), r_.memory.rx);
}

std::optional<shm::LaneWriter> UserStream::writing_lane() {
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  if (segment == nullptr || !is_joined() || r_.memory.has_left) return std::nullopt;
  return shm::LaneWriter(segment->lane_from(r_.memory.end), r_.memory.tx);
}

// REQUIRES: the send lease.
void UserStream::offer_memory(stream::Hello& hello) {
  Memory& m = r_.memory;
  if (r_.role != Role::kInitiator || m.state != MemoryState::kUnasked) return;
  if (!r_.wants_memory) {
    m.state = MemoryState::kNotWanted;
    return;
  }
  auto made = shm::Segment::make();
  if (!made) {
    m.state = MemoryState::kNoMemory;
    return;
  }
  segment_.store(made->segment, std::memory_order_release);
  if (!arena_.is_sole_holder(&r_)) {
    segment_.store(nullptr, std::memory_order_release);
    made->segment->unmap();
    m.state = MemoryState::kShared;
    return;
  }
  m.end = shm::End::kConnected;
  m.offer = {static_cast<uint32_t>(getpid()), static_cast<uint32_t>(made->fd.get()), made->secret};
  memfd_file_ = shm::file_of(made->fd.get());
  memfd_ = std::move(made->fd);
  hello.memory = stream::MemoryOffer{m.offer.pid, m.offer.fd, m.offer.secret};
  m.state = MemoryState::kOffered;
}

// REQUIRES: the receive lease.
void UserStream::note_invitation(const stream::Hello& hello) {
  Memory& m = r_.memory;
  if (r_.role != Role::kResponder || !hello.memory) return;
  if (!r_.wants_memory) {
    m.state = MemoryState::kNotWanted;
    return;
  }
  m.end = shm::End::kAccepted;
  m.offer = {hello.memory->pid, hello.memory->fd, hello.memory->secret};
  m.state = MemoryState::kInvited;
}

// REQUIRES: the receive lease, and that the start-up frame is read. The mapping is there before the
// question who else holds the stream: a child forked after it has it too. Memory that was joined
// before gets what the peer writes, and this end would never see it: the connection ends. 0, or the
// errno value of that.
int UserStream::try_to_join(int fd) {
  Memory& m = r_.memory;
  const bool is_last_attempt = ++m.attempts >= kMostAttempts;
  if (!arena_.is_sole_holder(&r_)) {
    if (is_last_attempt) m.state = MemoryState::kShared;
    return 0;
  }
  const auto segment = shm::Segment::open(m.offer);
  if (!segment) {
    m.state = reason_for(segment.error());
    return 0;
  }
  segment_.store(*segment, std::memory_order_release);
  const bool is_sole = arena_.is_sole_holder(&r_);
  if (is_sole && (*segment)->join()) {
    reading_lane_of(*segment).note_fpdu(rx_.msn);
    on_joined(fd);
    return 0;
  }
  segment_.store(nullptr, std::memory_order_release);
  (*segment)->unmap();
  if (is_sole) {
    m.state = MemoryState::kBadOffer;
    return fail_lost(fd, "somebody else has joined the shared memory of this connection");
  }
  if (is_last_attempt) m.state = MemoryState::kShared;
  return 0;
}

shm::LaneReader UserStream::reading_lane_of(shm::Segment* segment) {
  return shm::LaneReader(segment->lane_from(other(r_.memory.end)), r_.memory.rx);
}

// Has the peer joined what we offered? REQUIRES: the send lease.
void UserStream::notice_joining(int fd) {
  const shm::Segment* segment = segment_.load(std::memory_order_acquire);
  if (segment != nullptr && segment->is_joined()) on_joined(fd);
}

// A program that only receives would keep the descriptor for good.
void UserStream::notice_joining_while_receiving(int fd) {
  const shm::Segment* segment = segment_.load(std::memory_order_acquire);
  if (segment == nullptr || !segment->is_joined()) return;
  Hold hold(*this, tx_.lease);
  if (hold.try_take() && r_.memory.state == MemoryState::kOffered) on_joined(fd);
}

// The peer says that it will not join. Keeping the offer would cost a descriptor. The mapping stays
// until the end, because other threads may be looking at it.
void UserStream::withdraw_offer() {
  if (r_.memory.state != MemoryState::kOffered) return;
  Hold hold(*this, tx_.lease);
  if (!hold.try_take()) return;
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  if (segment == nullptr || !segment->withdraw()) return;
  r_.memory.state = MemoryState::kNotWanted;
  drop_descriptor();
}

// As the peer sees it: a side that only receives may never have had to notice.
MemoryState UserStream::memory_state() const {
  const MemoryState state = r_.memory.state.load(std::memory_order_acquire);
  const shm::Segment* segment = segment_.load(std::memory_order_acquire);
  const bool has_joined =
      state == MemoryState::kOffered && segment != nullptr && segment->is_joined();
  return has_joined ? MemoryState::kJoined : state;
}

// Bells must not wait for one another (Nagle) or for more (cork); what the program has set comes
// back if the stream leaves the memory.
void UserStream::on_joined(int fd) {
  Memory& m = r_.memory;
  m.had_nodelay = int_option(fd, TCP_NODELAY);
  m.had_cork = int_option(fd, TCP_CORK);
  if (m.had_cork) set_int_option(fd, TCP_CORK, 0);
  if (!m.had_nodelay) set_int_option(fd, TCP_NODELAY, 1);
  m.state.store(MemoryState::kJoined, std::memory_order_release);
  drop_descriptor();
}

void UserStream::drop_descriptor() {
  if (!memfd_.is_valid()) return;
  if (shm::file_of(memfd_.get()) == memfd_file_) {
    memfd_.reset();
  } else {
    static_cast<void>(memfd_.release());  // closed by the program, and perhaps another's by now
  }
}

void UserStream::drop_memory(int fd, bool is_last) {
  drop_descriptor();
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  if (segment == nullptr) return;
  if (is_last) {
    settle(fd);
    reading_lane_of(segment).close();
  }
  segment_.store(nullptr, std::memory_order_release);
  segment->unmap();
}

// The connection is over; what is sent from now on asks the kernel.
void UserStream::break_memory() {
  r_.memory.has_left = true;
}

bool UserStream::was_read_to_end() {
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  if (segment == nullptr || !is_joined() || r_.memory.tx.is_on_wire) return false;
  shm::Lane& lane = segment->lane_from(r_.memory.end);
  return lane.bell.armed.load(std::memory_order_relaxed) == 0 &&
         shm::LaneWriter(lane, r_.memory.tx).is_read_to_end();
}

bool UserStream::set_push_option(int name, int value) {
  if (!is_joined()) return false;
  (name == TCP_NODELAY ? r_.memory.had_nodelay : r_.memory.had_cork) = value != 0;
  return true;
}

bool UserStream::get_push_option(int name, int& value) {
  if (!is_joined()) return false;
  value = (name == TCP_NODELAY ? r_.memory.had_nodelay : r_.memory.had_cork) ? 1 : 0;
  return true;
}

MemoryState UserStream::left_state() const {
  return r_.one_sided_owner.load() != 0 ? MemoryState::kYielded : MemoryState::kLeft;
}

void UserStream::leave_memory(int fd) {
  const KeepErrno keep;
  Memory& m = r_.memory;
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  const auto state = m.state.load(std::memory_order_acquire);
  if (state == MemoryState::kInvited || state == MemoryState::kUnasked) {
    m.state = left_state();
    return;
  }
  if (segment == nullptr || (state != MemoryState::kJoined && state != MemoryState::kOffered))
    return;
  m.has_left = true;
  segment->lane_from(m.end).writer.is_on_wire.store(1, std::memory_order_release);
  reading_lane_of(segment).close();
  Hold hold(*this, rx_.lease);
  if (hold.take(fd, Hold::kReceive, MSG_DONTWAIT) == 0) empty_lane(fd);
}

// REQUIRES: the receive lease, and that leave_memory() has closed the lane. 0, or an errno value.
int UserStream::empty_lane(int fd) {
  Memory& m = r_.memory;
  shm::LaneReader lane = reading_lane_of(segment_.load(std::memory_order_acquire));
  // In order: what precedes the FPDU expected next, then what a barrier held back. As much as there
  // is now: a peer that publishes in spite of the close does so in vain.
  const size_t whole = lane.size();
  const auto split = static_cast<uint32_t>(std::min(lane.size_before(rx_.msn), whole));
  rx_.residue_fpdu = lane.barrier_fpdu();
  while (rx_.residue_end < whole) {
    const size_t at = rx_.residue_end;
    uint32_t& block = rx_.residue_blocks[at / Arena::kBlockSize];
    if (block == Arena::kNoBlock) block = arena_.allocate_block();
    if (block == Arena::kNoBlock)
      return fail_lost(fd, "no memory for the bytes that lay in shared memory");
    const size_t offset = at % Arena::kBlockSize;
    const auto bytes = lane.at(0, std::min(whole - at, Arena::kBlockSize - offset));
    std::memcpy(arena_.block_data(block) + offset, bytes.data, bytes.size);
    static_cast<void>(lane.take(bytes.size, base::current_cpu()));
    rx_.residue_end += static_cast<uint32_t>(bytes.size);
  }
  rx_.residue_split = split;
  if (!m.had_nodelay) set_int_option(fd, TCP_NODELAY, 0);
  if (m.had_cork) set_int_option(fd, TCP_CORK, 1);
  m.state.store(left_state(), std::memory_order_release);
  return 0;
}

}  // namespace ddpsock::engine
