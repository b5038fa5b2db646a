// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The MPA Request and Reply frames (RFC 5044 section 7.1.1, RFC 6581 section 6): written, read as
// they trickle in, and recognised from their first bytes. Decoding has two steps: StartupView
// proves the lengths, StartupFrame::from() gives them a meaning.
#ifndef DDPSOCK_MPA_STARTUP_FRAME_H_
#define DDPSOCK_MPA_STARTUP_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "mpa/agreement.h"
#include "mpa/format.h"

namespace ddpsock::mpa {

enum class FrameKind : uint8_t { kRequest, kReply };

// Why a frame, or the whole exchange, failed. Whatever it is, the connection cannot be used for MPA
// any more; unless said otherwise the caller closes it.
enum class StartupError : uint8_t {
  // The frame.
  kNotMpa,              // an octet differs from the key: not MPA, or both sides in the same role
  kUnknownRevision,     // above 2, or a Reply above its Request
  kPrivateDataTooLong,  // PD_Length above 512; from us: the caller shortens it
  kEnhancedTooShort,    // S without its four octets
  kTruncated,           // the stream ended inside a frame
  kShortBuffer,         // encoding: give at least startup_size()
  // The exchange.
  kClosed,  // the stream ended before the first octet; to a responder no error at all
  kTimedOut,
  kTrailingBytes,    // octets where none are allowed (RFC 5044 section 7.1.2)
  kRejected,         // the responder's ULP said no; see its private data
  kRevision1Only,    // the peer does not know the enhanced set-up
  kInsufficientIrd,  // the responder's ORD is above what we can serve
  kNoMatchingRtr,    // no RTR message that both sides can work with
  kMarkersTooLate,   // the peer needs Markers, and we have pipelined FPDUs without
};
const char* to_text(StartupError error);

// The enhanced words of revision 2. Depths are 0 to 0x3ffe or kNotNegotiated.
struct Enhanced {
  bool is_peer_to_peer = false;  // A
  RtrSet rtr{};                  // B, C, D: offered by a Request, chosen by a Reply
  uint16_t ird = 0;
  uint16_t ord = 0;
  bool operator==(const Enhanced&) const = default;
};

class StartupView;

struct StartupFrame {
  FrameKind kind = FrameKind::kRequest;
  uint8_t revision = MPA_REVISION_ENHANCED;
  bool needs_markers = false;          // M: in what the sender of the frame receives
  bool wants_crc = true;               // C
  bool is_rejected = false;            // R; false in a Request whatever its bit says
  std::optional<Enhanced> enhanced{};  // S; only with revision 2
  Bytes private_data{};                // the ULP's; borrowed

  // kUnknownRevision, kEnhancedTooShort.
  static Result<StartupFrame, StartupError> from(StartupView view);
};

// A whole frame of which only the key and the lengths are known to be right.
class StartupView {
 public:
  // `frame` may go on after the frame. kTruncated, kNotMpa, kPrivateDataTooLong.
  static Result<StartupView, StartupError> over(Bytes frame, FrameKind kind);

  FrameKind kind() const { return kind_; }
  size_t size() const { return frame_.size(); }
  uint8_t flags() const { return frame_[MPA_FLAGS_OFFSET]; }
  uint8_t revision() const { return frame_[MPA_REVISION_OFFSET]; }
  Bytes private_data() const { return frame_.subspan(MPA_PRIVATE_DATA_OFFSET); }

 private:
  StartupView(Bytes frame, FrameKind kind) : frame_(frame), kind_(kind) {}
  Bytes frame_;
  FrameKind kind_;
};

size_t startup_size(const StartupFrame& frame);
// Writes startup_size() octets; returns how many. kPrivateDataTooLong, kShortBuffer. REQUIRES: no
// `enhanced` below revision 2, not `is_rejected` in a Request.
Result<size_t, StartupError> write_startup(const StartupFrame& frame, MutBytes out);

// Looks at the first bytes of a stream, for a server that serves MPA and others on one port.
// kNotMpa comes with the first byte that differs; kMpaRequest once the whole key is there. Bytes
// are best looked at with MSG_PEEK, so that another protocol finds its stream untouched.
enum class Sniff : uint8_t { kNeedMore, kMpaRequest, kNotMpa };
Sniff sniff_request(Bytes first);

// Collects one frame from a stream in any segmentation and keeps it. Bounded: 532 octets.
class StartupReader {
 public:
  explicit StartupReader(FrameKind kind) : kind_(kind) {}

  struct Taken {
    size_t octets;
    std::optional<StartupError> error;
  };
  // Takes octets up to the end of the frame. An error is found at the earliest octet that shows it,
  // which is not taken if it is kNotMpa: what was taken before is then the front of the key.
  Taken take(Bytes input);

  bool is_empty() const { return have_ == 0; }
  bool is_complete() const { return have_ == need_; }
  // Borrows from the reader. REQUIRES: is_complete().
  StartupFrame frame() const;

 private:
  FrameKind kind_;
  uint16_t have_ = 0;
  uint16_t need_ = MPA_MAX_STARTUP_SIZE + 1;  // until PD_Length is there
  std::array<uint8_t, MPA_MAX_STARTUP_SIZE> frame_{};
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_STARTUP_FRAME_H_
