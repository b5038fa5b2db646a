// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/inherited_streams.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/socket_option.h"
#include "shim/real.h"
#include "shim/run/spawn_actions.h"

namespace ddpsock::shim {
namespace {

bool is_inheritable(int fd) {
  const int flags = real.fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

// 0 if it is no socket of TCP's.
uint64_t cookie_of(int fd) {
  const bool is_tcp = base::socket_option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;
  return is_tcp ? base::socket_option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE).value_or(0) : 0;
}

// Is what the table has at `from` behind `fd`?
bool is_stream_behind(int from, int fd) {
  const SocketUse use(from);
  if (!use || !has_live_stream(use.phase())) return false;
  engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  stream.forget_comparison();
  const bool is_it = stream.is_behind(fd);
  stream.forget_comparison();
  return is_it;
}

}  // namespace

OtherNumbers::OtherNumbers() {
  const bool may_differ = is_vfork_child();
  for (int fd = 0; fd < fds_end() + kBeyond && !is_full(); ++fd) {
    if (is_ours(fd) && !may_differ) continue;
    if (!is_inheritable(fd) || (is_ours(fd) && is_stream_behind(fd, fd))) continue;
    if (const uint64_t cookie = cookie_of(fd); cookie != 0) numbers_[count_++] = {fd, cookie};
  }
}

int OtherNumbers::number_of(int fd, size_t index) const {
  if (count_ == 0) return -1;
  const uint64_t cookie = has(fd) ? 0 : cookie_of(fd);
  for (size_t i = 0; i < count_; ++i) {
    const Number& n = numbers_[i];
    const bool is_it = cookie != 0 ? n.cookie == cookie : is_stream_behind(fd, n.fd);
    if (is_it && index-- == 0) return n.fd;
  }
  return -1;
}

bool OtherNumbers::has(int number) const {
  for (size_t i = 0; i < count_; ++i)
    if (numbers_[i].fd == number) return true;
  return false;
}

InheritedStreams::InheritedStreams(const posix_spawn_file_actions_t* actions, bool is_beside)
    : actions_(actions), is_beside_(is_beside), are_all_known_(!others_.is_full()) {
  if (is_vfork_child()) reopen_closed();
  for (; next_ < end_ && count_ < left_.size(); ++next_) {
    const int fd = next_;
    if (!is_stream(fd)) continue;
    const bool is_here = is_left(fd);
    if (is_here || is_duplicated_by(actions, fd)) add({fd, fd, false, is_here});
    for (size_t i = 0; others_.number_of(fd, i) >= 0; ++i)
      add({fd, others_.number_of(fd, i), true, true});
  }
  apply();
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
  const Left copy = is_known ? Left{source->fd, to, true, true} : Left{};
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

// Nothing was executed.
InheritedStreams::~InheritedStreams() {
  for (size_t i = 0; i < count_reopened_; ++i) real.close(reopened_[i]);
}

// As Python's subprocess closes them. Nothing is replaced: a child may share its descriptors with
// threads that open others meanwhile.
void InheritedStreams::reopen_closed() {
  if (others_.is_empty()) return;
  for (int fd = 0; fd < fds_end(); ++fd) {
    if (!is_stream(fd) || real.fcntl(fd, F_GETFD) >= 0) continue;
    const int number = others_.number_of(fd);
    if (number < 0) continue;
    const int copy =
        count_reopened_ < reopened_.size() ? real.fcntl(number, F_DUPFD_CLOEXEC, fd) : -1;
    if (copy == fd) {
      reopened_[count_reopened_++] = fd;
    } else {
      if (copy >= 0) real.close(copy);
      are_all_known_ = false;
    }
  }
}

// Is the stream at `fd` left to the program where it is?
bool InheritedStreams::is_left(int fd) const {
  return is_stream(fd) && is_inheritable(fd) && !others_.has(fd);
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
