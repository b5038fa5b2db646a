// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/sparse.h"
#include "base/sys.h"
#include "engine/user/arena_layout.h"

namespace ddpsock::engine {
namespace {

constexpr uint32_t kMinRotation = 1024;
// Free blocks above this index give their pages back to the kernel.
constexpr uint32_t kKeptBlocks = 64;
constexpr int kLeaving = -2;  // a place in the table of processes that is being given up
constexpr Duration kForkTakesAtMost = Duration::from_ms(60'000);

// Out of the way of programs, which get the lowest numbers and try round ones; not so high that the
// kernel must grow the table of descriptors much.
int high_descriptor() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return static_cast<int>(std::max<rlim_t>(std::min<rlim_t>(files.rlim_cur, 4096), 16)) - 7;
}

std::atomic<Arena*> the_arena{nullptr};
alignas(Arena) std::byte arena_storage[sizeof(Arena)];

bool is_process_alive(int pid) {
  return kill(pid, 0) == 0 || errno != ESRCH;
}

}  // namespace

Arena::Arena(ArenaHead* shared) : shared_(shared) {}

Arena* Arena::map(int fd, uint32_t shrink) {
  const uint32_t records = kMaxRecords / shrink;
  const uint32_t blocks = kMaxBlocks / shrink;
  const size_t size = arena_size(shrink);
  if (fd >= 0) {
    struct stat st;
    if (fstat(fd, &st) != 0) return nullptr;
    if (st.st_size == 0 && ftruncate(fd, static_cast<off_t>(size)) != 0) return nullptr;
    if (st.st_size != 0 && static_cast<size_t>(st.st_size) != size) return nullptr;
  }
  void* p = base::map_sparse(size, fd);
  if (p == nullptr) return nullptr;
  auto* base = static_cast<uint8_t*>(p);
  // Zeroed memory is an arena in which everything is free.
  auto* arena = new (arena_storage) Arena(reinterpret_cast<ArenaHead*>(p));
  arena->records_ = base + kRecordsOffset;
  arena->blocks_ = arena->records_ + records * kRecordSize;
  arena->record_count_ = records;
  arena->block_count_ = blocks;
  arena->fd_ = fd;
  if (struct stat st; fd >= 0 && fstat(fd, &st) == 0) {
    arena->fd_inode_ = st.st_ino;
    arena->fd_device_ = st.st_dev;
  }
  return arena;
}

Arena* Arena::create() {
  rlimit file_size;
  // A limit on files would answer ftruncate with a signal.
  const bool may_have_file =
      getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur == RLIM_INFINITY;
  // Address space may be limited (RLIMIT_AS): take what can be had.
  for (uint32_t shrink = 1; shrink <= kMostShrink; shrink *= 2) {
    base::UniqueFd fd(may_have_file ? memfd_create(kArenaName, MFD_CLOEXEC) : -1);
    if (fd.is_valid()) {
      fchmod(fd.get(), S_IRUSR | S_IWUSR);
      const int high = base::sys.fcntl(fd.get(), F_DUPFD_CLOEXEC, high_descriptor());
      if (high >= 0) fd.reset(high);
    }
    Arena* arena = map(fd.get(), shrink);
    if (arena == nullptr) continue;
    static_cast<void>(fd.release());
    arena->shared_->rotation.store(kMinRotation, std::memory_order_relaxed);
    arena->shared_->shrink.store(shrink, std::memory_order_relaxed);
    arena->shared_->build.store(kArenaBuild, std::memory_order_release);
    return arena;
  }
  return nullptr;
}

Arena* Arena::adopt(int fd) {
  if (get_if_mapped() != nullptr || !base::process_init()) return nullptr;
  struct {
    uint64_t build;
    uint32_t shrink;
  } start{};
  if (pread(fd, &start, sizeof start, 0) != static_cast<ssize_t>(sizeof start)) return nullptr;
  if (start.build != kArenaBuild || start.shrink == 0 || start.shrink > kMostShrink) return nullptr;
  Arena* arena = map(fd, start.shrink);
  if (arena == nullptr) return nullptr;
  base::sys.fcntl(fd, F_SETFD, FD_CLOEXEC);
  // Beside the place that was ours before exec, so that finish_adoption() can tell.
  arena->process_index_ = arena->claim_free_process(getpid());
  arena->process_generation_ = base::process_generation();
  publish(arena);
  return arena;
}

void Arena::publish(Arena* arena) {
  pthread_atfork([] { Arena::get()->before_fork(); }, nullptr, [] { Arena::get()->in_child(); });
  the_arena.store(arena, std::memory_order_release);
}

Arena* Arena::get_if_mapped() {
  return the_arena.load(std::memory_order_acquire);
}

Arena* Arena::get() {
  Arena* arena = the_arena.load(std::memory_order_acquire);
  if (arena != nullptr) return arena;
  // Two first sockets at once in two threads: one maps, the other waits. No lock survives the call.
  static std::atomic<bool> is_creating{false};
  while (is_creating.exchange(true, std::memory_order_acquire)) {
    usleep(50);
    if ((arena = the_arena.load(std::memory_order_acquire)) != nullptr) return arena;
  }
  arena = the_arena.load(std::memory_order_acquire);
  if (arena == nullptr && base::process_init() && (arena = create()) != nullptr) publish(arena);
  is_creating.store(false, std::memory_order_release);
  return arena;
}

uint32_t Arena::rotation() const {
  return std::min(shared_->rotation.load(), record_count_);
}

bool Arena::is_live(uint32_t i) {
  return head(i)->state.load(std::memory_order_acquire) == RecordHead::kLive;
}

bool Arena::hold_record(uint32_t i) {
  const uint32_t me = my_process();
  if (me < HolderSet::kMax) head(i)->holders.add(me);
  if (is_live(i)) return true;
  if (me < HolderSet::kMax) head(i)->holders.remove(me);
  return false;
}

RecordHead* Arena::head(uint32_t i) {
  return &shared_->heads[i];
}

uint32_t Arena::index_of(const void* record) const {
  return static_cast<uint32_t>((static_cast<const uint8_t*>(record) - records_) /
                               static_cast<ptrdiff_t>(kRecordSize));
}

bool Arena::is_sole_holder(const void* rec) {
  const RecordHead& h = *head(index_of(rec));
  const uint32_t me = my_process();
  return me < HolderSet::kMax && !h.has_unlisted_holder.load() && h.holders.is_only(me);
}

uint32_t Arena::live_records() const {
  return shared_->records_live.load(std::memory_order_relaxed);
}

uint32_t Arena::find_process(int pid) const {
  for (uint32_t i = 0; i < HolderSet::kMax; ++i)
    if (shared_->processes[i].load() == pid) return i;
  return HolderSet::kMax;
}

// A place in the table of processes, or kMax if as many of this family are alive.
uint32_t Arena::claim_free_process(int pid) {
  for (uint32_t i = 0; i < HolderSet::kMax; ++i) {
    int none = 0;
    if (shared_->processes[i].compare_exchange_strong(none, pid)) return i;
  }
  return HolderSet::kMax;
}

uint32_t Arena::claim_process(int pid) {
  const uint32_t known = pid == kUnborn ? HolderSet::kMax : find_process(pid);
  return known != HolderSet::kMax ? known : claim_free_process(pid);
}

uint32_t Arena::my_process() {
  const uint32_t generation = base::process_generation();
  if (process_generation_ != generation) {
    process_index_ = claim_process(getpid());
    process_generation_ = generation;
  }
  return process_index_;
}

void* Arena::allocate_record() {
  const uint32_t me = my_process();
  const uint32_t live = shared_->records_live.fetch_add(1, std::memory_order_relaxed) + 1;
  uint32_t round = rotation();
  if (live > round / 2 && round < record_count_) {
    round = std::min(round * 2, record_count_);
    shared_->rotation.store(round, std::memory_order_relaxed);
  }
  for (uint32_t tries = 0; tries < round; ++tries) {
    const uint32_t i = shared_->record_cursor.fetch_add(1, std::memory_order_relaxed) % round;
    uint32_t free = RecordHead::kFree;
    if (!head(i)->state.compare_exchange_strong(free, RecordHead::kLive, std::memory_order_acq_rel))
      continue;
    // Process table full: nobody is noted as holder, so the record is never collected, only
    // released.
    if (me < HolderSet::kMax) head(i)->holders.add(me);
    std::memset(record(i), 0, kRecordSize);
    return record(i);
  }
  shared_->records_live.fetch_sub(1, std::memory_order_relaxed);
  return nullptr;
}

bool Arena::release_record(void* rec) {
  RecordHead* h = head(index_of(rec));
  const uint32_t me = my_process();
  if (me < HolderSet::kMax) h->holders.remove(me);
  return begin_free(*h);
}

// True for one caller, once nobody holds the record.
bool Arena::begin_free(RecordHead& h) {
  if (h.has_unlisted_holder.load() || !h.holders.is_empty()) return false;
  uint32_t live = RecordHead::kLive;
  return h.state.compare_exchange_strong(live, RecordHead::kDying, std::memory_order_acq_rel);
}

void Arena::finish_release(void* rec) {
  shared_->records_live.fetch_sub(1, std::memory_order_relaxed);
  head(index_of(rec))->state.store(RecordHead::kFree, std::memory_order_release);
}

uint32_t Arena::allocate_block() {
  // The block freed last is the one still in the cache.
  const uint32_t hint = shared_->block_hint.load(std::memory_order_relaxed) % block_count_;
  for (uint32_t tries = 0; tries < block_count_; ++tries) {
    const uint32_t i = tries == 0 ? hint : tries - 1;
    uint8_t free = 0;
    if (shared_->block_used[i].load(std::memory_order_relaxed) != 0 ||
        !shared_->block_used[i].compare_exchange_strong(free, 1, std::memory_order_acquire))
      continue;
    if (tries != 0) shared_->block_hint.store(i + 1, std::memory_order_relaxed);
    return i + 1;
  }
  return kNoBlock;
}

void Arena::free_block(uint32_t block) {
  const uint32_t i = block - 1;
  if (i >= kKeptBlocks) {
    // Best effort: without it the pages stay until the process family ends.
    madvise(block_data(block), kBlockSize, MADV_REMOVE);
  } else {
    shared_->block_hint.store(i, std::memory_order_relaxed);
  }
  shared_->block_used[i].store(0, std::memory_order_release);
}

void Arena::before_fork() {
  // Dead relatives are looked for now and then, and when their places are needed (hold_as).
  constexpr uint32_t kForksBetween = 16;
  if (++forks_ % kForksBetween == 0) collect();
  child_index_ = hold_as(my_process(), kUnborn);
  if (child_index_ == HolderSet::kMax) keep_for_unlisted(my_process());
}

// The table of processes is full: what process `me` holds may be in use where no holder is noted,
// and is never given back.
void Arena::keep_for_unlisted(uint32_t me) {
  for (uint32_t i = 0; i < rotation(); ++i) {
    const bool is_mine =
        me < HolderSet::kMax ? head(i)->holders.has(me) : head(i)->holders.is_empty();
    if (is_live(i) && is_mine) head(i)->has_unlisted_holder.store(true);
  }
}

// All that process `me` holds, process `pid` holds too. Its place.
uint32_t Arena::hold_as(uint32_t me, int pid) {
  uint32_t other = claim_process(pid);
  if (other == HolderSet::kMax) {
    collect();
    other = claim_process(pid);
  }
  if (other == HolderSet::kMax || other == me) return HolderSet::kMax;
  if (pid == kUnborn) shared_->forking_since[other].store(base::now().ns);
  for (uint32_t i = 0; i < rotation(); ++i)
    if (me < HolderSet::kMax && head(i)->holders.has(me)) head(i)->holders.add(other);
  return other;
}

void Arena::in_child() {
  process_index_ = child_index_;
  process_generation_ = base::process_generation();
  if (child_index_ < HolderSet::kMax) shared_->processes[child_index_].store(getpid());
}

uint32_t Arena::hold_for_program(int pid) {
  // Not my_process(): a vfork child must leave its parent's memory as it is, and has its holds.
  return hold_as(process_index_, pid);
}

void Arena::settle_program(uint32_t process, int pid) {
  if (process == HolderSet::kMax) return;
  if (pid == 0) return free_process(process, shared_->processes[process].load());
  // The program may run already. Either it sees this place, or we that it has looked.
  shared_->processes[process].store(pid);
  for (uint32_t i = 0; i < HolderSet::kMax; ++i)
    if (shared_->processes[i].load() == pid && shared_->has_finished_adoption[i].load())
      return free_process(process, pid);
}

void Arena::finish_adoption() {
  const int pid = getpid();
  const uint32_t me = my_process();
  if (me < HolderSet::kMax) shared_->has_finished_adoption[me].store(true);
  for (uint32_t i = 0; i < HolderSet::kMax; ++i)
    if (i != me && shared_->processes[i].load() == pid) free_process(i, pid);
}

bool Arena::is_mine(int fd) const {
  struct stat st;
  return fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == fd_inode_ && st.st_dev == fd_device_;
}

int Arena::find_fd() const {
  if (is_mine(fd_) || fd_ < 0) return fd_;
  for (const std::atomic<int>& process : shared_->processes) {
    const int pid = process.load(std::memory_order_acquire);
    if (pid <= 0) continue;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd_);
    base::UniqueFd fd(open(path, O_RDWR | O_CLOEXEC));
    if (is_mine(fd.get())) return fd.release();
  }
  return -1;
}

