// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The memory that the two ends of one connection share: a memfd with a lane a direction, sealed
// against any change of size. The end that connected makes it and offers it in its hello (process,
// descriptor, secret); the end that accepted takes it from /proc/PID/fd, which the kernel allows to
// the same user and to no other, and checks owner, seals, size and secret before it is mapped.
//
// After that nobody needs the descriptor. The memory goes with the last process that maps it. The
// file has its full size from the start, and memory only where something was written.
#ifndef DDPSOCK_SHM_SEGMENT_H_
#define DDPSOCK_SHM_SEGMENT_H_

#include <array>
#include <cstdint>

#include "base/fd.h"
#include "base/result.h"
#include "shm/joining.h"
#include "shm/lane.h"
#include "shm/sealed_file.h"

namespace ddpsock::engine::shm {

using Secret = std::array<uint8_t, 16>;

// What the hello carries. From the peer it is input like any other.
struct Offer {
  uint32_t pid = 0;  // in the offering process's own pid namespace
  uint32_t fd = 0;
  Secret secret{};
};

struct SegmentHead {
  Joining joining;
  // Who is sending FPDUs, whether the stream has moved into the memory, and how often either end
  // has sent FPDUs since they were both there.
  std::atomic<uint64_t> phase;
  Secret secret;
};
static_assert(sizeof(SegmentHead) <= kLine);

// The lanes' own pages, then their rings.
inline constexpr size_t kLanesSize = 2 * kLanePage;

// Which end: the one that connected writes lane 0.
enum class End : uint8_t { kConnected = 0, kAccepted = 1 };

// One process's mapping; the object is the mapping's first byte.
class Segment {
 public:
  // Mapped, with memory behind both lanes; the other end may join as soon as it knows the secret.
  // ENOSYS, EMFILE, ENFILE, ENOMEM (also where the address space is limited), EFBIG, ... : the
  // connection does without.
  struct Made {
    Segment* segment;
    base::UniqueFd fd;  // close-on-exec, out of the way of programs
    Secret secret;
  };
  static Result<Made> make();

  // Maps what is offered. EACCES (another user, or a process that hides), ENOENT (gone, or another
  // pid namespace), EPROTO (not what it says), ENOMEM.
  static Result<Segment*> open(const Offer& offer);
  Joining& joining();
  const Joining& joining() const;

  // Both directions move from the wire into memory at once, at a moment at which neither end is
  // sending FPDUs; what an end has made sure of about those sent before, it has made sure of in
  // this phase.
  uint64_t phase() const;
  bool has_moved() const;
  // Nobody is sending FPDUs in that phase, and neither end stays on the wire.
  static bool is_movable(uint64_t phase);
  // False: `phase` is over.
  [[nodiscard]] bool move(uint64_t phase);
  // Around each sending of FPDUs. False: the stream has moved, no FPDU may be sent.
  [[nodiscard]] bool begin_fpdus(End end);
  void end_fpdus(End end);
  // The stream will never move, whatever is being sent. False: it has.
  [[nodiscard]] bool stay_on_wire();
  bool stays_on_wire() const;

  // The mapping of this process goes; what other processes map stays.
  void unmap();

  Lane& lane_from(End end) {
    return *reinterpret_cast<Lane*>(bytes() + static_cast<size_t>(end) * kLanePage);
  }
  uint8_t* rings_from(End end) {
    return bytes() + kLanesSize + static_cast<size_t>(end) * kRingsSize;
  }

 private:
  Segment() = delete;
  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(this); }
};

// Where a lane's rings are mapped in this process.
class MappedRings final : public Rings {
 public:
  MappedRings(Segment* segment, End end) : Rings(segment->rings_from(end)) {}
  bool provide(size_t from, size_t to) override;
  void give_back(size_t from, size_t to) override;
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_SEGMENT_H_
