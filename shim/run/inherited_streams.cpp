// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/inherited_streams.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/socket_option.h"
#include "shim/open_fds.h"
#include "shim/real.h"
#include "shim/run/spawn_actions.h"

namespace ddpsock::shim {
namespace {

bool is_inheritable(int fd) {
  const int flags = real.fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

// 0: it is no socket.
uint64_t cookie_of(int fd) {
  return base::socket_option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE).value_or(0);
}

// Of the stream that the table has at `fd`; 0: there is none, or it has none.
uint64_t cookie_of_stream(int fd) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase())) return 0;
  return use->stream.load(std::memory_order_acquire)->cookie();
}

// Is `fd` still the socket of that cookie? 0: it is taken at its number.
bool is_at(int fd, uint64_t cookie) {
  return cookie == 0 || cookie_of(fd) == cookie;
}

}  // namespace

// In the process itself only the bare instruction makes numbers that the table does not know, the
// lowest that are free as a rule; a vfork child makes any.
OtherNumbers::OtherNumbers() {
  constexpr int kBeyond = 16;
  for (int fd = 0; fd < fds_end(); ++fd)
    if (const uint64_t cookie = cookie_of_stream(fd); cookie != 0) cookies_.set(cookie % kBits);
  if (cookies_.none()) return;
  const bool may_differ = is_vfork_child();
  const int end = fds_end() + (may_differ ? 0 : kBeyond);
  for (int fd = 0; fd < end; ++fd)
    if (may_differ || !is_ours(fd)) note(fd);
  if (may_differ) visit_open_fds([this](int fd) { note(fd); }, end);
}

void OtherNumbers::note(int fd) {
  if (is_full() || !is_inheritable(fd)) return;
  const uint64_t cookie = cookie_of(fd);
  if (cookie == 0 || !cookies_.test(cookie % kBits)) return;
  if (is_ours(fd) && cookie == cookie_of_stream(fd)) return;
  numbers_[count_++] = {fd, cookie};
}

int OtherNumbers::number_of(uint64_t cookie, size_t index) const {
  for (size_t i = 0; i < count_ && cookie != 0; ++i)
    if (numbers_[i].cookie == cookie && index-- == 0) return numbers_[i].fd;
  return -1;
}

InheritedStreams::InheritedStreams(const posix_spawn_file_actions_t* actions, bool is_beside)
    : actions_(actions), is_beside_(is_beside), are_all_known_(!others_.is_full()) {
  for (; next_ < end_ && count_ < left_.size(); ++next_)
    if (is_stream(next_)) find(next_);
  apply();
}

void InheritedStreams::find(int fd) {
  const uint64_t cookie = cookie_of_stream(fd);
  const int other = others_.number_of(cookie);
  const bool is_copied = is_duplicated_by(actions_, fd);
  const bool is_kept = is_inheritable(fd);
  if (!is_kept && !is_copied && other < 0) return;
  const bool is_there = is_at(fd, cookie);
  if (is_there && (is_kept || is_copied)) add({fd, fd, fd, false, is_kept});
  for (size_t i = 0; others_.number_of(cookie, i) >= 0; ++i)
    add({fd, is_there ? fd : other, others_.number_of(cookie, i), true, true});
}

void InheritedStreams::add(Left left) {
  if (count_ < left_.size())
    left_[count_++] = left;
  else
    are_all_known_ = false;
}

void InheritedStreams::remove_from(int first, int last) {
  const auto end = std::remove_if(left_.begin(), left_.begin() + count_, [=](const Left& left) {
    return left.number >= first && left.number <= last;
  });
  count_ = static_cast<size_t>(end - left_.begin());
}

void InheritedStreams::apply_dup2(int from, int to) {
  const auto end = left_.begin() + count_;
  const auto source =
      std::find_if(left_.begin(), end, [=](const Left& left) { return left.number == from; });
  const bool is_known = source != end;
  const Left copy = is_known ? Left{source->fd, source->at, to, true, true} : Left{};
  remove_from(to, to);
  if (is_known) add(copy);
}

// As posix_spawn does, one behind the other.
void InheritedStreams::apply() {
  for (const SpawnAction& action : all_of(actions_)) {
    switch (action.kind) {
      case SpawnAction::kClose:
        remove_from(action.fd, action.fd);
        break;
      case SpawnAction::kOpen:
        remove_from(action.open.fd, action.open.fd);
        break;
      case SpawnAction::kCloseFrom:
        remove_from(action.fd, INT_MAX);
        break;
      case SpawnAction::kDup2:
        apply_dup2(action.dup2.fd, action.dup2.target);
        break;
      default:
        break;
    }
  }
  const auto end = std::remove_if(left_.begin(), left_.begin() + count_,
                                  [](const Left& left) { return !left.is_inherited; });
  count_ = static_cast<size_t>(end - left_.begin());
}

// Where the stream that the table has at `fd` is open and left to the program; -1: nowhere.
int InheritedStreams::number_left(int fd) const {
  if (!is_stream(fd)) return -1;
  const uint64_t cookie = cookie_of_stream(fd);
  return is_inheritable(fd) && is_at(fd, cookie) ? fd : others_.number_of(cookie);
}

bool InheritedStreams::is_first_of_its_stream(size_t i) const {
  return std::none_of(left_.begin(), left_.begin() + i,
                      [&](const Left& left) { return left.fd == left_[i].fd; });
}

bool InheritedStreams::does_stray(int fd) const {
  const SocketUse use(fd);
  return use && ((is_beside_ && use->is_given.load(std::memory_order_relaxed)) ||
                 use->is_stray.load(std::memory_order_relaxed));
}

bool InheritedStreams::is_meant(int fd) const {
  const bool is_wanted = std::any_of(left_.begin(), left_.begin() + count_, [=](const Left& left) {
    return left.fd == fd && (left.is_made || left.number <= STDERR_FILENO);
  });
  return is_wanted && !does_stray(fd);
}

unsigned InheritedStreams::strayed() const {
  unsigned bits = 0;
  for (size_t i = 0; i < count_; ++i)
    if (left_[i].number <= STDERR_FILENO && does_stray(left_[i].fd)) bits |= 1U << left_[i].number;
  return bits;
}

}  // namespace ddpsock::shim
