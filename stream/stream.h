// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Byte streams: a connected TCP socket whose bytes travel as RDMAP Sends, with the semantics of
// TCP. The shim calls it in the thread of the program's own call; there is no other thread. (Queue
// pairs and completion queues are engine/engine.h.)
//
// The program keeps its kernel socket, and the socket tells the truth: whenever no call below is
// running, (I1) deliverable data means an unread byte in the kernel, (I2) an incomplete FPDU does
// not leave the socket readable for good, (I3) recv() returns short only when no further complete
// FPDU was queued, (I4) EAGAIN was the kernel's own answer, and a byte counted as sent lies in a
// complete FPDU in the kernel. So any poller, in any process, may watch the socket.
#ifndef DDPSOCK_STREAM_STREAM_H_
#define DDPSOCK_STREAM_STREAM_H_

#include <errno.h>
#include <netinet/in.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/wake.h"
#include "relatives/stream_attr.h"
#include "stream/memory_part.h"

namespace ddpsock::engine {

class OneSidedWay;  // one_sided_way.h

// What a libc call would return: a count, or an errno value. `error` is 0 exactly if `count` >= 0.
struct Io {
  ssize_t count = 0;
  int error = 0;
  static constexpr Io ok(ssize_t n) { return {n, 0}; }
  static constexpr Io fail(int errno_value) { return {-1, errno_value}; }
  constexpr bool is_ok() const { return error == 0; }
};

// How far a connection has come on its way back to plain TCP.
struct PlainReturn {
  enum class State : uint8_t {
    kPlain,    // it is: nothing of this stream lies outside the kernel, at either end
    kPending,  // the peer has yet to answer, or another call to end
    kRefused,  // not possible, or not now
  };
  State state;
  const char* why;  // static text, unless kPlain
};

// A snapshot for DDP_STATUS, logs and statistics.
struct StreamStatus {
  StreamState state;
  Role role;
  uint8_t mpa_revision;  // 0 until known
  bool has_crc;
  bool is_peer_ddpsock;  // a hello was seen in its private data
  uint32_t peer_features;
  uint32_t max_payload;  // of FPDUs sent
  uint64_t bytes_sent, bytes_received;
  uint64_t fpdus_sent, fpdus_received;
  uint64_t crcs_checked;
  bool is_drained;      // bytes received count as soon as they are here, read or not
  const char* engine;   // which one serves now: "user" or "shm"; static text
  const char* memory;   // why it is, or is not, in shared memory; static text
  const char* failure;  // valid until release(); nullptr if none
};

enum class Direction : uint8_t { kReceive, kSend };

// Of one call, as of the kernel's (MAX_RW_COUNT); what is beyond is left alone.
inline constexpr size_t kMostAtOnce = 0x7fff'f000;

// One connection in DDPMODE. A process's view of it, for every fd that has the socket; the state
// behind it is shared with relatives. Never constructed or destroyed by the caller.
//
// `fd` is the descriptor of the program's call (any duplicate). All calls are thread-safe and
// async-signal-safe, block exactly where TCP would (O_NONBLOCK, MSG_DONTWAIT, SO_RCVTIMEO and
// SO_SNDTIMEO are honoured) and are cancellation points where TCP's are. errno is left alone;
// SIGPIPE is raised as by TCP unless MSG_NOSIGNAL is given. A call returning Io::fail(EPROTOTYPE)
// with state kPlain means: nothing was consumed or sent; repeat the call on the plain socket.
// EBADF: the number was closed, or became another's while the call slept, and was left alone.
// A call that slept while its number was closed behind outlive() goes on with the connection.
class Stream : public MemoryPart {
 public:
  // Sends up to the whole of `from`. Flags: MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE; others
  // EOPNOTSUPP.
  virtual Io send(int fd, std::span<const iovec> from, int flags) = 0;

  // Fills `to` in order; never touches a byte beyond the returned count. 0 is end of stream (or no
  // room). Flags: MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_TRUNC (stream meaning: discard); others
  // EOPNOTSUPP.
  virtual Io recv(int fd, std::span<const iovec> to, int flags) = 0;

  // Bytes of payload that recv() could return now (FIONREAD). Looks, consumes no payload. With
  // `may_lag` those that came since the last recv() may be left out, for an edge to tell of.
  virtual Io readable(int fd, bool may_lag) = 0;

  // Would recv() return at once (payload, end, error)? An incomplete FPDU in the kernel is
  // swallowed, so after `false` the kernel reports the socket unreadable until more arrives. For
  // poll() on blocking fds.
  virtual bool is_recv_ready(int fd) = 0;

