// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the parts of a byte stream work on: one process's view of a record in the arena. The record
// has all the state and is shared with every process that holds the socket; each direction has a
// lease and is touched only under it.
//
// A part is a file of functions over a Connection: start.h is MPA start-up, rx.h receives, tx.h
// sends, looks.h looks without taking, closing.h ends; failure.h ends a connection early;
// departure.h, raw.h and turning.h are the way back to plain TCP; memory.h brings the bytes into
// shared memory, memory_tx.h and memory_rx.h send and receive there, leaving.h brings them back;
// watching.h tells who watches; one_sided.h and one_sided_rx.h share the connection with a queue
// pair; identity.h says whether a number is still its socket's. user_stream.h is how they are
// called.
//
// All of them: `fd` is the number that the program's call came with. Functions that return int
// return 0 or the errno value for that call, but for still(), and keep errno only where they say
// so. Who sleeps asks still() before it goes on. A number taken by reference, or noted in a
// Descriptor, is -1 afterwards if it is another's by then; who passed it by value asks again.
#ifndef DDPSOCK_STREAM_CONNECTION_H_
#define DDPSOCK_STREAM_CONNECTION_H_

#include <atomic>

#include "base/fd.h"
#include "engine/observer.h"
#include "relatives/arena.h"
#include "relatives/inbox.h"
#include "relatives/record.h"
#include "shm/segment.h"
#include "stream/chunk.h"
#include "stream/chunk_reader.h"
#include "stream/hello.h"
#include "stream/queue_pair.h"
#include "stream/reading_habit.h"
#include "stream/stream.h"

namespace ddpsock::engine {

struct Connection {
  Connection(Arena& a, Record& record, Stream& s)
      : arena(a), r(record), rx(record.rx), tx(record.tx), inbox(record.rx.inbox), stream(s) {}

  bool is_state(StreamState s) const { return r.state.load(std::memory_order_acquire) == s; }
  // Does FPDUs' way begin only with the peer's frame?
  bool is_awaited() const { return r.is_strict || r.peer == Peer::kRequired; }
  // One direction is plain, or both, or all is over.
  bool is_turned() const { return r.state.load(std::memory_order_acquire) > StreamState::kOpen; }
  bool speaks_raw() const { return (r.peer_features & DDPSOCK_FEATURE_RAW) != 0; }

  // Of the shared memory.
  bool is_joined() const {
    return r.memory.state.load(std::memory_order_acquire) == MemoryState::kJoined;
  }
  bool is_in_memory() const {
    const shm::Segment* mapped = segment.load(std::memory_order_acquire);
    return mapped != nullptr && mapped->has_moved() &&
           (r.memory.receiving != Way::kWireAgain || r.memory.sending != Way::kWireAgain);
  }
  // What comes lies in memory that this process has not mapped.
  bool is_beyond_reach() const {
    return r.memory.receiving.load(std::memory_order_relaxed) == Way::kMemory &&
           segment.load(std::memory_order_relaxed) == nullptr;
  }
  // Nobody has left memory that this process has not mapped: the peer takes no FPDU.
  bool is_sending_beyond_reach() const {
    return r.memory.sending.load(std::memory_order_relaxed) == Way::kMemory &&
           segment.load(std::memory_order_relaxed) == nullptr;
  }

  // What lay in the peer's lane comes next (Inbox::beyond).
  bool is_beyond_next() const { return inbox.is_beyond_next(rx.msn, rx.mo); }
  // This process's; nullptr: it has none.
  OneSided* queue_pair() const;

  ChunkReader reader() const { return {rx.msn, rx.mo, r.has_crc, speaks_raw()}; }
  // Behind an FPDU of the stream.
  void advance(const Fpdu& fpdu) {
    rx.msn = fpdu.msn;
    rx.mo = fpdu.mo;
    r.received.bytes.add(fpdu.payload);
    r.received.fpdus.add(1);
  }
  void count_crc() { r.received.crcs_checked.add(1); }
  void count_sent(uint32_t chunks, size_t payload) {
    r.sent.bytes.add(payload);
    r.sent.fpdus.add(chunks);
  }
  // REQUIRES: the lease of that direction.
  void count_effort(const base::Lease& lease) {
    if (base::effort.is_none()) return;
    (&lease == &tx.lease ? r.sent : r.received).add(base::take_effort());
  }

  Arena& arena;
  Record& r;
  Rx& rx;
  Tx& tx;
  Inbox& inbox;
  Stream& stream;  // whose parts these are
  // This process's own; a forked child inherits it.
  std::atomic<shm::Segment*> segment{nullptr};
  std::atomic<uint32_t> lazy_thread{0};      // MemoryPart::set_watcher
  std::atomic<bool> is_spill_keeper{false};  // one of the few of this process (spill_keeping.h)
  // A call that might have slept was refused by the kernel because the socket does not wait; none
  // has slept and got something since.
  std::atomic<bool> was_nonblocking{false};
  ReadingHabit habit;
  std::atomic<OneSided*> own_queue_pair{nullptr};
  std::atomic<uint32_t> queue_pair_generation{0};  // of the process whose it is
  std::atomic<int32_t> unanswered{0};  // its Reads and atomics that the peer has still to answer
  base::UniqueFd memfd;                // until the peer has joined
  shm::FileId memfd_file;
  Watched watched;
  // Of the next chunk that would carry what goes through memory, as far as this process has told;
  // each with the lease of its direction.
  struct ToldMsn {
    uint32_t generation = 0, msn = 0;
  } told_sent, told_received;
  size_t told_ahead = 0;  // of the bytes in memory: so many that are still to be read
  // Of the socket, for calls that sleep while the program's last number of it is closed.
  std::atomic<int> outliving{-1};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_CONNECTION_H_
