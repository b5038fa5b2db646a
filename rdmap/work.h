// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Work requests and completions, as sum types: a request holds what its operation needs and no
// more.
#ifndef DDPSOCK_RDMAP_WORK_H_
#define DDPSOCK_RDMAP_WORK_H_

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <variant>

#include "base/bytes.h"
#include "ddp/slices.h"

namespace ddpsock::rdmap {

// Bytes a request may carry inside itself (SendWr::is_inline).
inline constexpr uint32_t kMaxInline = 64;

// Lists of ranges are borrowed for the call; the bytes they name belong to the queue pair until the
// completion (inline ones are copied at once).
namespace op {
struct Send {
  std::span<const Bytes> payload = {};
  bool is_solicited = false;
  std::optional<uint32_t> invalidate = {};  // the peer's STag
};
struct Write {
  std::span<const Bytes> payload = {};
  uint32_t stag = 0;  // the peer's
  uint64_t to = 0;
};
// The sink is our own registered memory with local or remote write rights.
struct Read {
  uint32_t sink_stag = 0;
  uint64_t sink_to = 0;
  uint32_t length = 0;
  uint32_t stag = 0;  // the peer's
  uint64_t to = 0;
};
// RFC 7306 section 6: consumes a receive at the peer, whose completion carries `value`.
struct Immediate {
  uint64_t value = 0;
  bool is_solicited = false;
};
// RFC 7306 section 5: 8 bytes at the peer, 8-byte aligned. The completion carries the value found.
struct FetchAdd {
  uint32_t stag = 0;
  uint64_t to = 0;
  uint64_t add = 0;
  uint64_t field_tops = 0;  // Add Mask: the top bit of each independent field; 0: one 64-bit field
};
// Unconditional. The RFC left only CmpSwap on the wire, so this goes out as one that compares
// nothing.
struct Swap {
  uint32_t stag = 0;
  uint64_t to = 0;
  uint64_t value = 0;
};
struct CmpSwap {
  uint32_t stag = 0;
  uint64_t to = 0;
  uint64_t compare = 0;
  uint64_t compare_mask = ~uint64_t{0};
  uint64_t swap = 0;
  uint64_t swap_mask = ~uint64_t{0};
};
// Invalidates an STag of our own when its turn comes.
struct LocalInvalidate {
  uint32_t stag = 0;
};
}  // namespace op

struct SendWr {
  uint64_t id = 0;
  std::variant<op::Send, op::Write, op::Read, op::Immediate, op::FetchAdd, op::Swap, op::CmpSwap,
               op::LocalInvalidate>
      op = {};
  bool is_signalled = true;  // false: completes silently unless it fails
  bool has_fence = false;    // starts only when all earlier Reads and atomics have completed
  bool is_inline = false;    // Send and Write: copy the payload now, at most kMaxInline bytes
};

struct RecvWr {
  uint64_t id = 0;
  std::span<const MutBytes> buffer = {};
};

enum class Refusal : uint8_t {
  kNone,
  kQueueFull,       // poll completions and post again
  kCqFull,          // every completion slot is spoken for: poll, then post again
  kBadState,        // not connected yet (sends), or ended; receives of one with a shared queue
  kTooManySlices,   // more than ddp::kMaxSlices
  kTooLong,         // 2^32 bytes or more, or inline above kMaxInline
  kBadSink,         // the Read sink's STag, bounds or rights
  kNoReadsAllowed,  // ORD is 0: the peer takes no Reads or atomics
};

// A prefix of what was offered has been accepted; why the next one was not.
struct Posted {
  uint32_t accepted = 0;
  Refusal reason = Refusal::kNone;
};

enum class WorkKind : uint8_t {
  kSend,
  kWrite,
  kRead,
  kImmediate,
  kFetchAdd,
  kSwap,
  kCmpSwap,
  kLocalInvalidate,
  kReceive,
};

constexpr WorkKind kind_of(const SendWr& wr) {
  return static_cast<WorkKind>(wr.op.index());
}
template <WorkKind kKind, typename Op>
inline constexpr bool kIsKindOf =
    std::is_same_v<std::variant_alternative_t<static_cast<size_t>(kKind), decltype(SendWr::op)>,
                   Op>;
static_assert(kIsKindOf<WorkKind::kSend, op::Send> && kIsKindOf<WorkKind::kWrite, op::Write> &&
              kIsKindOf<WorkKind::kRead, op::Read> &&
              kIsKindOf<WorkKind::kImmediate, op::Immediate> &&
              kIsKindOf<WorkKind::kFetchAdd, op::FetchAdd> &&
              kIsKindOf<WorkKind::kSwap, op::Swap> && kIsKindOf<WorkKind::kCmpSwap, op::CmpSwap> &&
              kIsKindOf<WorkKind::kLocalInvalidate, op::LocalInvalidate>);

enum class WorkStatus : uint8_t {
  kOk,
  kFlushed,     // the stream ended before this was done; the peer may or may not have seen it
  kLocalError,  // this request was wrong by itself when its turn came (LocalInvalidate)
};

struct Completion {
  uint64_t id = 0;
  uint32_t qp = 0;
  WorkKind kind = WorkKind::kSend;
  WorkStatus status = WorkStatus::kOk;
  uint32_t length = 0;  // kReceive: message bytes placed; others: bytes asked for
  bool is_solicited = false;
  bool is_shared = false;                  // kReceive: was posted to a shared receive queue
  std::optional<uint64_t> immediate = {};  // kReceive of Immediate Data
  std::optional<uint32_t>
      invalidated_stag;   // kReceive of a Send with Invalidate: ours, now invalid
  uint64_t original = 0;  // atomics: the value found
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_WORK_H_
