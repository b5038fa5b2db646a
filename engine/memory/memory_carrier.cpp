// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/memory_carrier.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "mpa/fpdu.h"
#include "rdmap/message.h"

namespace ddpsock::engine {
namespace {

// How many bells are thrown away in one system call.
constexpr size_t kWireRead = 4096;
// A peer that has closed its direction and takes nothing may be gone: so often the wire is asked.
constexpr Duration kDoubt = Duration::from_ms(10);

constexpr size_t kBellSize = mpa::fpdu_size(DDP_TAGGED_HEADER_SIZE);
constexpr uint32_t kAnyStag = 1;

std::array<uint8_t, kBellSize> make_bell() {
  std::array<uint8_t, kBellSize> bell{};
  uint8_t* ulpdu = mpa::write_header(bell.data(), DDP_TAGGED_HEADER_SIZE);
  ddp::write_header(
      ulpdu, ddp::TaggedHeader{true, rdmap::control_byte(rdmap::Opcode::kWrite), kAnyStag, 0});
  mpa::finish_fpdu(bell, DDP_TAGGED_HEADER_SIZE, true);
  return bell;
}

}  // namespace

Received MemoryCarrier::receive(Pass& pass) {
  if (!are_regions_told_) tell_regions(pass.core);
  if (!pass.core.is_open()) memory_.end_reaching();
  if (!pass.budget.may_be_readable) return {};
  link_.note_look(pass.budget.is_spinning || pass.budget.is_among_spins);
  is_watched_ = !pass.budget.is_spinning;
  if (is_watched_) peer_regions_.sweep();
  if (is_watched_ && !pass.is_fin_received) return look_at_wire(pass);
  if (!is_watched_) link_.unwatch();
  const Turn turn = link_.receive(pass.core, pass.lock, pass.budget.bytes);
  if (!is_wire_lost_) return {.turn = turn};
  link_.reap(pass.core);
  return {.turn = Turn::kLost};
}

bool MemoryCarrier::send_directly(rdmap::DirectWay& core, const rdmap::SendWr& wr,
                                  rdmap::DirectSegment& segment) {
  return !is_wire_lost_ && link_.send_directly(core, wr, max_ulpdu_, segment);
}

// What lies unread might be for the same memory, end its registration, or fail. Once it is known
// that nothing does, whether the region is still there must be asked again: its owner says that it
// is not before it says that it has read.
uint8_t* MemoryCarrier::locate(const rdmap::Aim& aim) {
  uint8_t* there = peer_regions_.find(aim.stag, aim.to, aim.length, aim.needed);
  if (there == nullptr || !has_peer_placed_all()) return nullptr;
  return peer_regions_.is_still(aim.stag) ? there : nullptr;
}

bool MemoryCarrier::has_peer_placed_all() {
  return !is_wire_lost_ && !link_.has_unread() && !memory_.has_reaching_ended();
}

// What was read while the registration ended may be anything.
bool MemoryCarrier::fetch(const rdmap::Aim& aim, MutBytes to) {
  const uint64_t address = peer_regions_.find_there(aim.stag, aim.to, aim.length);
  if (address == 0 || !has_peer_placed_all()) return false;
  const shm::RemoteRange from{.address = address, .length = aim.length};
  if (!memory_.read_peer({&from, 1}, {&to, 1})) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  return peer_regions_.is_still(aim.stag) && !memory_.has_reaching_ended();
}

MemoryCarrier::~MemoryCarrier() {
  if (told_) own_regions_->leave(*told_);
}

void MemoryCarrier::tell_regions(const rdmap::Qp& core) {
  if (own_regions_ == nullptr || !own_regions_->is_there()) return;
  are_regions_told_ = true;
  told_ = own_regions_->enter(memory_.own_end(), core.stream());
  if (told_) memory_.tell_table(*told_);
}

// No more than could lie there now. What comes of it goes on in advance(), which rings.
void MemoryCarrier::take_in(rdmap::Qp& core, std::unique_lock<std::mutex>& lock) {
  const uint64_t last = link_.position() + shm::kMessageRing;
  while (link_.receive(core, lock, Budget{}.bytes) == Turn::kMore && link_.position() < last) {
  }
  is_unsettled_.store(true, std::memory_order_relaxed);
}

// Not where bells are to be asked for, nor where something of ours waits: that goes on in advance()
// alone, which a flood of small messages must not keep from it.
uint32_t MemoryCarrier::receive_directly(rdmap::DirectWay& core, std::span<rdmap::Completion> out) {
  if (is_watched_ || is_unsettled_.load(std::memory_order_relaxed)) return 0;
  const uint32_t count = link_.receive_directly(core, out);
  ring_directly();
  return count;
}

void MemoryCarrier::ring_directly() {
  if (!link_.take_bell(false) || send_bell(Time{})) return;
  is_wire_lost_ = true;
  is_unsettled_.store(true, std::memory_order_relaxed);
}

// The end is the end of the wire, but what was written to the memory before comes first.
Received MemoryCarrier::look_at_wire(Pass& pass) {
  std::array<uint8_t, kWireRead> bells;  // NOLINT: deliberately not cleared
  const MutBytes room(bells);
  pass.lock.unlock();
  const Result<size_t> n = channel_->receive({&room, 1}, pass.now);
  pass.lock.lock();
  const bool is_lost = !n && to_int(n.error()) != EAGAIN;
  const bool has_more_wire = n && *n == room.size();
  const bool is_fin = n && *n == 0;
  is_wire_lost_ = is_wire_lost_ || is_lost;
  if (is_fin && !last_ && tap_ != nullptr) tap_->received_fin(pass.now);
  if ((is_lost || is_fin) && !last_) last_ = link_.position() + shm::kMessageRing;
  const Turn turn = link_.receive(pass.core, pass.lock, pass.budget.bytes);
  // No more than could lie there then: the peer may go on writing behind its end.
  if (last_ && turn == Turn::kMore && link_.position() < *last_) return {.turn = Turn::kMore};
  // What the peer has read before its end is done, not flushed.
  if (last_ || is_wire_lost_) link_.reap(pass.core);
  if (turn == Turn::kLost || is_wire_lost_) return {.turn = Turn::kLost};
  if (last_) return {.turn = turn, .end = rdmap::LlpEnd::kFinBetween};
  return {.turn = has_more_wire ? Turn::kMore : turn};
}

Turn MemoryCarrier::transmit(Pass& pass) {
  if (is_wire_lost_) return Turn::kLost;
  const Turn turn = link_.transmit(pass.core, pass.lock, max_ulpdu_, pass.budget.bytes);
  return turn == Turn::kLost ? turn : ring(pass, turn);
}

Turn MemoryCarrier::ring(Pass& pass, Turn turn) {
  bool must_ring = link_.take_bell(is_watched_);
  if (is_watched_) {
    // Who only sends has had a bell for what came since, or will.
    const bool has_come = pass.budget.may_be_readable && !link_.watch();
    const bool waits = turn == Turn::kBlocked || link_.awaits_peer();
    const bool has_room = waits && !link_.watch_room();
    if (has_come || has_room) turn = Turn::kMore;
  }
  // Whether a peer that has said its last word still reads, only a bell can tell.
  must_ring = must_ring || (pass.is_fin_received && link_.has_unread());
  if (!must_ring) return turn;
  pass.lock.unlock();
  const bool has_rung = send_bell(pass.now);
  pass.lock.lock();
  return has_rung ? turn : Turn::kLost;
}

bool MemoryCarrier::send_bell(Time now) {
  const std::array<uint8_t, kBellSize> fpdu = make_bell();
  const Bytes bell(fpdu);
  const Result<size_t> n = channel_->send({&bell, 1}, now);
  // A wire that takes no more holds bells enough.
  return n || to_int(n.error()) == EAGAIN;
}

void MemoryCarrier::add_to(Need& need, Turn sent, const Pass& pass) {
  const bool is_in_doubt = pass.is_fin_received && link_.has_unread();
  need.is_unwatched = !is_watched_;
  need.deadline = std::min(need.deadline, channel_->next_event(pass.now));
  if (is_in_doubt) need.deadline = std::min(need.deadline, pass.now + kDoubt);
  const bool is_unsettled = sent != Turn::kIdle || need.deadline != kNever || link_.awaits_peer();
  if (is_unsettled != is_unsettled_.load(std::memory_order_relaxed))
    is_unsettled_.store(is_unsettled, std::memory_order_relaxed);
}

}  // namespace ddpsock::engine
