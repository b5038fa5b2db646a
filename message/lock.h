// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_MESSAGE_LOCK_H_
#define DDPSOCK_MESSAGE_LOCK_H_

#include "message/connection.h"

namespace ddpsock::message {

class Connection::Lock {
 public:
  explicit Lock(const Connection& c) : connection_(const_cast<Connection&>(c)) {
    connection_.mutex_.lock();
  }
  ~Lock() {
    connection_.mutex_.unlock();
    if (connection_.is_work_pending_.load()) connection_.try_run(Poll::kNone, base::now());
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Connection& connection_;
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_LOCK_H_