  // The kernel has called the socket writable: would a blocking send() of some size return soon?
  // After `false` the kernel reports it unwritable until there is room. For poll() on blocking fds.
  virtual bool is_send_ready(int /*fd*/) { return true; }

  // shutdown(2) with SHUT_RD, SHUT_WR or SHUT_RDWR. Half-close is a FIN between FPDUs.
  virtual Io shutdown(int fd, int how) = 0;

  // SO_RCVLOWAT counts payload: the engine keeps the value, for all who share the stream, and the
  // kernel's stays 1.
  virtual void set_receive_low_water(int bytes) = 0;
  virtual int receive_low_water() const = 0;

  // The TCP connection is established: a connect() returned 0, or SO_ERROR or a poller said so. An
  // initiator that must speak early (strict, kRequired) sends its Request now; with `wait` (a
  // blocking connect) it also waits for the Reply. 0, or the errno that connect() shall report.
  // Idempotent.
  virtual Io on_connected(int fd, bool wait) = 0;

  // Before that: waits until TCP is established or has failed, as a call of the kernel's in that
  // direction would. 0; EAGAIN after SO_RCVTIMEO or SO_SNDTIMEO; EINTR, unless the kernel would go
  // on waiting.
  virtual int await_established(int /*fd*/, Direction) { return 0; }

  // The last descriptor of this process is about to be closed. Gives the stream up; after it the
  // Stream must not be used by this process. Sends the rest of an FPDU that the kernel has cut, and
  // answers words of the peer's that lie unread and are not the stream's; no bytes of the
  // program's. Call it before the kernel's close; with -1 where that has come first, or where the
  // number may be another's by now.
  virtual void release(int fd) = 0;

  // This process is about to end, and its end closes `fd`. Does what must be done before that if no
  // other process holds the connection, and gives nothing up: whatever still runs may go on using
  // the stream. Never waits for a call; async-signal-safe.
  virtual void before_exit(int /*fd*/) {}

  // The socket's SO_COOKIE; 0: the kernel gave none, and the stream is taken at its number.
  virtual uint64_t cookie() const { return 0; }
  // Is `fd` this connection? Asks the kernel where a call of this process has slept since it was
  // asked last, once in a few ms, and says yes else.
  bool is_behind(int fd) {
    const int64_t now = base::last_wake();
    if (compared_at_.load(std::memory_order_relaxed) == now) [[likely]]
      return true;
    const bool is_same = is_same_socket(fd);
    compared_at_.store(is_same ? now : kMustCompare, std::memory_order_relaxed);
    return is_same;
  }
  // The next is_behind() asks in any case.
  void forget_comparison() { compared_at_.store(kMustCompare, std::memory_order_relaxed); }

  // The last descriptor of this process is about to be closed, while calls are at work: those that
  // sleep go on with a duplicate, as the kernel's go on with the socket. release() closes it; until
  // then the peer sees no end, as with TCP.
  virtual void outlive(int /*fd*/) {}
  // That duplicate, for a call that goes on after it slept; -1: none.
  virtual int outliving() const { return -1; }

  // A call that does not sleep is done with its descriptor much sooner.
  static constexpr Duration kMostCallTime = Duration::from_ms(100);

  // Before a descriptor of the stream is closed, and StreamEngine::Naming denies it by now; or
  // behind StreamEngine::stop_calls(). Returns when no call of this process is between two system
  // calls on it, or at `give_up`. Calls that sleep are not waited for; they look when they wake.
  virtual void await_calls(Time /*give_up*/) {}

  // From now on all bytes travel in the kernel, for good: a program is about to be executed that
  // shall find them there. Bytes that lie in shared memory are moved to where it will find them.
  virtual void leave_memory(int fd) = 0;

  // Takes the connection back to plain TCP, at both ends and in band, so that the descriptor may go
  // where no library serves it. One step that never waits: while it says kPending, call it again
  // when something may have come. Giving up changes nothing for the program, but the connection may
  // turn plain later. Async-signal-safe. Unlike after other calls EPROTOTYPE is not to be awaited:
  // kPlain says that the state is.
  virtual PlainReturn return_to_plain(int /*fd*/) {
    return {PlainReturn::State::kRefused, "the engine cannot"};
  }

  // What the kernel has to say of the socket (SO_ERROR), as the program shall hear it: a reset that
  // an octet of the engine's own brought, and that destroyed nothing, is an end.
  // What a call was told, and keeps for the next one, it takes where the kernel has nothing to say.
  virtual int judge_error(int error) { return error; }
  // For the next call: one that has something to return met it behind that.
  virtual void keep_error(int /*error*/) {}
  // Is there such an error? The kernel has told it and does not report it to pollers any more.
  virtual bool has_kept_error() const { return false; }
  // The same where pollers report an error, or the end of both directions: which of POLLERR and
  // POLLHUP are not so. REQUIRES: the kernel has just said so.
  virtual short untrue_at_end() const { return 0; }
  // The program has set SO_LINGER: its close shall be a reset, or not.
  virtual void note_linger(bool /*is_resetting*/) {}

