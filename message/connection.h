// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One socket in message mode, from setsockopt to close, as the program's calls have it: what it
// wished (wishes.h), and what happens on the wire (progress.h).
#ifndef DDPSOCK_MESSAGE_CONNECTION_H_
#define DDPSOCK_MESSAGE_CONNECTION_H_

#include "message/progress.h"
#include "message/wishes.h"
#include "message/work.h"

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

class Connection final : public Handle {
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
  // `fd` is its socket. Idempotent. EOPNOTSUPP and ENOTCONN as OneSidedWay::begin().
  Status<> begin_on_stream(int fd, engine::OneSidedWay& stream);
  // What begin() found out of a connect() that was under way, once: 0 or its errno.
  int take_socket_error();
  // Releases a held one and waits: see ddp_establish.
  Status<> establish(int timeout_ms);

  // Of each kind of work in ddpsock.h.
  template <typename Work>
  Accepted post(std::span<const Work> work);

  // What a call can do at once, and waits for nobody: how many of `work`, from its beginning, it
  // has posted; how many a poll finds, or kAskAsUsual. The rest is for post() and poll(), and what
  // others left to do meanwhile (owes_work()) for catch_up().
  template <typename Work>
  unsigned post_directly(std::span<const Work> work);
  int poll_directly(std::span<ddp_completion> out) { return progress_.poll_directly(out); }
  bool owes_work() const { return progress_.has_notes(); }
  void catch_up() { progress_.catch_up(); }

  // SHUT_WR; or, with `is_abrupt`, both directions at once. ENOTCONN.
  Status<> shut(bool is_abrupt);
  // The peer's. EAGAIN: none has come.
  Result<mpa::PrivateData> peer_private_data() const;
  ConnectionStatus status() const;
  const engine::QpCounters& counters() const { return endpoint_.counters(); }
  // Start-up has failed before a byte of the stream was taken: it may go on as plain TCP.
  bool is_untouched() const;
  // Not begun: the socket may yet be anything.
  bool is_begun() const { return endpoint_.phase() != Phase::kIdle; }
  // What its queue knows it by.
  Progress& progress() { return progress_; }

  Connection* connection() override { return this; }
  void close() override;
  void destroy() override;
  Result<ddp_region> register_memory(MutBytes memory, unsigned rights) override;
  Status<> deregister(uint32_t stag) override;
  Result<ddp_region> allocate(size_t length, unsigned rights) override;
  Status<> free(uint32_t stag) override;
  Status<> take_back(uint32_t stag) override;
  Result<unsigned> poll(std::span<ddp_completion> out) override;
  Result<unsigned> wait(std::span<ddp_completion> out, int timeout_ms) override;
  Result<int> event_fd() override;
  void set_spin(Duration spin) override { wishes_.set_spin(spin); }
  Duration spin() const override { return wishes_.spin(); }

 private:
  Connection(Domain& domain, const Settings& settings);
  ~Connection() override = default;
  // Queue pair and queue, at the first call that needs them.
  Status<> open(bool is_on_stream = false) {
    return wishes_.is_settled() ? Status<>{} : settle(is_on_stream);
  }
  Status<> settle(bool is_on_stream);
  // ... and a start-up that is held waits no longer.
  Status<> open_and_release();
  // Posts the first kMost of `work` and adds what became of them to `done`.
  template <unsigned kMost, typename Work>
  void post_batch(std::span<const Work> work, Accepted& done);
  template <unsigned kMost, typename Work>
  unsigned post_batch_directly(std::span<const Work> work);
  int why_refused(engine::Refusal reason) const;
  // end(Regions&) ends a registration: EINVAL, EBUSY.
  template <typename End>
  Status<> end_region(End end);

  Domain& domain_;
  Wishes wishes_;    // has the queue
  Startup startup_;  // has the memory, which the queue pair may lie in
  Endpoint endpoint_;
  Progress progress_{domain_, startup_, endpoint_};
  std::atomic<bool> is_closed_{false};
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_CONNECTION_H_
