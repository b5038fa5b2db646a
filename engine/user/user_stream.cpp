// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/user_stream.h"

#include <errno.h>
#include <sys/socket.h>

#include <new>

#include "base/sys.h"
#include "engine/user/hold.h"

namespace ddpsock::engine {

UserStream::UserStream(Arena& arena, const StreamAttr& attr)
    : arena_(arena),
      role_(attr.role),
      peer_(attr.peer),
      is_strict_(attr.is_strict),
      wants_crc_(attr.wants_crc),
      max_payload_(attr.max_payload != 0 ? std::min(attr.max_payload, kMaxChunkPayload)
                                         : kPreferredPayload),
      start_timeout_(attr.start_timeout),
      opened_at_(base::now()) {}

Io UserStream::shutdown(int fd, int how) {
  if (how != SHUT_RD) {
    // Waits for a send in progress, so that the FIN falls between FPDUs.
    Hold hold(*this, tx_.lease);
    if (const int e = hold.take(fd, Hold::kSend, 0); e != 0 && e != ECONNRESET) return Io::fail(e);
    if (tx_.tail_block != Arena::kNoBlock) flush_tail(fd, true);
    return base::sys.shutdown(fd, how) == 0 ? Io::ok(0) : Io::fail(errno);
  }
  return base::sys.shutdown(fd, how) == 0 ? Io::ok(0) : Io::fail(errno);
}

void UserStream::set_receive_low_water(int bytes) {
  rx_.low_water = std::max(bytes, 1);
}

void UserStream::free_blocks() {
  if (rx_.block != Arena::kNoBlock) arena_.free_block(rx_.block);
  if (tx_.tail_block != Arena::kNoBlock) arena_.free_block(tx_.tail_block);
  rx_.block = tx_.tail_block = Arena::kNoBlock;
}

void UserStream::release(int fd) {
  if (tx_.tail_block != Arena::kNoBlock) {
    Hold hold(*this, tx_.lease);
    if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0 && tx_.tail_block != Arena::kNoBlock)
      flush_tail(fd, true);
  }
  if (!arena_.release_record(this)) return;
  is_dying_.store(true);
  finish_release();
}

// Frees the record once nobody is inside a call: close() may come while another thread sleeps in
// recv(), and then that thread does this when it wakes.
void UserStream::finish_release() {
  if (!is_dying_.load()) return;
  if (rx_.lease.try_acquire() != base::Lease::Outcome::kAcquired) return;
  if (tx_.lease.try_acquire() != base::Lease::Outcome::kAcquired) {
    rx_.lease.release();
    return;
  }
  free_blocks();
  arena_.finish_release(this);
}

StreamStatus UserStream::status() const {
  return {.state = state_.load(std::memory_order_acquire),
          .role = role_,
          .mpa_revision = peer_revision_,
          .has_crc = has_crc_,
          .is_peer_ddpsock = is_peer_ddpsock_,
          .peer_features = peer_features_,
          .max_payload = max_payload_,
          .bytes_sent = counters_.bytes_sent,
          .bytes_received = counters_.bytes_received,
          .fpdus_sent = counters_.fpdus_sent,
          .fpdus_received = counters_.fpdus_received,
          .crcs_checked = counters_.crcs_checked,
          .failure = failure_.load()};
}

namespace {

class UserStreamEngine final : public StreamEngine {
 public:
  Result<Stream*> open(int, const StreamAttr& attr) override {
    Arena* arena = Arena::get();
    if (arena == nullptr) return fail_errno(ENOSYS);
    base::crc32c_init();
    arena->set_collector([](Arena&, void* record) {
      std::launder(static_cast<UserStream*>(record))->free_blocks();
    });
    void* record = arena->allocate_record();
    if (record == nullptr) return fail_errno(ENFILE);
    return new (record) UserStream(*arena, attr);
  }
  const char* name() const override { return "user"; }
};

constinit UserStreamEngine the_engine;

}  // namespace

StreamEngine& user_stream_engine() {
  return the_engine;
}

}  // namespace ddpsock::engine
