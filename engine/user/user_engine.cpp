// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/user_engine.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/cancellation.h"
#include "base/crc32c.h"
#include "base/socket_option.h"
#include "base/sys.h"
#include "engine/fpdu_way.h"
#include "engine/memory/memory_carrier.h"
#include "engine/queue/soft_engine.h"
#include "engine/wire/wire_carrier.h"

namespace ddpsock::engine {
namespace {

// The EMSS moves with path MTU and TCP options: rarely, so that asking once in a while does.
constexpr Duration kEmssAge = Duration::from_ms(10);
constexpr uint32_t kLeastEmss = 536;  // RFC 1122 section 4.2.2.6

class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(int fd) : fd_(fd) {
    base::set_socket_option(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  }

  Result<size_t> send(std::span<const Bytes> from, Time) override {
    constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
    // Plain send() is measurably quicker than a gather list of one.
    if (from.size() == 1) {
      return retried([&] { return base::sys.send(fd_, from[0].data(), from[0].size(), kFlags); });
    }
    iovec list[Transmitter::kMaxPieces];
    size_t count = 0;
    for (Bytes r : from) list[count++] = {const_cast<uint8_t*>(r.data()), r.size()};
    msghdr message{};
    message.msg_iov = list;
    message.msg_iovlen = count;
    return retried([&] { return base::sys.sendmsg(fd_, &message, kFlags); });
  }

  Result<size_t> receive(std::span<const MutBytes> to, Time) override {
    if (to.size() == 1) {
      return retried([&] { return base::sys.recv(fd_, to[0].data(), to[0].size(), MSG_DONTWAIT); });
    }
    iovec list[Receiver::kMaxTargets];
    size_t count = 0;
    for (MutBytes r : to) list[count++] = {r.data(), r.size()};
    msghdr message{};
    message.msg_iov = list;
    message.msg_iovlen = count;
    return retried([&] { return base::sys.recvmsg(fd_, &message, MSG_DONTWAIT); });
  }

  bool is_emptied_by_short_read() const override { return true; }
  void shut_write(Time) override { base::sys.shutdown(fd_, SHUT_WR); }
  void drop(Time) override { base::sys.shutdown(fd_, SHUT_RDWR); }

  uint32_t emss(Time now) override {
    if (emss_ != 0 && now < emss_until_) return emss_;
    const int told = base::socket_option(fd_, IPPROTO_TCP, TCP_MAXSEG).value_or(0);
    emss_ = told > 0 ? static_cast<uint32_t>(told) : kLeastEmss;
    emss_until_ = now + kEmssAge;
    return emss_;
  }
  Time next_event(Time) const override { return kNever; }

 private:
  template <typename Call>
  static Result<size_t> retried(const Call& call) {
    const base::Uncancelled whole;  // it does not wait
    for (;;) {
      const ssize_t n = call();
      if (n >= 0) return static_cast<size_t>(n);
      if (errno == EINTR) continue;
      return fail_errno(errno == EWOULDBLOCK ? EAGAIN : errno);
    }
  }

  const int fd_;
  uint32_t emss_ = 0;
  Time emss_until_{};
};

// Between the chunks of a byte stream, whose connection it is.
class OneSidedChannel final : public Channel {
 public:
  OneSidedChannel(int fd, FpduWay& stream) : fd_(fd), stream_(stream) {}

  Result<size_t> send(std::span<const Bytes> from, Time) override {
    const base::Uncancelled whole;  // it does not wait
    return noted(stream_.send_fpdus(fd_, from), is_sending_taken_);
  }
  Result<size_t> receive(std::span<const MutBytes> to, Time) override {
    const base::Uncancelled whole;
    return noted(stream_.receive_fpdus(fd_, to), is_receiving_taken_);
  }
  bool is_emptied_by_short_read() const override { return false; }
  // The program's to do.
  void shut_write(Time) override {}
  void drop(Time) override {}

