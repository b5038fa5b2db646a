// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One direction of message mode in shared memory: a ring of records, each one DDP segment whole. No
// MPA: nothing cuts a record and nothing spoils it. Sans-IO: no system call, no wait, no clock.
//
// A record is there once its first word is the connection's secret plus the record's position. So
// the reader looks at the very cache line that brings a small message, and there is no other word
// to be fetched. Bytes that a program sends equal that word by chance once in 2^64.
//
// Positions count bytes since the beginning and never wrap (63 bits); records begin at multiples of
// kUnit. What a side knows for sure it keeps in memory of its own; what lies in the lane is written
// by the peer too, so each word is copied once and bounded before it is used.
#ifndef DDPSOCK_ENGINE_MEMORY_MESSAGE_LANE_H_
#define DDPSOCK_ENGINE_MEMORY_MESSAGE_LANE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "shm/lane.h"
#include "shm/peer_process.h"

namespace ddpsock::engine::shm {

inline constexpr uint32_t kMessageRing = 256 * 1024;
inline constexpr uint32_t kUnit = 64;
// Payload of one record: what is longer goes as several, so that both ends copy at the same time.
inline constexpr uint32_t kMostInRecord = 16 * 1024;
inline constexpr uint32_t kMostHeader = 32;
// What one record may name in the writer's own memory instead of bringing it.
inline constexpr uint32_t kMostNamed = 1024 * 1024;

struct MessageLane {
  struct alignas(kLine) {  // by the writer
    // The writer will not keep memory that its records name any longer: what is copied from there
    // after this was seen is not what was sent.
    std::atomic<uint32_t> is_revoked;
  } writer;
  struct alignas(kLine) {  // by the reader
    std::atomic<uint64_t> head;
  } reader;
  struct alignas(kLine) {               // by both: questions for a bell
    std::atomic<uint32_t> armed;        // when records come
    std::atomic<uint32_t> room_wanted;  // when `head` moves
  } bell;
  struct alignas(kLine) {  // by the reader, seldom
    // It looks again and again: what is copied into the ring it copies out at the same time.
    std::atomic<uint32_t> is_looking;
  } habit;
  alignas(4096) std::array<uint8_t, kMessageRing> data;
};

struct RecordHead {
  uint64_t tag;       // last, and with release
  uint32_t payload;   // bytes
  uint8_t header;     // bytes of DDP header, which follow
  uint8_t ranges;     // 0: the payload follows; else so many RemoteRange do; kSkip
  uint16_t reserved;  // 0
};
static_assert(sizeof(RecordHead) == 16);
// Nothing: the next record is at the ring's first byte.
inline constexpr uint8_t kSkip = 0xff;

// Where what follows the DDP header lies: beside it when small, aligned for copying otherwise.
constexpr uint32_t body_offset(uint32_t header, uint32_t body) {
  const uint32_t after = static_cast<uint32_t>(sizeof(RecordHead)) + header;
  return body <= 256 ? after : (after + kUnit - 1) / kUnit * kUnit;
}
constexpr uint32_t record_size(uint32_t header, uint32_t body) {
  return (body_offset(header, body) + body + kUnit - 1) / kUnit * kUnit;
}
inline constexpr uint32_t kMostRecord = record_size(kMostHeader, kMostInRecord);

class MessageWriter {
 public:
  MessageWriter(MessageLane& lane, uint64_t secret) : lane_(lane), secret_(secret) {}

  // Whether a record of any size fits now. Looks at the reader's head only when what it knew does
  // not suffice.
  bool has_room() {
    const uint32_t to_end = kMessageRing - offset();
    const uint64_t needed = kMostRecord + (to_end < kMostRecord ? to_end : 0);
    if (free() >= needed) return true;
    look_at_head();
    return free() >= needed;
  }

  // Offsets [0, end) of the ring that the next record, and what must come before it, may touch.
  uint32_t end_of_next() const {
    const uint32_t to_end = kMessageRing - offset();
    return to_end < kMostRecord ? kMessageRing : offset() + kMostRecord;
  }

  // Where the body of a record with these sizes is to be written. REQUIRES: has_room(), header <=
  // kMostHeader, body <= kMostInRecord.
  uint8_t* begin(Bytes header, uint32_t body) {
    const auto size = static_cast<uint32_t>(header.size());
    uint8_t* at = begin(size, body);
    std::memcpy(at, header.data(), header.size());
    return body_of(at, size, body);
  }
  // The same for who writes the header there, and the body to body_of() that.
  uint8_t* begin(uint32_t header, uint32_t body) {
    if (kMessageRing - offset() < record_size(header, body)) skip();
    return lane_.data.data() + offset() + sizeof(RecordHead);
  }
  static uint8_t* body_of(uint8_t* header_at, uint32_t header, uint32_t body) {
    return header_at + body_offset(header, body) - sizeof(RecordHead);
  }
  // The record that begin() was called for is whole: it is the reader's from now on.
  void publish(uint32_t header, uint32_t body, uint32_t payload, uint8_t ranges) {
    put({.tag = 0,
         .payload = payload,
         .header = static_cast<uint8_t>(header),
         .ranges = ranges,
         .reserved = 0},
        record_size(header, body));
  }

  // After one or more records: whether the reader must be rung for.
  [[nodiscard]] bool must_ring() {
    return lane_.bell.armed.exchange(0, std::memory_order_seq_cst) != 0;
  }

  // As the reader says, of late.
  bool is_reader_looking() const {
    return lane_.habit.is_looking.load(std::memory_order_relaxed) == 1;
  }

