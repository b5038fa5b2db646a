// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One send call. A byte counted as sent lies in a complete FPDU inside the kernel (doc/design.md
// decision 3, I4), so an FPDU is handed over only when the kernel is sure to take it whole; what it
// is sure to take is kept as a credit and asked for again (SO_MEMINFO) only when that runs out.
#include "stream/sender.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/socket_option.h"
#include "base/sys.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/lent_block.h"
#include "stream/start.h"
#include "stream/tx.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

// Everything is copied before it is sent: what was checksummed is what leaves, also if another
// thread of the program changes its buffer meanwhile; TCP delivers either version then, and so must
// this. From this size on copy and CRC are one pass.
constexpr uint32_t kFusedMin = 512;
// Up to here many chunks go into one contiguous buffer, on the stack or in a block.
constexpr size_t kContiguousMax = 32 * 1024;
constexpr uint32_t kStackMax = Sender::kMostWithFrame;
// Handed over at a time, so that the payload is still in the cache when the kernel copies it.
constexpr size_t kBurst = 256 * 1024;
// What the kernel may charge for `bytes` of stream. Its buffers hold up to half the largest window
// that the peer has offered, 64 KB at most, and cost about 2 KB each beyond what they hold.
constexpr uint32_t kWideWindow = 64 * 1024;
constexpr uint64_t charge_for(uint64_t bytes, uint32_t peer_window) {
  return peer_window >= kWideWindow ? bytes + bytes / 4 + 8192 : 2 * bytes + 4096;
}
// The other way round: bytes of stream for which `credit` suffices.
constexpr uint64_t bytes_for(uint64_t credit, uint32_t peer_window) {
  const bool is_wide = peer_window >= kWideWindow;
  const uint64_t fixed = is_wide ? 8192 : 4096;
  if (credit <= fixed) return 0;
  return is_wide ? (credit - fixed) / 5 * 4 : (credit - fixed) / 2;
}
// With less than this the wait for room is worth more than the call.
constexpr uint64_t kWorthABurst = 64 * 1024;
// Where the copy of a byte lies a few bytes behind it within the page, the processor takes every
// load for one that depends on a store in flight (4 KB aliasing; half the speed was measured, and a
// third up to 15 bytes). A place in `block` that stays far from that, however long the burst.
constexpr uintptr_t kPage = 4096;
uint8_t* away_from(const uint8_t* source, uint8_t* block) {
  const uintptr_t lag = (kChunkHeader - reinterpret_cast<uintptr_t>(source)) % kPage;
  return (lag + kPage / 4) % kPage < kPage / 2 ? block + kPage / 2 : block;
}

}  // namespace

Sender::Sender(Connection& c, int fd, std::span<const iovec> from, int flags)
    : c_(c), tx_(c.tx), fd_(c, fd), from_(from), flags_(flags & ~MSG_DONTWAIT) {
  may_wait_ = (flags & MSG_DONTWAIT) == 0;
}

Io Sender::run() {
  while (from_.left() > 0 && error_ == 0) {
    const size_t allowed = allowance(from_.left());
    if (allowed == 0) {
      uncork();
      if (!may_wait_ || is_nonblocking(fd_)) {
        error_ = EAGAIN;
        break;
      }
      error_ = await_room(c_, fd_, deadline_, sent_ > 0);
      may_cork_.reset();  // the program has had time
    } else {
      send_burst(allowed);
    }
  }
  uncork();
  return sent_or_error(c_, sent_, error_);
}

// Bytes of FPDUs that the kernel is sure to take now; 0 after the kernel itself refused.
size_t Sender::allowance(size_t bytes) {
  const size_t wanted = frame_.size() + std::min(bytes, kBurst) + kChunkHeader + kMaxTrailer;
  // On a socket on which nothing was sent yet; and if the kernel refuses, then that is its word.
  if (!frame_.empty() && wanted <= kMinAllowance && !was_refused_) return kBurst * 2;
  // No account of memory knows of the program's limit, but pollers do.
  if (tx_.is_unsent_limited && !is_ready_now(fd_, POLLOUT)) [[unlikely]] {
    tx_.credit = 0;
    return 0;
  }
  if (tx_.credit >= charge_for(wanted, tx_.peer_window)) return kBurst * 2;
  const SendMemory memory = send_memory(fd_);
  tx_.credit = memory.free();
  if (wanted >= kWorthABurst) tx_.peer_window = std::max(tx_.peer_window, send_window(fd_));
  if (tx_.credit >= charge_for(wanted, tx_.peer_window)) return kBurst * 2;
  const uint64_t by_credit = bytes_for(tx_.credit, tx_.peer_window);
  if (by_credit >= kWorthABurst) return by_credit;
  // Asked like any poller asks, so that a refusal is followed by an edge.
  if (!is_ready_now(fd_, POLLOUT)) {
    tx_.credit = 0;
    return 0;
  }
  // Writable means a third is free; a quarter was measured never to be cut.
  return std::max<size_t>({by_credit, memory.limit / 4, kMinAllowance}) - frame_.size();
}

