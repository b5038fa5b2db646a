// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/own_file.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <span>
#include <utility>

#include "base/keep_errno.h"

namespace ddpsock::engine::shm {
namespace {

// Without a mutex: a fork's handlers run beside those of the program, which has locks of its own.
struct Place {
  std::atomic<int> fd;  // plus 1; 0: none, -1: being entered
  FileId id;
};
constexpr size_t kPlaces = 8192 + 64;  // regions, and tables
constinit std::array<Place, kPlaces> places{};
constinit std::atomic<size_t> places_end{0};  // none is taken from here on

bool is_still(int fd, const FileId& id) {
  return file_of(fd) == id;
}

void close_in_child() {
  const base::KeepErrno keep;
  for (Place& place : std::span(places).first(places_end.load())) {
    const int fd = place.fd.exchange(0) - 1;
    if (fd >= 0 && is_still(fd, place.id)) base::close_own(fd);
  }
}

// kPlaces: there is none.
size_t enter(int fd, const FileId& id) {
  static constinit std::atomic<bool> has_handler{false};
  if (!has_handler.exchange(true)) pthread_atfork(nullptr, nullptr, close_in_child);
  for (size_t i = 0; i < kPlaces; ++i) {
    int none = 0;
    if (!places[i].fd.compare_exchange_strong(none, -1)) continue;
    for (size_t end = places_end.load();
         end <= i && !places_end.compare_exchange_weak(end, i + 1);) {
    }
    places[i].id = id;
    places[i].fd.store(fd + 1);
    return i;
  }
  return kPlaces;
}

}  // namespace

OwnFile::OwnFile(base::UniqueFd fd)
    : fd_(std::move(fd)),
      id_(file_of(fd_.get())),
      place_(fd_.is_valid() ? enter(fd_.get(), id_) : kPlaces) {}

OwnFile::~OwnFile() {
  if (place_ != kPlaces) places[place_].fd.store(0);
  if (fd_.is_valid() && !is_still(fd_.get(), id_)) (void)fd_.release();
}

}  // namespace ddpsock::engine::shm
