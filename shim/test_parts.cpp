// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/test_parts.h"

#include <errno.h>
#include <sys/ioctl.h>

#include <vector>

#include "base/sys.h"
#include "shim/policy/confinement.h"
#include "shim/policy/message_proof.h"
#include "shim/policy/rings.h"
#include "shim/real.h"
#include "stream/one_sided_way.h"
#include "stream/stream.h"

namespace ddpsock::shim::test {

Engine engine;
Policy policy;

void reset_parts() {
  engine.opened = engine.released = engine.completed = engine.unready = 0;
  engine.waited = engine.finds_plain_peer = engine.is_full = false;
  engine.takes_at_most = 0;
  engine.after_next = nullptr;
  for (auto& glance : engine.glances) glance = {};
  ddpsock::engine::MemoryPart::note_memory_in_use();  // as tests may say of any
  engine.have_memory_room = {};
  engine.are_ended = {};
  engine.are_short_of_room = {};
  engine.settled = {};
  policy.is_active = false;
  policy.connect = policy.established = policy.accept = Mode::kPlain;
  policy.asked = policy.listeners = policy.late_listeners = 0;
}

namespace {

using ddpsock::engine::Io;

Io to_io(ssize_t n) {
  return n < 0 ? Io::fail(errno) : Io::ok(n);
}

void run_after() {
  if (const auto run = engine.after_next.exchange(nullptr); run != nullptr) run();
}

class RefusingWay final : public ddpsock::engine::OneSidedWay {
 public:
  ddpsock::Status<> begin(int, ddpsock::engine::OneSided&) override { return refuse(); }
  void end() override {}
  Result<bool> has_crc(int) override { return refuse(); }
  ddpsock::Status<> announce(int) override { return refuse(); }
  Result<size_t> send_fpdus(int, std::span<const ddpsock::Bytes>) override { return refuse(); }
  Result<size_t> receive_fpdus(int, std::span<const ddpsock::MutBytes>) override {
    return refuse();
  }
  uint32_t max_chunk() const override { return 0; }

 private:
  static std::unexpected<ddpsock::Errno> refuse() { return fail_errno(EOPNOTSUPP); }
};

class InvertingStream final : public ddpsock::engine::Stream {
 public:
  ddpsock::engine::Role role = ddpsock::engine::Role::kInitiator;
  unsigned number = 0;

  Io send(int fd, std::span<const iovec> from, int flags) override {
    if (engine.finds_plain_peer) return Io::fail(EPROTOTYPE);
    std::vector<unsigned char> bytes;
    for (const iovec& part : from) {
      const auto* p = static_cast<const unsigned char*>(part.iov_base);
      for (size_t i = 0; i < part.iov_len; ++i) bytes.push_back(static_cast<unsigned char>(~p[i]));
    }
    if (const size_t most = engine.takes_at_most; most != 0)
      bytes.resize(std::min(bytes.size(), most));
    const Io io = to_io(base::sys.send(fd, bytes.data(), bytes.size(), flags));
    run_after();
    if (io.is_ok()) sent += static_cast<uint64_t>(io.count);
    return io;
  }

  Io recv(int fd, std::span<const iovec> to, int flags) override {
    if (engine.finds_plain_peer) return Io::fail(EPROTOTYPE);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(to.data());
    message.msg_iovlen = to.size();
    const Io io = to_io(base::sys.recvmsg(fd, &message, flags));
    run_after();
    size_t left = io.is_ok() ? static_cast<size_t>(io.count) : 0;
    for (const iovec& part : to) {
      auto* p = static_cast<unsigned char*>(part.iov_base);
      for (size_t i = 0; i < part.iov_len && left > 0; ++i, --left)
        p[i] = static_cast<unsigned char>(~p[i]);
    }
    return io;
  }

  Io readable(int fd, bool) override {
    int bytes = 0;
    real.ioctl(fd, FIONREAD, &bytes);
    return Io::ok(bytes + 1000);  // recognisably not the kernel's number
  }

  bool is_recv_ready(int) override {
    int left = engine.unready;
    while (left > 0 && !engine.unready.compare_exchange_weak(left, left - 1)) {
    }
    return left <= 0;
  }

  Io shutdown(int fd, int how) override { return to_io(base::sys.shutdown(fd, how)); }
  void set_receive_low_water(int bytes) override { low_water = bytes; }
  int receive_low_water() const override { return low_water; }

  Io on_connected(int, bool wait) override {
    ++engine.completed;
    engine.waited = wait;
    return Io::ok(0);
  }

  void release(int fd) override {
    ++engine.released;
    engine.released_as = fd;
  }
  void leave_memory(int) override {}
  ddpsock::engine::Glance glance() const override { return engine.glances[number]; }
  bool has_memory_room() const override { return engine.have_memory_room[number]; }
  bool is_open_in_memory() const override { return !engine.are_ended[number]; }
  bool is_send_ready(int) override { return !engine.are_short_of_room[number]; }
  bool want_order() override { return true; }
  void set_watcher(uint32_t) override {}
  void note_poller(uint32_t) override {}
  bool may_have_stale_bell() const override { return true; }
  void settle(int) override { ++engine.settled[number]; }
  bool set_kept_option(int, int) override { return false; }
  bool get_kept_option(int, int&) override { return false; }
  ddpsock::engine::OneSidedWay& one_sided_way() override { return way; }

