// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The engine seam: queue pairs, completion queues and registered memory over whatever carries them.
// User level over TCP, shared memory, a kernel ULP, a NIC's firmware and the simulation all look
// like this; what one of them cannot do is a missing capability, never an #ifdef in a caller.
// (Byte streams are stream/stream.h.)
//
// What every engine promises. Calls are per batch, never per byte or message. Nothing blocks, and
// nothing allocates except the functions that make objects and Qp::start(). Every accepted work
// request completes exactly once, in posting order per queue: with success, or flushed when the
// stream ends (unsignalled successes stay silent). Memory named in a request belongs to the engine
// from acceptance to completion, and inline payload not at all. What a peer sends can end its own
// connection and nothing else.
//
// Threads: all calls on all objects may come from any thread at any time, with two exceptions: an
// object must not be destroyed while another thread is in it, and of two threads in advance() of
// one queue pair the second returns at once (Need::is_busy). Objects go in the reverse order of
// their making: queue pairs before their queues, those and regions before the Pd, all before the
// Engine.
#ifndef DDPSOCK_ENGINE_ENGINE_H_
#define DDPSOCK_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "mpa/agreement.h"
#include "rdmap/qp_counters.h"
#include "rdmap/stag_table.h"
#include "rdmap/state.h"
#include "rdmap/terminate.h"
#include "rdmap/work.h"

namespace ddpsock::engine {

class Medium;  // queue/medium.h, of engines in software

// What start-up agrees is MPA's vocabulary, and work, completions, rights and Terminates are
// RDMAP's: values without behaviour.
using mpa::Agreement;
using mpa::Rtr;
namespace op = rdmap::op;
using rdmap::Completion;
using rdmap::DeregisterError;
using rdmap::EndReason;
using rdmap::kAnyQp;
using rdmap::Posted;
using rdmap::QpCounters;
using rdmap::QpState;
using rdmap::RecvWr;
using rdmap::Refusal;
using rdmap::RegisterError;
using rdmap::Rights;
using rdmap::SendWr;
using rdmap::TermCode;
using rdmap::TerminateInfo;
using rdmap::WorkKind;
using rdmap::WorkStatus;

enum class Capability : uint32_t {
  kOneSided = 1u << 0,          // Write, Read, and memory a peer may reach
  kAtomics = 1u << 1,           // RFC 7306 section 5
  kImmediate = 1u << 2,         // RFC 7306 section 6
  kRemoteInvalidate = 1u << 3,  // Send with Invalidate
  kSharedCq = 1u << 4,          // one completion queue may serve several queue pairs
  kSrq = 1u << 5,               // shared receive queues
  kWireTap = 1u << 6,           // Start::tap is called: the bytes on the wire pass through here
  kSegmentTap = 1u << 7,  // Start::tap is called with FPDUs that would carry what goes elsewhere
  kDirect = 1u << 8,      // send_directly() and receive_directly() may do something
};

class Capabilities {
 public:
  constexpr Capabilities() = default;
  constexpr Capabilities(std::initializer_list<Capability> all) {
    for (Capability c : all) bits_ |= static_cast<uint32_t>(c);
  }
  constexpr bool has(Capability c) const { return (bits_ & static_cast<uint32_t>(c)) != 0; }
  constexpr Capabilities operator|(Capabilities other) const {
    other.bits_ |= bits_;
    return other;
  }
  constexpr Capabilities without(Capability c) const {
    Capabilities others = *this;
    others.bits_ &= ~static_cast<uint32_t>(c);
    return others;
  }
  constexpr bool operator==(const Capabilities&) const = default;

