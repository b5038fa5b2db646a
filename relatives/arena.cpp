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
#include "base/keep_errno.h"
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
// Free blocks above this index give their pages back to the kernel, but for those freed last.
constexpr uint32_t kKeptBlocks = 64;
// Without a file all must be mapped before the first fork.
constexpr uint32_t kAnonymousBlocks = 256;
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
  if (fd < 0) {
    const size_t blocks_at = record_group_offset(1);
    void* all = base::map_sparse(blocks_at + kAnonymousBlocks * kBlockSize, fd);
    if (all == nullptr) return nullptr;
    auto* arena = new (arena_storage) Arena(static_cast<ArenaHead*>(all), fd);
    uint8_t* bytes = static_cast<uint8_t*>(all);
    arena->groups_[0] = reinterpret_cast<RecordGroup*>(bytes + kRecordsOffset);
    for (uint32_t i = 0; i < kAnonymousBlocks / kGroupBlocks; ++i)
      arena->block_groups_[i] = bytes + blocks_at + i * kBlockGroupSize;
    return arena;
  }
  struct stat st;
  if (base::kernel::fstat(fd, st) != 0) return nullptr;
  void* head = base::map_sparse(kRecordsOffset, fd);
  if (head == nullptr) return nullptr;
  auto* arena = new (arena_storage) Arena(static_cast<ArenaHead*>(head), fd);
  arena->creator_ = Identity::of_caller();
  arena->fd_inode_ = st.st_ino;
  arena->fd_device_ = st.st_dev;
  // The first group of blocks too: a program that runs short of address space later goes on.
  if (arena->group(0) != nullptr && arena->block_data(1) != nullptr) return arena;
  if (RecordGroup* records = arena->groups_[0].load(); records != nullptr)
    munmap(records, whole_pages(sizeof(RecordGroup)));
  munmap(head, kRecordsOffset);
  return nullptr;
}

Identity Identity::of_caller() {
  const base::KeepErrno keep;
  uid_t real, effective, saved;
  gid_t real_group, effective_group, saved_group;
  if (base::kernel::getresuid(real, effective, saved) != 0 ||
      base::kernel::getresgid(real_group, effective_group, saved_group) != 0)
    return {};
  const bool is_one = real == effective && real == saved && real_group == effective_group &&
                      real_group == saved_group;
  return {is_one, real, real_group};
}

