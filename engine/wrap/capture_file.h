// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A capture file of made-up packets: each connection gets Ethernet, IPv4 and TCP headers with
// addresses of its own and sequence numbers that are right, so that Wireshark follows it.
#ifndef DDPSOCK_ENGINE_WRAP_CAPTURE_FILE_H_
#define DDPSOCK_ENGINE_WRAP_CAPTURE_FILE_H_

#include <array>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"

namespace ddpsock::engine::wrap {

// The port of every responder in the file; what initiators have begins at kFirstInitiatorPort.
inline constexpr uint16_t kResponderPort = 47'000;
inline constexpr uint16_t kFirstInitiatorPort = 49'152;

// pcap with nanoseconds. All calls are thread-safe.
class CaptureFile {
 public:
  // Writes the file header. `out` is borrowed.
  explicit CaptureFile(std::FILE* out);
  void packet(std::span<const Bytes> octets, Time now);

 private:
  std::mutex mutex_;
  std::FILE* out_;
};

// One TCP connection in the file, seen from one of its ends. Not thread-safe.
class CapturedTcp {
 public:
  // `index` tells connections of one file apart.
  CapturedTcp(CaptureFile& file, uint32_t index, bool is_local_initiator);

  void handshake(Time now);
  // One packet, or several if `octets` do not fit one.
  void segment(bool is_from_local, Bytes octets, Time now);
  void fin(bool is_from_local, Time now);

 private:
  struct End {
    std::array<uint8_t, 4> address;
    uint16_t port;
    uint32_t next;  // sequence number of its next byte
  };
  void write(End& from, const End& to, uint8_t flags, Bytes payload, Time now);

  CaptureFile& file_;
  End local_;
  End remote_;
  const bool is_local_initiator_;
  uint16_t ip_id_ = 0;
};

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_CAPTURE_FILE_H_
