// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a connection has from the first call that needs it: the queue pair with what is made for it,
// and what others know the connection by: its number, how far it is, and how it ended.
#ifndef DDPSOCK_MESSAGE_ENDPOINT_H_
#define DDPSOCK_MESSAGE_ENDPOINT_H_

#include <atomic>
#include <memory>

#include "message/startup.h"
#include "relatives/message_record.h"

namespace ddpsock::message {

enum class Phase : uint8_t { kIdle, kStarting, kRunning, kEnded };

// Any thread, but for open().
class Endpoint {
 public:
  explicit Endpoint(Domain& domain) : domain_(domain), regions_(domain.engine()) {}
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Once; `queue` and `receives` (nullptr: none) outlive it. ENOMEM, EINVAL.
  Status<> open(const Settings& settings, Queue& queue, engine::Srq* receives, bool has_record);
  // REQUIRES: open, as all others but phase(), fd(), counters().
  engine::Qp& qp() const { return *qp_; }
  Queue& queue() const { return *queue_; }
  Regions& regions() { return regions_; }
  bool is_caller_driven() const { return is_caller_driven_; }
  // Who moves its bytes, for DDP_STATUS.
  const char* progress() const { return is_caller_driven_ ? "caller" : domain_.poller_name(); }
  const engine::QpCounters& counters() const {
    return record_ != nullptr ? record_->counters : own_counters_;
  }

  // With the connection's lock: it goes on.
  void begin(int fd, const Startup::Plan& plan);
  void run() {
    is_direct_.store(qp_->capabilities().has(engine::Capability::kDirect));
    phase_.store(Phase::kRunning);
  }
  void note_up(const Startup& startup);
  // By `status` of a DDP_ENDED; or with nothing to tell, because it is closed.
  void end(int status, const char* reason);
  void close();
  // In a forked child: the parent's.
  void abandon();

  Phase phase() const { return phase_.load(); }
  // Whether some messages need not go the usual way; once it runs.
  bool is_direct() const { return is_direct_.load(std::memory_order_acquire); }
  int fd() const { return fd_.load(std::memory_order_relaxed); }  // as the program calls it
  int end_status() const { return end_status_.load(); }
  uint32_t end_terminate() const;
  const char* reason() const { return reason_; }  // static text

 private:
  Domain& domain_;
  Regions regions_;
  engine::MessageRecord* record_ = nullptr;  // what others see of it, if there is room for that
  engine::QpCounters own_counters_;          // otherwise
  Queue* queue_ = nullptr;
  std::unique_ptr<engine::Qp> qp_;
  bool is_caller_driven_ = false;
  std::atomic<Phase> phase_{Phase::kIdle};
  std::atomic<bool> is_direct_{false};
  std::atomic<int> fd_{-1};
  std::atomic<int> end_status_{0};
  const char* reason_ = "";
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_ENDPOINT_H_
