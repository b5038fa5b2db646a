// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up on a TCP socket, for message mode, up to the start of a queue pair: moves the frames
// of an mpa::Initiator or mpa::Responder without ever taking a byte behind them from the kernel, so
// that the socket can then go to any engine, or stay a plain one when the peer does not speak MPA.
#ifndef DDPSOCK_CONNECT_HANDSHAKE_H_
#define DDPSOCK_CONNECT_HANDSHAKE_H_

#include <sys/socket.h>

#include <memory>
#include <variant>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/memory/message_memory.h"
#include "mpa/initiator.h"
#include "mpa/responder.h"

namespace ddpsock::connecting {

// The memory shared with the peer that a connection may lie in, offered to it or joined; or null
// and why not (static text). While start-up lasts the handshake's, which takes it away where the
// two ends cannot both have it; it outlives the queue pair.
struct Memory {
  std::unique_ptr<engine::shm::MessageMemory> memory;
  const char* why = "";
};

// Of the side that connects.
struct Call {
  mpa::InitiatorConfig startup = {};
  // A peer that drops or refuses a Request of revision 2 is called once more: with revision 1,
  // without what that lacks, and on the same socket, which Linux takes back to where it was before
  // connect(). So number, options, duplicates and whatever polls it stay as they are.
  bool may_fall_back = false;
  bool is_connecting = false;  // by a connect() that is under way: if it fails, tcp_error() says so
  Duration tcp_timeout = {};   // until TCP is connected, each time; zero: the kernel's
};

// One side of one connection. Never blocks, whatever the socket's mode; one thread at a time.
class Handshake {
 public:
  // `fd`: a TCP socket, borrowed; it gets TCP_NODELAY, for some peers want a start-up frame in one
  // segment. The calling side's may still be connecting: the timers of start-up count from when it
  // is connected.
  Handshake(int fd, const Call& call, Memory* memory = nullptr);
  Handshake(int fd, const mpa::Responder& responder, Memory* memory = nullptr);

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
  // kFailed because TCP did not connect: the errno value of connect(). Otherwise 0.
  int tcp_error() const { return tcp_error_; }
  bool has_fallen_back() const { return has_fallen_back_; }
  // kDeciding: accept() or reject() here, then advance(). nullptr for an initiator.
  mpa::Responder* responder() { return std::get_if<mpa::Responder>(&end_); }

  // Starts `qp` on the socket by what was agreed, in memory if both ends have it by now. After
  // kFailed: only to tell the peer so by a Terminate where it is in FPDU mode all the same (RFC
  // 6581 section 7), and then advance it to its end; kBadLowerLayer where it is not. REQUIRES: one
  // of the two.
  Status<engine::StartError> start(engine::Qp& qp, uint32_t max_ulpdu = 0) const;

 private:
  struct Connecting {};

  void give_up_memory(const char* why) const;
  bool is_connected(Time now);
  bool call_again();
  void fail_tcp(int error);
  bool send(Time now);
  bool read(Time now);

  int fd_;
  Call call_;
  Memory* memory_;
  Time tcp_deadline_ = kNever;
  std::variant<Connecting, mpa::Initiator, mpa::Responder, mpa::StartupFailure> end_;
  sockaddr_storage peer_{};
  socklen_t peer_length_ = 0;
  int tcp_error_ = 0;
  bool has_fallen_back_ = false;
};

}  // namespace ddpsock::connecting

#endif  // DDPSOCK_CONNECT_HANDSHAKE_H_
