// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/message_record.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/keep_errno.h"
#include "base/socket_option.h"
#include "relatives/arena.h"

namespace ddpsock::engine {
namespace {

template <size_t N>
void copy_text(std::array<char, N>& to, const char* from) {
  const size_t size = std::min(std::strlen(from), N - 1);
  std::copy_n(from, size, to.begin());
  to[size] = '\0';
}

}  // namespace

MessageRecord* MessageRecord::open() {
  Arena* arena = Arena::get();
  void* place = arena != nullptr ? arena->records.allocate() : nullptr;
  return place != nullptr ? new (place) MessageRecord : nullptr;
}

void MessageRecord::release() {
  Arena* arena = Arena::get_if_mapped();
  if (arena != nullptr && arena->records.release(this)) arena->records.finish_release(this);
}

void MessageRecord::note_socket(int fd, bool as_initiator) {
  const base::KeepErrno keep;
  is_initiator = as_initiator;
  opened_as = fd;
  local = local_address(fd);
  remote = remote_address(fd);
  cookie = base::socket_option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE).value_or(0);
}

void MessageRecord::note_engine(const char* name, const char* moved_by, const char* why) {
  copy_text(engine, name);
  copy_text(progress, moved_by);
  copy_text(memory, why);
}

void MessageRecord::note_end(int how, uint32_t word, const char* why) {
  copy_text(reason, why);
  status.store(how, std::memory_order_relaxed);
  terminate.store(word, std::memory_order_relaxed);
  state.store(State::kEnded, std::memory_order_release);
}

}  // namespace ddpsock::engine
