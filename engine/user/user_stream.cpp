// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/user_stream.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

#include "base/keep_errno.h"
#include "base/process.h"
#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/relatives/message_record.h"

namespace ddpsock::engine {
namespace {

// Who is killed on the way leaks a block, but frees none that is another's by then. So does who
// cannot map one, of those that follow it.
void free_blocks(Arena& arena, Record& r) {
  r.rx.inbox.clear(arena);
  if (const uint32_t b = std::exchange(r.tx.tail_block, Arena::kNoBlock); b != Arena::kNoBlock)
    arena.free_block(b);
}

}  // namespace

Io UserStream::shutdown(int fd, int how) {
  // What the kernel refuses has no effect.
  if (how == SHUT_WR || how == SHUT_RDWR) {
    // A peer that waits for our Reply gets it before the end.
    if (decide_before_writing(fd) == 0 && r_.role == Role::kResponder && is_awaited() &&
        !tx_.is_started)
      await_start_frame(fd, false, kNever);
    // The FIN falls between FPDUs: a send that is at work ends first. One that sleeps for want of
    // room has not begun its FPDU, and is woken by this as TCP would.
    Hold hold(*this, tx_.lease);
    if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0) {
      if (tx_.tail_block != Arena::kNoBlock) {
        flush_tail(fd, true);
        if ((fd = still(fd)) < 0) return Io::fail(EBADF);
      }
      // Who goes on reading says what it is: the peer may pass the connection on. Not a responder
      // to one that has ended: nobody may be there to read it.
      if (how == SHUT_WR && !tx_.is_started && is_state(StreamState::kStarting) &&
          (r_.role == Role::kInitiator || !is_ready_now(fd, POLLRDHUP)))
        send_start_frame(fd, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (OneSided* q = queue_pair(); q != nullptr) q->flush();
    }
    note_end_in_memory();
    if (r_.memory.sending == Way::kMemory) close_for_sending();
    if (base::sys.shutdown(fd, how) != 0) return Io::fail(errno);
    tx_.is_shut = true;
    return Io::ok(0);
  }
  return base::sys.shutdown(fd, how) == 0 ? Io::ok(0) : Io::fail(errno);
}

Io UserStream::count_error(Counters& direction, Io io) {
  const bool is_error =
      io.error != 0 && io.error != EAGAIN && io.error != EINTR && io.error != EPROTOTYPE;
  if (is_error) [[unlikely]]
    direction.errors.add(1);
  return io;
}

void UserStream::set_receive_low_water(int bytes) {
  rx_.low_water = std::max(bytes, 1);
}

void UserStream::release(int fd) {
  // What was closed unseen may be another's by now.
  const bool needs_socket = tx_.tail_block != Arena::kNoBlock || segment_.load() != nullptr;
  if (needs_socket && fd >= 0 && !is_my_cookie(fd)) fd = -1;
  if (tx_.tail_block != Arena::kNoBlock) {
    Hold hold(*this, tx_.lease);
    if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0 && tx_.tail_block != Arena::kNoBlock)
      flush_tail(fd, true);
  }
  if (fd >= 0 && arena_.may_be_shared(&r_)) take_unread_words_beside_relatives(fd);
  const bool is_last = arena_.release_record(&r_);
  if (is_last && fd >= 0) take_unread_words(fd);
  drop_memory(fd, is_last);
  if (!is_last) return;
  r_.is_dying.store(true);
  finish_release();
}

// What lies unread and is none of the stream's bytes (the peer's start-up frame, messages of the
// way back to plain TCP) must not make the kernel reset a connection that the program has read to
// the end. Whoever asks whether there is anything to receive takes such words first, and answers
// them; what it says of the rest is of no interest here. REQUIRES: the record is not another's yet.
void UserStream::take_unread_words(int fd) {
  if (is_state(StreamState::kFailed) || is_in_memory()) return;
  const bool is_unused = r_.role == Role::kInitiator && !tx_.is_started;
  const base::KeepErrno keep;
  if (!is_unused && bytes_queued(fd) > 0 && is_my_cookie(fd)) is_recv_ready(fd);
}

// Each relative may take the other for the one that stays, though it has ended or is about to. So
// whoever leaves takes what lies there by then; one that is at work does it without our help.
void UserStream::take_unread_words_beside_relatives(int fd) {
  if (is_in_memory() || bytes_queued(fd) == 0) return;
  {
    Hold hold(*this, rx_.lease);
    if (!hold.try_take()) return;
  }
  take_unread_words(fd);
}

