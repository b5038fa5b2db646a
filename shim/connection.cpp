// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "base/keep_errno.h"
#include "engine/observer.h"
#include "shim/libc_edge.h"
#include "shim/log.h"
#include "shim/real.h"
#include "shim/tcp_counts.h"

namespace ddpsock::shim {
namespace {

// What the environment says, one bit each.
enum Setting : uint8_t { kRead = 1, kStartStrict = 2, kMayShareMemory = 4, kMayShareLater = 8 };

// Anything unknown is what it would be without it.
uint8_t read_settings() {
  const char* start = secure_getenv("DDPSOCK_START");
  const char* engine = secure_getenv("DDPSOCK_ENGINE");
  uint8_t settings = kRead;
  if (start != nullptr && strcmp(start, "strict") == 0) settings |= kStartStrict;
  if (engine == nullptr || strcmp(engine, "user") != 0) settings |= kMayShareMemory;
  if (engine == nullptr || strcmp(engine, "shm") != 0) settings |= kMayShareLater;
  return settings;
}

bool is_set(Setting setting) {
  static constinit std::atomic<uint8_t> settings{0};
  uint8_t now = settings.load(std::memory_order_relaxed);
  if (now == 0) settings.store(now = read_settings(), std::memory_order_relaxed);
  return (now & setting) != 0;
}

// Early: programs such as nginx replace their environment.
[[gnu::constructor]] void read_settings_at_start() {
  is_set(kRead);
}

// Of a socket of this process: so that nobody else's connections cost a question.
constinit std::atomic<bool> is_any_shaped{false};

bool is_shaped(int fd) {
  if (!is_any_shaped.load(std::memory_order_relaxed)) [[likely]]
    return false;
  constexpr uint64_t kNoRate = ~uint64_t{0};
  uint64_t rate = kNoRate;
  socklen_t length = sizeof(rate);
  const bool is_paced =
      real.getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &length) == 0 && rate != kNoRate;
  return is_paced || int_option(fd, IPPROTO_TCP, TCP_TX_DELAY) != 0;
}

// SO_RCVLOWAT set before the connection counted the wire's bytes; from now on it counts payload.
void hand_over_low_water(Socket& socket, engine::Stream& stream, int fd) {
  const int bytes = int_option(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
  if (bytes <= 1) return;
  const int one = 1;
  real.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
  socket.receive_low_water.store(bytes, std::memory_order_relaxed);
  stream.set_receive_low_water(bytes);
}

// Another thread is asking the policy, which takes a bounded time. False if it does not come to an
// end: this thread may be a signal handler on top of that very call.
bool wait_for_completion(const SocketUse& use) {
  constexpr int kMaxYields = 100'000;
  for (int i = 0; i < kMaxYields && use.phase() == Phase::kCompleting; ++i) sched_yield();
  return use.phase() != Phase::kCompleting;
}

void give_up_connect(Socket& socket, int fd) {
  give_up_connecting(fd);
  give_back_low_water(socket, fd);
  drop_dead_stream(socket, fd);
  socket.phase.store(Phase::kIdle, std::memory_order_release);
}

void enter_ddp_mode(Socket& socket, int fd) {
  const char* reason = socket.reason.load(std::memory_order_relaxed);
  socket.phase.store(Phase::kStream, std::memory_order_release);
  log_connection("connect", fd, "stream", engine_asked_for(socket), reason);
}

// REQUIRES: phase kCompleting, set by this thread.
int ask_last_word(Socket& socket, int fd, bool wait) {
  if (socket.mode.load(std::memory_order_relaxed) == Mode::kProved) {
    const Verdict before{.mode = Mode::kProved,
                         .wants_crc = socket.wants_crc.load(std::memory_order_relaxed),
                         .reason = socket.reason.load(std::memory_order_relaxed),
                         .inquiry = socket.inquiry};
    const Verdict after = after_connect(fd, before);
    if (after.mode == Mode::kPlain) {
      give_back_low_water(socket, fd);
      make_plain(socket, fd, after.reason);
      return 0;
    }
  }
  enter_ddp_mode(socket, fd);
  return socket.stream.load(std::memory_order_acquire)->on_connected(fd, wait).error;
}

}  // namespace

void give_back_low_water(Socket& socket, int fd) {
  const int bytes = socket.receive_low_water.exchange(1, std::memory_order_relaxed);
  const base::KeepErrno keep;
  if (bytes > 1) real.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

// TCP_INFO first, where that is to be had: getpeername() also succeeds once the peer has closed
// again.
Tcp tcp_state(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
    sockaddr_storage peer;
    length = sizeof(peer);
    const bool has_peer = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
    return has_peer ? Tcp::kEstablished : Tcp::kFailed;
  }
  switch (info.tcpi_state) {
    case TCP_SYN_SENT:
    case TCP_SYN_RECV:
      return Tcp::kConnecting;
    case TCP_CLOSE:
      return Tcp::kFailed;
    default:
      return Tcp::kEstablished;
  }
}

bool may_share_memory(const Socket& socket) {
  const EngineChoice choice = socket.engine.load(std::memory_order_relaxed);
  return choice == EngineChoice::kDefault ? is_set(kMayShareMemory) : choice != EngineChoice::kUser;
}

static bool may_share_later(const Socket& socket) {
  const EngineChoice choice = socket.engine.load(std::memory_order_relaxed);
  return choice == EngineChoice::kDefault ? is_set(kMayShareLater) : choice != EngineChoice::kShm;
}

const char* engine_asked_for(const Socket& socket) {
  return may_share_memory(socket) ? "shm" : "user";
}

bool is_tcp_socket(int fd) {
  const base::KeepErrno keep;
  return int_option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;
}

bool may_be_chosen_later(int fd) {
  sockaddr_storage peer;
  socklen_t length = sizeof(peer);
  return is_policy_active() && is_tcp_socket(fd) &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0;
}

bool open_stream(Socket& socket, int fd, engine::Role role, engine::Peer peer, Phase phase) {
  const base::KeepErrno keep;
  const engine::StreamAttr attr{
      .role = role,
      .peer = peer,
      .is_strict = is_set(kStartStrict),
      .may_share_memory = may_share_memory(socket) && !is_shaped(fd),
      .may_share_later = may_share_later(socket),
      .wants_crc = socket.wants_crc.load(std::memory_order_relaxed),
      .cookie = socket.inquiry.key.cookie,
      .local = socket.inquiry.ends ? &socket.inquiry.ends->local : nullptr,
      .remote = socket.inquiry.ends ? &socket.inquiry.ends->peer : nullptr,
      .verdict = socket.reason.load(std::memory_order_relaxed),
  };
  const Result<engine::Stream*> stream = engine::user_stream_engine().open(fd, attr);
  if (stream) {
    socket.role.store(role, std::memory_order_relaxed);
    socket.stream.store(*stream, std::memory_order_release);
    hand_over_low_water(socket, **stream, fd);
    take_over_tells_queue(socket, fd);
    socket.phase.store(phase, std::memory_order_release);
  }
  return stream.has_value();
}

int complete_connect(SocketUse& use, int fd, bool wait, std::optional<Tcp> known) {
  const base::KeepErrno keep;
  Phase connecting = Phase::kConnecting;
  int error = 0;
  if (use->phase.compare_exchange_strong(connecting, Phase::kCompleting)) {
    switch (known ? *known : tcp_state(fd)) {
      case Tcp::kEstablished:
        error = ask_last_word(*use, fd, wait);
        break;
      case Tcp::kFailed:
        give_up_connect(*use, fd);
        break;
      case Tcp::kConnecting:
        use->phase.store(Phase::kConnecting, std::memory_order_release);
        break;
    }
  } else if (connecting == Phase::kCompleting && !wait_for_completion(use)) {
    error = EAGAIN;
  }
  return error;
}

// Where it becomes established just before, the FIN is the stream's too: nothing was sent on it.
int shut_connecting(SocketUse& use, int fd, int how) {
  const int result = real.shutdown(fd, how);
  Phase connecting = Phase::kConnecting;
  if (result == 0 && tcp_state(fd) == Tcp::kFailed &&
      use->phase.compare_exchange_strong(connecting, Phase::kCompleting))
    give_up_connect(*use, fd);
  return result;
}

void note_shaped() {
  is_any_shaped.store(true, std::memory_order_relaxed);
}

void make_plain(Socket& socket, int fd, const char* reason) {
  give_back_tells_queue(socket, fd);
  socket.reason.store(reason, std::memory_order_relaxed);
  socket.mode.store(Mode::kPlain, std::memory_order_relaxed);
  socket.phase.store(Phase::kPlain, std::memory_order_release);
  report_plain("fallback", fd, reason);
}

void report_plain(const char* event, int fd, const char* reason) {
  engine::user_stream_engine().note_plain(reason);
  if (engine::is_observed.load()) engine::observer->stayed_plain(fd, reason);
  log_connection(event, fd, "plain", "", reason);
}

}  // namespace ddpsock::shim
