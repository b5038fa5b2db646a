// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_RPING_SESSION_H_
#define DDPSOCK_TOOLS_RPING_SESSION_H_

#include <array>
#include <optional>
#include <string>

#include "base/clock.h"
#include "tools/iwarp/endpoint.h"
#include "tools/rping/protocol.h"

namespace ddpsock::rping {

// With room for the Reads that a peer may insist on.
inline Result<std::unique_ptr<iwarp::Endpoint>, Error> make_endpoint() {
  return iwarp::Endpoint::make({.max_ird = mpa::kDefaultDepth, .max_ord = mpa::kDefaultDepth});
}

// The messages and RDMA operations of one connection, each waited for. `what` names the step in
// errors. Every error is final: the connection is of no more use.
class Session {
 public:
  // `endpoint` outlives it; nothing waits longer than `patience`.
  Session(iwarp::Endpoint& endpoint, Duration patience)
      : endpoint_(endpoint), patience_(patience) {}

  // Before the connection is made, so that the peer's first message finds a place.
  Status<Error> post_receives();

  // Goes out with the next wait.
  Status<Error> send(const Message& message);
  // The peer's next message; nothing if the peer has closed instead.
  Result<std::optional<Message>, Error> receive(const std::string& what);
  // An RDMA operation, until it has completed.
  Status<Error> perform(const engine::SendWr& work, const std::string& what);
  // Both sides have finished. An error: the peer does not, or has broken off.
  Status<Error> close();
  // After an error: ends what is left without another wait for the peer's protocol.
  void abandon();

 private:
  // The peer sends one message and waits; one more is for what goes out too early.
  static constexpr size_t kReceives = 2;

  Status<Error> post_receive(size_t slot);
  Result<engine::Completion, Error> next(Time deadline, const std::string& what);
  // What next() gave, if it is a message. It stays in its slot until receive() takes it.
  Status<Error> note(const engine::Completion& completion, const std::string& what);
  bool has_peer_closed() const;
  std::unexpected<Error> fail_ended(const std::string& what) const;

  iwarp::Endpoint& endpoint_;
  Duration patience_;
  std::array<Message, kReceives> slots_{};
  size_t next_slot_ = 0;  // the oldest that is posted or arrived
  size_t arrived_ = 0;
};

}  // namespace ddpsock::rping

#endif  // DDPSOCK_TOOLS_RPING_SESSION_H_
