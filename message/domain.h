// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What all connections in message mode of one process share: the engine, and the one thread that
// moves the bytes of those whose own calls do not.
#ifndef DDPSOCK_MESSAGE_DOMAIN_H_
#define DDPSOCK_MESSAGE_DOMAIN_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "engine/engine.h"
#include "message/poller.h"

namespace ddpsock::message {

class Progress;

class Domain {
 public:
  // This process's, made by the first call; never destroyed. A forked child makes one of its own
  // and leaves its parent's alone. ENOMEM, EMFILE.
  static Result<Domain*> get();

  engine::Engine& engine() { return *engine_; }
  // Of connections that share no completion queue.
  engine::Pd pd() const { return pd_; }

  // The progress thread, with all signals blocked. EAGAIN, EMFILE. Idempotent.
  Status<> start_thread();
  // What it sleeps in, for DDP_STATUS; static text. "": it was never started.
  const char* poller_name() const;

  // From now on the thread calls c.serve() when the socket is as arm() asked for, and when
  // wake_by() says. 0: no memory.
  uint64_t enter(Progress& c);
  // Afterwards the thread is not in `c` and will not be. Not with a lock of `c` held. The id is
  // given to retire() then.
  void leave(uint64_t id);

  // One event of `events` (EPOLL*) on `fd`, once.
  void arm(int fd, uint64_t id, uint32_t events) { poller_->arm(fd, id, events); }
  void disarm(int fd, uint64_t id) { poller_->disarm(fd, id); }
  // Closes what was armed, now or soon.
  void retire(base::UniqueFd fd, uint64_t id);
  // The thread is to look at the deadlines of all at `at` at the latest. REQUIRES: a
  // thread.
  void wake_by(Time at);

 private:
  struct Slot {
    Progress* connection = nullptr;
    uint32_t serial = 0;  // 0: free
  };

  explicit Domain(std::unique_ptr<engine::Engine> engine, engine::Pd pd);
  static void* run_thread(void* domain);
  static void in_child();
  [[noreturn]] void run();
  void serve(uint64_t id, uint32_t events);
  void serve_deadlines();
  void free_slot(uint64_t id);
  void replace_descriptors();
  bool grow();

  std::unique_ptr<engine::Engine> engine_;
  const engine::Pd pd_;
  const uint32_t generation_;

  std::mutex mutex_;  // everything down to poller_
  std::unique_ptr<Slot[]> slots_;
  uint32_t slot_count_ = 0;
  uint32_t last_serial_ = 0;
  bool has_thread_ = false;

  // Made before the thread starts.
  std::unique_ptr<Poller> poller_;
  std::atomic<int64_t> earliest_{kNever.ns};
  std::atomic<uint64_t> serving_{0};  // id the thread is in; written under mutex_
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_DOMAIN_H_
