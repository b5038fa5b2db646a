// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A connection in message mode as the measured programs use it: any failure ends the program, for
// there is nothing to measure then.
#ifndef DDPSOCK_BENCH_MESSAGE_LINK_H_
#define DDPSOCK_BENCH_MESSAGE_LINK_H_

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "bench/peer.h"
#include "bench/timing.h"
#include "ddpsock/ddpsock.h"

namespace ddpsock::bench {

// A connection and what has completed on it.
class Link {
 public:
  // With one call.
  static constexpr unsigned kMostPosted = 256;

  explicit Link(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  void set_wait(Wait wait) { wait_ = wait; }

  // Before the first receive into its own room.
  void set_size(size_t size) {
    bytes_ = make_buffer(size);
    room_ = make_buffer(std::max(size, sizeof(Report)));
    out_ = {bytes_.data(), bytes_.size()};
    in_ = {room_.data(), room_.size()};
  }

  void post_receives(uint64_t count) { post_receives(in_, count); }

  void post_receive(std::span<std::byte> room) { post_receives({room.data(), room.size()}, 1); }

  // One call; no completion but of the last, and that only if `is_told`.
  void post_messages(uint64_t count, bool is_told) { post_sends(out_, count, is_told); }

  // Copied.
  void post_note(std::span<const std::byte> bytes) {
    post_sends({const_cast<std::byte*>(bytes.data()), bytes.size()}, 1, false);
  }

  // Waits for completions and counts them.
  void take() {
    std::array<ddp_completion, 64> done;
    int n = 0;
    if (wait_ == Wait::kSpinning) {
      do n = ddp_poll(fd_, done.data(), done.size());
      while (n == 0);
    } else {
      n = ddp_wait(fd_, done.data(), done.size(), -1);
    }
    if (n < 0) die("ddp_poll, ddp_wait");
    for (int i = 0; i < n; i++) count(done[static_cast<size_t>(i)]);
  }

  // Messages received since the last call.
  uint64_t take_received() {
    while (received_ == 0) take();
    return std::exchange(received_, 0);
  }

  void wait_until_ended() {
    while (!is_ended_) take();
  }

  // Completions of sends and messages since the last call, perhaps none.
  uint64_t seen_sent() { return std::exchange(sent_, 0); }
  uint64_t seen_received() { return std::exchange(received_, 0); }
  // The same of Writes, Reads and atomics.
  uint64_t seen_one_sided() { return std::exchange(one_sided_, 0); }

  bool has_got_end() const { return has_got_end_; }
  uint64_t last_size() const { return last_size_; }
  std::span<const std::byte> room() const { return room_; }

 private:
  void count(const ddp_completion& done) {
    if (done.kind == DDP_ENDED && done.status == 0) is_ended_ = true;
    if (done.kind == DDP_RECEIVED && done.status == ECANCELED) return;  // nothing came for it
    if (done.status != 0) {
      std::fprintf(stderr, "%s\n", ddp_strerror(&done));
      std::exit(1);
    }
    if (done.kind == DDP_SENT) sent_++;
    if (done.kind == DDP_WRITTEN || done.kind == DDP_READ || done.kind == DDP_ATOMIC_DONE)
      one_sided_++;
    if (done.kind != DDP_RECEIVED) return;
    last_size_ = done.bytes;
    if (done.bytes == 0) has_got_end_ = true;
    received_++;
  }

  void post_receives(const iovec& room, uint64_t count) {
    std::array<ddp_recv_work, kMostPosted> work;
    std::fill_n(work.begin(), std::min<uint64_t>(count, kMostPosted),
                ddp_recv_work{.cookie = 0, .iov = &room, .iov_count = 1, .reserved = 0});
    while (count != 0) {
      const auto n = static_cast<unsigned>(std::min<uint64_t>(count, kMostPosted));
      if (ddp_post_recv(fd_, work.data(), n) != static_cast<int>(n)) die("ddp_post_recv");
      count -= n;
    }
  }

  void post_sends(const iovec& bytes, uint64_t count, bool is_told) {
    const uint32_t inlined = bytes.iov_len <= DDP_MAX_INLINE ? DDP_INLINE : 0;
    std::array<ddp_send_work, kMostPosted> work;
    std::fill_n(work.begin(), count,
                ddp_send_work{.cookie = 0,
                              .iov = &bytes,
                              .iov_count = bytes.iov_len != 0 ? 1u : 0u,
                              .flags = DDP_SILENT | inlined,
                              .immediate = 0,
                              .invalidate = 0,
                              .reserved = 0});
    if (is_told) work[count - 1].flags &= ~DDP_SILENT;
    const auto n = static_cast<unsigned>(count);
    if (ddp_post_send(fd_, work.data(), n) != static_cast<int>(n)) die("ddp_post_send");
  }

  const int fd_;
  Wait wait_ = Wait::kBlocking;
  std::vector<std::byte> bytes_, room_;
  iovec out_{}, in_{};
  uint64_t received_ = 0, sent_ = 0, one_sided_ = 0, last_size_ = 0;
  bool has_got_end_ = false, is_ended_ = false;
};

// An empty message is the client's last and asks for the server's report.
inline Report finish(Link& link) {
  link.post_note({});
  do link.take_received();
  while (link.last_size() != sizeof(Report));
  Report report;
  std::memcpy(&report, link.room().data(), sizeof report);
  return report;
}

}  // namespace ddpsock::bench

#endif  // DDPSOCK_BENCH_MESSAGE_LINK_H_
