// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/memory_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ddp/segment.h"
#include "engine/memory/tapped_segment.h"
#include "mpa/format.h"

namespace ddpsock::engine {
namespace {

// Copying more than this takes longer than letting the lock go and taking it again.
constexpr size_t kLongCopy = 2048;
// A writer that waits for room has so much lying unread that the reader passes this several times.
constexpr uint32_t kLookForQuestion = shm::kMessageRing / 8;

// A ULPDU of either kind whose payload the record brings itself.
constexpr uint32_t kMostPushed =
    std::min(DDP_TAGGED_HEADER_SIZE, DDP_UNTAGGED_HEADER_SIZE) + shm::kMostInRecord;

// How large a ULPDU of that kind is to be.
uint32_t pushed_mulpdu(uint32_t wished) {
  return wished == 0 ? kMostPushed : std::clamp<uint32_t>(wished, MPA_MIN_MULPDU, kMostPushed);
}

using Kind = shm::MessageReader::Record::Kind;

bool has_whole_header(const shm::MessageReader::Record& r) {
  return r.header_length != 0 && r.header_length == ddp::header_size(r.header[0]);
}

void scatter(const uint8_t* from, size_t size, std::span<const MutBytes> to) {
  for (const MutBytes range : to) {
    const size_t n = std::min(size, range.size());
    if (n == 0) return;
    std::memcpy(range.data(), from, n);
    from += n;
    size -= n;
  }
}

void gather(std::span<const Bytes> from, uint8_t* to) {
  for (const Bytes range : from) {
    if (range.empty()) continue;
    std::memcpy(to, range.data(), range.size());
    to += range.size();
  }
}

}  // namespace

MemoryLink::MemoryLink(shm::MessageMemory& memory, WireTap* tap)
    : memory_(memory),
      tap_(tap),
      writer_(memory.outgoing(), memory.secret()),
      reader_(memory.incoming(), memory.secret()) {}

Turn MemoryLink::receive(rdmap::Qp& core, Lock& lock, uint32_t budget) {
  Turn turn = Turn::kIdle;
  uint32_t octets = 0;
  for (;;) {
    if (octets >= budget) {
      turn = Turn::kMore;
      break;
    }
    reader_.next(record_);
    if (record_.kind == Kind::kNone) break;
    if (record_.kind == Kind::kCorrupt || !has_whole_header(record_) ||
        !place(core, lock, record_)) {
      turn = Turn::kLost;
      break;
    }
    if (core.state() == rdmap::QpState::kTerminate) memory_.end_reaching();
    reader_.take(record_);
    octets += record_.size;
    if (record_.range_count == 0) continue;
    // The peer waits for its memory.
    octets += record_.payload;
    moved_ += kLookForQuestion;
    reader_.publish_head();
  }
  reader_.publish_head();
  moved_ += octets;
  return turn;
}

// False: the payload could not be had.
bool MemoryLink::place(rdmap::Qp& core, Lock& lock, const shm::MessageReader::Record& record) {
  const auto placement = core.place(record.ddp_header(), record.header_length + record.payload);
  // On an error the Terminate is under way and the rest of the segment is of no interest.
  if (!placement) return true;
  bool is_there = true;
  if (!placement->is_discarded) {
    const bool is_long = record.payload > kLongCopy;
    if (is_long) lock.unlock();
    if (record.range_count == 0) {
      scatter(record.body, record.payload, placement->spans.ranges());
    } else {
      is_there = read_named(record, placement->spans.ranges());
    }
    if (is_there && tap_ != nullptr) {
      std::array<Bytes, ddp::kMaxSlices> payload;
      const auto ranges = placement->spans.ranges();
      std::ranges::copy(ranges, payload.begin());
      tell_segment(*tap_, false, record.ddp_header(), std::span(payload).first(ranges.size()));
    }
    if (is_long) lock.lock();
  }
  if (is_there) {
    core.segment_placed();
  } else {
    core.segment_spoilt();
  }
  return is_there;
}

bool MemoryLink::read_named(const shm::MessageReader::Record& record,
                            std::span<const MutBytes> to) {
  std::array<shm::RemoteRange, shm::kMostRanges> from;
  std::memcpy(from.data(), record.body, record.range_count * sizeof from[0]);
  // What the owner took back while it was copied is not what was sent.
  return memory_.read_peer(std::span(from).first(record.range_count), to) && !reader_.is_revoked();
}

void MemoryLink::reap(rdmap::Qp& core) {
  if (named_count_ == 0) return;
  const uint64_t head = writer_.head();
  uint32_t segments = 0;
  for (; named_count_ != 0 && named_[named_first_].end <= head; --named_count_) {
    segments += named_[named_first_].segments;
    named_first_ = (named_first_ + 1) % kMostNamedRecords;
  }
  if (segments != 0) core.segments_sent(segments);
}

uint32_t MemoryLink::mulpdu(uint32_t wished) const {
  const uint32_t most =
      DDP_TAGGED_HEADER_SIZE + (memory_.may_name() ? shm::kMostNamed : shm::kMostInRecord);
  return wished == 0 ? most : std::clamp<uint32_t>(wished, MPA_MIN_MULPDU, most);
}

void MemoryLink::note_look(bool is_spinning) {
  looks_ = is_spinning ? std::min(looks_ + 1, kLooksToStay) : 0;
  const bool stays = looks_ == kLooksToStay;
  if (stays == is_looking_) return;
  is_looking_ = stays;
  reader_.tell_looking(stays);
}

// What has no place in one record is named, unless both ends are there to copy it at the same time:
// then it goes through the ring in pieces, three times as fast, for as long as they are.
Turn MemoryLink::transmit(rdmap::Qp& core, Lock& lock, uint32_t max_ulpdu, uint32_t budget) {
  reap(core);
  const uint32_t most = this->mulpdu(max_ulpdu);
  uint32_t octets = 0;
  while (octets < budget) {
    if (!core.has_output()) return Turn::kIdle;
    if (!writer_.has_room() || named_count_ == kMostNamedRecords) return Turn::kBlocked;
    if (!memory_.provide(writer_.end_of_next())) return Turn::kLost;
    const bool is_pushed = is_looking_ && writer_.is_reader_looking();
    const uint32_t mulpdu = is_pushed ? pushed_mulpdu(max_ulpdu) : most;
    ddp::Segment segment;
    if (!core.next_segment(mulpdu, segment)) return Turn::kIdle;
    octets += segment.ulpdu_length();
    put(core, lock, segment);
  }
  return Turn::kMore;
}

bool MemoryLink::send_directly(rdmap::DirectWay& core, const rdmap::SendWr& wr, uint32_t max_ulpdu,
                               rdmap::DirectSegment& segment) {
  if (!writer_.has_room() || !memory_.provide(writer_.end_of_next())) return false;
  if (!core.cut(wr, pushed_mulpdu(max_ulpdu), segment)) return false;
  const uint32_t payload = segment.payload_length;
  uint8_t* at = writer_.begin(segment.header_length, payload);
  core.write_header(wr, segment, at);
  gather(segment.payload, shm::MessageWriter::body_of(at, segment.header_length, payload));
  writer_.publish(segment.header_length, payload, payload, 0);
  has_published_ = true;
  core.note_sent(segment);
  return true;
}

uint32_t MemoryLink::receive_directly(rdmap::DirectWay& core, std::span<rdmap::Completion> out) {
  uint32_t count = 0;
  // A peer that writes as fast as it is read must not keep the caller.
  const uint64_t last = reader_.head() + shm::kMessageRing;
  while (count < out.size() && reader_.head() < last) {
    reader_.next(record_);
    if (record_.kind != Kind::kSegment || record_.range_count != 0 || !has_whole_header(record_) ||
        !core.place(record_.ddp_header(), record_.payload))
      break;
    scatter(record_.body, record_.payload, core.placement());
    reader_.take(record_);
    moved_ += record_.size;
    if (core.finish(out[count])) ++count;
  }
  reader_.publish_head();
  return count;
}

void MemoryLink::put(rdmap::Qp& core, Lock& lock, const ddp::Segment& segment) {
  const auto payload = static_cast<uint32_t>(segment.payload.total());
  has_published_ = true;
  if (tap_ != nullptr) tell_segment(*tap_, true, segment.header(), segment.payload.ranges());
  if (payload > shm::kMostInRecord) {
    name(segment);
    return;
  }
  copy_in(lock, writer_.begin(segment.header(), payload), segment);
  writer_.publish(segment.header_length, payload, payload, 0);
  // Segments are sent in their order.
  if (named_count_ == 0) {
    core.segments_sent(1);
  } else {
    ++named_[(named_first_ + named_count_ - 1) % kMostNamedRecords].segments;
  }
}

void MemoryLink::name(const ddp::Segment& segment) {
  std::array<shm::RemoteRange, shm::kMostRanges> ranges;
  uint32_t count = 0;
  for (const Bytes range : segment.payload.ranges())
    ranges[count++] = {reinterpret_cast<uintptr_t>(range.data()), range.size()};
  const auto size = static_cast<uint32_t>(count * sizeof ranges[0]);
  std::memcpy(writer_.begin(segment.header(), size), ranges.data(), size);
  writer_.publish(segment.header_length, size, static_cast<uint32_t>(segment.payload.total()),
                  static_cast<uint8_t>(count));
  named_[(named_first_ + named_count_++) % kMostNamedRecords] = {.end = writer_.tail(),
                                                                 .segments = 1};
}

void MemoryLink::copy_in(Lock& lock, uint8_t* to, const ddp::Segment& segment) {
  const bool is_long = segment.payload.total() > kLongCopy;
  if (is_long) lock.unlock();
  gather(segment.payload.ranges(), to);
  if (is_long) lock.lock();
}

bool MemoryLink::take_bell(bool is_last) {
  bool must_ring = false;
  if (std::exchange(has_published_, false)) must_ring = writer_.must_ring();
  if (moved_ >= kLookForQuestion || (is_last && moved_ != 0)) {
    moved_ = 0;
    must_ring = reader_.must_ring() || must_ring;
  }
  return must_ring;
}

bool MemoryLink::watch() {
  is_armed_ = true;
  return reader_.arm();
}

void MemoryLink::unwatch() {
  if (!is_armed_) return;
  is_armed_ = false;
  reader_.disarm();
}

}  // namespace ddpsock::engine
