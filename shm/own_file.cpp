// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/own_file.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "base/keep_errno.h"

namespace ddpsock::engine::shm {
namespace {

constinit std::mutex list_mutex;

}  // namespace

constinit OwnFile* OwnFile::first = nullptr;

OwnFile::OwnFile(base::UniqueFd fd) : fd_(std::move(fd)), id_(file_of(fd_.get())) {
  // Not with the mutex, which a fork takes when it has the list of handlers.
  static constinit std::atomic<bool> has_handlers{false};
  if (!has_handlers.exchange(true)) pthread_atfork(lock_all, unlock_all, close_all_in_child);
  const std::lock_guard lock(list_mutex);
  next_ = first;
  first = this;
}

OwnFile::~OwnFile() {
  {
    const std::lock_guard lock(list_mutex);
    OwnFile** at = &first;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
  }
  close();
}

void OwnFile::close() {
  if (fd_.is_valid() && file_of(fd_.get()) != id_) (void)fd_.release();
  fd_.reset();
}

// So that the child has the list whole, and the mutex free.
void OwnFile::lock_all() {
  list_mutex.lock();
}
void OwnFile::unlock_all() {
  list_mutex.unlock();
}
void OwnFile::close_all_in_child() {
  const base::KeepErrno keep;
  for (OwnFile* file = first; file != nullptr; file = file->next_) file->close();
  list_mutex.unlock();
}

}  // namespace ddpsock::engine::shm