  // An FPDU that takes no more than a quarter of the send buffer is never cut.
  uint32_t emss(Time now) override {
    if (emss_ != 0 && now < emss_until_) return emss_;
    const int size = base::socket_option(fd_, SOL_SOCKET, SO_SNDBUF).value_or(0);
    const uint32_t room = size > 0 ? static_cast<uint32_t>(size) / 4 : kLeastEmss;
    emss_ = std::clamp<uint32_t>(room, kLeastEmss, std::max(kLeastEmss, stream_.max_chunk()));
    emss_until_ = now + kEmssAge;
    return emss_;
  }
  // Who has the connection says when he goes (stream/queue_pair.h), but not if he is another
  // process.
  Time next_event(Time now) const override {
    return is_sending_taken_ || is_receiving_taken_ ? now + kRetry : kNever;
  }

 private:
  static constexpr Duration kRetry = Duration::from_ms(1);

  static Result<size_t> noted(Result<size_t> moved, bool& is_taken) {
    is_taken = !moved && to_int(moved.error()) == EBUSY;
    if (is_taken) return fail_errno(EAGAIN);
    return moved;
  }

  const int fd_;
  FpduWay& stream_;
  bool is_sending_taken_ = false, is_receiving_taken_ = false;
  uint32_t emss_ = 0;
  Time emss_until_{};
};

bool is_connected_tcp(int fd) {
  const auto info = base::socket_option<tcp_info>(fd, IPPROTO_TCP, TCP_INFO);
  return info && (info->tcpi_state == TCP_ESTABLISHED || info->tcpi_state == TCP_CLOSE_WAIT);
}

template <typename Channel, typename... Args>
Result<std::unique_ptr<Channel>, StartError> open_channel(const Start& start, Args&... args) {
  const int fd = static_cast<int>(start.lower);
  if (!is_connected_tcp(fd)) return fail(StartError::kBadLowerLayer);
  std::unique_ptr<Channel> channel(new (std::nothrow) Channel(fd, args...));
  if (!channel) return fail(StartError::kNoMemory);
  return channel;
}

template <typename Channel, typename... Args>
Result<std::unique_ptr<Carrier>, StartError> open_wire(const Start& start, const QpAttr& attr,
                                                       Args&... args) {
  auto channel = open_channel<Channel>(start, args...);
  if (!channel) return fail(channel.error());
  std::unique_ptr<Carrier> carrier = WireCarrier::make(std::move(*channel), start, attr);
  if (!carrier) return fail(StartError::kNoMemory);
  return carrier;
}

class UserMessageEngine final : public SoftEngine {
 public:
  explicit UserMessageEngine(const UserMessageConfig& config)
      : SoftEngine({.max_regions = config.max_regions}) {}
  using SoftEngine::has_memory;

  const char* name() const override { return "user"; }
  Result<std::unique_ptr<Carrier>, StartError> open_carrier(const Start& start,
                                                            const QpAttr& attr) override {
    return open_wire<TcpChannel>(start, attr);
  }
  shm::RegionTable* shared_regions() override { return &shared_regions_; }

 protected:
  std::atomic<uint64_t>* share(uint32_t stag, const rdmap::MemoryRegion& region,
                               int file) override {
    return shared_regions_.share(stag, region, file);
  }

 private:
  shm::RegionTable shared_regions_;
};

}  // namespace

Result<std::unique_ptr<Carrier>, StartError> InMemory::open(SoftEngine& engine, const Start& start,
                                                            const QpAttr&) const {
  auto channel = open_channel<TcpChannel>(start);
  if (!channel) return fail(channel.error());
  std::unique_ptr<Carrier> carrier(new (std::nothrow) MemoryCarrier(
      std::move(*channel), memory_, engine.shared_regions(), start));
  if (!carrier) return fail(StartError::kNoMemory);
  return carrier;
}

Result<std::unique_ptr<Carrier>, StartError> BetweenChunks::open(SoftEngine&, const Start& start,
                                                                 const QpAttr& attr) const {
  return open_wire<OneSidedChannel>(start, attr, stream_);
}

std::unique_ptr<Engine> open_user_message_engine(const UserMessageConfig& config) {
  base::crc32c_init();
  std::unique_ptr<UserMessageEngine> engine(new (std::nothrow) UserMessageEngine(config));
  if (!engine || !engine->has_memory()) return nullptr;
  return engine;
}

}  // namespace ddpsock::engine
