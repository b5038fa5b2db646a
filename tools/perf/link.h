// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The two connections of a test, as perftest has them with -R: over the first, control, both ends
// exchange keys and keep in step; the second, data, is measured. Both go to the same port.
#ifndef DDPSOCK_TOOLS_PERF_LINK_H_
#define DDPSOCK_TOOLS_PERF_LINK_H_

#include <array>
#include <memory>

#include "tools/iwarp/endpoint.h"
#include "tools/perf/exchange.h"
#include "tools/perf/patience.h"
#include "tools/perf/plan.h"

namespace ddpsock::perf {

using iwarp::Endpoint;
using iwarp::Error;
using iwarp::fail_with;

class Link {
 public:
  // Connects the control connection, or waits for it on `listener`, which a client has not. Both
  // outlive the link.
  static Result<std::unique_ptr<Link>, Error> open(const Plan& plan, iwarp::Listener* listener);

  // One message each way, of the same length, at most kMaxExchangeSize: the client's comes first.
  // The data connection is served meanwhile. Also an error: a message of another length.
  Status<Error> exchange(Bytes mine, MutBytes theirs);

  // For a server that gives up: takes the client's next message and does not answer. perftest
  // notices the end of a connection while it waits for a message, and not elsewhere.
  void leave_unanswered();

  // Connects the data connection, or waits for it.
  Status<Error> open_data();
  // REQUIRES: open_data().
  Endpoint& data() { return *data_; }

  // A wait on the data connection begins.
  void renew_patience();
  // After a poll() of data() that brought nothing: waits for more. Error: the connection has ended,
  // or nothing moved for Plan::patience.
  Status<Error> rest();

  // The last messages are under way: from here on the peer may end the data connection.
  void expect_end() { is_end_expected_ = true; }
  // Ends both in an orderly way. How the peer ends them does not matter any more.
  void close();

 private:
  Link(const Plan& plan, iwarp::Listener* listener)
      : plan_(plan), patience_(plan.patience), listener_(listener) {}
  Status<Error> open_control();
  // `reads`: outstanding ones either way. `may_be_early`: the peer is there but perhaps does not
  // listen again yet.
  Status<Error> connect(Endpoint& endpoint, uint16_t reads, bool may_be_early);
  Status<Error> accept(Endpoint& endpoint, uint16_t reads, Duration wait);
  Status<Error> post_control_receive();
  Status<Error> send_control(Bytes message);
  Status<Error> receive_control(MutBytes message);
  Status<Error> serve_data();
  bool is_spinning() const { return !plan_.is_sleeping; }

  const Plan& plan_;
  Patience patience_;
  iwarp::Listener* listener_;
  std::array<uint8_t, kMaxExchangeSize> control_buffer_{};
  std::unique_ptr<Endpoint> control_;
  std::unique_ptr<Endpoint> data_;
  bool is_end_expected_ = false;
  uint32_t rests_ = 0;
};

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_LINK_H_
