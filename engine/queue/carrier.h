// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What carries the segments of a queue pair in software: FPDUs over a byte stream (engine/wire),
// records in memory shared with the peer (engine/memory), whole segments over a link that may
// reorder them (engine/loopback). Posting, completions, ends, errors and states are the queue
// pair's (soft_qp.h) and are written once; a carrier moves what the core decides, and tells what
// came of it.
//
// In a carrier is the thread inside advance(), or, while nobody is, one that holds the engine's
// lock; has_news() is for any. The lock is held on every call (but see DirectCarrier) and let go of
// inside by who moves more bytes than a few. Nothing blocks, and no thread is cancelled in it.
#ifndef DDPSOCK_ENGINE_QUEUE_CARRIER_H_
#define DDPSOCK_ENGINE_QUEUE_CARRIER_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "engine/engine.h"
#include "engine/queue/soft_queues.h"
#include "rdmap/direct_way.h"
#include "rdmap/qp.h"

namespace ddpsock::engine {

// What one direction's turn came to.
enum class Turn : uint8_t {
  kIdle,     // nothing to do, or nothing to be had
  kBlocked,  // the lower layer takes no more now
  kMore,     // the budget is used up
  kLost,
};

// One advance(), as a carrier sees it.
struct Pass {
  rdmap::Qp& core;
  // The engine's, held when a carrier is called and when it returns. Let go of while bytes move.
  std::unique_lock<std::mutex>& lock;
  SoftQueues& queues;
  const Time now;
  const Budget budget;
  // Ours, by shut_write(), and the peer's, of which receive() has told.
  const bool is_fin_sent;
  bool is_fin_received;
};

struct Received {
  Turn turn = Turn::kIdle;
  // The peer's direction has ended, and all that was sent before is in. Told once.
  std::optional<rdmap::LlpEnd> end = {};
};

// The direct way of a carrier that has one (Carrier::direct()), in a thread that takes the place of
// the one inside advance(). Without the engine's lock, but for a signalled send.
class DirectCarrier {
 public:
  // False: `wr` is not for this way, or has to wait; otherwise it went as `segment`. REQUIRES:
  // core.may_send().
  [[nodiscard]] virtual bool send_directly(rdmap::DirectWay& core, const rdmap::SendWr& wr,
                                           rdmap::DirectSegment& segment) = 0;
  // After one or several.
  virtual void finish_sends() = 0;
  // Where `aim` lies in this process, if the peer has placed all that was sent before. nullptr:
  // nowhere, or not yet. Holds until the next call.
  virtual uint8_t* locate(const rdmap::Aim& aim) = 0;
  // Whether fetch() would take less long than to ask the peer.
  virtual bool is_fetching_faster() const = 0;
  // Fills `to` with what a Read of `aim` asks for, if the peer lets us and has placed all that was
  // sent before. False: it has not been filled, or with anything.
  [[nodiscard]] virtual bool fetch(const rdmap::Aim& aim, MutBytes to) = 0;
  // Whether the peer has sent what has not been taken in.
  virtual bool has_arrived() const = 0;
  // Takes it in, all that is there now. With the engine's lock.
  virtual void take_in(rdmap::Qp& core, std::unique_lock<std::mutex>& lock) = 0;
  // As Qp::receive_directly().
  virtual uint32_t receive_directly(rdmap::DirectWay& core, std::span<rdmap::Completion> out) = 0;

 protected:
  ~DirectCarrier() = default;
};

class Carrier {
 public:
  // Tells whoever counts of mulpdu(), when it has changed.
  static void note_mulpdu(rdmap::Qp& core, uint32_t mulpdu) {
    core.counters().max_payload.store(mulpdu - DDP_UNTAGGED_HEADER_SIZE, std::memory_order_relaxed);
  }

  virtual ~Carrier() = default;

  // What the queue pair can by it, beside what all in software can.
  virtual Capabilities capabilities() const = 0;
  // Moves what has come into the core, unless Budget::may_be_readable says that nothing has.
  virtual Received receive(Pass& pass) = 0;
  // Moves what the core has to say: nothing any more behind our FIN.
  virtual Turn transmit(Pass& pass) = 0;
  // FIN after what was sent, once.
  virtual void shut_write(Time now) = 0;
  // Ends both directions at once, unsent bytes or not. Time{}: outside advance(), where nobody
  // knows the time.
  virtual void drop(Time now) = 0;

  // Largest ULPDU to send now. Time{}: before the first advance().
  virtual uint32_t mulpdu(Time now) = 0;
  // What it wants beside the queue pair's own wishes, after a turn of each direction.
  virtual void add_to(Need& need, Turn sent, const Pass& pass) = 0;

  // Memory that the core named for a segment is about to be its owner's again. With the lock.
  virtual void revoke() {}
  // As Qp::has_news(): any thread, without the lock.
  virtual bool has_news() const { return true; }
  // nullptr: none.
  virtual DirectCarrier* direct() { return nullptr; }
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_QUEUE_CARRIER_H_
