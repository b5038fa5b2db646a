// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What librdmacm and libibverbs are to a verbs program, over the user engine's message mode: one
// connection with its queue pair, one completion queue and its registered memory, for programs that
// wait for one thing at a time. Nothing but RDMAP is on the wire, so the peer may be any iWARP
// implementation.
//
// Order of use: make(), register memory, post receives (a Send that finds none ends the
// connection), then connect(), or hear() and answer(), then requests and completions, then close().
// Not thread-safe. Every wait has a deadline.
#ifndef DDPSOCK_TOOLS_IWARP_ENDPOINT_H_
#define DDPSOCK_TOOLS_IWARP_ENDPOINT_H_

#include "connect/handshake.h"
#include "tools/iwarp/tcp.h"

namespace ddpsock::iwarp {

class Endpoint {
 public:
  // `attr`: but for its domain and queues, which are the endpoint's. `max_ulpdu` as
  // engine::Start has it.
  static Result<std::unique_ptr<Endpoint>, Error> make(engine::QpAttr attr, uint32_t max_ulpdu = 0);
  // A connection that has not ended is cut: the peer sees a reset, perhaps inside an FPDU.
  ~Endpoint();

  // `memory` outlives the endpoint. The TO of its first byte is its address, as verbs programs
  // expect it.
  Result<engine::Mr, Error> register_memory(MutBytes memory, engine::Rights rights);

  // Connects, exchanges MPA start-up frames and starts the queue pair. After an error of start-up a
  // new endpoint is needed.
  Status<Error> connect(const Address& to, connecting::Call wish,
                        const std::optional<Address>& source = {});
  // The passive side. Reads the Request of a connection from Listener::take(). One that says
  // something else, or nothing for `config.timeouts`, is closed and an error; the endpoint can hear
  // the next one.
  Status<Error> hear(base::UniqueFd fd, const mpa::ResponderConfig& config);
  // What has been heard: its request(), accept() and reject().
  mpa::Responder& responder() { return *handshake_->responder(); }
  // `decision`: what the last two of these gave. Accepted: starts the queue pair. Rejected: an
  // error, kRejected.
  Status<Error> answer(const Status<mpa::StartupError>& decision);
  // REQUIRES: connected.
  const mpa::Agreement& agreement() const { return handshake_->agreement(); }
  int fd() const { return fd_.get(); }
  // To post batches, and to learn why a request was refused or how the connection ended.
  engine::Qp& qp() { return *qp_; }

  // False: the queue pair refused it.
  bool post(const engine::SendWr& work) { return qp_->send({&work, 1}).accepted == 1; }
  bool post(const engine::RecvWr& work) { return qp_->recv({&work, 1}).accepted == 1; }
  // Sends what was posted, as far as the socket takes it, without looking for input: a request's
  // only system call on the way out.
  void flush() { advance({.may_be_readable = false}); }
  // Looks at the socket once, moves bytes both ways and gives out the oldest completions; how many.
  // Never waits.
  uint32_t poll(std::span<engine::Completion> out);
  // What must happen for poll() to have more to do.
  const engine::Need& need() const { return need_; }
  // Waits for that. False: the deadline had come before.
  bool rest(Time deadline);
  // The oldest completion, waiting for it. Nothing: the deadline has passed, or the connection has
  // ended and all completions were given out (then has_ended()).
  std::optional<engine::Completion> next_completion(Time deadline);

  bool has_ended() const { return qp_->state() == engine::QpState::kEnded; }
  // "closed", "ended by the peer's Terminate: ...": why it ended.
  std::string describe_end() const;
  // Finishes what was posted, sends a FIN and reads on to the peer's. False: the deadline came
  // first. Receives are flushed (next_completion() still gives them out).
  bool close(Time deadline);
  // For how the peer ends it. False: the deadline came first.
  bool wait_for_end(Time deadline);

 private:
  Endpoint() = default;
  Status<Error> start();
  void advance(engine::Budget budget) { need_ = qp_->advance(base::now(), budget); }

  // Destroyed in the reverse order, the queue pair first.
  base::UniqueFd fd_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Cq> cq_;
  std::unique_ptr<engine::Qp> qp_;
  engine::QpAttr attr_;
  uint32_t max_ulpdu_ = 0;
  std::optional<connecting::Handshake> handshake_;
  engine::Need need_;
};

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_ENDPOINT_H_
