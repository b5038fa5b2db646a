// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/calls/listeners.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string_view>

#include "base/keep_errno.h"
#include "base/own_ring.h"
#include "shim/calls/handing_out.h"
#include "shim/calls/leaving.h"
#include "shim/calls/passed_fds.h"
#include "shim/connection.h"
#include "shim/fd_table.h"
#include "shim/libc_edge.h"
#include "shim/log.h"
#include "shim/open_fds.h"
#include "shim/policy/rings.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

// Inherited descriptors beyond are found when they are used.
constexpr int kFirstInherited = 32;

// False: it is known already, or there is no room for it.
bool enter(int fd) {
  if (!is_ours(fd) && enter_fd(fd) == nullptr) return false;
  const SocketUse use(fd);
  Phase idle = Phase::kIdle;
  return use && use->phase.compare_exchange_strong(idle, Phase::kListening);
}

}  // namespace

void look_for_rings() {
  if (!is_policy_active() || may_use_sockets_by_rings()) return;
  const base::KeepErrno keep;
  bool has_ring = false;
  visit_open_fds([&](int fd) {
    has_ring |= fd != base::own_ring.load(std::memory_order_relaxed) && base::is_ring(fd);
  });
  if (has_ring) note_ring(Maker::kUnknown);
}

void give_way_to_rings() {
  const base::KeepErrno keep;
  if (!is_any_ours()) return;
  LeavingListeners(Escape::kGone).note_inheritable(true);
  leave_ddp_mode_everywhere(kRings);
}

bool is_listening_tcp(int fd) {
  const base::KeepErrno keep;
  return int_option(fd, SOL_SOCKET, SO_ACCEPTCONN) != 0 && is_tcp_socket(fd);
}

void enter_listener(int fd) {
  if (!is_listening_tcp(fd)) return;
  const base::KeepErrno keep;
  if (enter(fd)) {
    const SocketUse use(fd);
    const Wish wish = use ? use->wish.load(std::memory_order_relaxed) : Wish::kOff;
    if (wish != Wish::kOff) register_listener(fd, wish, Opened::kElsewhere);
  }
}

void enter_inherited_listeners() {
  if (!is_policy_active() || may_filter_hurt()) return;
  const base::KeepErrno keep;
  std::array<pollfd, kFirstInherited> looks;
  for (int fd = 0; fd < kFirstInherited; ++fd) looks[static_cast<size_t>(fd)] = {fd, 0, 0};
  // One call for all that are not open; where it fails, each is asked.
  real.poll(looks.data(), looks.size(), 0);
  for (const pollfd& look : looks)
    if ((look.revents & POLLNVAL) == 0 && is_listening_tcp(look.fd) &&
        is_listener_registered(look.fd)) {
      note_inherited_listener(look.fd);
      enter(look.fd);
    }
}

void enter_received_listeners(const msghdr& message) {
  const base::KeepErrno keep;
  visit_passed_fds(message, [](int fd) {
    drop_stale_fd(fd);
    set_origin(fd, Origin::kUnknown);
    if (!is_listening_tcp(fd) || !is_listener_registered(fd)) return;
    enter(fd);
    note_returned_listener(fd, Escape::kInFlight);
  });
}

void LeavingListeners::note(int fd) {
  const base::KeepErrno keep;
  if (is_listening_tcp(fd) && note_escaped_listener(fd, how_)) {
    if (count_ < kMost) fds_[count_++] = fd;
    log_connection(how_ == Escape::kGone ? "exec" : "SCM_RIGHTS", fd, "listener", "",
                   "leaves to where the library may not be: new clients are plain");
  }
}

void LeavingListeners::note_inheritable(bool all) {
  const base::KeepErrno keep;
  visit_open_fds([&](int fd) {
    const int flags = real.fcntl(fd, F_GETFD);
    if (flags >= 0 && (all || (flags & FD_CLOEXEC) == 0)) note(fd);
  });
}

void LeavingListeners::note_given(int fd) {
  if (note_given_to_stranger(fd) && given_ < kMost) given_fds_[given_++] = fd;
}

void LeavingListeners::take_back() {
  const base::KeepErrno keep;
  for (size_t i = 0; i < count_; ++i) note_returned_listener(fds_[i], how_);
  for (size_t i = 0; i < given_; ++i) note_not_handed_out(given_fds_[i]);
  count_ = given_ = 0;
}

}  // namespace ddpsock::shim
