// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up on a TCP socket, for message mode, up to the start of a queue pair: moves the frames
// of an mpa::Initiator or mpa::Responder without ever taking a byte behind them from the kernel, so
// that the socket can then go to any engine, or stay a plain one when the peer does not speak MPA.
#ifndef DDPSOCK_CONNECT_HANDSHAKE_H_
#define DDPSOCK_CONNECT_HANDSHAKE_H_

#include <variant>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "mpa/initiator.h"
#include "mpa/responder.h"

namespace ddpsock::connecting {

// MPA and RDMAP know nothing of each other; both know the four RTR messages.
constexpr rdmap::Rtr to_rdmap(mpa::Rtr rtr) {
  static_assert(static_cast<int>(mpa::Rtr::kSend) == static_cast<int>(rdmap::Rtr::kSend) &&
                static_cast<int>(mpa::Rtr::kWrite) == static_cast<int>(rdmap::Rtr::kWrite) &&
                static_cast<int>(mpa::Rtr::kRead) == static_cast<int>(rdmap::Rtr::kRead));
  return static_cast<rdmap::Rtr>(rtr);
}

// What an engine needs to know of what MPA start-up has agreed.
engine::Parameters parameters_of(const mpa::Agreement& agreed, uint32_t max_ulpdu = 0);

// One side of one connection. Never blocks, whatever the socket's mode; one thread at a time.
class Handshake {
 public:
  // `fd`: a connected TCP socket, borrowed.
  Handshake(int fd, const mpa::Initiator& initiator) : fd_(fd), end_(initiator) {}
  Handshake(int fd, const mpa::Responder& responder) : fd_(fd), end_(responder) {}

  // Sends and reads as far as it goes. Needs nothing more once state() is kAgreed or kFailed; the
  // latter means: send what failure() asks for, if anything, and close the socket.
  engine::Need advance(Time now);
  // The same in the calling thread, until it is agreed, has failed, or (a responder's) is to be
  // decided. Its timers bound it.
  mpa::StartupState run();

  mpa::StartupState state() const;
  // REQUIRES: kAgreed, kFailed.
  const mpa::Agreement& agreement() const;
  const mpa::StartupFailure& failure() const;
  // kDeciding: accept() or reject() here, then advance(). nullptr for an initiator.
  mpa::Responder* responder() { return std::get_if<mpa::Responder>(&end_); }

  // Starts `qp` on the socket by what was agreed; medium, tap and max_ulpdu are the `wish`'s. After
  // kFailed where the peer is in FPDU mode all the same (failure().term_code): only to tell it so
  // by a Terminate (RFC 6581 section 7); advance it to its end. REQUIRES: one of the two.
  Status<engine::StartError> start(engine::Qp& qp, engine::Start wish = {}) const;

 private:
  bool send(Time now);
  bool read(Time now);

  int fd_;
  std::variant<mpa::Initiator, mpa::Responder> end_;
};

}  // namespace ddpsock::connecting

#endif  // DDPSOCK_CONNECT_HANDSHAKE_H_
