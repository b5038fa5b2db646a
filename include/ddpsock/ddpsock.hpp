/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ddpsock.h for C++20 and later: spans, std::error_code, and registrations and queues that end
 * themselves. Header only; nothing here allocates, throws, or does more than the call it names, so
 * what ddpsock.h says of threads, order, memory and errors holds here, and so does its rule that no
 * call may be made while the library is not loaded (use_messages() and set_option() may).
 *
 * Errors are errno values in std::generic_category(): `error == std::errc::not_connected`.
 * Functions that have nothing else to say return them; the others have a last parameter `error`,
 * which is cleared by success. Sockets stay plain descriptors, which the program closes.
 */
#ifndef DDPSOCK_DDPSOCK_HPP_
#define DDPSOCK_DDPSOCK_HPP_

#include <ddpsock/ddpsock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <utility>

namespace ddp {

/* A timeout that never ends. So does every negative one. */
inline constexpr std::chrono::milliseconds kForever{-1};

/* Not for programs: what the functions below are made of. */
namespace detail {
inline std::error_code error_if(bool failed) noexcept {
  return failed ? std::error_code(errno, std::generic_category()) : std::error_code();
}
inline int milliseconds_of(std::chrono::milliseconds timeout) noexcept {
  const auto most = std::chrono::milliseconds(INT_MAX);
  return timeout.count() < 0 ? -1 : static_cast<int>(std::min(timeout, most).count());
}
template <typename Work>
unsigned post(int (*call)(int, const Work*, unsigned), int fd, std::span<const Work> work,
              std::error_code& error) noexcept {
  const auto count = static_cast<unsigned>(std::min<std::size_t>(work.size(), INT_MAX));
  const int posted = call(fd, work.data(), count);
  error = error_if(posted < 0 || static_cast<unsigned>(posted) < count);
  return posted < 0 ? 0 : static_cast<unsigned>(posted);
}

/* A region that kEnd ends when this does. */
template <int (*kEnd)(int, std::uint32_t)>
class HeldRegion {
 public:
  HeldRegion(HeldRegion&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), region_(std::exchange(other.region_, {})) {}
  /* What this held before ends as by the destructor. */
  HeldRegion& operator=(HeldRegion&& other) noexcept {
    HeldRegion taken(std::move(other));
    std::swap(fd_, taken.fd_);
    std::swap(region_, taken.region_);
    return *this;
  }
  ~HeldRegion() { static_cast<void>(end()); }

  explicit operator bool() const noexcept { return fd_ >= 0; }
  /* What the peer must be told, all 0 if nothing is held. */
  const ddp_region& region() const noexcept { return region_; }
  std::uint32_t stag() const noexcept { return region_.stag; }
  /* With an error it holds the memory as before; holding nothing is success. */
  [[nodiscard]] std::error_code end() noexcept {
    if (fd_ < 0) return {};
    const std::error_code error = error_if(kEnd(fd_, region_.stag) != 0);
    if (!error) release();
    return error;
  }
  /* Forgets it, without a call. */
  void release() noexcept {
    fd_ = -1;
    region_ = {};
  }

