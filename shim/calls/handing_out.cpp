// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/calls/handing_out.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "base/keep_errno.h"
#include "shim/connection.h"
#include "shim/log.h"
#include "shim/policy/policy.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

constexpr int64_t kMilliseconds = Duration::from_ms(1).ns;
constinit std::atomic<int64_t> patience{kPatience.ns};

bool is_handed_out(const SocketUse& use, int fd, int at) {
  return use && use.phase() == Phase::kStream && hint_of(fd).origin == Origin::kAccepted &&
         use->message.load(std::memory_order_acquire) == nullptr && is_true_entry(use, at) &&
         use->stream.load(std::memory_order_acquire)->status().bytes_sent == 0;
}

}  // namespace

bool begin_handing_out(int fd) {
  if (!is_ours(fd)) return false;
  const base::KeepErrno keep;
  const SocketUse use(fd);
  const bool is_out = is_handed_out(use, fd, fd);
  if (is_out && !use->is_required.load(std::memory_order_relaxed)) {
    log_connection(
        "SCM_RIGHTS", fd, "stream", "",
        note_handed_out(fd) ? "handed out: its listener's new clients are plain" : "handed out");
  }
  return is_out;
}

bool note_given_to_stranger(int fd) {
  const base::KeepErrno keep;
  const SocketUse use(fd);
  if (!use || use.phase() != Phase::kStream || hint_of(fd).origin == Origin::kConnected ||
      use->is_required.load(std::memory_order_relaxed))
    return false;
  const bool is_noted = note_handed_out(fd);
  log_connection(
      "exec", fd, "stream", "",
      is_noted ? "given to a program without the library: its listener's new clients are plain"
               : "given to a program without the library");
  return is_noted;
}

Duration patience_while_handing_out() {
  return {patience.load(std::memory_order_relaxed)};
}

void note_answers(bool are_in_time) {
  const int64_t now = patience.load(std::memory_order_relaxed);
  const int64_t next =
      are_in_time ? std::min(now + kMilliseconds, kPatience.ns) : std::max(now / 2, kMilliseconds);
  if (next != now) patience.store(next, std::memory_order_relaxed);
}

// The kernel also drops what lies unread: FPDUs, which nobody must take for the client's bytes.
void reset_handed_out(int fd, int at) {
  if (!is_ours(fd)) return;
  const base::KeepErrno keep;
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  const SocketUse use(fd);
  if (is_handed_out(use, fd, at) && real.connect(at, &nowhere, sizeof nowhere) == 0)
    make_plain(*use, at, "reset: its peer has kept it from being passed on");
}

}  // namespace ddpsock::shim