  uint64_t tail() const { return tail_; }
  uint64_t head() {
    look_at_head();
    return head_;
  }
  // Asks for a bell when the head moves. False: it has moved since head() was asked.
  bool want_room() {
    const uint64_t known = head_;
    lane_.bell.room_wanted.exchange(1, std::memory_order_seq_cst);
    look_at_head(std::memory_order_seq_cst);
    return head_ == known;
  }
  void revoke() { lane_.writer.is_revoked.store(1, std::memory_order_seq_cst); }

 private:
  uint32_t offset() const { return static_cast<uint32_t>(tail_ & (kMessageRing - 1)); }
  uint64_t free() const { return kMessageRing - (tail_ - head_); }

  void look_at_head(std::memory_order order = std::memory_order_acquire) {
    const uint64_t head = lane_.reader.head.load(order);
    // A head that goes back, or ahead of the tail, is a lie; what was known stays.
    if (head - head_ <= tail_ - head_) head_ = head;
  }

  void skip() {
    put({.tag = 0, .payload = 0, .header = 0, .ranges = kSkip, .reserved = 0},
        kMessageRing - offset());
  }

  void put(RecordHead head, uint32_t size) {
    uint8_t* at = lane_.data.data() + offset();
    std::memcpy(at + sizeof head.tag, reinterpret_cast<const uint8_t*>(&head) + sizeof head.tag,
                sizeof head - sizeof head.tag);
    std::atomic_ref(*reinterpret_cast<uint64_t*>(at))
        .store(secret_ + tail_, std::memory_order_release);
    tail_ += size;
  }

  MessageLane& lane_;
  const uint64_t secret_;
  uint64_t tail_ = 0;
  uint64_t head_ = 0;  // the reader's, when last looked at
};

class MessageReader {
 public:
  MessageReader(MessageLane& lane, uint64_t secret) : lane_(lane), secret_(secret) {}

  struct Record {
    enum class Kind : uint8_t { kNone, kSegment, kCorrupt };
    Kind kind = Kind::kNone;
    uint32_t header_length = 0;
    uint32_t payload = 0;
    uint32_t range_count = 0;                      // 0: the bytes are at `body`
    std::array<uint8_t, kMostHeader> header = {};  // a copy
    const uint8_t* body = nullptr;
    uint32_t size = 0;

    Bytes ddp_header() const { return Bytes(header).first(header_length); }
  };

  bool has_record() const { return has_record_at(head_); }
  // The same for any thread, as of the head that was published last.
  bool has_record_at_head() const {
    return has_record_at(published_.load(std::memory_order_relaxed));
  }

  // The next record; it stays there until take().
  void next(Record& r) {
    r.kind = Record::Kind::kNone;
    if (!has_record()) return;
    RecordHead head = head_here();
    if (head.ranges == kSkip) {
      if (offset() == 0) return fail(r);
      head_ += kMessageRing - offset();
      if (!has_record()) return;
      head = head_here();
    }
    const uint32_t body =
        head.ranges != 0 ? static_cast<uint32_t>(head.ranges * sizeof(RemoteRange)) : head.payload;
    if (head.header > kMostHeader || head.ranges > kMostRanges || body > kMostInRecord ||
        head.payload > kMostNamed)
      return fail(r);
    r.size = record_size(head.header, body);
    if (r.size > kMessageRing - offset()) return fail(r);
    const uint8_t* at = lane_.data.data() + offset();
    r.kind = Record::Kind::kSegment;
    r.header_length = head.header;
    r.payload = head.payload;
    r.range_count = head.ranges;
    // All of them: no record is so small that they would not be its own.
    static_assert(sizeof(RecordHead) + kMostHeader <= kUnit);
    std::memcpy(r.header.data(), at + sizeof(RecordHead), kMostHeader);
    r.body = at + body_offset(head.header, body);
  }

  // The record that next() showed is done with.
  void take(const Record& r) { head_ += r.size; }
  // Tells the writer how far. Whether it must be rung for is asked apart: that is dearer.
  void publish_head() {
    if (published_.load(std::memory_order_relaxed) == head_) return;
    published_.store(head_, std::memory_order_relaxed);
    lane_.reader.head.store(head_, std::memory_order_release);
  }
  [[nodiscard]] bool must_ring() {
    return lane_.bell.room_wanted.exchange(0, std::memory_order_seq_cst) != 0;
  }
  uint64_t head() const { return head_; }

  void tell_looking(bool is_looking) {
    lane_.habit.is_looking.store(is_looking ? 1 : 0, std::memory_order_relaxed);
  }

  // Asks for a bell. False: there are records by now, and the question was taken back.
  bool arm() {
    lane_.bell.armed.exchange(1, std::memory_order_seq_cst);
    if (!has_record()) return true;
    disarm();
    return false;
  }
  void disarm() { lane_.bell.armed.store(0, std::memory_order_relaxed); }

  // Whether a range named by a record may have gone before it was copied.
  bool is_revoked() const { return lane_.writer.is_revoked.load(std::memory_order_acquire) != 0; }

 private:
  uint32_t offset() const { return static_cast<uint32_t>(head_ & (kMessageRing - 1)); }
  bool has_record_at(uint64_t position) const {
    auto* tag = reinterpret_cast<uint64_t*>(lane_.data.data() + (position & (kMessageRing - 1)));
    return std::atomic_ref(*tag).load(std::memory_order_acquire) == secret_ + position;
  }
  RecordHead head_here() const {
    RecordHead head;
    std::memcpy(&head, lane_.data.data() + offset(), sizeof head);
    return head;
  }
  static void fail(Record& r) { r.kind = Record::Kind::kCorrupt; }

  MessageLane& lane_;
  const uint64_t secret_;
  uint64_t head_ = 0;
  std::atomic<uint64_t> published_{0};
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_ENGINE_MEMORY_MESSAGE_LANE_H_
