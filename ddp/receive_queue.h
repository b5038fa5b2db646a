// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One untagged queue, RFC 5041 section 5.1.2: buffers are posted in order and get the MSNs 1, 2, 3
// (modulo 2^32) in that order. A segment is *placed* by (MSN, MO) whenever it comes; a message is
// *delivered* when every byte up to its last segment's end has been placed and all messages before
// it have been delivered (section 5.4).
//
// Protocol for each segment: locate() says where its payload goes and changes nothing; the caller
// brings the bytes there, checks the LLP's digest, and only then calls note_placed().
#ifndef DDPSOCK_DDP_RECEIVE_QUEUE_H_
#define DDPSOCK_DDP_RECEIVE_QUEUE_H_

#include <array>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "ddp/error.h"
#include "ddp/fragments.h"
#include "ddp/post_ring.h"
#include "ddp/segment.h"
#include "ddp/slices.h"

namespace ddpsock::ddp {

// What the LLP promises about the order of segments.
enum class LlpOrder : uint8_t {
  // As sent, each once (TCP). A message must then be whole when its last segment comes, and no
  // segment
  // may belong to a later message or repeat a byte; anything else is the peer's error at once.
  kInOrder,
  // Any order, perhaps repeated. Repeats are discarded; a gap just keeps the message undelivered.
  kAnyOrder,
};

// A few bytes beside the posted buffer, for messages that consume a buffer without writing to it
// (RDMAP Immediate Data).
inline constexpr uint32_t kAsideSize = 8;
enum class Into : uint8_t { kBuffer, kAside };

struct Located {
  ScatterList spans;
  // All these bytes were placed before: read them from the LLP and drop them. `spans` is empty.
  bool is_duplicate = false;
};

struct Delivered {
  uint64_t cookie = 0;
  uint32_t msn = 0;
  uint32_t length = 0;  // ULP message length
  RsvdUlp rsvd_ulp = {};
  std::array<uint8_t, kAsideSize> aside{};
};

class ReceiveQueue {
 public:
  // `depth` buffers at most, `max_fragments` ranges beyond gaps; both allocated here.
  ReceiveQueue(uint32_t depth, uint32_t max_fragments, LlpOrder order);

  // False when an allocation of the constructor failed: discard the object.
  bool has_memory() const;

  // Appends a buffer, in any thread; whoever uses the queue finds it from the next take_in() on.
  // The memory belongs to the queue until the buffer is delivered or taken back. False: the queue
  // is full, or the buffer holds 2^32 bytes or more.
  bool post(uint64_t cookie, const ScatterList& buffer);
  // The same in two steps, for several. Each place is filled, with a buffer or, by who thinks
  // better of it, with none. REQUIRES: fewer than 2^32 bytes.
  PostPlaces claim(uint32_t wanted) { return slots_.claim(wanted); }
  void fill(const PostPlaces& places, uint32_t i, uint64_t cookie, const ScatterList& buffer);
  void fill_without_buffer(const PostPlaces& places, uint32_t i);
  uint32_t room() const { return slots_.room(); }
  bool has_more() const { return slots_.has_more(); }
  void take_in() { slots_.take_in(); }
  // The same for buffers that other queues draw from, too, which therefore get their message only
  // when its first segment comes: whether message `msn` has none yet, but may have one now.
  bool wants_buffer(uint32_t msn) const;
  // REQUIRES: wants_buffer(msn), and a buffer that post() would take.
  void assign(uint32_t msn, uint64_t cookie, const ScatterList& buffer);

  // Makes the first `n` MSNs still expected count as used up, without buffers (RFC 6581's Send
  // RTR).
  void skip_msn(uint32_t n = 1) { first_msn_ += n; }
  // The MSN of the oldest buffer not yet delivered.
  uint32_t first_msn() const { return first_msn_; }

  // Where the `length` payload bytes of segment `h` go. RFC 5041 section 7.1:
  //   kNoBuffer   no buffer has been posted for this MSN
  //   kMsnRange   the MSN was delivered already, or (kInOrder) is not the next
  //   kInvalidMo  MO beyond the buffer, beyond the last segment, or (kInOrder) bytes repeated or,
  //   at
  //               the last segment, missing; a second last segment that disagrees with the first
  //   kTooLong    MO lies in the buffer, the segment's end does not
  //   kLocalCatastrophic  too many gaps to remember
  Result<Located, Error> locate(const UntaggedHeader& h, uint32_t length, Into into);

  // The RsvdULP that an earlier segment of this message carried, if there was one.
  std::optional<RsvdUlp> known_rsvd_ulp(uint32_t msn) const;

  // Notes that the payload of `h` is in place.
  // REQUIRES: locate() with the same arguments succeeded, and nothing else was called since.
  void note_placed(const UntaggedHeader& h, uint32_t length);

  // The next message in MSN order, if it is whole. Its buffer is the poster's again.
  std::optional<Delivered> deliver();

  // For a message that comes whole (rdmap/direct_way.h): the oldest buffer, if it is that of `msn`
  // and nothing has been placed there; nullptr: locate() says why.
  const ScatterList* untouched_first(uint32_t msn) const {
    if (msn != first_msn_ || slots_.is_empty()) return nullptr;
    const Slot& s = slots_.front();
    return s.has_buffer && !s.has_rsvd_ulp ? &s.buffer : nullptr;
  }
  // It has come. The cookie; the buffer is the poster's again. REQUIRES: untouched_first().
  uint64_t take_first() {
    const uint64_t cookie = slots_.front().cookie;
    slots_.pop();
    ++first_msn_;
    return cookie;
  }

  // Whether some bytes of a message not yet whole have been placed.
  bool has_partial() const;

  // Takes back the oldest buffer undelivered; its cookie. For flushing when the stream has ended.
  std::optional<uint64_t> take_back();

 private:
  struct Slot {
    uint64_t cookie = 0;
    std::array<uint8_t, kAsideSize> aside{};
    RsvdUlp rsvd_ulp;
    uint32_t prefix = 0;      // bytes [0, prefix) are placed
    uint32_t end = 0;         // ULP message length, once has_end
    bool has_buffer = false;  // false: passed over by assign()
    bool has_end = false;
    bool has_rsvd_ulp = false;
    ScatterList buffer;  // last: seldom more than its beginning is touched
    bool is_whole() const { return has_end && prefix == end; }
    // Of what its last user left; the rest is not looked at before it is written.
    void clear() {
      prefix = end = 0;
      has_buffer = has_end = has_rsvd_ulp = false;
      aside = {};
    }
  };

  Result<uint32_t, Error> slot_of(uint32_t msn) const;
  Result<void, Error> check_extent(const Slot& s, const UntaggedHeader& h, uint32_t length) const;

  PostRing<Slot> slots_;
  Fragments fragments_;
  LlpOrder order_;
  uint32_t wanted_depth_;
  uint32_t wanted_fragments_;
  uint32_t first_msn_ = DDP_FIRST_MSN;
};

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_RECEIVE_QUEUE_H_
