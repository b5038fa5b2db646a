// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A capture file of made-up packets: each connection gets Ethernet, IP and TCP headers and sequence
// numbers that are right, so that Wireshark follows it.
#ifndef DDPSOCK_ENGINE_WRAP_CAPTURE_FILE_H_
#define DDPSOCK_ENGINE_WRAP_CAPTURE_FILE_H_

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/tcp_address.h"
#include "engine/wrap/records.h"

namespace ddpsock::engine::wrap {

// The port of every responder whose address is made up; what initiators have then begins at
// kFirstInitiatorPort.
inline constexpr uint16_t kResponderPort = 47'000;
inline constexpr uint16_t kFirstInitiatorPort = 49'152;

// What the file begins with: pcap with nanoseconds, in this machine's byte order, as the magic
// number tells the reader.
struct CaptureHeader {
  uint32_t magic = 0xa1b2'3c4d;
  uint16_t major = 2, minor = 4;
  uint32_t zone = 0, accuracy = 0;
  uint32_t snap_length = 1u << 18;
  uint32_t link_type = 1;  // Ethernet

  Bytes bytes() const { return {reinterpret_cast<const uint8_t*>(this), sizeof *this}; }
};
static_assert(sizeof(CaptureHeader) == 24);

// The packets of the file. All calls are thread-safe.
class CaptureFile {
 public:
  // `out` is borrowed. `offset` is added to the time of each packet.
  explicit CaptureFile(Records& out, Duration offset = {}) : out_(out), offset_(offset) {}
  void begin();
  void packet(Bytes head, Bytes payload, Time now);

 private:
  Records& out_;
  const Duration offset_;
};

// The two ends of a connection in the file, ours first.
struct CapturedEnds {
  std::array<base::TcpAddress, 2> addresses;
  std::array<uint32_t, 2> next = {1000, 500'000};  // sequence numbers of their next octets
};
// Made up; `index` tells connections of one file apart.
CapturedEnds made_up_ends(uint32_t index, bool is_local_initiator);

// One TCP connection in the file, seen from one of its ends. Not thread-safe.
class CapturedTcp {
 public:
  CapturedTcp(CaptureFile& file, const CapturedEnds& ends, bool is_local_initiator)
      : file_(file), ends_(ends), is_local_initiator_(is_local_initiator) {}

  void handshake(Time now);
  // One packet, or several if `octets` do not fit one.
  void segment(bool is_from_local, Bytes octets, Time now);
  void fin(bool is_from_local, Time now);
  const CapturedEnds& ends() const { return ends_; }

 private:
  void write(bool is_from_local, uint8_t flags, Bytes payload, Time now);

  CaptureFile& file_;
  CapturedEnds ends_;
  const bool is_local_initiator_;
};

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_CAPTURE_FILE_H_
