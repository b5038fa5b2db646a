// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_MESSAGE_TURN_H_
#define DDPSOCK_MESSAGE_TURN_H_

#include "message/connection.h"

namespace ddpsock::message {

class Connection::Turn {
 public:
  explicit Turn(const Connection& c) : connection_(const_cast<Connection&>(c)) {
    connection_.mutex_.lock();
  }
  ~Turn() {
    connection_.mutex_.unlock();
    if (connection_.is_work_pending_.load()) connection_.try_run(Look::kNone, base::now());
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Connection& connection_;
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_TURN_H_