 protected:
  HeldRegion() noexcept = default;
  /* After a call that has filled region_, or failed. */
  std::error_code hold_if(bool is_made, int fd) noexcept {
    const std::error_code error = error_if(!is_made);
    if (is_made) fd_ = fd;
    if (!is_made) release();
    return error;
  }
  int fd_ = -1;
  ddp_region region_{};
};
}  // namespace detail

/*
 * Sets a SOL_DDP option to a value of the type that ddpsock.h names beside it.
 * Errors as ddpsock.h says of the option; without the library, `no_protocol_option`.
 */
template <typename T>
[[nodiscard]] std::error_code set_option(int fd, int name, const T& value) noexcept {
  return detail::error_if(setsockopt(fd, SOL_DDP, name, &value, sizeof value) != 0);
}

/* Puts the socket in message mode (DDP_MODE). `no_protocol_option`: go on with plain TCP. */
[[nodiscard]] inline std::error_code use_messages(int fd, int role = DDP_ROLE_AUTO) noexcept {
  return set_option(fd, DDP_MODE, ddp_mode{.mode = DDP_MODE_MESSAGE, .role = role});
}

/* DDP_STATUS. All zero with an error. */
inline ddp_status status(int fd, std::error_code& error) noexcept {
  ddp_status found{};
  socklen_t size = sizeof found;
  error = detail::error_if(getsockopt(fd, SOL_DDP, DDP_STATUS, &found, &size) != 0);
  return found;
}

/* ddp_establish(). `resource_unavailable_try_again`: not within `timeout`. */
[[nodiscard]] inline std::error_code establish(
    int fd, std::chrono::milliseconds timeout = kForever) noexcept {
  return detail::error_if(ddp_establish(fd, detail::milliseconds_of(timeout)) != 0);
}

/*
 * What requests name: bytes of the program's, which must stay until the request's completion.
 * room_of() for receives; bytes_of() for Sends and Writes, which only read them.
 */
inline iovec room_of(std::span<std::byte> room) noexcept {
  return {room.data(), room.size()};
}
inline iovec bytes_of(std::span<const std::byte> bytes) noexcept {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

/* Memory of the peer's: `to` is its region's plus an offset. */
struct Remote {
  std::uint32_t stag = 0;
  std::uint64_t to = 0;
};

/*
 * Requests, to be posted below. They refer to `buffers`, whose elements are copied by the post and
 * must be there until then. `flags`: DDP_SILENT ... of ddpsock.h.
 */
inline ddp_send_work send_of(std::uint64_t cookie, std::span<const iovec> buffers,
                             std::uint32_t flags = 0) noexcept {
  return {.cookie = cookie,
          .iov = buffers.data(),
          .iov_count = static_cast<std::uint32_t>(buffers.size()),
          .flags = flags,
          .immediate = 0,
          .invalidate = 0,
          .reserved = 0};
}
inline ddp_recv_work receive_into(std::uint64_t cookie, std::span<const iovec> buffers) noexcept {
  return {.cookie = cookie,
          .iov = buffers.data(),
          .iov_count = static_cast<std::uint32_t>(buffers.size()),
          .reserved = 0};
}
inline ddp_write_work write_of(std::uint64_t cookie, std::span<const iovec> buffers, Remote to,
                               std::uint32_t flags = 0) noexcept {
  return {.cookie = cookie,
          .iov = buffers.data(),
          .iov_count = static_cast<std::uint32_t>(buffers.size()),
          .flags = flags,
          .remote_to = to.to,
          .remote_stag = to.stag,
          .reserved = 0};
}
/* Into `sink`, which is part of our region `stag` and shorter than 4 GB (a program's mistake
 * otherwise, and asserted). */
inline ddp_read_work read_into(std::uint64_t cookie, std::span<std::byte> sink, std::uint32_t stag,
                               Remote from, std::uint32_t flags = 0) noexcept {
  assert(sink.size() <= UINT32_MAX);
  return {.cookie = cookie,
          .address = sink.data(),
          .length = static_cast<std::uint32_t>(sink.size()),
          .stag = stag,
          .remote_to = from.to,
          .remote_stag = from.stag,
          .flags = flags};
}
/* `compare` is of DDP_COMPARE_SWAP alone. */
inline ddp_atomic_work atomic_on(std::uint64_t cookie, ddp_atomic operation, Remote at,
                                 std::uint64_t operand, std::uint64_t compare = 0,
                                 std::uint32_t flags = 0) noexcept {
  return {.cookie = cookie,
          .operation = operation,
          .flags = flags,
          .operand = operand,
          .compare = compare,
          .remote_to = at.to,
          .remote_stag = at.stag,
          .reserved = 0};
}

/*
 * Posts requests in order (ddp_post_send() and its like). Returns how many were accepted; if not
 * all, `error` tells why not the next: ddpsock.h lists what each means and what to do.
 */
inline unsigned post(int fd, std::span<const ddp_send_work> work, std::error_code& error) noexcept {
  return detail::post(&ddp_post_send, fd, work, error);
}
inline unsigned post(int fd, std::span<const ddp_recv_work> work, std::error_code& error) noexcept {
  return detail::post(&ddp_post_recv, fd, work, error);
}
inline unsigned post(int fd, std::span<const ddp_write_work> work,
                     std::error_code& error) noexcept {
  return detail::post(&ddp_post_write, fd, work, error);
}
inline unsigned post(int fd, std::span<const ddp_read_work> work, std::error_code& error) noexcept {
  return detail::post(&ddp_post_read, fd, work, error);
}
inline unsigned post(int fd, std::span<const ddp_atomic_work> work,
                     std::error_code& error) noexcept {
  return detail::post(&ddp_post_atomic, fd, work, error);
}
/* One. */
template <typename Work>
[[nodiscard]] std::error_code post(int fd, const Work& work) noexcept {
  std::error_code error;
  post(fd, std::span<const Work>(&work, 1), error);
  return error;
}

/*
 * Takes completions of a connection or queue into `room`; the part of it that was filled, empty
 * with an error and if there are none. poll() never waits; wait() waits for at least one, until the
 * time is over (empty, no error) or a signal handler ran (`interrupted`).
 */
inline std::span<const ddp_completion> poll(int fd, std::span<ddp_completion> room,
                                            std::error_code& error) noexcept {
  const auto most = static_cast<unsigned>(std::min<std::size_t>(room.size(), INT_MAX));
  const int taken = ddp_poll(fd, room.data(), most);
  error = detail::error_if(taken < 0);
  return room.first(taken < 0 ? 0 : static_cast<std::size_t>(taken));
}
inline std::span<const ddp_completion> wait(int fd, std::span<ddp_completion> room,
                                            std::chrono::milliseconds timeout,
                                            std::error_code& error) noexcept {
  const auto most = static_cast<unsigned>(std::min<std::size_t>(room.size(), INT_MAX));
  const int taken = ddp_wait(fd, room.data(), most, detail::milliseconds_of(timeout));
  error = detail::error_if(taken < 0);
  return room.first(taken < 0 ? 0 : static_cast<std::size_t>(taken));
}

/* A completion's `status`. */
inline std::error_code error_of(const ddp_completion& completion) noexcept {
  return {completion.status, std::generic_category()};
}

/*
 * Registered memory (ddp_reg), deregistered when this ends. It owns neither the memory nor the
 * descriptor. One thread at a time.
 *
 * Let it end before the descriptor is closed, for the number may then be another's; after close(),
 * which has deregistered everything, call release(). The destructor cannot wait: while the peer's
 * Read of the memory, or a Read of ours into it, may be under way, call end() until it does not
 * answer `device_or_resource_busy`, or close the connection and release(), before the memory goes.
 */
class Registration : public detail::HeldRegion<ddp_dereg> {
 public:
  Registration() noexcept = default;
  /* Errors as ddp_reg(); then it holds nothing. */
  Registration(int fd, std::span<std::byte> memory, unsigned rights,
               std::error_code& error) noexcept {
    const int result = ddp_reg(fd, memory.data(), memory.size(), rights, &region_);
    error = hold_if(result == 0, fd);
  }
  /* end() is ddp_dereg(). */
};

/*
 * Memory that is made for a peer to reach (ddp_alloc), freed when this ends; as Registration
 * otherwise, also in that close() has freed it: release() it then.
 */
class Allocation : public detail::HeldRegion<ddp_free> {
 public:
  Allocation() noexcept = default;
  /* Errors as ddp_alloc(); then it holds nothing. */
  Allocation(int fd, std::size_t length, unsigned rights, std::error_code& error) noexcept {
    const int result = ddp_alloc(fd, length, rights, &region_);
    error = hold_if(result == 0, fd);
  }
  /* end() is ddp_free(). */

  std::span<std::byte> memory() const noexcept {
    return {reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(region_.to)),
            static_cast<std::size_t>(region_.length)};
  }
  /* ddp_take_back(): the memory is the caller's now, to munmap(); empty with an error. */
  [[nodiscard]] std::span<std::byte> take_back(std::error_code& error) noexcept {
    error = detail::error_if(ddp_take_back(fd_, region_.stag) != 0);
    if (error) return {};
    const std::span<std::byte> taken = memory();
    release();
    return taken;
  }
};

/*
 * A completion queue for several connections (ddp_open_cq), closed when this ends; it then lives on
 * unseen for the connections that use it. Its calls are those above, on fd().
 */
class CompletionQueue {
 public:
  CompletionQueue() noexcept = default;
  /* `depth`: 1 to 65536. Errors as ddp_open_cq(); then it holds nothing. */
  CompletionQueue(unsigned depth, std::error_code& error) noexcept : fd_(ddp_open_cq(depth)) {
    error = detail::error_if(fd_ < 0);
  }
  CompletionQueue(CompletionQueue&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  CompletionQueue& operator=(CompletionQueue&& other) noexcept {
    CompletionQueue taken(std::move(other));
    std::swap(fd_, taken.fd_);
    return *this;
  }
  ~CompletionQueue() {
    if (fd_ >= 0) ::close(fd_);
  }

  explicit operator bool() const noexcept { return fd_ >= 0; }
  int fd() const noexcept { return fd_; }
  /* Makes `socket` use it (DDP_CQ), and what a listening one accepts. */
  [[nodiscard]] std::error_code serve(int socket) const noexcept {
    return set_option(socket, DDP_CQ, fd_);
  }

 private:
  int fd_ = -1;
};

/*
 * Receives that several connections share (ddp_open_srq), closed when this ends; the buffers that
 * no message has taken are the program's again then. post() to fd() takes ddp_recv_work.
 */
class SharedReceiveQueue {
 public:
  SharedReceiveQueue() noexcept = default;
  /* Completes to `queue`. `depth`: 1 to 65536. Errors as ddp_open_srq(); then it holds nothing. */
  SharedReceiveQueue(const CompletionQueue& queue, unsigned depth, std::error_code& error) noexcept
      : fd_(ddp_open_srq(queue.fd(), depth)) {
    error = detail::error_if(fd_ < 0);
  }
  SharedReceiveQueue(SharedReceiveQueue&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  SharedReceiveQueue& operator=(SharedReceiveQueue&& other) noexcept {
    SharedReceiveQueue taken(std::move(other));
    std::swap(fd_, taken.fd_);
    return *this;
  }
  ~SharedReceiveQueue() {
    if (fd_ >= 0) ::close(fd_);
  }

  explicit operator bool() const noexcept { return fd_ >= 0; }
  int fd() const noexcept { return fd_; }
  /* Makes `socket` use it and its completion queue (DDP_SRQ), and what a listening one accepts. */
  [[nodiscard]] std::error_code serve(int socket) const noexcept {
    return set_option(socket, DDP_SRQ, fd_);
  }
  /* fd() becomes readable once fewer than `level` receives are left (DDP_SRQ_LIMIT). */
  [[nodiscard]] std::error_code set_limit(int level) const noexcept {
    return set_option(fd_, DDP_SRQ_LIMIT, level);
  }

 private:
  int fd_ = -1;
};

}  // namespace ddp

#endif /* DDPSOCK_DDPSOCK_HPP_ */