 private:
  uint32_t bits_ = 0;
};

// The most an object of this engine may ask for. Fixed for its life.
struct Limits {
  uint32_t max_pds = 0;
  uint32_t max_regions = 0;
  uint32_t max_cq_depth = 0;
  uint32_t max_send_depth = 0;
  uint32_t max_recv_depth = 0;
  uint32_t max_srq_depth = 0;  // 0 without kSrq
  uint32_t max_ird = 0;
  uint32_t max_ord = 0;
  uint32_t max_slices = 0;  // ranges of one request
  uint32_t max_inline = 0;  // bytes of inline payload
};

enum class SetupError : uint8_t {
  kNoMemory,     // an allocation failed: nothing was made
  kLimit,        // more than limits(), or all of them are in use
  kUnsupported,  // the capability is missing
  kBadArgument,  // a Pd that is not open, a missing queue, a depth of 0
  kInUse,        // (close) something made from it still exists
};

// A protection domain: memory and queue pairs of one Pd can meet, others cannot (RFC 5040 section
// 8.2; RFC 5042 section 5.2).
struct Pd {
  uint32_t id = 0;
  bool operator==(const Pd&) const = default;
};

// Memory to be registered. `memory` stays the caller's and must outlive the registration.
struct MemoryDesc {
  MutBytes memory = {};
  uint64_t base_to = 0;  // the TO of its first byte, as peers will name it
  Rights rights = {};
  Pd pd = {};
  uint32_t qp = kAnyQp;  // or the number of the only queue pair that may use it
  // A sealed file (shm/sealed_file.h) of whose first bytes `memory` is a mapping, and which peers
  // on this host may be let map, too: what they do there then needs nobody here. Open until the
  // region is deregistered. -1: it is none; peers may then read it out of our address space, where
  // a right and the kernel let them.
  int file = -1;
};

// A registration: the STag to tell a peer, or to name as a sink.
struct Mr {
  uint32_t stag = 0;
  uint64_t base_to = 0;
  uint64_t length = 0;
  Pd pd = {};
};

// A completion queue never overflows: a post that finds no free slot is refused with kCqFull.
class Cq {
 public:
  enum class Arm : uint8_t { kOff, kSolicited, kAny };

  virtual ~Cq() = default;
  // Moves the oldest completions to `out`; how many. Completions of one queue pair's one queue come
  // in posting order.
  virtual uint32_t poll(std::span<Completion> out) = 0;
  // False: it would find nothing now. For who asks often, without a lock.
  virtual bool has_any() const { return true; }
  // Asks for one signal on CqAttr::event_fd when the next completion comes (kSolicited: the next of
  // a solicited message, or the next that failed). Arm, then poll once more, then wait: a
  // completion between poll and arm gives no signal. kOff takes it back.
  virtual void arm(Arm what) = 0;
};

struct CqAttr {
  uint32_t depth = 256;
  int event_fd = -1;  // an eventfd, non-blocking, the caller's; -1: never armed
};

// A shared receive queue: receives that any of its queue pairs may consume, in the order of
// posting, each when the first segment of a message comes. A message that finds none ends its
// connection, and only that. A queue pair that ends flushes a receive it had taken for a message
// under way and leaves the others. The completions of one connection's receives come in the order
// of its messages, which need not be that of posting.
class Srq {
 public:
  // What has not been taken vanishes without completions.
  virtual ~Srq() = default;
  // Each keeps a place in SrqAttr::cq until it has completed.
  virtual Posted recv(std::span<const RecvWr> work) = 0;
  // One signal on the event fd once fewer than `level` receives are left: at once, if so it is. 0:
  // none.
  virtual void set_limit(uint32_t level) = 0;
  // From now on posts are refused (kBadState), and what no queue pair has taken is its poster's
  // again, without completions. Idempotent.
  virtual void close() = 0;
};

struct SrqAttr {
  Pd pd = {};        // also that of its queue pairs
  Cq* cq = nullptr;  // also the recv_cq of its queue pairs
  uint32_t depth = 256;
  int event_fd = -1;
};

// What carries the connection. The number means what the engine says: the fd of a connected TCP
// socket (user, kernel), an end of a simulated link (loopback), a NIC's connection. It is borrowed:
// the caller keeps it open until the queue pair has ended, and closes it afterwards.
enum class LowerLayer : int64_t {};

// Sees the bytes of one connection as the wire does, in order, whole buffers at a time: `sent` once
// the lower layer took them, `received` once they came. Called inside advance(); must not call
// back.
class WireTap {
 public:
  virtual void sent(std::span<const Bytes> octets, Time now) = 0;
  virtual void received(std::span<const Bytes> octets, Time now) = 0;
  // No more will be sent (received): the FIN.
  virtual void sent_fin(Time now) = 0;
  virtual void received_fin(Time now) = 0;

