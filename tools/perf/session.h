// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the measurements work with: the data connection, the memory both ends use, and the peer's
// key.
#ifndef DDPSOCK_TOOLS_PERF_SESSION_H_
#define DDPSOCK_TOOLS_PERF_SESSION_H_

#include <memory>

#include "tools/perf/link.h"
#include "tools/perf/plan.h"

namespace ddpsock::perf {

// Two buffers of the largest size in one allocation, and a word for credit.
class Buffers {
 public:
  // Registers what the peer may reach. Error: no memory.
  static Result<Buffers, Error> make(const Plan& plan, uint32_t cycle, Endpoint& endpoint);

  // What is sent from, and where Reads go to.
  MutBytes own() { return MutBytes(memory_.get(), size_); }
  // What messages are received into and what the peer writes to or reads from.
  MutBytes shared() { return MutBytes(memory_.get() + size_, size_); }
  // The peer writes how many of our Sends it has received: a number in its own byte order, which
  // perftest takes for ours.
  uint32_t credit() const { return *static_cast<const volatile uint32_t*>(credit_.get()); }
  void clear_credit() { *credit_ = 0; }

  const engine::Mr& own_region() const { return own_region_; }
  // What the peer is told.
  uint32_t stag() const { return peer_region_.stag; }
  uint64_t to() const { return peer_region_.base_to; }

 private:
  Buffers() = default;
  std::unique_ptr<uint8_t[]> memory_;
  std::unique_ptr<uint32_t> credit_;
  size_t size_ = 0;
  engine::Mr own_region_;
  engine::Mr peer_region_;
};

struct Session {
  const Plan& plan;
  Link& link;
  Buffers& buffers;
  // The peer's, as it came last.
  Key peer;

  Endpoint& data() { return link.data(); }
  // Waits for at least one completion; how many. Error: one has failed, or the wait.
  Result<uint32_t, Error> wait(std::span<engine::Completion> out);
  // The same if there is something now; 0 otherwise.
  Result<uint32_t, Error> poll(std::span<engine::Completion> out);
  // REQUIRES: room in the queue. Error: the connection has ended.
  Status<Error> post(const engine::SendWr& work);
  Status<Error> post_receives(uint32_t count, uint32_t size);
  // The measured request of `size` bytes.
  engine::SendWr request(const Bytes& payload, bool is_signalled) const;
};

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_SESSION_H_