void Arena::free_process(uint32_t process, int pid) {
  // Two may come at once, and the place must not be another's before the second has gone.
  if (!shared_->processes[process].compare_exchange_strong(pid, kLeaving)) return;
  for (uint32_t i = 0; i < rotation(); ++i) {
    RecordHead* h = head(i);
    if (!h->holders.has(process)) continue;
    h->holders.remove(process);
    if (begin_free(*h)) {
      if (free_contents_ != nullptr) free_contents_(*this, record(i));
      finish_release(record(i));
    }
  }
  shared_->has_finished_adoption[process].store(false);
  shared_->plain[process].count.store(0, std::memory_order_relaxed);
  shared_->processes[process].store(0);
}

void Arena::note_plain(uint32_t count, const char* last_reason) {
  const uint32_t me = my_process();
  if (me == HolderSet::kMax) return;
  PlainNotes& notes = shared_->plain[me];
  const size_t n = std::min(std::strlen(last_reason), notes.last_reason.size() - 1);
  std::memcpy(notes.last_reason.data(), last_reason, n);
  notes.last_reason[n] = 0;
  notes.count.store(count, std::memory_order_relaxed);
}

void Arena::collect() {
  for (uint32_t p = 0; p < HolderSet::kMax; ++p) {
    int pid = shared_->processes[p].load(std::memory_order_acquire);
    const bool is_dead =
        pid == kUnborn ? base::now() - Time{shared_->forking_since[p].load()} > kForkTakesAtMost
                       : pid > 0 && !is_process_alive(pid);
    if (is_dead) free_process(p, pid);
  }
}

}  // namespace ddpsock::engine