 protected:
  ~WireTap() = default;
};

// Start-up happens outside (connect/) and is handed in.
struct Start {
  LowerLayer lower{};
  // How the peer is reached over it, of what the engine's own header names; nullptr: as usual.
  // Borrowed for the call.
  const Medium* medium = nullptr;
  Agreement agreed = {};
  // Largest ULPDU to send. 0: one TCP segment's worth, which is all one may send to strangers
  // (RFC 5044 section 5); otherwise what the peer announced that it takes.
  uint32_t max_ulpdu = 0;
  WireTap* tap = nullptr;  // lives until the last advance(); ignored without kWireTap, kSegmentTap
};

enum class StartError : uint8_t {
  kBadState,       // started before
  kBadLowerLayer,  // not a connection this engine can use
  kDepths,         // IRD or ORD exceeds QpAttr
  kNoMemory,       // as with kDepths: nothing happened, the connection is as it was
};

struct QpAttr {
  Pd pd = {};
  Cq* send_cq = nullptr;  // made by the same engine; both may be the same
  Cq* recv_cq = nullptr;
  QpCounters* counters = nullptr;  // where to count; outlive the queue pair, nullptr: nowhere
  Srq* srq = nullptr;  // instead of a receive queue of its own: recv() is refused (kBadState)
  uint32_t send_depth = 64;
  // With an Srq: messages that a lower layer which reorders them may be ahead.
  uint32_t recv_depth = 64;
  uint32_t max_ird = 8;
  uint32_t max_ord = 8;
  // After our last byte: how long to wait for the peer's FIN (trap 35: closing with unread bytes
  // would destroy our Terminate in its queue).
  Duration linger = Duration::from_ms(2'000);
  // An initiator that has heard nothing for so long after its first FPDU sends a Write of no
  // octets, three times at most: Linux siw can overlook the first FPDU after its Reply. Zero:
  // never. Worth it towards peers that may be siw; others take no harm.
  Duration nudge = {};
  // An eventfd, non-blocking, the caller's: one signal once it has ended. For who does not call
  // advance(), beside the signals of its completion queues. -1: none.
  int event_fd = -1;
};

// The most one advance() moves in each direction, so that one connection cannot hold the thread.
struct Budget {
  uint32_t bytes = 4u << 20;
  // False: the caller knows that the lower layer has nothing for it; saves the asking.
  bool may_be_readable = true;
  // False: a thread that has the engine just now is not waited for (Need::is_busy).
  bool may_wait = true;
  // The caller will be back at once, whether the lower layer becomes readable or not: in shared
  // memory the peer need not ring.
  bool is_spinning = false;
  // The same caller, who now and then asks for a look at everything, and for its bells.
  bool is_among_spins = false;
};

// What must happen for the queue pair to get on. One that progresses by itself wants nothing.
struct Need {
  bool wants_readable = false;  // call advance() when the lower layer has bytes, or its end
  bool wants_writable = false;  // ... when it takes bytes again
  bool is_busy = false;         // another thread is in advance(): it will do the work; or, where
                                // that may not be waited for, has the engine: try again
  bool is_unwatched = false;    // the lower layer may stay silent until an advance() that is not
                                // spinning
  Time deadline = kNever;       // ... at this time at the latest; `now` or earlier: at once
};

// One connection. Made idle; receives may be posted before start(), so that the peer's first
// message finds one.
class Qp {
 public:
  // Unfinished work vanishes without completions. To have it flushed, abort() first.
  virtual ~Qp() = default;

