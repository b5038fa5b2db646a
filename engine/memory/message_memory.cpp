// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/message_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "base/random.h"
#include "shm/joining.h"
#include "shm/sealed_file.h"

namespace ddpsock::engine::shm {
namespace {

static_assert(sizeof(MessageLane) % kPage == 0);
constexpr size_t kSize = kPage + 2 * sizeof(MessageLane);
// Another layout, here or in region_table.h, gets another number.
constexpr uint64_t kLayout = 0x0004'67736d'70646464 ^ kMessageRing;
constexpr char kName[] = "ddpsock-message";
// What is provided at once.
constexpr uint32_t kStep = 32 * 1024;

}  // namespace

struct MessageMemory::Head {
  Joining joining;
  uint64_t secret;
  SocketName socket;
  struct alignas(kLine) End {  // by each about itself
    std::atomic<uint32_t> pid;
    std::atomic<uint32_t> can_read;   // the other's memory
    std::atomic<uint64_t> secret_at;  // in its address space
    std::atomic<uint64_t> mark;       // by which the other's mapping of this is known
    std::atomic<uint32_t> table;      // RegionTablePlace::descriptor
    std::atomic<uint32_t> has_ended_reaching;
    std::atomic<uint32_t> table_row;
  };
  alignas(kLine) End ends[2];
};

MessageMemory::MessageMemory(uint8_t* mapped, const SocketName& socket, bool is_connected_end)
    : mapped_(mapped), socket_(socket), is_connected_end_(is_connected_end) {
  madvise(mapped_, kSize, MADV_DONTFORK);
}

MessageMemory::~MessageMemory() {
  // An offer that nobody will stand by.
  if (file_.is_valid()) (void)settle();
  munmap(mapped_, kSize);
}

MessageLane& MessageMemory::lane(unsigned which) const {
  return *reinterpret_cast<MessageLane*>(mapped_ + kPage + which * sizeof(MessageLane));
}

Result<std::unique_ptr<MessageMemory>> MessageMemory::make(const SocketName& socket) {
  static_assert(sizeof(Head) <= kPage);
  uint64_t secret = 0;
  if (!base::fill_random({reinterpret_cast<uint8_t*>(&secret), sizeof secret}))
    return fail_errno(ENOSYS);
  auto file = make_sealed_file(kName, kSize);
  if (!file) return fail(file.error());
  const auto mapped = map_sealed_file(file->get(), kSize);
  if (!mapped) return fail(mapped.error());
  std::unique_ptr<MessageMemory> made(new (std::nothrow) MessageMemory(*mapped, socket, true));
  if (!made) {
    munmap(*mapped, kSize);
    return fail_errno(ENOMEM);
  }
  if (!populate(*mapped, kPage) || !populate(&made->incoming(), kPage) ||
      !populate(&made->outgoing(), kPage) || !made->provide(1))
    return fail_errno(ENOMEM);
  // No sum with a position is ever 0, which is what untouched memory holds.
  made->secret_ = (secret | uint64_t{1} << 63) & ~(uint64_t{1} << 62);
  made->file_ = std::move(*file);
  Head& head = made->head();
  head.secret = made->secret_;
  head.socket = socket;
  made->introduce();
  head.joining.offer(kLayout);
  return made;
}

Result<std::unique_ptr<MessageMemory>> MessageMemory::join(uint32_t pid, uint32_t fd,
                                                           const SocketName& socket) {
  auto file = open_sealed_file(pid, fd, kSize);
  if (!file) return fail(file.error());
  const auto mapped = map_sealed_file(file->get(), kSize);
  if (!mapped) return fail(mapped.error());
  std::unique_ptr<MessageMemory> joined(new (std::nothrow) MessageMemory(*mapped, socket, false));
  if (!joined) {
    munmap(*mapped, kSize);
    return fail_errno(ENOMEM);
  }
  Head& head = joined->head();
  if (!head.joining.is_offered(kLayout) || head.socket != socket) return fail_errno(EPROTO);
  joined->secret_ = head.secret;
  if (!joined->provide(1)) return fail_errno(ENOMEM);
  joined->introduce();
  joined->meet();
  if (!head.joining.join()) return fail_errno(EPROTO);
  return joined;
}

bool MessageMemory::settle() {
  file_.reset();
  if (!is_connected_end_) return true;
  if (head().joining.withdraw() || !head().joining.is_joined()) return false;
  meet();
  return true;
}

void MessageMemory::introduce() {
  Head::End& own = head().ends[is_connected_end_ ? 0 : 1];
  own.pid.store(static_cast<uint32_t>(getpid()), std::memory_order_relaxed);
  own.secret_at.store(reinterpret_cast<uintptr_t>(&head().secret), std::memory_order_relaxed);
}

// Finds out whether we can read the peer's memory, and says so.
void MessageMemory::meet() {
  const Head::End& other = head().ends[is_connected_end_ ? 1 : 0];
  const uint32_t pid = other.pid.load(std::memory_order_relaxed);
  const uint64_t at = other.secret_at.load(std::memory_order_relaxed);
  // The secret was the peer's to choose, or is known to it for long, so that it may lie in
  // anybody's memory. What we draw now lies where this is mapped, or where a peer is quick enough
  // to copy it.
  Head::End& own = head().ends[is_connected_end_ ? 0 : 1];
  if (!base::fill_random({reinterpret_cast<uint8_t*>(&mark_), sizeof mark_})) mark_ = 0;
  own.mark.store(mark_, std::memory_order_seq_cst);
  const uint64_t mark_at =
      at - reinterpret_cast<uintptr_t>(&head().secret) + reinterpret_cast<uintptr_t>(&own.mark);
  peer_ = PeerProcess(pid, mark_at, mark_);
  const bool can_read = mark_ != 0 && peer_.can_read();
  if (!can_read) peer_ = {};
  head().ends[is_connected_end_ ? 0 : 1].can_read.store(can_read, std::memory_order_release);
}

bool MessageMemory::may_name() const {
  return head().ends[is_connected_end_ ? 1 : 0].can_read.load(std::memory_order_relaxed) == 1;
}

void MessageMemory::tell_table(const RegionTablePlace& own) {
  Head::End& end = head().ends[is_connected_end_ ? 0 : 1];
  end.table_row.store(own.row, std::memory_order_relaxed);
  end.table.store(own.descriptor, std::memory_order_release);
}

bool MessageMemory::has_peer_table() const {
  return head().ends[is_connected_end_ ? 1 : 0].table.load(std::memory_order_relaxed) != 0;
}

MessageMemory::PeerTable MessageMemory::peer_table() const {
  const Head::End& end = head().ends[is_connected_end_ ? 1 : 0];
  const uint32_t descriptor = end.table.load(std::memory_order_acquire);
  return {.pid = end.pid.load(std::memory_order_relaxed),
          .place = {descriptor, end.table_row.load(std::memory_order_relaxed)}};
}

void MessageMemory::end_reaching() {
  head().ends[is_connected_end_ ? 0 : 1].has_ended_reaching.store(1, std::memory_order_release);
}

bool MessageMemory::has_reaching_ended() const {
  const Head::End& end = head().ends[is_connected_end_ ? 1 : 0];
  return end.has_ended_reaching.load(std::memory_order_acquire) != 0;
}

bool MessageMemory::provide_more(uint32_t end) {
  const uint32_t to = std::min((end + kStep - 1) / kStep * kStep, kMessageRing);
  if (!populate(outgoing().data.data() + provided_, to - provided_)) return false;
  provided_ = to;
  return true;
}

}  // namespace ddpsock::engine::shm
