// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/arena.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/kernel_view.h"
#include "base/process.h"
#include "base/sparse.h"
#include "base/sys.h"
#include "relatives/arena_layout.h"
#include "shm/sealed_file.h"

namespace ddpsock::engine {
namespace {

// A thread that raced with release() is long gone when one comes round, and short connections leave
// so many in the cache. A multiple of 64 (hold_all_for).
constexpr uint32_t kMinRotation = 256;
// Of the search for what dead relatives held.
constexpr Duration kBetweenCollections = Duration::from_ms(100);

std::atomic<Arena*> the_arena{nullptr};
alignas(Arena) std::byte arena_storage[sizeof(Arena)];

// The thread that makes the arena, and its process's generation: one that was forked from that is
// not made by anybody.
std::atomic<uint64_t> creator{0};

}  // namespace

// Zeroed memory is an arena in which everything is free.
Arena* Arena::map(int fd) {
  const size_t size = fd < 0 ? kAnonymousSize : kRecordsOffset;
  void* head = base::map_sparse(size, fd);
  if (head == nullptr) return nullptr;
  auto* arena = new (arena_storage) Arena(*static_cast<ArenaHead*>(head), fd);
  // The first group of blocks too: a program that runs short of address space later goes on.
  RecordHead* first = arena->slots.head(0);
  if (first != nullptr && arena->blocks.data(1) != nullptr) return arena;
  if (first != nullptr) munmap(first, whole_pages(sizeof(RecordGroup)));
  munmap(head, size);
  return nullptr;
}

Arena* Arena::create() {
  auto file = shm::make_sealed_file(kArenaName, kArenaSize);
  if (file) base::kernel::fchmod(file->get(), S_IRUSR | S_IWUSR);
  Arena* arena = map(file ? file->get() : -1);
  if (arena == nullptr) return nullptr;
  if (file) static_cast<void>(file->release());
  arena->shared_->rotation.store(kMinRotation, std::memory_order_relaxed);
  arena->shared_->build.store(kArenaBuild, std::memory_order_release);
  return arena;
}

Arena* Arena::adopt(int fd) {
  if (get_if_mapped() != nullptr || !base::process_init()) return nullptr;
  if (!shm::is_sealed_file(fd, kArenaSize)) return nullptr;
  uint64_t build = 0;
  if (pread(fd, &build, sizeof build, 0) != static_cast<ssize_t>(sizeof build)) return nullptr;
  if (build != kArenaBuild) return nullptr;
  Arena* arena = map(fd);
  if (arena == nullptr) return nullptr;
  base::sys.fcntl(fd, F_SETFD, FD_CLOEXEC);
  publish(arena);
  return arena;
}

void Arena::publish(Arena* arena) {
  base::set_process_namer([] { return get_if_mapped()->my_name(); });
  base::set_judge_of_processes(
      [](uint32_t name, uint32_t thread) { return get_if_mapped()->is_dead(name, thread); });
  the_arena.store(arena, std::memory_order_release);
  arena->my_place();
  pthread_atfork([] { get_if_mapped()->before_fork(); }, [] { get_if_mapped()->in_parent(); },
                 [] { get_if_mapped()->in_child(); });
}

Arena* Arena::get_if_mapped() {
  return the_arena.load(std::memory_order_acquire);
}

Arena* Arena::get() {
  Arena* arena = the_arena.load(std::memory_order_acquire);
  if (arena != nullptr || !base::process_init()) return arena;
  // Two first sockets at once in two threads: one maps, the other waits. A signal handler on top of
  // the one that maps has none.
  const uint64_t me = uint64_t{base::process_generation()} << 32 | base::thread_id();
  for (;;) {
    uint64_t other = creator.load(std::memory_order_acquire);
    if ((arena = the_arena.load(std::memory_order_acquire)) != nullptr || other == me) return arena;
    if (other >> 32 == me >> 32) {
      usleep(50);
    } else if (creator.compare_exchange_strong(other, me)) {
      break;
    }
  }
  arena = the_arena.load(std::memory_order_acquire);
  if (arena == nullptr && (arena = create()) != nullptr) publish(arena);
  creator.store(0, std::memory_order_release);
  return arena;
}

bool Arena::hold_record(uint32_t i) {
  const uint32_t me = my_place();
  note_held(i);
  if (me < HolderSet::kMax) slots.head(i)->holders.add(me);
  if (slots.is_live(i)) return true;
  let_go(i);
  return false;
}

void Arena::let_go(uint32_t i) {
  const uint32_t me = my_place();
  note_not_held(i);
  if (me < HolderSet::kMax) slots.head(i)->holders.remove(me);
}

bool Arena::has_room() {
  if (slots.live() < slots.count()) return true;
  return make_room() && slots.live() < slots.count();
}

void* Arena::take_free_record(uint32_t round) {
  const uint32_t me = my_place();
  for (uint32_t tries = 0; tries < round; ++tries) {
    const uint32_t i = shared_->record_cursor.fetch_add(1, std::memory_order_relaxed) % round;
    RecordHead* h = slots.head(i);
    if (h == nullptr || !h->try_use()) continue;
    note_held(i);
    // Process table full: nobody is noted as holder, so the record is never collected, only
    // released.
    if (me < HolderSet::kMax) h->holders.add(me);
    std::memset(slots.record(i), 0, RecordSlots::kRecordSize);
    return slots.record(i);
  }
  return nullptr;
}

// Not at every call of a program that has come to the end of the table. False: not now.
bool Arena::make_room() {
  int64_t last = last_collection_.load(std::memory_order_relaxed);
  const int64_t now = base::now().ns;
  if (last != 0 && now - last < kBetweenCollections.ns) return false;
  if (!last_collection_.compare_exchange_strong(last, now)) return false;
  collect();
  return true;
}

void* Arena::allocate_record() {
  const uint32_t live = shared_->records_live.fetch_add(1, std::memory_order_relaxed) + 1;
  uint32_t round = slots.rotation();
  if (live > round / 2 && round < slots.count()) {
    // Before more memory comes into use, what dead relatives held.
    if (!make_room() || slots.live() > round / 2) {
      round = std::min(round * 2, slots.count());
      shared_->rotation.store(round, std::memory_order_relaxed);
    }
  }
  void* taken = take_free_record(round);
  if (taken == nullptr && make_room()) taken = take_free_record(round);
  if (taken == nullptr) shared_->records_live.fetch_sub(1, std::memory_order_relaxed);
  return taken;
}

void Arena::finish_release(void* rec) {
  slots.free(slots.index_of(rec));
}

void Arena::note_plain(uint32_t count, const char* last_reason) {
  const uint32_t me = my_place();
  if (me == HolderSet::kMax) return;
  PlainNotes& notes = shared_->plain[me];
  const size_t n = std::min(std::strlen(last_reason), notes.last_reason.size() - 1);
  std::memcpy(notes.last_reason.data(), last_reason, n);
  notes.last_reason[n] = 0;
  notes.count.store(count, std::memory_order_relaxed);
}

}  // namespace ddpsock::engine
