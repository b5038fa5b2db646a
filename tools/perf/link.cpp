// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/link.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "connect/wait.h"

namespace ddpsock::perf {
namespace {

// perftest's own device offers no more, and the engine takes no more.
constexpr uint16_t kMaxReads = 128;
constexpr uint32_t kControlDepth = 4;
constexpr Duration kCloseTime = Duration::from_ms(2'000);
// perftest's server listens again for the data connection only after it has asked for it.
constexpr Duration kRetryTime = Duration::from_ms(5'000);
constexpr timespec kRetryPause{.tv_sec = 0, .tv_nsec = 20'000'000};
// While spinning: looks at the clock, and at the control connection, once in so many.
constexpr uint32_t kSpinsPerLook = 64;

}  // namespace

Result<std::unique_ptr<Link>, Error> Link::open(const Plan& plan, iwarp::Listener* listener) {
  std::unique_ptr<Link> link(new Link(plan, listener));
  if (const auto opened = link->open_control(); !opened) return fail(opened.error());
  return link;
}

Status<Error> Link::open_control() {
  auto made = Endpoint::make({.send_depth = kControlDepth,
                              .recv_depth = kControlDepth,
                              .max_ird = kMaxReads,
                              .max_ord = kMaxReads});
  if (!made) return fail(made.error());
  control_ = std::move(*made);
  if (const auto posted = post_control_receive(); !posted) return posted;
  return plan_.is_client() ? connect(*control_, 0, false) : accept(*control_, 0, plan_.client_wait);
}

Status<Error> Link::open_data() {
  auto made = Endpoint::make({.send_depth = plan_.send_depth,
                              .recv_depth = plan_.receive_depth,
                              .max_ird = kMaxReads,
                              .max_ord = kMaxReads},
                             plan_.max_ulpdu);
  if (!made) return fail(made.error());
  const auto connected = plan_.is_client() ? connect(**made, plan_.reads, true)
                                           : accept(**made, plan_.reads, plan_.patience);
  if (!connected) return connected;
  data_ = std::move(*made);
  return {};
}

Status<Error> Link::connect(Endpoint& endpoint, uint16_t reads, bool may_be_early) {
  const auto address = iwarp::Address::resolve(plan_.host, plan_.port);
  if (!address) return fail(address.error());
  const connecting::Call call{
      // Some RNICs talk to nobody who does not offer peer to peer.
      .startup = {.wants_crc = plan_.wants_crc,
                  .is_peer_to_peer = true,
                  .ird = std::max<uint16_t>(reads, 1),
                  .ord = reads,
                  .timeouts = {.request = plan_.patience, .reply = plan_.patience}},
      .may_fall_back = true,
      .tcp_timeout = plan_.patience};
  const Time give_up = base::now() + kRetryTime;
  for (;;) {
    const auto connected = endpoint.connect(*address, call);
    if (connected || !may_be_early || connected.error().startup || base::now() >= give_up) {
      return connected;
    }
    nanosleep(&kRetryPause, nullptr);
  }
}

Status<Error> Link::accept(Endpoint& endpoint, uint16_t reads, Duration wait) {
  const Time deadline = base::now() + wait;
  const mpa::ResponderConfig config{
      .wants_crc = plan_.wants_crc,
      .timeouts = {.request = plan_.patience, .reply = plan_.patience}};
  for (;;) {
    auto fd = listener_->take(deadline);
    if (!fd) return fail(fd.error());
    const auto heard = endpoint.hear(std::move(*fd), config);
    if (heard) {
      // A Read of no bytes may be what makes the connection ready.
      return endpoint.answer(endpoint.responder().accept(
          {.ird = std::max<uint16_t>(reads, 1), .ord = reads}, base::now()));
    }
    // Something that is no iWARP peer: the next one may be.
    if (base::now() >= deadline) return heard;
    std::fprintf(stderr, "ddp-perf: turned away: %s\n", heard.error().text.c_str());
  }
}

Status<Error> Link::post_control_receive() {
  const MutBytes room(control_buffer_);
  if (control_->post(engine::RecvWr{.buffer = {&room, 1}})) return {};
  return fail_with("control connection: " + control_->describe_end());
}

Status<Error> Link::exchange(Bytes mine, MutBytes theirs) {
  const int fds[] = {control_->fd(), data_ ? data_->fd() : -1};
  patience_.renew(fds);
  if (plan_.is_client()) {
    if (const auto sent = send_control(mine); !sent) return sent;
    return receive_control(theirs);
  }
  if (const auto received = receive_control(theirs); !received) return received;
  return send_control(mine);
}

void Link::leave_unanswered() {
  const int fd = control_->fd();
  patience_.renew({&fd, 1});
  std::array<uint8_t, kKeySize> message;
  // What becomes of it does not matter any more.
  static_cast<void>(receive_control(message));
}

Status<Error> Link::send_control(Bytes message) {
  const engine::SendWr work{
      .op = engine::op::Send{.payload = {&message, 1}}, .is_signalled = false, .is_inline = true};
  if (!control_->post(work)) {
    return fail_with("control connection: " + control_->describe_end());
  }
  control_->flush();
  return {};
}

Status<Error> Link::receive_control(MutBytes message) {
  for (;;) {
    const bool is_over = !patience_.lasts();
    engine::Completion completion;
    if (control_->poll({&completion, 1}) == 1) {
      if (completion.status != engine::WorkStatus::kOk) break;
      if (completion.length != message.size()) {
        return fail_with("the peer's control message has " + std::to_string(completion.length) +
                         " bytes where " + std::to_string(message.size()) +
                         " were expected: does it run the same test with the same options?");
      }
      std::copy_n(control_buffer_.begin(), message.size(), message.begin());
      return post_control_receive();
    }
    if (control_->has_ended()) break;
    if (const auto served = serve_data(); !served) return served;
    // Both have been looked at since: a thread that was kept waiting is no silent peer.
    if (is_over) return fail_with("control connection: the peer is silent");
  }
  // A peer that ends both does so because of the other.
  if (data_ && !is_end_expected_) data_->poll({});
  if (data_ && data_->has_ended()) {
    return fail_with("data connection: " + data_->describe_end());
  }
  return fail_with("control connection: " + control_->describe_end());
}

// One round of waiting for the control connection.
Status<Error> Link::serve_data() {
  if (!data_ || (data_->has_ended() && is_end_expected_)) {
    control_->rest(patience_.deadline());
    return {};
  }
  for (uint32_t i = 0; i < kSpinsPerLook; ++i) {
    engine::Completion completion;
    const bool is_early = data_->poll({&completion, 1}) == 1 &&
                          completion.kind == engine::WorkKind::kReceive &&
                          completion.status == engine::WorkStatus::kOk;
    if (is_early) return fail_with("the peer sent a message before both ends were ready");
    if (data_->has_ended()) {
      if (is_end_expected_) return {};
      return fail_with("data connection: " + data_->describe_end());
    }
    if (is_spinning() && !data_->need().wants_writable) continue;
    connecting::wait_for({{control_->fd(), control_->need()}, {data_->fd(), data_->need()}},
                         patience_.deadline());
    break;
  }
  return {};
}

void Link::renew_patience() {
  const int fd = data_->fd();
  patience_.renew({&fd, 1});
}

Status<Error> Link::rest() {
  // One that has ended wants nothing; so it need not be asked each time.
  if (!data_->need().wants_readable && data_->has_ended())
    return fail_with("data connection: " + data_->describe_end());
  // To ask a socket that takes no more again and again would only keep the acknowledgements from
  // it.
  if (!is_spinning() || data_->need().wants_writable) data_->rest(patience_.deadline());
  if (is_spinning() && ++rests_ % kSpinsPerLook != 0) return {};
  if (!patience_.lasts()) return fail_with("data connection: the peer is silent");
  return {};
}

void Link::close() {
  if (data_) data_->close(base::now() + kCloseTime);
  control_->close(base::now() + kCloseTime);
}

}  // namespace ddpsock::perf