void Sender::spend(size_t bytes) {
  const uint64_t charge = charge_for(bytes, tx_.peer_window);
  tx_.credit = tx_.credit > charge ? static_cast<uint32_t>(tx_.credit - charge) : 0;
}

// Equal chunks, rounded up to the CRC's stride: a short last one would cost as much as a long one.
uint32_t Sender::next_payload(size_t left, size_t allowed) const {
  const size_t overhead = kChunkHeader + kMaxTrailer;
  const size_t fits = allowed > overhead ? allowed - overhead : 1;
  const size_t most = std::min<size_t>(c_.r.max_payload.load(std::memory_order_relaxed), fits);
  if (left <= most) return static_cast<uint32_t>(left);
  const size_t chunks = (left + most - 1) / most;
  const size_t even = ((left + chunks - 1) / chunks + 63) & ~size_t{63};
  return static_cast<uint32_t>(std::min(even, most));
}

void Sender::send_burst(size_t allowed) {
  const size_t left = from_.left();
  const uint32_t payload = next_payload(std::min(left, kBurst), allowed);
  if (payload <= kStackMax) {
    // Many chunks a call also where each must fit a segment.
    const size_t chunks = std::max<size_t>(1, allowed / chunk_size(payload));
    send_contiguous(std::min({left, kContiguousMax, chunks * payload}));
  } else if (left <= kContiguousMax && left + kBurstOverhead <= allowed) {
    send_contiguous(left);
  } else {
    send_blocks(allowed);
  }
}

// `bytes` of stream as chunks in one buffer, in one call; the first of them only where there is no
// block. REQUIRES: bytes <= kContiguousMax.
void Sender::send_contiguous(size_t bytes) {
  uint8_t small[OwnFrame::kMost + kChunkHeader + kStackMax + kMaxTrailer];
  LentBlock lent;
  uint8_t* buffer = small;
  if (bytes > std::min(kStackMax, c_.r.max_payload.load(std::memory_order_relaxed))) {
    if (uint8_t* block = lent.take(c_.arena.blocks); block != nullptr) {
      buffer = away_from(from_.front(), block);
    } else {
      bytes = std::min(next_payload(bytes, kBurst), kStackMax);
    }
  }
  uint8_t* p = std::ranges::copy(frame_, buffer).out;
  IoCursor ahead = from_;
  uint32_t msn = tx_.msn;
  for (size_t left = bytes; left > 0; ++msn) {
    const uint32_t payload = next_payload(left, kBurst);
    p = write_chunk(p, payload, msn, ahead);
    left -= payload;
  }
  auto size = static_cast<size_t>(p - buffer);
  if (bytes < from_.left()) cork();
  const ssize_t n =
      without_cancellation([&] { return base::sys.send(fd_, buffer, size, burst_flags()); });
  if (n < 0) {
    on_refusal();
    return;
  }
  auto taken = static_cast<size_t>(n);
  spend(size);
  if (!frame_.empty()) {
    const size_t frame = std::exchange(frame_, {}).size();
    if ((error_ = note_frame_sent(c_, fd_, frame, taken)) != 0) return;
    buffer += frame;
    size -= frame;
    taken -= frame;
  }
  if (taken < size) {
    iovec whole{buffer, size};
    on_cut({&whole, 1}, taken);
    return;
  }
  if (is_watched()) [[unlikely]]
    tell_sent(c_, {buffer, size});
  c_.count_sent(msn - tx_.msn, bytes);
  c_.r.sent.bytes_copied.add(bytes);
  from_ = ahead;
  sent_ += bytes;
  tx_.msn = msn;
}

// One chunk, its payload taken from `from`; returns the byte after it.
uint8_t* Sender::write_chunk(uint8_t* p, uint32_t payload, uint32_t msn, IoCursor& from) {
  uint8_t* const chunk = p;
  p = write_chunk_header(p, payload, msn);
  if (!c_.r.has_crc || payload < kFusedMin) {
    from.get(p, payload);
    mpa::finish_fpdu({chunk, chunk_size(payload)},
                     static_cast<uint16_t>(DDP_UNTAGGED_HEADER_SIZE + payload), c_.r.has_crc);
    return chunk + chunk_size(payload);
  }
  uint32_t crc = base::crc32c({chunk, kChunkHeader});
  from.get(p, payload, crc);
  return write_trailer(p + payload, chunk_pad(payload), crc, true);
}