  // What completions and MemoryDesc::qp call it. Unique among the engine's living queue pairs.
  virtual uint32_t number() const = 0;

  // Idle to ready. Responders send nothing before the initiator's first FPDU came (RFC 5044 section
  // 7.1.2); posts are accepted and wait.
  virtual Status<StartError> start(const Start& start) = 0;

  // Posts a batch; a prefix is accepted and the reason for the rest told. Lists of ranges are
  // borrowed for the call. Nothing moves before advance(), so that everything posted before it
  // leaves together.
  virtual Posted send(std::span<const SendWr> work) = 0;
  virtual Posted recv(std::span<const RecvWr> work) = 0;

  // Moves bytes both ways as far as lower layer and budget allow. `now` never goes back.
  virtual Need advance(Time now, Budget budget) = 0;
  // False: after one that was spinning (Need::is_unwatched), another would find nothing to do now,
  // but for requests posted since. For who asks often, without a lock.
  virtual bool has_news() const { return true; }

  // The direct way (Capability::kDirect), for whoever would call advance() next: nobody may be in
  // advance(), drain(), abort() or one of these meanwhile. What they leave goes the usual way; in
  // any mixture the outcome is that of the usual way alone.
  //
  // Sends now, with nothing queued before it, or does by itself what it can do to memory of the
  // peer's: how many of `work`, from its beginning. They are as accepted and done; what is
  // signalled has its completion in the queue.
  virtual uint32_t send_directly(std::span<const SendWr> /*work*/) { return 0; }
  // Takes what has come as far as it is whole: how many receives are complete by that. Their
  // completions are in `out`, and not in the queue; nothing is taken while that holds any.
  virtual uint32_t receive_directly(std::span<Completion> /*out*/) { return 0; }

  // Graceful end: no new sends; once all posted ones are out and all Reads answered, a FIN. What
  // the peer still sends is received until its FIN. Then kEnded, receives flushed. Idempotent.
  virtual void drain() = 0;

  // Abortive end. With a reason: nothing more is delivered, the peer is sent that Terminate (RFC
  // 5040 section 4.8) and the rest is as with drain(). Without: the lower layer is shut down in
  // both directions, now and perhaps inside an FPDU, and everything is flushed. Takes effect in
  // this call or in the advance() that is running. No effect on an ended queue pair.
  virtual void abort(std::optional<TermCode> why) = 0;

  // What it can, once it is started: as it is carried.
  virtual Capabilities capabilities() const = 0;

  virtual QpState state() const = 0;
  // Why it failed or ended; the peer's Terminate decoded.
  virtual TerminateInfo terminate_info() const = 0;
};

// One instance: a protection boundary with its own STags, queues and threads (if any).
class Engine {
 public:
  virtual ~Engine() = default;

  virtual const char* name()
      const = 0;  // "user", "loopback", "trace(user)"; static or as long-lived
  // What its queue pairs can; what one of them can beside that, or cannot, it tells itself.
  virtual Capabilities capabilities() const = 0;
  virtual const Limits& limits() const = 0;

  virtual Result<Pd, SetupError> open_pd() = 0;
  virtual Status<SetupError> close_pd(Pd pd) = 0;

  // The STag is random in its key byte and unusable in other Pds (RFC 5042 section 6.2).
  virtual Result<Mr, RegisterError> register_memory(const MemoryDesc& desc) = 0;
  // After success the engine never touches the memory again. kInUse: a segment or Read is under
  // way; the STag is already refused to new work. Advance the queue pairs, or end them, and repeat.
  virtual Status<DeregisterError> deregister(const Mr& mr) = 0;

  virtual Result<std::unique_ptr<Cq>, SetupError> make_cq(const CqAttr& attr) = 0;
  virtual Result<std::unique_ptr<Srq>, SetupError> make_srq(const SrqAttr& attr) = 0;
  virtual Result<std::unique_ptr<Qp>, SetupError> make_qp(const QpAttr& attr) = 0;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_ENGINE_H_
