// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One socket in message mode, from setsockopt to close: what the program wished, MPA start-up, the
// queue pair, and who moves its bytes.
//
// Bytes move in the thread that calls: post pushes, poll looks. The Domain's thread does it for a
// connection that nobody is polling. Both hold mutex_ for it, by try_lock: who finds it taken
// leaves a note (is_work_pending_) that its owner sees before it goes.
#ifndef DDPSOCK_MESSAGE_CONNECTION_H_
#define DDPSOCK_MESSAGE_CONNECTION_H_

#include <atomic>
#include <memory>
#include <mutex>

#include "message/handle.h"
#include "message/startup.h"
#include "message/wishes.h"
#include "message/work.h"
#include "relatives/message_record.h"
#include "stream/queue_pair.h"
#include "stream/stream.h"

namespace ddpsock::message {

// How far a connection is, for DDP_STATUS. Texts are static.
struct ConnectionStatus {
  bool is_begun = false;
  bool is_starting = false;
  bool is_up = false;  // established, now or once: what is agreed is there
  Role role = Role::kInitiator;
  mpa::Agreement agreement{};
  uint32_t ird = 0, ord = 0;
  const char* reason = "";
  const char* engine = "";    // which carries it
  const char* memory = "";    // why it is, or is not, in shared memory
  const char* progress = "";  // who moves its bytes
};

class Connection final : public Handle, private engine::OneSided {
 public:
  // ENOMEM, EMFILE.
  static Result<Connection*> make(const Settings& settings);
  // For a connection that this listener accepted.
  Result<Connection*> make_accepted() const;

  Wishes& wishes() { return wishes_; }
  const Wishes& wishes() const { return wishes_; }
  // EBUSY once start-up goes by them, EINVAL: too many.
  Status<> set_private_data(Bytes data);

  using Memory = connecting::Memory;
  // MPA start-up on the socket `fd`, which is connected (an initiator's: or connecting) and stays
  // open until close(). `is_held`: it starts with the next call from the program (begin() itself,
  // for an initiator, does nothing on the wire). `is_connecting`: connect() is under way, and
  // take_socket_error() tells what comes of it. EALREADY, ENOMEM, EMFILE.
  Status<> begin(int fd, Role role, bool is_held, Memory memory, bool is_connecting = false);
  // One-sided operations of a byte stream, which stays the caller's until destroy() and goes on:
  // `fd` is its socket. Idempotent. EOPNOTSUPP and ENOTCONN as Stream::begin_one_sided().
  Status<> begin_on_stream(int fd, engine::Stream& stream);
  // What begin() found out of a connect() that was under way, once: 0 or its errno.
  int take_socket_error();
  // Releases a held one and waits: see ddp_establish.
  Status<> establish(int timeout_ms);
  // ddp_poll and its like, of any queue, on this connection: the program is ready.
  void release();

  // Of each kind of work in ddpsock.h.
  template <typename Work>
  Accepted post(std::span<const Work> work);

  // SHUT_WR; or, with `is_abrupt`, both directions at once. ENOTCONN.
  Status<> shut(bool is_abrupt);
  // The peer's. EAGAIN: none has come.
  Result<mpa::PrivateData> peer_private_data() const;
  ConnectionStatus status() const;
  const engine::QpCounters& counters() const {
    return record_ != nullptr ? record_->counters : own_counters_;
  }
  // Start-up has failed before a byte of the stream was taken: it may go on as plain TCP.
  bool is_untouched() const;
  // Not begun: the socket may yet be anything.
  bool is_begun() const { return phase_.load() != Phase::kIdle; }

  Connection* connection() override { return this; }
  void close() override;
  void destroy() override;
  Result<ddp_region> register_memory(MutBytes memory, unsigned rights) override;
  Status<> deregister(uint32_t stag) override;
  Result<unsigned> poll(std::span<ddp_completion> out) override;
  Result<unsigned> wait(std::span<ddp_completion> out, int timeout_ms) override;
  Result<int> event_fd() override;
  void set_spin(Duration spin) override { wishes_.set_spin(spin); }
  Duration spin() const override { return wishes_.spin(); }

  // For the Domain's thread: the socket is ready (`events`, EPOLL*), or deadline() has come (0).
  void serve(uint32_t events);
  Time deadline() const {
    return is_woken_.load() ? Time{} : Time{deadline_ns_.load(std::memory_order_relaxed)};
  }

