// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Random work for two connected queue pairs: what each end registers, receives and posts, round by
// round, and how it ends. A script names regions and offsets, never STags or addresses, so that the
// same one can be played over anything that carries queue pairs.
//
// Rounds are made so that what can be seen after each is determined, by RFC 5040 section 5.5 and
// engine/engine.h: one end at most reaches into the other's memory, and what it writes behind a
// Read or an atomic waits for that (a fence). Only the last round may leave more than one outcome
// open; see Ending.
#ifndef DDPSOCK_TESTS_DIFFERENTIAL_SCRIPT_H_
#define DDPSOCK_TESTS_DIFFERENTIAL_SCRIPT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace ddpsock::differential {

inline constexpr int kEnds = 2;  // 0: the initiator
inline constexpr int kRegions = 4;
inline constexpr std::array<uint32_t, kRegions> kRegionSizes = {64, 512, 4096, 4096};
// In some scripts, instead of the last of those.
inline constexpr uint32_t kLargeRegion = 200'000;

enum class Verb : uint8_t {
  kSend,
  kSendInvalidate,  // of `region`
  kWrite,
  kRead,
  kImmediate,
  kFetchAdd,
  kSwap,
  kCmpSwap,
  kLocalInvalidate,  // of `sink`
};
const char* to_string(Verb verb);

// How a request is wrong: it is refused, or ends the stream.
enum class Flaw : uint8_t {
  kNone,
  kBadKey,   // an STag with a wrong key byte
  kNoStag,   // STag 0
  kNoSink,   // Read: the sink's STag is none
  kSlices,   // more ranges than a request may have
  kTooLong,  // inline
};

struct Work {
  uint64_t id = 0;
  Verb verb = Verb::kSend;
  Flaw flaw = Flaw::kNone;
  int region = 0;       // of the peer's
  uint64_t offset = 0;  // from its beginning; beyond its end where the access is to fail
  uint32_t length = 0;  // of payload
  uint32_t pieces = 1;  // in so many ranges
  int sink = 0;         // of our own
  uint64_t sink_offset = 0;
  uint64_t value = 0;  // Immediate, atomics; the seed of payload
  bool is_signalled = true;
  bool has_fence = false;
  bool is_inline = false;
  bool is_solicited = false;
  uint64_t field_tops() const { return value >> 60; }  // FetchAdd
  uint64_t compare() const { return value >> 8; }      // CmpSwap
  uint64_t compare_mask() const { return value & 0xff; }
  uint64_t swap_mask() const { return ~value << 4; }
  // The peer answers it.
  bool is_answered() const {
    return verb == Verb::kRead || verb == Verb::kFetchAdd || verb == Verb::kSwap ||
           verb == Verb::kCmpSwap;
  }
  bool is_message() const {
    return verb == Verb::kSend || verb == Verb::kSendInvalidate || verb == Verb::kImmediate;
  }
};

struct Receive {
  uint64_t id = 0;
  uint32_t size = 0;
  uint32_t pieces = 1;
};

// Before a round, at one end.
struct Registration {
  int end = 0;
  int region = 0;
  bool is_deregistration = false;
  engine::Rights rights = {};
  uint64_t base_to = 0;
};

struct Round {
  std::vector<Registration> registrations;
  std::array<std::vector<Receive>, kEnds> receives;
  std::array<std::vector<Work>, kEnds> work;
};

enum class Ending : uint8_t {
  kOrderly,    // both drain
  kOneDrains,  // `ender` does, and the other once it has noticed
  kError,      // the last work of `ender` that is not refused is wrong; the other posts none
  kTerminate,  // `ender` aborts with a reason, between two rounds
  kAbort,      // without one
  kMidway,     // `ender` aborts, or the connection is cut, while the last round is under way
  kCut,
};
const char* to_string(Ending ending);

struct Script {
  uint64_t seed = 0;
  uint32_t send_depth = 16, recv_depth = 16, srq_depth = 0;
  uint16_t ird = 8, ord = 8;
  bool has_crc = true, has_markers = false;
  std::array<uint32_t, kRegions> sizes = kRegionSizes;
  std::vector<Round> rounds;
  Ending ending = Ending::kOrderly;
  int ender = 0;
  uint32_t steps = 0;        // kMidway, kCut: so many before it
  uint64_t first_wrong = 0;  // kError: which work it is
};

Script make_script(uint64_t seed);
std::string describe(const Work& work);
std::string describe(const Script& script);

}  // namespace ddpsock::differential

#endif  // DDPSOCK_TESTS_DIFFERENTIAL_SCRIPT_H_
