// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/arena.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

#include "base/kernel_view.h"
#include "base/process.h"
#include "base/sparse.h"
#include "base/sys.h"
#include "relatives/arena_layout.h"
#include "shm/sealed_file.h"

namespace ddpsock::engine {
namespace {

// A thread that raced with a record's release is long gone when one comes round, and short
// connections leave so many in the cache. A multiple of 64 (HeldRecords::hold_all_for).
constexpr uint32_t kMinRotation = 256;

std::atomic<Arena*> the_arena{nullptr};
alignas(Arena) std::byte arena_storage[sizeof(Arena)];

// The thread that makes the arena, and its process's generation: one that was forked from that is
// not made by anybody.
std::atomic<uint64_t> creator{0};

// Zeroed memory is an arena in which everything is free.
Arena* map(int fd) {
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

Arena* create() {
  auto file = shm::make_sealed_file(kArenaName, kArenaSize);
  if (file) base::kernel::fchmod(file->get(), S_IRUSR | S_IWUSR);
  Arena* arena = map(file ? file->get() : -1);
  if (arena == nullptr) return nullptr;
  if (file) static_cast<void>(file->release());
  ArenaHead& head = arena->file.head();
  head.rotation.store(kMinRotation, std::memory_order_relaxed);
  head.build.store(kArenaBuild, std::memory_order_release);
  return arena;
}

void publish(Arena* arena) {
  base::set_process_namer([] { return Arena::get_if_mapped()->family.my_name(); });
  base::set_judge_of_processes([](uint32_t name, uint32_t thread) {
    return Arena::get_if_mapped()->family.is_dead(name, thread);
  });
  the_arena.store(arena, std::memory_order_release);
  arena->family.my_place();
  pthread_atfork([] { Arena::get_if_mapped()->heirs.before_fork(); },
                 [] { Arena::get_if_mapped()->heirs.in_parent(); },
                 [] { Arena::get_if_mapped()->heirs.in_child(); });
}

}  // namespace

Arena::Arena(ArenaHead& head, int fd)
    : file(head, fd),
      blocks(file),
      slots(file),
      processes(file),
      held(slots, head),
      family(file, processes, held),
      dead_holders(slots, blocks, processes, held, family),
      records(slots, head, held, family, dead_holders),
      heirs(processes, held, family, dead_holders) {}

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

}  // namespace ddpsock::engine
