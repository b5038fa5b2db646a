// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/program_memory.h"

#include <algorithm>

#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "shim/policy/policy.h"

namespace ddpsock::shim {
namespace {

bool is_mappable(std::span<const iovec> parts) {
  return may_be_mapped(parts.data(), parts.size_bytes()) &&
         (parts.empty() || !is_null(parts.data())) &&
         std::ranges::all_of(
             parts, [](const iovec& part) { return may_be_mapped(part.iov_base, part.iov_len); });
}

// The parts in front of the first that leads nowhere.
std::span<const iovec> sound_parts(std::span<const iovec> parts) {
  const auto end = std::ranges::find_if(
      parts, [](const iovec& part) { return is_null(part.iov_base) && part.iov_len != 0; });
  return parts.first(static_cast<size_t>(end - parts.begin()));
}

bool is_empty(std::span<const iovec> parts) {
  return std::ranges::all_of(parts, [](const iovec& part) { return part.iov_len == 0; });
}

// It reads a mask of signals, which is 8 bytes, before it refuses what is to be done with it.
bool is_readable_at(uintptr_t address) {
  constexpr int kNothingToDo = -1;
  constexpr uintptr_t kMask = 8;
  const uintptr_t mask = address / kMask * kMask;
  if (mask == 0) return false;  // would be no mask
  const base::KeepErrno keep;
  base::kernel_call(SYS_rt_sigprocmask, kNothingToDo, mask, nullptr, kMask);
  return errno != EFAULT;
}

}  // namespace

engine::Io receive_unsound(engine::Stream& stream, int fd, std::span<const iovec> to, int flags) {
  if (!is_mappable(to)) return engine::Io::fail(EFAULT);
  if ((flags & MSG_TRUNC) != 0) return stream.recv(fd, to, flags);  // nothing is copied
  if (const auto sound = sound_parts(to); !is_empty(sound)) return stream.recv(fd, sound, flags);
  // Only what there is to be copied fails, and is there still.
  char unused = 0;
  const iovec one{&unused, sizeof unused};
  const engine::Io io = stream.recv(fd, {&one, 1}, (flags & ~MSG_WAITALL) | MSG_PEEK);
  return io.is_ok() && io.count > 0 ? engine::Io::fail(EFAULT) : io;
}

bool is_readable(const void* first, size_t size) {
  constexpr uintptr_t kSmallestPage = 4096;
  if (size == 0) return true;
  if (may_filter_hurt()) return is_sound(first, size);  // which may forbid to ask
  const auto begin = reinterpret_cast<uintptr_t>(first), last = begin + size - 1;
  if (last < begin || !is_readable_at(begin)) return false;
  for (uintptr_t page = begin / kSmallestPage + 1; page <= last / kSmallestPage; ++page)
    if (!is_readable_at(page * kSmallestPage)) return false;
  return true;
}

bool is_readable(const sockaddr* address, socklen_t length) {
  return length >= sizeof(sa_family_t) && length <= sizeof(sockaddr_storage) &&
         is_readable(static_cast<const void*>(address), length);
}

}  // namespace ddpsock::shim
