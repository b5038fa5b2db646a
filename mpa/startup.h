// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The MPA start-up exchange (RFC 5044 section 7.1, RFC 6581) as two state machines, one for each
// end of a TCP connection: Initiator (initiator.h) sends the Request, Responder (responder.h)
// answers it. What they share is here. No system call, clock, lock or allocation: bytes and time
// in, bytes out.
//
// Both have four verbs:
//   input(bytes, now)   takes octets of the stream up to the end of the peer's frame and says how
//   many;
//                       the rest are FPDUs and belong to the Deframer
//                       (nothing is taken while the Initiator's own frame is still on its way out)
//   output()            octets to send; sent(n, now) tells how many of them were
//   deadline()          when to call on_deadline(now), kNever if not at all
//   on_deadline(now)    gives up if it is time
// and on_end() for a stream that ended. They are plain values of about 1.5 KB, needed until state()
// is kAgreed or kFailed; not thread-safe.
#ifndef DDPSOCK_MPA_STARTUP_H_
#define DDPSOCK_MPA_STARTUP_H_

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/clock.h"
#include "mpa/agreement.h"
#include "mpa/startup_frame.h"

namespace ddpsock::mpa {

// The values of siw's timers, which bound every half-open connection.
struct StartupTimeouts {
  // Initiator: until the Request is sent. Responder: until it has arrived.
  Duration request = Duration::from_ms(10'000);
  // Initiator: until the Reply has arrived. Responder: until it is decided and sent.
  Duration reply = Duration::from_ms(5'000);
};

inline constexpr uint16_t kDefaultDepth = 16;  // IRD and ORD

// How a stream ended.
enum class StreamEnd : uint8_t { kFin, kReset };

enum class StartupState : uint8_t {
  kSending,   // output() is not empty
  kReading,   // waits for the peer's frame
  kDeciding,  // Responder: has_request(); waits for accept() or reject()
  kAgreed,    // agreement() is there
  kFailed,    // failure() is there
};

struct StartupFailure {
  StartupError error = StartupError::kClosed;
  // Set if the stream is in FPDU mode all the same and a Terminate with this LLP/MPA code
  // (MPA_TERM_*) is to be sent before it is closed (RFC 6581 section 7).
  std::optional<uint8_t> term_code{};
  bool send_markers = false;  // ... in which the peer needs Markers
  // The peer may well talk to a Request of revision 1, on a fresh connection. This one is to be
  // closed.
  bool can_retry_with_revision_1 = false;
  PrivateData private_data{};  // kRejected: what the peer's ULP said

  static StartupFailure of(StartupError error, std::optional<uint8_t> term_code = std::nullopt) {
    StartupFailure failure;
    failure.error = error;
    failure.term_code = term_code;
    return failure;
  }

  // What to start a queue pair with for that Terminate and nothing else. A right CRC fits whatever
  // would have been agreed. REQUIRES: term_code, which only an Initiator sets.
  Agreement terminate_with() const {
    Agreement agreement;
    agreement.is_initiator = true;
    agreement.send_markers = send_markers;
    return agreement;
  }
};

// A frame on its way out. Send it in one write with TCP_NODELAY: some peers (irdma, siw before
// Linux 6.18) want it in one TCP segment.
class StartupWriter {
 public:
  // kPrivateDataTooLong.
  static Result<StartupWriter, StartupError> of(const StartupFrame& frame) {
    StartupWriter writer;
    const auto size = write_startup(frame, writer.frame_);
    if (!size) return fail(size.error());
    writer.size_ = static_cast<uint16_t>(*size);
    return writer;
  }
  Bytes left() const { return Bytes(frame_).subspan(sent_, size_ - sent_); }
  // Whether that was all. REQUIRES: n <= left().size().
  bool sent(size_t n) {
    sent_ = static_cast<uint16_t>(sent_ + n);
    return sent_ == size_;
  }

 private:
  StartupWriter() = default;
  uint16_t size_ = 0;
  uint16_t sent_ = 0;
  std::array<uint8_t, MPA_MAX_STARTUP_SIZE> frame_{};
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_STARTUP_H_
