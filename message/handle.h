// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a descriptor in message mode stands for: a connection (connection.h), a completion queue
// (queue.h) or a shared receive queue (srq.h). The contract of each call is that of ddpsock.h;
// errors are the errno values named there.
#ifndef DDPSOCK_MESSAGE_HANDLE_H_
#define DDPSOCK_MESSAGE_HANDLE_H_

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"
#include "ddpsock/ddpsock.h"

namespace ddpsock::message {

class Connection;
class Queue;
class Srq;

// Made by Connection::make(), Queue::make() and Srq::make(). Threads: all calls from any thread at
// any time until destroy(). In a forked child every call fails with EOPNOTSUPP and changes nothing.
class Handle {
 public:
  // Of what was made before a fork; nothing but close() and destroy() may be called then.
  bool is_foreign() const { return generation_ != base::process_generation(); }

  // The last descriptor is about to be closed. Afterwards no memory that the program has named is
  // touched; calls that are still running end with EBADF.
  virtual void close() = 0;
  // After close(), when no call is running: the object is gone.
  virtual void destroy() = 0;

  virtual Connection* connection() { return nullptr; }
  virtual Queue* queue() { return nullptr; }
  virtual Srq* srq() { return nullptr; }

  // EOPNOTSUPP where there is nothing of the kind.
  virtual Result<ddp_region> register_memory(MutBytes, unsigned) { return fail_errno(EOPNOTSUPP); }
  virtual Status<> deregister(uint32_t) { return fail_errno(EOPNOTSUPP); }
  virtual Result<ddp_region> allocate(size_t, unsigned) { return fail_errno(EOPNOTSUPP); }
  virtual Status<> free(uint32_t) { return fail_errno(EOPNOTSUPP); }
  virtual Status<> take_back(uint32_t) { return fail_errno(EOPNOTSUPP); }
  virtual Result<unsigned> poll(std::span<ddp_completion>) { return fail_errno(EOPNOTSUPP); }
  virtual Result<unsigned> wait(std::span<ddp_completion>, int) { return fail_errno(EOPNOTSUPP); }
  virtual Result<int> event_fd() { return fail_errno(EOPNOTSUPP); }
  virtual void set_spin(Duration) {}
  virtual Duration spin() const { return {}; }

 protected:
  Handle();
  virtual ~Handle() = default;

 private:
  const uint32_t generation_;
};

// One that connections share, with an event fd; it goes with the last reference. Made with one,
// which destroy() drops.
class SharedHandle : public Handle {
 public:
  void add_reference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop_reference();
  // The event fd as the program's. -1: no descriptors.
  int open_descriptor() const;
  void destroy() override;

 protected:
  // False: no descriptors.
  [[nodiscard]] bool open_event();
  base::UniqueFd event_fd_;

 private:
  std::atomic<uint32_t> references_{1};
};

struct DropReference {
  void operator()(SharedHandle* handle) const { handle->drop_reference(); }
};
template <typename T>
using Kept = std::unique_ptr<T, DropReference>;
template <typename T>
Kept<T> keep(T& handle) {
  handle.add_reference();
  return Kept<T>(&handle);
}

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_HANDLE_H_