// Frees the record once nobody is inside a call: close() may come while another thread sleeps in
// recv(), and then that thread does this when it wakes.
void UserStream::finish_release() {
  if (!r_.is_dying.load()) return;
  // A relative may have died in a call.
  const auto is_mine = [](base::Lease& lease) {
    const auto outcome = lease.try_take_over();
    return outcome == base::Lease::Outcome::kAcquired ||
           outcome == base::Lease::Outcome::kInherited;
  };
  if (!is_mine(rx_.lease)) return;
  if (!is_mine(tx_.lease)) {
    rx_.lease.release();
    return;
  }
  free_blocks(arena_, r_);
  arena_.finish_release(&r_);
}

StreamStatus UserStream::status() const {
  const MemoryState memory = memory_state();
  return {.state = r_.state.load(std::memory_order_acquire),
          .role = r_.role,
          .mpa_revision = r_.peer_revision,
          .has_crc = r_.has_crc,
          .is_peer_ddpsock = r_.is_peer_ddpsock,
          .peer_features = r_.peer_features,
          .max_payload = r_.max_payload,
          .bytes_sent = r_.sent.bytes.value(),
          .bytes_received = r_.received.bytes.value(),
          .fpdus_sent = r_.sent.fpdus.value(),
          .fpdus_received = r_.received.fpdus.value(),
          .crcs_checked = r_.received.crcs_checked.value(),
          .engine = memory == MemoryState::kJoined ? "shm" : "user",
          .memory = memory_text(memory),
          .failure = r_.has_failure.load(std::memory_order_acquire) ? r_.failure.data() : nullptr};
}

namespace {

uint32_t payload_of(const StreamAttr& attr) {
  return attr.max_payload != 0 ? std::min(attr.max_payload, kMaxChunkPayload) : kPreferredPayload;
}

class UserStreamEngine final : public StreamEngine {
 public:
  void set_naming(Naming naming) override { engine::set_naming(naming); }

  void note_edges() override { ReadingHabit::note_edges(); }

  Result<Stream*> open(int fd, const StreamAttr& attr) override {
    Arena* arena = Arena::get();
    if (arena == nullptr || !prepare(*arena)) return fail_errno(ENOSYS);
    void* place = arena->allocate_record();
    if (place == nullptr) return fail_errno(ENFILE);
    auto* record = new (place) Record(attr, payload_of(attr));
    publish_plain(*arena);
    Stream* stream = view(*arena, *record);
    if (stream == nullptr) return fail_errno(ENFILE);
    record->opened_as = fd;
    record->note_addresses(fd);
    record->cookie = cookie_of(fd);
    return stream;
  }

  bool is_available() override {
    Arena* arena = Arena::get();
    return arena != nullptr && prepare(*arena) && arena->has_room();
  }

  int handover_fd() const override {
    const Arena* arena = Arena::get_if_mapped();
    return arena != nullptr && arena->live_records() > 0 ? arena->fd() : -1;
  }

  Handover begin_handover(Successor successor) override {
    Arena* arena = Arena::get_if_mapped();
    if (arena == nullptr) return {-1, HolderSet::kMax};
    const int pid = successor == Successor::kChild ? Arena::kUnborn : getpid();
    return {arena->find_fd(), arena->hold_for_program(pid)};
  }

  void end_handover(const Handover& handover, pid_t child) override {
    Arena* arena = Arena::get_if_mapped();
    if (arena == nullptr) return;
    arena->settle_program(handover.holder, child);
    if (handover.fd >= 0 && handover.fd != arena->fd()) base::sys.close(handover.fd);
  }

  void finish_adoption() override {
    if (Arena* arena = Arena::get_if_mapped(); arena != nullptr) arena->finish_adoption();
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
    void* found = arena->find_record([cookie](const void* record) {
      return static_cast<const Record*>(record)->cookie == cookie;
    });
    return found != nullptr ? view(*arena, *static_cast<Record*>(found)) : nullptr;
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
    arena.note_plain(plain_count_.load(std::memory_order_relaxed),
                     plain_reason_.load(std::memory_order_relaxed));
  }

  bool prepare(Arena& arena) {
    base::crc32c_init();
    arena.set_collector([](Arena& a, void* record) {
      if (!is_message_record(record)) free_blocks(a, *static_cast<Record*>(record));
    });
    return views(0) != nullptr;
  }
  // As many at a time as there are records in a group. nullptr: no address space.
  UserStream* views(uint32_t group) {
    UserStream* known = views_[group].load(std::memory_order_acquire);
    if (known != nullptr) return known;
    constexpr size_t kSize = Arena::kGroupRecords * sizeof(UserStream);
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
    const uint32_t index = arena.index_of(&record);
    UserStream* group = views(index / Arena::kGroupRecords);
    if (group != nullptr)
      return new (group + index % Arena::kGroupRecords) UserStream(arena, record);
    if (arena.release_record(&record)) arena.finish_release(&record);
    return nullptr;
  }

  std::array<std::atomic<UserStream*>, Arena::kRecordGroups> views_{};
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
