// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What two MPA peers agreed on (RFC 5044 section 7.1, RFC 6581). Plain values: copy them, keep them
// in shared memory, hand them to another process.
#ifndef DDPSOCK_MPA_AGREEMENT_H_
#define DDPSOCK_MPA_AGREEMENT_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "mpa/format.h"

namespace ddpsock::mpa {

// The ULP's private data: 0 to 512 bytes, the enhanced words not among them. A sender that wants to
// reach every known peer stays within MPA_PRACTICAL_PRIVATE_DATA (251), and data that a peer reads
// should delimit itself: irdma hands its ULP four stray bytes after it.
class PrivateData {
 public:
  PrivateData() = default;
  // Nothing if `data` is longer than MPA_MAX_PD_LENGTH.
  static std::optional<PrivateData> from(Bytes data) {
    if (data.size() > MPA_MAX_PD_LENGTH) return std::nullopt;
    PrivateData copy;
    copy.size_ = static_cast<uint16_t>(data.size());
    if (!data.empty()) std::memcpy(copy.bytes_.data(), data.data(), data.size());
    return copy;
  }
  Bytes bytes() const { return Bytes(bytes_).first(size_); }

 private:
  uint16_t size_ = 0;
  std::array<uint8_t, MPA_MAX_PD_LENGTH> bytes_{};
};

// "Ready to receive": the message of the initiator that tells a responder it may send first (RFC
// 6581 section 4). It is an RDMAP message of length zero, sent and swallowed by the queue pair
// above.
enum class Rtr : uint8_t { kNone, kSend, kWrite, kRead };

// The RTR messages one side can work with.
struct RtrSet {
  bool has_send = false;
  bool has_write = false;
  bool has_read = false;

  constexpr bool has(Rtr rtr) const {
    switch (rtr) {
      case Rtr::kNone:
        return false;
      case Rtr::kSend:
        return has_send;
      case Rtr::kWrite:
        return has_write;
      case Rtr::kRead:
        return has_read;
    }
    return false;
  }
  constexpr int count() const { return has_send + has_write + has_read; }
  constexpr bool operator==(const RtrSet&) const = default;
};

// RDMA Reads the peer may have outstanding here (IRD), and we there (ORD). kNotNegotiated: MPA
// carries no number and the ULPs know by other means.
inline constexpr uint16_t kNotNegotiated = MPA_DEPTH_NOT_NEGOTIATED;

struct Agreement {
  bool is_initiator = false;
  uint8_t revision = MPA_REVISION_ENHANCED;  // of the Reply
  bool has_crc = true;                       // CRCs are sent and checked, in both directions
  bool send_markers = false;                 // the peer needs them
  bool receive_markers = false;              // we asked for them
  // Already crossed over with the peer's, unless a side did not negotiate (or revision 0 or 1):
  // then our own configured value, not kNotNegotiated unless that was configured. Where the peer
  // named its IRD, `ord` is never above it.
  uint16_t ird = 0;
  uint16_t ord = 0;
  Rtr rtr = Rtr::kNone;        // kNone: the initiator sends first, by its ULP's own protocol
  PrivateData private_data{};  // the peer's
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_AGREEMENT_H_