bool Arena::is_among_equals() const {
  const Identity me = Identity::of_caller();
  return me.is_one && creator_.is_one && me.user == creator_.user && me.group == creator_.group;
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

uint32_t Arena::block_count() const {
  return fd_ < 0 ? kAnonymousBlocks : kMaxBlocks;
}

uint32_t Arena::rotation() const {
  return std::min(shared_->rotation.load(), record_count());
}

bool Arena::is_mine(int fd) const {
  struct stat st;
  return fd >= 0 && base::kernel::fstat(fd, st) == 0 && st.st_ino == fd_inode_ &&
         st.st_dev == fd_device_;
}

int Arena::find_fd() const {
  if (is_mine(fd_) || fd_ < 0) return fd_;
  for (const std::atomic<int>& process : shared_->processes) {
    const int pid = process.load(std::memory_order_acquire);
    if (pid <= 0) continue;
    // Whatever lies under that number by now.
    auto fd = shm::open_memory_file(static_cast<uint32_t>(pid), static_cast<uint32_t>(fd_));
    if (fd && is_mine(fd->get())) return fd->release();
  }
  return -1;
}

// A part of the file. nullptr: no address space for it, or no descriptor any more.
void* Arena::map_part(size_t offset, size_t size) const {
  const int fd = find_fd();
  if (fd < 0) return nullptr;
  void* part = base::map_sparse(size, fd, static_cast<off_t>(offset));
  if (fd != fd_) base::close_own(fd);
  return part;
}

RecordGroup* Arena::group(uint32_t index) {
  RecordGroup* known = groups_[index].load(std::memory_order_acquire);
  if (known != nullptr || fd_ < 0) [[likely]]
    return known;
  const size_t size = whole_pages(sizeof(RecordGroup));
  auto* mapped = static_cast<RecordGroup*>(map_part(record_group_offset(index), size));
  if (mapped == nullptr || groups_[index].compare_exchange_strong(known, mapped)) return mapped;
  munmap(mapped, size);
  return known;
}

uint8_t* Arena::block_data(uint32_t block) {
  const uint32_t i = block - 1;
  std::atomic<uint8_t*>& place = block_groups_[i / kGroupBlocks];
  uint8_t* known = place.load(std::memory_order_acquire);
  if (known == nullptr) [[unlikely]] {
    auto* mapped =
        static_cast<uint8_t*>(map_part(block_group_offset(i / kGroupBlocks), kBlockGroupSize));
    if (mapped == nullptr) return nullptr;
    if (place.compare_exchange_strong(known, mapped)) {
      known = mapped;
    } else {
      munmap(mapped, kBlockGroupSize);
    }
  }
  return known + size_t{i % kGroupBlocks} * kBlockSize;
}

// nullptr where this process may not map it: then it holds nothing there.
RecordHead* Arena::head(uint32_t i) {
  RecordGroup* g = group(i / kGroupRecords);
  return g != nullptr ? &g->heads[i % kGroupRecords] : nullptr;
}

void* Arena::record(uint32_t i) {
  return group(i / kGroupRecords)->records[i % kGroupRecords].data();
}

uint32_t Arena::index_of(const void* record) const {
  const auto* at = static_cast<const std::byte*>(record);
  for (uint32_t g = 0; g < kRecordGroups; ++g) {
    const RecordGroup* records = groups_[g].load(std::memory_order_acquire);
    if (records == nullptr || at < records->records.front().data() ||
        at > records->records.back().data())
      continue;
    const auto offset = static_cast<size_t>(at - records->records.front().data());
    return g * kGroupRecords + static_cast<uint32_t>(offset / kRecordSize);
  }
  __builtin_unreachable();
}

bool Arena::is_live(uint32_t i) {
  const RecordHead* h = head(i);
  return h != nullptr && h->state.load(std::memory_order_acquire) == RecordHead::kLive;
}

bool Arena::hold_record(uint32_t i) {
  const uint32_t me = my_place();
  note_held(i);
  if (me < HolderSet::kMax) head(i)->holders.add(me);
  if (is_live(i)) return true;
  let_go(i);
  return false;
}

void Arena::let_go(uint32_t i) {
  const uint32_t me = my_place();
  note_not_held(i);
  if (me < HolderSet::kMax) head(i)->holders.remove(me);
}

uint32_t Arena::live_records() const {
  return shared_->records_live.load(std::memory_order_relaxed);
}

bool Arena::has_room() {
  if (live_records() < record_count()) return true;
  return make_room() && live_records() < record_count();
}

void* Arena::take_free_record(uint32_t round) {
  const uint32_t me = my_place();
  for (uint32_t tries = 0; tries < round; ++tries) {
    const uint32_t i = shared_->record_cursor.fetch_add(1, std::memory_order_relaxed) % round;
    uint32_t free = RecordHead::kFree;
    RecordHead* h = head(i);
    if (h == nullptr ||
        !h->state.compare_exchange_strong(free, RecordHead::kLive, std::memory_order_acq_rel))
      continue;
    note_held(i);
    // Process table full: nobody is noted as holder, so the record is never collected, only
    // released.
    if (me < HolderSet::kMax) h->holders.add(me);
    std::memset(record(i), 0, kRecordSize);
    return record(i);
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
  uint32_t round = rotation();
  if (live > round / 2 && round < record_count()) {
    // Before more memory comes into use, what dead relatives held.
    if (!make_room() || live_records() > round / 2) {
      round = std::min(round * 2, record_count());
      shared_->rotation.store(round, std::memory_order_relaxed);
    }
  }
  void* taken = take_free_record(round);
  if (taken == nullptr && make_room()) taken = take_free_record(round);
  if (taken == nullptr) shared_->records_live.fetch_sub(1, std::memory_order_relaxed);
  return taken;
}

void Arena::finish_release(void* rec) {
  RecordHead* h = head(index_of(rec));
  h->holders.clear();
  h->state.store(RecordHead::kFree, std::memory_order_release);
  // Last: who dies before it leaves one too many, not one that is counted off twice.
  shared_->records_live.fetch_sub(1, std::memory_order_relaxed);
}

uint32_t Arena::allocate_block() {
  // The block freed last is the one still in the cache.
  const uint32_t count = block_count();
  const uint32_t hint = shared_->block_hint.load(std::memory_order_relaxed) % count;
  bool may_map = true;
  for (uint32_t tries = 0; tries < count; ++tries) {
    const uint32_t i = tries == 0 ? hint : tries - 1;
    uint8_t free = 0;
    if (shared_->block_used[i].load(std::memory_order_relaxed) != 0 ||
        (!may_map && block_groups_[i / kGroupBlocks].load() == nullptr) ||
        !shared_->block_used[i].compare_exchange_strong(free, 1, std::memory_order_acquire))
      continue;
    if (block_data(i + 1) == nullptr) {
      shared_->block_used[i].store(0, std::memory_order_release);
      may_map = false;
      continue;
    }
    if (tries != 0) shared_->block_hint.store(i + 1, std::memory_order_relaxed);
    return i + 1;
  }
  return kNoBlock;
}

void Arena::free_block(uint32_t block) {
  const uint32_t i = block - 1;
  shared_->block_hint.store(i, std::memory_order_relaxed);
  shared_->block_used[i].store(0, std::memory_order_release);
  if (i >= kKeptBlocks) keep_freed(block);
}

// A sender takes the same few for every burst: in place of one that is not among those freed last
// the one that has been there longest gives its pages back. Best effort: where another call is at
// that too they stay until the block is used again.
void Arena::keep_freed(uint32_t block) {
  for (const std::atomic<uint32_t>& known : shared_->freed_last)
    if (known.load(std::memory_order_relaxed) == block) return;
  const uint32_t turn = shared_->freed_cursor.fetch_add(1, std::memory_order_relaxed);
  std::atomic<uint32_t>& place = shared_->freed_last[turn % shared_->freed_last.size()];
  const uint32_t oldest = place.exchange(block, std::memory_order_relaxed);
  uint8_t free = 0;
  if (oldest == kNoBlock ||
      !shared_->block_used[oldest - 1].compare_exchange_strong(free, 1, std::memory_order_acquire))
    return;
  if (uint8_t* data = block_data(oldest); data != nullptr) madvise(data, kBlockSize, MADV_REMOVE);
  shared_->block_used[oldest - 1].store(0, std::memory_order_release);
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
