// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/user_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "base/process.h"
#include "base/sys.h"
#include "relatives/message_record.h"
#include "stream/closing.h"
#include "stream/identity.h"
#include "stream/memory_start.h"
#include "stream/reading_habit.h"
#include "stream/standstill.h"

namespace ddpsock::engine {

StreamStatus UserStream::status() const {
  const MemoryState memory = memory_state(c_);
  return {
      .state = c_.r.state.load(std::memory_order_acquire),
      .role = c_.r.role,
      .mpa_revision = c_.r.peer_revision,
      .has_crc = c_.r.has_crc,
      .is_peer_ddpsock = c_.r.is_peer_ddpsock,
      .peer_features = c_.r.peer_features,
      .max_payload = c_.r.max_payload,
      .bytes_sent = c_.r.sent.bytes.value(),
      .bytes_received = c_.r.received.bytes.value(),
      .fpdus_sent = c_.r.sent.fpdus.value(),
      .fpdus_received = c_.r.received.fpdus.value(),
      .crcs_checked = c_.r.received.crcs_checked.value(),
      .is_drained = c_.r.is_one_sided.load(std::memory_order_relaxed),
      .engine = memory == MemoryState::kJoined ? "shm" : "user",
      .memory = memory_text(memory),
      .failure = c_.r.has_failure.load(std::memory_order_acquire) ? c_.r.failure.data() : nullptr};
}

namespace {

uint32_t payload_of(const StreamAttr& attr) {
  return attr.max_payload != 0 ? std::min(attr.max_payload, kMaxChunkPayload) : kPreferredPayload;
}

class UserStreamEngine final : public StreamEngine {
 public:
  void set_naming(Naming naming) override { engine::set_naming(naming); }

  void fall_silent() override {
    if (Arena* arena = Arena::get_if_mapped(); arena != nullptr) arena->family.fall_silent();
  }

  void note_edges() override { ReadingHabit::note_edges(); }

  Result<Stream*> open(int fd, const StreamAttr& attr) override {
    Arena* arena = Arena::get();
    if (arena == nullptr || !prepare(*arena)) return fail_errno(ENOSYS);
    void* place = arena->records.allocate();
    if (place == nullptr) return fail_errno(ENFILE);
    auto* record = new (place) Record(attr, payload_of(attr));
    if (!are_lives_short()) record->offers_later = false;
    publish_plain(*arena);
    Stream* stream = view(*arena, *record);
    if (stream == nullptr) return fail_errno(ENFILE);
    record->opened_as = fd;
    if (attr.local != nullptr && attr.remote != nullptr)
      record->note_addresses(*attr.local, *attr.remote);
    else
      record->note_addresses(fd);
    record->cookie = attr.cookie != 0 ? attr.cookie : cookie_of(fd);
    if (is_watched()) static_cast<UserStream*>(stream)->tell(Observer::Event::kStarted);
    return stream;
  }

  bool is_available() override {
    Arena* arena = Arena::get();
    return arena != nullptr && prepare(*arena) && arena->records.has_room();
  }

  int handover_fd() const override {
    const Arena* arena = Arena::get_if_mapped();
    const bool has_streams =
        arena != nullptr && !arena->family.is_silent() && arena->slots.live() > 0;
    return has_streams ? arena->file.fd() : -1;
  }

  bool may_hand_over() const override {
    const Arena* arena = Arena::get_if_mapped();
    return arena != nullptr && arena->file.is_among_equals();
  }

  void keep_handover() override {
    const Arena* arena = Arena::get_if_mapped();
    if (arena != nullptr && !arena->family.is_silent() && arena->file.has_fd())
      base::sys.fcntl(arena->file.fd(), F_SETFD, FD_CLOEXEC);
  }

  Handover begin_handover(Successor successor) override {
    Arena* arena = Arena::get_if_mapped();
    if (arena == nullptr || arena->family.is_silent()) return {-1, HolderSet::kMax};
    const int pid = successor == Successor::kChild ? kUnborn : getpid();
    return {arena->file.find_fd(), arena->heirs.hold_for_program(pid)};
  }