  // For its Queue.
  // In a forked child: what is the parent's must not stay open for its sake.
  void leave_inherited_stream();
  uint32_t qp_number() const { return qp_->number(); }
  int fd() const { return fd_.load(std::memory_order_relaxed); }
  bool is_closed() const { return is_closed_.load(); }
  bool is_caller_driven() const { return is_caller_driven_; }
  // Status and Terminate of a DDP_ENDED, or of work cut by the end.
  int end_status() const { return end_status_.load(); }
  uint32_t end_terminate() const;
  // Posts that had DDP_MORE: the program has come to a poll.
  void send_held_back();
  // Looks at the socket, unless somebody is just doing it; moves bytes both ways.
  void look();
  // While a thread sleeps on the socket itself, the Domain's need not wake. Answers poll(2)'s
  // events and until when.
  struct Wakeup {
    int fd = -1;
    short events = 0;
    Time until = kNever;
  };
  Wakeup begin_sleep();
  void end_sleep();
  Event event;

 private:
  const char* progress() const { return is_caller_driven() ? "caller" : domain_.poller_name(); }
  void wake() override;
  void take_in() override;
  int flush() override;

  enum class Phase : uint8_t { kIdle, kStarting, kRunning, kEnded };

  // Holds mutex_; whoever found it taken meanwhile is made up for.
  class Lock;

  Connection(Domain& domain, const Settings& settings);
  ~Connection() override;
  // Queue pair and queue, at the first call that needs them.
  Status<> open(bool is_on_stream = false) {
    return wishes_.is_settled() ? Status<>{} : settle(is_on_stream);
  }
  Status<> settle(bool is_on_stream);
  Status<> enter(int fd, bool has_edges = false);
  Status<> watch_edges();
  int watched() const { return stream_ != nullptr ? edges_.get() : socket_.get(); }
  enum class Poll : uint8_t { kNone, kWhole, kSpinning };
  // False: somebody is just doing it.
  bool try_run(Poll how, Time now);
  void push();

  // With mutex_.
  void step(Time now, Poll how);
  void step_starting(Time now);
  void step_running(Time now, Poll how);
  bool may_spin() const;
  bool is_quiet();
  bool take_whole_look();
  void note_open();
  void end(int status, const char* reason);
  void end_as_told();
  void arm();
  void leave_to_callers(Time now);
  bool stay_with_callers(Time now);
  bool is_seen_often();
  void publish(Time deadline);
  bool is_driven(Time now) const;

  // Posts the first kMost of `work` and adds what became of them to `done`.
  template <unsigned kMost, typename Work>
  void post_batch(std::span<const Work> work, Accepted& done);
  int why_refused(engine::Refusal reason) const;
  Domain& domain_;
  Wishes wishes_;                            // has the queue
  Startup startup_;                          // has the memory, which qp_ may lie in
  Queue* queue_ = nullptr;                   // once open
  engine::MessageRecord* record_ = nullptr;  // what others see of it, if there is room for that
  engine::QpCounters own_counters_;          // otherwise
  std::unique_ptr<engine::Qp> qp_;
  std::unique_ptr<Regions> regions_;
  bool is_caller_driven_ = false;

  std::atomic<Phase> phase_{Phase::kIdle};  // written with mutex_
  std::atomic<bool> is_closed_{false};
  std::atomic<bool> is_work_pending_{false};
  std::atomic<bool> is_held_back_{false};  // DDP_MORE: there is work that nothing has been told of
  std::atomic<int> fd_{-1};                // as the program calls it
  std::atomic<int> end_status_{0};
  std::atomic<int64_t> last_look_ns_{0};
  std::atomic<int64_t> deadline_ns_{kNever.ns};
  std::atomic<uint32_t> watchers_{0};
  std::atomic<bool> is_recall_wanted_{false};
  std::atomic<bool> is_whole_look_due_{false};
  // In shared memory, and somebody looks again before long: polls may pass by (is_quiet()).
  std::atomic<bool> may_be_passed_by_{false};
  std::atomic<uint32_t> passes_{0};

  // On a byte stream.
  engine::Stream* stream_ = nullptr;  // set with mutex_, before the phase
  // What the program has not read keeps the socket readable, so that only what comes is of
  // interest: an epoll set that has the socket for edges, and is what the Domain watches.
  base::UniqueFd edges_;
  std::atomic<bool> is_woken_{false};
  std::atomic<uint64_t> posts_{0};       // of sends, up to now
  std::atomic<uint64_t> sent_up_to_{0};  // of them: those before have left, as far as they can

  mutable std::mutex mutex_;
  // A duplicate: what the program's number means may change while calls are running.
  base::UniqueFd socket_;
  const char* reason_ = "";
  engine::Need need_{};
  std::atomic<int64_t> need_deadline_ns_{kNever.ns};  // of need_, for who does not hold mutex_
  Time last_step_{};
  uint64_t id_ = 0;     // in the Domain; 0: driven by the caller
  uint32_t armed_ = 0;  // EPOLL* that the thread waits for
  // Written with mutex_; a tick that changes nothing reads them without.
  std::atomic<bool> is_left_to_callers_{false};
  std::atomic<uint32_t> idle_ticks_{0};
  int64_t seen_look_ns_ = 0;  // the Domain's thread's
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_CONNECTION_H_
