// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Registered memory by STag: bounds, rights, protection domain and, if wanted, the one queue pair
// that may use it. An STag is a 24-bit index and an 8-bit random key (RFC 5042 section 6.2.1: hard
// to guess; a wrong guess costs the guesser its connection). The table never grows.
//
// Threads: none of this locks. Whoever owns the table holds one lock around every call into it and
// into the queue pairs that use it, but for those that say otherwise. Only the copying of payload
// into places a queue pair has named may happen outside the lock; pins make that safe.
#ifndef DDPSOCK_RDMAP_STAG_TABLE_H_
#define DDPSOCK_RDMAP_STAG_TABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/random.h"
#include "base/result.h"
#include "ddp/tagged_buffer.h"
#include "rdmap/terminate.h"

namespace ddpsock::rdmap {

// A set of rights, or of rights of which one is needed.
struct Rights {
  uint8_t bits = 0;
  constexpr Rights operator|(Rights o) const { return {static_cast<uint8_t>(bits | o.bits)}; }
  constexpr bool has_any(Rights wanted) const { return (bits & wanted.bits) != 0; }
  constexpr bool operator==(const Rights&) const = default;
};
inline constexpr Rights kLocalRead{0x01};
inline constexpr Rights kLocalWrite{0x02};
inline constexpr Rights kRemoteRead{0x04};
inline constexpr Rights kRemoteWrite{0x08};
inline constexpr Rights kRemoteAtomic{0x10};

// The accessor: a queue pair and its protection domain.
struct StreamId {
  uint32_t qp = 0;
  uint32_t pd = 0;
};

inline constexpr uint32_t kAnyQp = 0xffff'ffff;

struct MemoryRegion {
  ddp::TaggedBuffer buffer;
  Rights rights;
  uint32_t pd = 0;
  uint32_t qp = kAnyQp;  // or the number of the only queue pair that may use it
};

// The random part of an STag, and the rest: 1 for the first place in its table.
inline constexpr uint32_t kKeyBits = 8;
constexpr uint32_t index_of(uint32_t stag) {
  return stag >> kKeyBits;
}

enum class AccessError : uint8_t {
  kInvalidStag,    // no such STag, or it has been invalidated
  kNotAssociated,  // another protection domain's, or bound to another queue pair
  kRights,
  kWrap,
  kBounds,
};
// As the DDP layer reports it. It has no code for missing rights; "invalid STag" is the nearest.
ddp::Error to_ddp(AccessError e);
// As the RDMAP layer reports it (Read and Atomic Requests): RFC 5040 figure 9, Remote Protection
// Error.
TermCode to_rdmap(AccessError e);

enum class RegisterError : uint8_t {
  kTableFull,
  kNoRandom,   // the kernel gave no key
  kBadRegion,  // no rights, no memory, or base_to + size exceeds 64 bits
};
enum class DeregisterError : uint8_t {
  kUnknown,
  kInUse,  // pinned: a segment or a Read is under way. The STag is invalid from now on for new
           // work; try again once the queue pairs have moved on, or end them.
};

class StagTable {
 public:
  using RandomSource = bool (*)(MutBytes);

  // Room for `capacity` regions (at most 2^24 - 1), allocated here; is_valid() tells whether it
  // worked. `random` is replaced in simulations only.
  explicit StagTable(uint32_t capacity, RandomSource random = base::fill_random);
  bool is_valid() const { return capacity_ != 0; }
  uint32_t capacity() const { return capacity_; }
  uint32_t size() const { return size_; }

  // The memory stays the caller's and must outlive the registration. Never yields STag 0.
  Result<uint32_t, RegisterError> register_region(const MemoryRegion& region);
  Result<void, DeregisterError> deregister(uint32_t stag);
  // What others go by who use the region without asking here: becomes 0 as soon as the STag is
  // refused to new work. Outlives the registration. REQUIRES: it is registered.
  void note_shared(uint32_t stag, std::atomic<uint64_t>* shared);

  // The `length` bytes at `to`, for an accessor that needs one of `needed`. REQUIRES: length != 0
  // for a meaningful answer; zero-length accesses must not be checked at all (RFC 5040
  // section 5.2.1).
  Result<MutBytes, AccessError> access(uint32_t stag, uint64_t to, uint32_t length, Rights needed,
                                       StreamId who) const;

  // The same for work that pinned the region when it was accepted: also while deregister() waits
  // for it. Not after an invalidation.
  Result<MutBytes, AccessError> access_pinned(uint32_t stag, uint64_t to, uint32_t length,
                                              Rights needed, StreamId who) const;

  // Keeps the region's memory registered although its STag may be invalidated meanwhile. Each pin
  // is undone by one unpin with the same STag, in any thread. REQUIRES: access() succeeded under
  // the same lock.
  void pin(uint32_t stag);
  void unpin(uint32_t stag);
  // access() and pin() in one, in any thread.
  Result<MutBytes, AccessError> access_and_pin(uint32_t stag, uint64_t to, uint32_t length,
                                               Rights needed, StreamId who);

  // Makes the STag unusable; pins keep the memory. Local and remote invalidation alike, and both
  // only for STags of the accessor's stream:
  //   kInvalidStag    unknown or already invalid
  //   kNotAssociated  not this stream's
  Result<void, AccessError> invalidate(uint32_t stag, StreamId who);

 private:
  // What pinning depends on, in one word: key, flags, and the number of pins.
  struct Word {
    uint8_t key = 0;
    bool is_registered = false;
    bool is_usable = false;   // false: invalidated
    bool is_leaving = false;  // deregister() waits for pins: no new work
    uint32_t pins = 0;
    bool is_open_to_work() const { return is_registered && is_usable && !is_leaving; }
  };
  static_assert(sizeof(Word) == sizeof(uint64_t));
  struct Entry {
    std::atomic<Word> word{};
    MemoryRegion region;  // written while it is not registered, and has no pins
    std::atomic<uint64_t>* shared = nullptr;
    uint32_t next_free = 0;
  };
  Entry* at(uint32_t stag) const;
  Entry* find(uint32_t stag) const;
  // What it came to.
  template <typename Change>
  static Word change(Entry& e, const Change& change);
  static Result<MutBytes, AccessError> access(const Entry& e, uint64_t to, uint32_t length,
                                              Rights needed, StreamId who);
  static bool is_associated(const Entry& e, StreamId who);
  static void end_sharing(const Entry& e);

  std::unique_ptr<Entry[]> entries_;  // entry i has STag index i + 1
  RandomSource random_;
  uint32_t capacity_;
  uint32_t size_ = 0;
  uint32_t free_ = 0;  // index + 1 of the first free entry, 0: none
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_STAG_TABLE_H_