// A burst of large chunks, in as many blocks as it takes; with fewer to be had it is shorter.
void Sender::send_blocks(size_t allowed) {
  std::array<LentBlock, kMaxBlocks> blocks;
  std::array<iovec, kMaxBlocks> list;
  size_t used = 0, total = 0, payload_total = 0;
  uint8_t *p = nullptr, *end = nullptr;
  uint32_t msn = tx_.msn;
  IoCursor ahead = from_;
  while (ahead.left() > 0 && payload_total < kBurst) {
    const size_t room = std::min(allowed - std::min(allowed, total), size_t{kMaxFpdu});
    const uint32_t payload = next_payload(std::min(ahead.left(), kBurst - payload_total), room);
    if (total > 0 && chunk_size(payload) > room) break;
    if (p == nullptr || static_cast<size_t>(end - p) < chunk_size(payload)) {
      uint8_t* block = used < list.size() ? blocks[used].take(c_.arena.blocks) : nullptr;
      if (block == nullptr) break;
      p = away_from(ahead.front(), block);
      end = block + Blocks::kBlockSize;
      list[used++] = {p, 0};
    }
    p = write_chunk(p, payload, msn, ahead);
    list[used - 1].iov_len =
        static_cast<size_t>(p - static_cast<uint8_t*>(list[used - 1].iov_base));
    total += chunk_size(payload);
    payload_total += payload;
    ++msn;
  }
  if (total == 0) return send_contiguous(std::min<size_t>(from_.left(), kStackMax));

  msghdr m{};
  m.msg_iov = list.data();
  m.msg_iovlen = used;
  if (ahead.left() > 0) cork();
  const ssize_t n = without_cancellation([&] { return base::sys.sendmsg(fd_, &m, burst_flags()); });
  if (n < 0) {
    on_refusal();
    return;
  }
  spend(total);
  if (static_cast<size_t>(n) < total) {
    on_cut({list.data(), used}, static_cast<size_t>(n));
    return;
  }
  if (is_watched()) [[unlikely]] {
    for (const iovec& block : std::span(list).first(used))
      tell_sent(c_, {static_cast<const uint8_t*>(block.iov_base), block.iov_len});
  }
  c_.count_sent(msn - tx_.msn, payload_total);
  c_.r.sent.bytes_copied.add(payload_total);
  from_ = ahead;
  sent_ += payload_total;
  tx_.msn = msn;
}

// A call that returns a part raises no signal: the next one tells what happened.
int Sender::burst_flags() const {
  return flags_ | MSG_DONTWAIT | (sent_ > 0 ? MSG_NOSIGNAL : 0);
}

// One write is one on TCP: it ends in one short segment. Here it is several, and each would end in
// one, for whose acknowledgement TCP waits with the next, and the peer with that for 40 ms (Nagle).
// MSG_MORE would not do: what is acknowledged meanwhile pushes. A program that asks for MSG_MORE,
// or has TCP_CORK, is not in a hurry; to take the cork away would push what it holds back.
void Sender::cork() {
  if (!may_cork_) may_cork_ = (flags_ & MSG_MORE) == 0 && is_nagling(fd_);
  if (is_corked_ || !*may_cork_) return;
  is_corked_ = base::set_socket_option(fd_, IPPROTO_TCP, TCP_CORK, 1);
}

// Before all that may wait, and at the end.
void Sender::uncork() {
  if (std::exchange(is_corked_, false)) base::set_socket_option(fd_, IPPROTO_TCP, TCP_CORK, 0);
}

// The credit was wrong about the kernel's memory: look again. A kernel that calls the socket
// writable and refuses all the same leaves a blocking call nothing to wait for but the clock.
void Sender::on_refusal() {
  tx_.credit = 0;
  error_ = errno;
  if (error_ != EAGAIN || !may_wait_ || is_nonblocking(fd_)) return;
  uncork();
  if (!deadline_) deadline_ = deadline_of(fd_, SO_SNDTIMEO);
  if (base::now() >= *deadline_) return;
  error_ = was_refused_ && base::sys.poll(nullptr, 0, 1) < 0 ? errno : 0;
  fd_.note_sleep();
  was_refused_ = true;
}

// The kernel took `taken` bytes of a burst and stopped inside a chunk, against all accounts. The
// chunks before it are sent; that one's bytes are promised by its header, so it counts as sent and
// its rest is kept.
void Sender::on_cut(std::span<iovec> list, size_t taken) {
  tx_.credit = 0;
  size_t at = 0;  // where the current chunk begins in the burst
  size_t payload_total = 0;
  IoCursor bytes(list);
  IoCursor probe = bytes;
  uint32_t chunks = 0;
  while (at < taken) {
    uint8_t header[MPA_ULPDU_LENGTH_SIZE];
    probe = bytes;
    probe.get(header, sizeof header);
    const uint32_t ulpdu = base::load_be16(header);
    const uint32_t size = fpdu_size(ulpdu);
    payload_total += ulpdu - DDP_UNTAGGED_HEADER_SIZE;
    ++chunks;
    at += size;
    bytes.skip(size);
  }
  if (is_watched()) {
    size_t left = at;
    for (const iovec& block : list) {
      const size_t n = std::min(left, block.iov_len);
      tell_sent(c_, {static_cast<const uint8_t*>(block.iov_base), n});
      left -= n;
    }
  }
  from_.skip(payload_total);
  sent_ += payload_total;
  tx_.msn += chunks;
  c_.count_sent(chunks, payload_total);
  if (at > taken) {
    IoCursor rest(list);
    rest.skip(taken);
    keep_tail(rest, at - taken);
  }
}

void Sender::keep_tail(IoCursor bytes, size_t size) {
  uncork();
  int e = engine::keep_tail(c_, fd_, bytes, size);
  if (e == 0) e = flush_tail(c_, fd_, true);
  if (e != 0) error_ = e;
}

}  // namespace ddpsock::engine
