// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Simulated connections in memory and virtual time. Everything random comes from one seed, so that
// a run repeats exactly when its calls do. A link is either a byte stream, as TCP gives it, or a
// carrier of whole DDP segments that keeps them but not their order, as SCTP could.
//
// Threads: all calls may come from any thread. Runs repeat only with one.
#ifndef DDPSOCK_ENGINE_LOOPBACK_NETWORK_H_
#define DDPSOCK_ENGINE_LOOPBACK_NETWORK_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"

namespace ddpsock::engine::loopback {

struct LinkAttr {
  enum class Kind : uint8_t { kBytes, kSegments };
  Kind kind = Kind::kBytes;
  Duration latency{};
  Duration jitter{};  // up to so much more: order is kept in a byte stream, lost among segments
  uint32_t emss = 1460;
  uint32_t capacity = 256 * 1024;  // bytes a direction holds before it takes no more

  // Byte stream. Where reads stop: after at most so many bytes (0: no limit), at random below it;
  // and at these offsets of each direction (of the end that sends: 0 or 1).
  uint32_t max_read = 0;
  std::array<std::vector<uint64_t>, 2> cuts;

  // Chances in a million; of each byte (flip in a byte stream), else of each segment.
  uint32_t drop = 0;       // one try: it comes later; after kMaxTries the link is lost
  uint32_t duplicate = 0;  // comes twice
  uint32_t spoil = 0;      // bits flipped, and the lower layer's digest tells
  uint32_t flip = 0;       // bits flipped, and nothing tells
};

inline constexpr uint32_t kMaxTries = 8;

// A segment that arrived.
struct Arrival {
  std::vector<uint8_t> ulpdu;
  bool is_spoilt = false;
};

// One connection; `end` is 0 or 1.
class Link {
 public:
  Link(const LinkAttr& attr, uint64_t seed);

  LinkAttr::Kind kind() const { return attr_.kind; }
  uint32_t emss() const { return attr_.emss; }

  // Byte stream: as Channel has it. ECONNRESET once lost.
  Result<size_t> send(int end, std::span<const Bytes> from, Time now);
  Result<size_t> receive(int end, std::span<const MutBytes> to, Time now);

  // Segments. EAGAIN, ECONNRESET; nothing in the Result of take(): the FIN.
  Status<> give(int end, std::vector<uint8_t> ulpdu, Time now);
  Result<std::optional<Arrival>> take(int end, Time now);

  void shut_write(int end, Time now);
  // Both ends find the link lost, now.
  void drop(Time now);
  // Bytes that the end's queue pair did not send: what a faulty peer would put on the wire.
  void inject(int end, Bytes octets, Time now);

  // When something now in flight towards `end` arrives; kNever if nothing is.
  Time next_arrival(int end) const;
  // Octets `end` has sent so far (byte stream), to choose cuts from.
  uint64_t octets_sent(int end) const;

 private:
  struct Flight {
    Time arrival;
    std::vector<uint8_t> octets;
    size_t taken = 0;
    bool is_spoilt = false;
  };
  struct Direction {  // named by the end that sends
    std::deque<Flight> in_flight;
    uint64_t queued = 0;
    uint64_t sent = 0;
    uint64_t received = 0;
    Time last_arrival{};
    std::optional<Time> fin;
  };

  bool chance(uint32_t in_a_million);
  Duration delay();
  void flip_bit(std::vector<uint8_t>& octets);
  void launch(Direction& d, std::vector<uint8_t> octets, Time arrival, bool is_spoilt);
  size_t readable(const Direction& d, int from, Time now);

  const LinkAttr attr_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::array<Direction, 2> directions_;
  Time lost_at_ = kNever;
};

class Network {
 public:
  explicit Network(uint64_t seed) : seed_(seed) {}

  // Both ends of a new link, for Start::lower. Links live as long as the network.
  std::pair<LowerLayer, LowerLayer> connect(const LinkAttr& attr);

  // Nothing if `lower` was not made by connect().
  struct End {
    Link* link = nullptr;
    int end = 0;
  };
  std::optional<End> find(LowerLayer lower);

 private:
  std::mutex mutex_;
  uint64_t seed_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace ddpsock::engine::loopback

#endif  // DDPSOCK_ENGINE_LOOPBACK_NETWORK_H_