  ddpsock::engine::StreamStatus status() const override {
    using enum ddpsock::engine::StreamState;
    return {.state = engine.finds_plain_peer ? kPlain : kOpen,
            .role = role,
            .mpa_revision = 2,
            .has_crc = true,
            .is_peer_ddpsock = true,
            .peer_features = 7,
            .max_payload = 1000,
            .bytes_sent = sent,
            .bytes_received = 0,
            .fpdus_sent = 0,
            .fpdus_received = 0,
            .crcs_checked = 0,
            .is_drained = false,
            .engine = "user",
            .memory = "",
            .failure = nullptr};
  }

 private:
  RefusingWay way;
  std::atomic<uint64_t> sent{0};
  int low_water = 1;
};

class InvertingEngine final : public ddpsock::engine::StreamEngine {
 public:
  void note_edges() override {}
  Result<ddpsock::engine::Stream*> open(int, const ddpsock::engine::StreamAttr& attr) override {
    if (engine.is_full) return fail_errno(ENFILE);
    const unsigned number = static_cast<unsigned>(engine.opened++) % std::size(streams);
    auto* stream = &streams[number];
    stream->number = number;
    stream->role = attr.role;
    return stream;
  }
  const char* name() const override { return "user"; }
  bool is_available() override { return true; }
  int handover_fd() const override { return -1; }
  bool may_hand_over() const override { return false; }
  void keep_handover() override {}
  void note_plain(const char*) override {}
  Handover begin_handover(Successor) override { return {-1, 0}; }
  void end_handover(const Handover&, pid_t) override {}
  void stop_calls() override {}
  void resume_calls() override {}
  void finish_adoption() override {}
  bool adopt(int) override { return false; }
  int copy_handover(pid_t, int) override { return -1; }
  ddpsock::engine::Stream* find(int) override { return nullptr; }

 private:
  InvertingStream streams[kMostStreams];
};

}  // namespace
}  // namespace ddpsock::shim::test

namespace ddpsock {

engine::StreamEngine& user_engine_for_test() {
  static shim::test::InvertingEngine inverting;
  return inverting;
}
engine::StreamEngine& engine::user_stream_engine() {
  return user_engine_for_test();
}

namespace shim {

bool may_choose() {
  return test::policy.is_active;
}
bool may_filter_hurt() {
  return false;
}
void choose_nothing() {}
void give_way_to_filter() {}
bool may_choose_nothing() {
  return true;
}
bool is_policy_active() {
  return test::policy.is_active;
}
bool permits_kernel_option(Wish wish) {
  return wish != Wish::kStream;
}
bool has_kernel_option(int) {
  return false;
}
Verdict before_connect(int, const sockaddr*, socklen_t, Wish wish) {
  ++test::policy.asked;
  return {.mode = wish == Wish::kStream ? Mode::kRequired : test::policy.connect.load(),
          .reason = "as the test says"};
}
void give_up_connecting(int) {}
Verdict after_connect(int, const Verdict&) {
  return {.mode = test::policy.established, .reason = "as the test says after all"};
}
const char* why_not_to_listen(int, Wish) {
  return nullptr;
}
bool is_ring_for_sockets(const void*) {
  return false;
}
void note_ring(Maker) {}
bool may_use_sockets_by_rings() {
  return false;
}
bool register_listener(int fd, Wish, Opened) {
  int is_visible = 0;
  socklen_t length = sizeof(is_visible);
  real.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_visible, &length);
  if (is_visible != 0) ++test::policy.late_listeners;
  ++test::policy.listeners;
  return true;
}
void note_listening(int) {}
bool is_listener_registered(int) {
  return false;
}
bool note_escaped_listener(int, Escape) {
  return false;
}
void note_returned_listener(int, Escape) {}
void note_inherited_listener(int) {}
bool note_handed_out(int) {
  return true;
}
void note_not_handed_out(int) {}
void ask_with_nothing_kept() {}
void forget_listener(int) {
  --test::policy.listeners;
}
void register_message_listener(int) {}
void forget_message_listener(int) {}
std::optional<ddpsock::engine::shm::SocketName> find_message_listener(int, const sockaddr*,
                                                                      socklen_t) {
  return std::nullopt;
}
bool offer_message_memory(int, int) {
  return false;
}
void forget_message_offer(int) {}
std::optional<MessageOffer> take_message_offer(int) {
  return std::nullopt;
}

Verdict after_accept(int listener, int, Wish wish, uint64_t) {
  test::policy.last_listener = listener;
  return {.mode = wish == Wish::kStream ? Mode::kRequired : test::policy.accept.load(),
          .reason = "as the test says"};
}

}  // namespace shim
}  // namespace ddpsock

namespace ddpsock::shim {

bool is_under_filter() {
  return false;
}

}  // namespace ddpsock::shim
