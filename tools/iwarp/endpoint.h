// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What librdmacm and libibverbs are to a verbs program, over the user engine's message mode: one
// connection with its queue pair, one completion queue and its registered memory, for programs that
// wait for one thing at a time. Nothing but RDMAP is on the wire, so the peer may be any iWARP
// implementation.
//
// Order of use: make(), register memory, post receives (a Send that finds none ends the
// connection), then connect() or Incoming::accept(), then requests and completions, then close().
// Not thread-safe. Every wait has a deadline.
#ifndef DDPSOCK_TOOLS_IWARP_ENDPOINT_H_
#define DDPSOCK_TOOLS_IWARP_ENDPOINT_H_

#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/fd.h"
#include "connect/handshake.h"
#include "engine/engine.h"
#include "tools/iwarp/address.h"
#include "tools/iwarp/error.h"

namespace ddpsock::iwarp {

struct EndpointAttr {
  uint32_t send_depth = 64;
  uint32_t recv_depth = 64;
  // What the queue pair can serve and issue; MPA start-up offers no more than this.
  uint16_t max_ird = mpa::kDefaultDepth;
  uint16_t max_ord = mpa::kDefaultDepth;
  uint32_t max_ulpdu = 0;  // as engine::Parameters has it
  // Waiting for the peer: ask the kernel again and again instead of sleeping.
  bool is_spinning = false;
};

struct ConnectAttr {
  bool may_fall_back = true;  // as connecting::Call has it
  mpa::InitiatorConfig startup{};
  Duration tcp_timeout = Duration::from_ms(10'000);
  std::optional<Address> source = {};  // to connect from; port 0: any
};

class Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>, Error> make(const EndpointAttr& attr);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // `memory` outlives the endpoint. The TO of its first byte is its address, as verbs programs
  // expect it.
  Result<engine::Mr, Error> register_memory(MutBytes memory, engine::Rights rights);

  // Connects, exchanges MPA start-up frames and starts the queue pair. After an error of start-up a
  // new endpoint is needed.
  Status<Error> connect(const Address& to, const ConnectAttr& attr);
  // Takes over the socket of start-up that is over, and starts the queue pair; where start-up has
  // failed, tells the peer as far as that is due. The error is start-up's then.
  Status<Error> start(base::UniqueFd fd, const connecting::Handshake& handshake);

  engine::Qp& qp() { return *qp_; }
  // REQUIRES: connected.
  const mpa::Agreement& agreement() const { return agreement_; }
  int fd() const { return fd_.get(); }

  // Posts one request. False: the queue pair refused it; refusal() tells why.
  bool post(const engine::SendWr& work) { return post(std::span(&work, 1)) == 1; }
  bool post(const engine::RecvWr& work);
  // Posts as many as the queue pair takes, from the front; how many.
  uint32_t post(std::span<const engine::SendWr> work);
  engine::Refusal refusal() const { return refusal_; }

  // For programs with many requests under way. Looks at the socket once, moves bytes both ways and
  // gives out the oldest completions; how many. Never waits.
  uint32_t poll(std::span<engine::Completion> out);
  // Waits until poll() may have more to do, at most until the deadline. Returns at once when
  // spinning, unless the socket takes no more bytes: asking it again and again would only keep the
  // acknowledgements from it.
  void rest(Time deadline);
  // What rest() waits for, for those who wait for several connections.
  const engine::Need& need() const { return need_; }

  // The oldest completion, waiting for it. Nothing: the deadline has passed, or the connection has
  // ended and all completions were given out (then has_ended()).
  std::optional<engine::Completion> next_completion(Time deadline);
  // Sends what was posted, as far as the socket takes it, without looking for input: a request's
  // only system call on the way out.
  void flush();
  bool has_ended() const { return qp_->state() == engine::QpState::kEnded; }
  // "closed by the peer", "the peer sent a Terminate: ...": why it ended.
  std::string describe_end() const;

  // Finishes what was posted, sends a FIN and reads on to the peer's. False: the deadline came
  // first; what is left is cut off when the endpoint goes. Receives are flushed (next_completion()
  // still gives them out).
  bool close(Time deadline);
  // After qp().abort() with a Terminate, or to see how the peer ends it: until the end. False: the
  // deadline came first.
  bool wait_for_end(Time deadline);
  // At once: the peer sees a reset, perhaps inside an FPDU.
  void cut();

 private:
  explicit Endpoint(const EndpointAttr& attr) : attr_(attr) {}
  void advance(engine::Budget budget);

  EndpointAttr attr_;
  // Destroyed in the reverse order, the queue pair first.
  base::UniqueFd fd_;
  std::unique_ptr<engine::Engine> engine_;
  engine::Pd pd_;
  std::unique_ptr<engine::Cq> cq_;
  std::unique_ptr<engine::Qp> qp_;
  mpa::Agreement agreement_;
  engine::Refusal refusal_ = engine::Refusal::kNone;
  engine::Need need_;
};

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_ENDPOINT_H_
