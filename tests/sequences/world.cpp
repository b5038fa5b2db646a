// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Nothing here goes through libc's functions for descriptors: the library must not be asked by who
// looks at it.
#include "world.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/kernel_call.h"

namespace ddpsock::sequences {

World* world = nullptr;
Process myself;

namespace {

[[noreturn]] void stop(const char* what) {
  perror(what);
  abort();
}

// A prime, so that nothing that a library may think in is a multiple of it.
constexpr size_t kPeriod = 65521;
constexpr size_t kShort = 64 * 1024;

char* make_pattern(size_t size) {
  char* made = static_cast<char*>(malloc(size));
  uint32_t state = 1;
  for (size_t i = 0; i < kPeriod; ++i) {
    state = state * 1664525u + 1013904223u;
    made[i] = static_cast<char>(state >> 24);
  }
  for (size_t done = kPeriod; done < size; done += kPeriod)
    memcpy(made + done, made, std::min(kPeriod, size - done));
  return made;
}

const char* pattern(size_t size) {
  static const char* const bytes = make_pattern(kPeriod + kShort);
  if (size <= kShort) return bytes;
  static const char* const many = make_pattern(kPeriod + kMostBytes);
  return many;
}

}  // namespace

void map_world() {
  void* at = mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED, kWorldNumber, 0);
  if (at == MAP_FAILED) stop("mmap");
  world = static_cast<World*>(at);
  pattern(0);
}

namespace {

void create_file(const char* name, int number) {
  const int low = static_cast<int>(base::kernel_call(SYS_memfd_create, name, 0));
  if (base::kernel_call(SYS_dup2, low, number) != number) stop(name);
  base::kernel_call(SYS_close, low);
}

}  // namespace

void create_world() {
  create_file("sequences", kWorldNumber);
  if (base::kernel_call(SYS_ftruncate, kWorldNumber, sizeof(World)) != 0) stop("ftruncate");
  create_file("pattern", kPatternNumber);
  base::kernel_call(SYS_write, kPatternNumber, pattern(0), kPeriod + kShort);
}

const char* bytes_at(int connection, int side, uint64_t position, size_t size) {
  const uint64_t start = static_cast<uint64_t>(connection * 2 + side) * 7919;
  return pattern(size) + (start + position) % kPeriod;
}

void World::say(const char* format, ...) {
  const size_t at = log_size.load();
  va_list list;
  va_start(list, format);
  const int size = vsnprintf(log.data() + at, log.size() - at, format, list);
  va_end(list);
  if (size > 0 && at + static_cast<size_t>(size) < log.size())
    log_size = static_cast<uint32_t>(at + static_cast<size_t>(size));
}

void break_off(Actor& actor) {
  for (size_t i = 0; i < world->connections.size(); ++i)
    for (size_t side = 0; side < 2; ++side)
      if ((actor.fills >> (i * 2 + side) & 1) != 0)
        world->connections[i].from[side].is_broken_off = true;
  actor.takes = actor.sees = actor.fills = 0;
}

int open_status(pid_t process, pid_t thread) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
  const long low = base::kernel_call(SYS_open, path, O_RDONLY | O_CLOEXEC);
  const long fd = base::kernel_call(SYS_fcntl, low, F_DUPFD_CLOEXEC, kPatternNumber + 1);
  base::kernel_call(SYS_close, low);
  return static_cast<int>(fd);
}

bool is_asleep(int status_fd) {
  char text[512];
  const long size = base::kernel_call(SYS_pread64, status_fd, text, sizeof text - 1, 0);
  if (size <= 0) return false;
  text[size] = '\0';
  const char* after_name = strrchr(text, ')');
  return after_name != nullptr && (after_name[2] == 'S' || after_name[2] == 'T');
}

void sleep_us(int microseconds) {
  const timespec time{microseconds / 1'000'000, (microseconds % 1'000'000) * 1000L};
  nanosleep(&time, nullptr);
}

int64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1000} + time.tv_nsec / 1'000'000;
}

void wait_for_change(std::atomic<uint32_t>& word, uint32_t from, int microseconds) {
  const timespec time{microseconds / 1'000'000, (microseconds % 1'000'000) * 1000L};
  base::kernel_call(SYS_futex, &word, FUTEX_WAIT, from, &time);
}

void wake(std::atomic<uint32_t>& word) {
  base::kernel_call(SYS_futex, &word, FUTEX_WAKE, 1);
}

}  // namespace ddpsock::sequences
