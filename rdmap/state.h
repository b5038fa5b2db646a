// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a queue pair begins, where it stands and how it ended: what users of one need to know without
// seeing it.
#ifndef DDPSOCK_RDMAP_STATE_H_
#define DDPSOCK_RDMAP_STATE_H_

#include <cstdint>

#include "rdmap/terminate.h"

namespace ddpsock::rdmap {

enum class QpState : uint8_t {
  kIdle,       // made; receives may be posted
  kRts,        // ready to send and receive
  kClosing,    // no new work; what was posted is being finished
  kTerminate,  // failed: a Terminate is to be sent, or came. Input is dropped
  kEnded,      // the LLP is gone and all work has been completed or flushed
};

enum class EndReason : uint8_t {
  kNone,
  kOrderly,            // closed between messages, nothing outstanding
  kTerminateSent,      // we found the error; `terminate` says which
  kTerminateReceived,  // the peer did
  kLlpLost,            // the connection broke, or closed with work outstanding, without a Terminate
};

// The frame by which a peer-to-peer initiator tells the responder that it may send, RFC 6581
// section 9.
enum class Rtr : uint8_t { kNone, kSend, kWrite, kRead };

// What MPA start-up agreed.
struct Start {
  bool is_initiator = false;
  Rtr rtr = Rtr::kNone;
  uint32_t ird = 0;  // Reads and atomics the peer may have outstanding here
  uint32_t ord = 0;  // Reads and atomics we may have outstanding there
};

// Why the stream failed or ended.
struct TerminateInfo {
  EndReason reason = EndReason::kNone;
  Terminate terminate;
  bool is_swapped = false;  // it came in siw's form

  bool has_terminate() const {
    return reason == EndReason::kTerminateSent || reason == EndReason::kTerminateReceived;
  }
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_STATE_H_