  // TCP_NODELAY, TCP_CORK and TCP_NOTSENT_LOWAT where the engine needs values of its own: true if
  // the stream keeps the program's in the kernel's place.
  virtual bool set_kept_option(int name, int value) = 0;
  virtual bool get_kept_option(int name, int& value) = 0;

  virtual StreamStatus status() const = 0;

  // For a queue pair that shares the connection. Stays until release().
  virtual OneSidedWay& one_sided_way() = 0;

 protected:
  ~Stream() = default;

 private:
  virtual bool is_same_socket(int /*fd*/) const { return true; }

  static constexpr int64_t kMustCompare = -1;

  std::atomic<int64_t> compared_at_{base::last_wake()};
};

// An engine that has inline streams.
class StreamEngine {
 public:
  // Does `fd` name `stream` still, as far as the calls know that this process has made?
  using Naming = bool (*)(int fd, const Stream& stream);
  virtual void set_naming(Naming /*naming*/) {}

  // A filter of system calls is about to stand against ours. This process has no stream any more,
  // and will have none: nothing is done in it, nor in its children, that needs a system call.
  virtual void fall_silent() {}

  // The program watches something by an epoll set, or a signal, which may tell it of edges. Cheap.
  virtual void note_edges() = 0;

  // Puts the connected or connecting socket `fd` into DDPMODE. The result stays valid until
  // release(). Errors: ENFILE (no room for state: the connection stays plain), ENOSYS (the kernel
  // lacks what the engine needs).
  virtual Result<Stream*> open(int fd, const StreamAttr& attr) = 0;
  virtual const char* name() const = 0;

  // Has this process what streams need, mapped now at the latest? False: open() would fail with
  // ENOSYS (RLIMIT_AS). Ask before the peer is told of a stream.
  virtual bool is_available() = 0;

  // A connection of this process is plain TCP; `reason` is static text. For statistics. At connect
  // or accept only.
  virtual void note_plain(const char* reason) = 0;

  // A descriptor that carries the state of all streams of this process and its forked relatives
  // into a program it executes; -1 if there is nothing to carry or the engine cannot. It is
  // close-on-exec; the caller clears that flag right before exec and tells the new program the
  // number. Stays the engine's.
  virtual int handover_fd() const = 0;
  // May a program that this process executes have it? Not one of another user or group than who
  // made it.
  virtual bool may_hand_over() const = 0;
  // No program that this process executes inherits it; when this was forked, another thread may
  // have been about to hand it over.
  virtual void keep_handover() = 0;

  // Right before a program is executed: all streams of this process are held for it, so that
  // closing them here does not free them before the program asks. Also called in a vfork child,
  // of whose parent's memory it changes nothing but what all processes share; async-signal-safe.
  struct Handover {
    int fd;  // handover_fd(), or another for it where the program has closed that; -1: there is
             // none
    uint32_t holder;  // for end_handover
  };
  enum class Successor : uint8_t { kThisProcess, kChild };
  virtual Handover begin_handover(Successor successor) = 0;
  // Right before execve, behind begin_handover(kThisProcess): the calls of this process's other
  // threads on its streams stop where what they leave is whole, and the calls of the calling thread
  // do not. Stream::await_calls() returns when those on one stream have. resume_calls(): exec has
  // failed.
  virtual void stop_calls() = 0;
  virtual void resume_calls() = 0;

  // Exec has failed (`child` 0), or posix_spawn has failed (0) or made `child`.
  virtual void end_handover(const Handover& handover, pid_t child) = 0;

  // In the new program, before any open(): takes such a descriptor over (owned from now on, and
  // close-on-exec). False, and the descriptor is left alone, if it is not one or comes from another
  // build.
  virtual bool adopt(int handover_fd) = 0;

  // A copy of what process `pid` has open as `number`, for adopt(); -1 if it cannot be such a
  // descriptor.
  virtual int copy_handover(pid_t pid, int number) = 0;

  // The stream that an inherited socket carries, now also this process's; nullptr if it has none.
  virtual Stream* find(int fd) = 0;

  // After adopt() and the last find(): what this process held before exec and did not find again
  // (close-on-exec sockets) is given up.
  virtual void finish_adoption() = 0;

 protected:
  ~StreamEngine() = default;
};

// The streams of this process, at user level. First use maps its shared memory and chooses a CRC.
StreamEngine& user_stream_engine();

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_STREAM_H_
