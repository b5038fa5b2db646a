// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One end of an iWARP connection, ours or the Linux kernel's, so that a scenario is written once
// and played in both directions. Not thread-safe; every wait ends after kPatience.
#ifndef DDPSOCK_TESTS_INTEROP_SIW_PEER_H_
#define DDPSOCK_TESTS_INTEROP_SIW_PEER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "rdmap/terminate.h"

namespace ddpsock::interop {

inline constexpr Duration kPatience = Duration::from_ms(15'000);

// Registered memory. The other side names it by `stag` and `to`.
struct Region {
  uint32_t stag = 0;
  uint64_t to = 0;
  MutBytes memory = {};
};

enum class Access : uint8_t { kLocal, kRemoteRead, kRemoteWrite, kRemoteBoth };

// What goes into a Request or Reply, besides the profile's CRC, revision and RTR.
struct Hello {
  std::vector<uint8_t> private_data = {};
  uint16_t ird = 16;
  uint16_t ord = 16;
};

// What start-up came to, or what the peer's Request says.
struct Outcome {
  enum class Kind : uint8_t { kConnected, kRequested, kRejected, kFailed };
  Kind kind = Kind::kFailed;
  std::vector<uint8_t> private_data = {};  // the peer's
  uint16_t ird = 0;                        // ours, after the negotiation
  uint16_t ord = 0;
  bool has_crc = false;  // only our own side knows
  uint8_t revision = 0;  // only our own side knows
  std::string text = {};
};

struct Event {
  enum class Kind : uint8_t { kSent, kReceived, kWritten, kRead, kEnded, kTimedOut };
  Kind kind = Kind::kTimedOut;
  uint64_t id = 0;
  bool is_ok = false;   // not flushed or failed
  uint32_t length = 0;  // kReceived
  std::optional<uint32_t> invalidated = {};
};

struct SendOptions {
  bool is_solicited = false;
  std::optional<uint32_t> invalidate = {};
};

class Peer {
 public:
  virtual ~Peer() = default;
  virtual bool is_ours() const = 0;

  // Memory may be exposed and receives posted before there is a connection.
  virtual Region expose(size_t size, Access access) = 0;
  virtual void post_receive(uint64_t id, MutBytes part) = 0;

  // The active side.
  virtual Outcome connect(const Hello& mine) = 0;
  // The passive side: listen(), let the other side connect, wait_for_request(), then one of
  // accept() and reject().
  virtual void listen() = 0;
  virtual Outcome wait_for_request() = 0;
  // `on_answered`: the Reply is out, and the implementation is ready for what follows it.
  virtual Outcome accept(const Hello& mine, const std::function<void()>& on_answered) = 0;
  virtual bool reject(const std::vector<uint8_t>& private_data) = 0;

  // Payload and sinks lie in exposed memory. At most kDepth requests may be outstanding.
  static constexpr uint32_t kDepth = 256;
  virtual void send(uint64_t id, Bytes payload, const SendOptions& options) = 0;
  virtual void write(uint64_t id, Bytes payload, uint32_t stag, uint64_t to) = 0;
  virtual void read(uint64_t id, MutBytes sink, uint32_t stag, uint64_t to) = 0;

  // The oldest completion, or kEnded once the connection is over and everything posted has
  // completed. kTimedOut after kPatience, or `within` if that is given.
  virtual Event next(Duration within = kPatience) = 0;
  // Graceful: everything posted goes out before the end. Completions are then still to be fetched.
  virtual void finish() = 0;
  // The Terminate that ended the connection, sent or received. Only our own side knows it.
  virtual std::optional<rdmap::TermCode> terminate() const = 0;
};

// How both sides are to behave in a series of scenarios.
struct Profile {
  const char* name;
  bool ours_wants_crc = true;
  uint8_t revision = 2;
  bool is_peer_to_peer = false;
  bool siw_needs_crc = false;
  bool siw_uses_gso = false;
  // siw that needs CRCs says so in its Requests only, not in its Replies.
  bool is_crc_expected(bool siw_connects) const {
    return ours_wants_crc || (siw_needs_crc && siw_connects);
  }
};

// `address` and `port`: of the passive side.
std::unique_ptr<Peer> make_ours(const Profile& profile, const std::string& address, uint16_t port);
std::unique_ptr<Peer> make_siw(const Profile& profile, const std::string& address, uint16_t port);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_SIW_PEER_H_
