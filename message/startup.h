// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a connection comes to be: MPA start-up on its socket, or what a byte stream has agreed in its
// own, up to the start of the queue pair.
#ifndef DDPSOCK_MESSAGE_STARTUP_H_
#define DDPSOCK_MESSAGE_STARTUP_H_

#include <atomic>
#include <memory>

#include "connect/handshake.h"
#include "message/wishes.h"
#include "relatives/stream_attr.h"
#include "stream/one_sided_way.h"

namespace ddpsock::message {

using engine::Role;

// With the connection's lock, but for what is said to be free of it.
class Startup {
 public:
  struct Plan {
    Role role = Role::kInitiator;
    Settings settings{};  // the private data may change while it is held
    connecting::Memory memory{};
    bool may_fall_back = false;
    bool is_connecting = false;
  };
  void begin(Plan plan, bool is_held);
  // Waits for the program's next call. Free.
  bool is_held() const { return is_held_.load(); }
  // False: it was not held.
  bool release() { return is_held_.exchange(false); }
  void set_private_data(const mpa::PrivateData& data) { plan_.settings.private_data = data; }

  enum class State : uint8_t {
    kUnderWay,
    kUp,
    kRefusing,  // error() says why: `qp` is started, but to send a Terminate
    kFailed     // error()
  };
  // As far as it goes on socket `fd`. kUp, kRefusing, kFailed: once.
  State advance(int fd, engine::Qp& qp, Time now, engine::Need& need);
  State advance_on_stream(int fd, engine::OneSidedWay& stream, engine::Qp& qp, engine::Need& need);

  // What it goes by, and what has come of it. The memory outlives the queue pair.
  const Plan& plan() const { return plan_; }
  bool is_up() const { return is_up_; }  // now or once
  const mpa::Agreement& agreement() const { return agreement_; }
  // The peer was called again, with revision 1.
  bool has_fallen_back() const { return has_fallen_back_; }
  // Not a byte of the stream was taken.
  bool is_untouched() const { return is_untouched_; }
  // 0: it has not failed. Free, once the connection has left it.
  int error() const { return error_; }
  const char* reason() const { return reason_; }  // static text
  // EAGAIN: none has come.
  Result<mpa::PrivateData> peer_private_data() const;
  // Of a connect() that was under way, once: 0 or its errno. Free.
  int take_socket_error() { return socket_error_.exchange(0); }

 private:
  [[nodiscard]] bool make_handshake(int fd, Time now);
  bool accept(Time now);
  State start(engine::Qp& qp);
  State fail_handshake(engine::Qp& qp);
  State fail(int error, const char* reason);

  Plan plan_;
  std::unique_ptr<connecting::Handshake> handshake_;
  mpa::Agreement agreement_{};
  std::atomic<bool> is_held_{false};
  std::atomic<int> socket_error_{0};
  int error_ = 0;
  const char* reason_ = "";
  bool is_up_ = false;
  bool has_fallen_back_ = false;
  bool is_untouched_ = false;
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_STARTUP_H_