  void end_handover(const Handover& handover, pid_t child) override {
    Arena* arena = Arena::get_if_mapped();
    if (arena == nullptr) return;
    arena->heirs.settle_program(handover.holder, child);
    if (handover.fd >= 0 && handover.fd != arena->file.fd()) base::close_own(handover.fd);
  }

  void stop_calls() override { Standstill::begin(); }
  void resume_calls() override { Standstill::end(); }

  void finish_adoption() override {
    if (Arena* arena = Arena::get_if_mapped(); arena != nullptr) arena->heirs.finish_adoption();
  }

  bool adopt(int handover_fd) override {
    Arena* arena = Arena::adopt(handover_fd);
    return arena != nullptr && prepare(*arena);
  }

  int copy_handover(pid_t pid, int number) override {
    auto file = shm::open_memory_file(static_cast<uint32_t>(pid), static_cast<uint32_t>(number));
    return file ? file->release() : -1;
  }

  Stream* find(int fd) override {
    Arena* arena = Arena::get_if_mapped();
    const uint64_t cookie = arena != nullptr ? cookie_of(fd) : 0;
    if (cookie == 0) return nullptr;
    void* found = arena->records.find([cookie](const void* record) {
      return static_cast<const Record*>(record)->cookie == cookie;
    });
    Stream* stream = found != nullptr ? view(*arena, *static_cast<Record*>(found)) : nullptr;
    if (stream != nullptr && is_watched())
      static_cast<UserStream*>(stream)->tell(Observer::Event::kInherited);
    return stream;
  }

  const char* name() const override { return "user"; }

  // There is nothing to write to before the first stream: what came before is kept here.
  void note_plain(const char* reason) override {
    const uint32_t generation = base::process_generation();
    if (plain_generation_.exchange(generation, std::memory_order_relaxed) != generation)
      plain_count_.store(0, std::memory_order_relaxed);
    plain_reason_.store(reason, std::memory_order_relaxed);
    plain_count_.fetch_add(1, std::memory_order_relaxed);
    is_plain_news_.store(true, std::memory_order_release);
    if (Arena* arena = Arena::get_if_mapped(); arena != nullptr) publish_plain(*arena);
  }

 private:
  void publish_plain(Arena& arena) {
    if (!is_plain_news_.load(std::memory_order_acquire)) return;
    is_plain_news_.store(false, std::memory_order_relaxed);
    if (plain_generation_.load(std::memory_order_relaxed) != base::process_generation()) return;
    arena.family.note_plain(plain_count_.load(std::memory_order_relaxed),
                            plain_reason_.load(std::memory_order_relaxed));
  }

  bool prepare(Arena& arena) {
    base::crc32c_init();
    arena.dead_holders.set_free_contents([](Blocks& blocks, void* record) {
      if (!is_message_record(record)) free_blocks(blocks, *static_cast<Record*>(record));
    });
    return views(0) != nullptr;
  }
  // As many at a time as there are records in a group. nullptr: no address space.
  UserStream* views(uint32_t group) {
    UserStream* known = views_[group].load(std::memory_order_acquire);
    if (known != nullptr) return known;
    constexpr size_t kSize = RecordSlots::kGroupRecords * sizeof(UserStream);
    void* p = mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    if (views_[group].compare_exchange_strong(known, static_cast<UserStream*>(p)))
      return static_cast<UserStream*>(p);
    munmap(p, kSize);
    return known;
  }
  // Made anew each time a record comes into use. nullptr: there is no memory for it, and the record
  // is given up.
  Stream* view(Arena& arena, Record& record) {
    const uint32_t index = arena.slots.index_of(&record);
    UserStream* group = views(index / RecordSlots::kGroupRecords);
    if (group != nullptr)
      return new (group + index % RecordSlots::kGroupRecords) UserStream(arena, record);
    if (arena.records.release(&record)) arena.records.finish_release(&record);
    return nullptr;
  }

  std::array<std::atomic<UserStream*>, RecordSlots::kRecordGroups> views_{};
  std::atomic<uint32_t> plain_count_{0}, plain_generation_{0};
  std::atomic<const char*> plain_reason_{""};
  std::atomic<bool> is_plain_news_{false};
};

constinit UserStreamEngine the_engine;

}  // namespace

StreamEngine& user_stream_engine() {
  return the_engine;
}

}  // namespace ddpsock::engine
