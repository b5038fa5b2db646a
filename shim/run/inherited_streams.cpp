// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/inherited_streams.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/kernel_call.h"
#include "base/kernel_view.h"
#include "base/socket_option.h"
#include "shim/open_fds.h"
#include "shim/policy/confinement.h"
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

// Of the stream that the table has at `fd`; 0: there is none, or it has none.
uint64_t cookie_of_stream(int fd) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase())) return 0;
  return use->stream.load(std::memory_order_acquire)->cookie();
}

// A child may share its descriptors with threads that use others meanwhile: only in a table of its
// own, which executing a program makes anyway, and which a filter may not let it have. With a file
// go the locks that this process has on it.
bool is_replaceable(int fd) {
  struct stat file;
  if (base::kernel::fstat(fd, file) != 0 || S_ISREG(file.st_mode) || S_ISDIR(file.st_mode))
    return false;
  return !is_under_filter() && base::kernel_call(SYS_unshare, CLONE_FILES) == 0;
}

}  // namespace

OtherNumbers::OtherNumbers() {
  const bool may_differ = is_vfork_child();
  visit_open_fds([&](int fd) { note(fd, may_differ); });
}

void OtherNumbers::note(int fd, bool may_differ) {
  if ((is_ours(fd) && !may_differ) || !is_inheritable(fd)) return;
  const uint64_t cookie = cookie_of(fd);
  if (cookie == 0 || (is_ours(fd) && cookie == cookie_of_stream(fd))) return;
  if (!is_full()) numbers_[count_++] = {fd, cookie};
}

int OtherNumbers::number_of(uint64_t cookie, size_t index) const {
  for (size_t i = 0; i < count_ && cookie != 0; ++i)
    if (numbers_[i].cookie == cookie && index-- == 0) return numbers_[i].fd;
  return -1;
}

PutBack::PutBack(int fd, int at) : fd_(fd), at_(at), is_there_(fd == at || put_over()) {}

bool PutBack::put_over() {
  const int copy = real.fcntl(at_, F_DUPFD_CLOEXEC, fd_);
  if (copy == fd_) return true;
  if (copy < 0) return false;
  base::close_own(copy);
  if (!is_replaceable(fd_)) return false;
  flags_ = real.fcntl(fd_, F_GETFD);
  replaced_ = real.fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  return replaced_ >= 0 && base::kernel_call(SYS_dup3, at_, fd_, O_CLOEXEC) == fd_;
}

PutBack::~PutBack() {
  if (fd_ == at_) return;
  if (replaced_ >= 0) {
    base::kernel_call(SYS_dup3, replaced_, fd_, (flags_ & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
    base::close_own(replaced_);
  } else if (is_there_) {
    base::close_own(fd_);
  }
}

InheritedStreams::InheritedStreams(const posix_spawn_file_actions_t* actions, bool is_beside)
    : actions_(actions), is_beside_(is_beside), are_all_known_(!others_.is_full()) {
  for (; next_ < end_ && count_ < left_.size(); ++next_)
    if (is_stream(next_)) find(next_);
  apply();
}

void InheritedStreams::find(int fd) {
  const uint64_t cookie = cookie_of_stream(fd);
  const int at = is_there(fd) ? fd : others_.number_of(cookie);
  const bool is_inherited = is_left(fd);
  if (is_inherited || (at == fd && is_duplicated_by(actions_, fd)))
    add({fd, fd, fd, false, is_inherited});
  for (size_t i = 0; others_.number_of(cookie, i) >= 0; ++i)
    add({fd, at, others_.number_of(cookie, i), true, true});
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

// Is `fd` still the stream that the table has there?
bool InheritedStreams::is_there(int fd) const {
  if (!is_vfork_child()) return true;
  const uint64_t cookie = cookie_of_stream(fd);
  return cookie == 0 || cookie == cookie_of(fd);
}

// Is the stream at `fd` left to the program where it is?
bool InheritedStreams::is_left(int fd) const {
  return is_stream(fd) && is_inheritable(fd) && is_there(fd);
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
