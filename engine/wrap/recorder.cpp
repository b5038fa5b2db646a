// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/recorder.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/process.h"
#include "ddp/format.h"
#include "ddp/segment.h"
#include "engine/observer.h"
#include "engine/wrap/captured_start.h"
#include "engine/wrap/pcap.h"
#include "engine/wrap/record_file.h"
#include "engine/wrap/trace.h"
#include "mpa/fpdu.h"
#include "rdmap/format.h"

namespace ddpsock::engine::wrap {
namespace {

const CaptureHeader kCaptureHeader{};
constexpr uint32_t kFarApart = 1u << 31;
constexpr size_t kChunkHead = MPA_ULPDU_LENGTH_SIZE + DDP_MAX_HEADER_SIZE;

Time wall_clock() {
  timespec now{};
  base::kernel_call(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return {int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}

// A connection of one address that is recorded anew begins elsewhere, so that Wireshark takes it
// for another.
std::array<uint32_t, 2> first_sequence() {
  const auto now = static_cast<uint32_t>(wall_clock().ns);
  return {now, now + kFarApart};
}

const char* operation(uint8_t control) {
  switch (control & RDMAP_CTRL_OPCODE_MASK) {
    case RDMAP_OP_WRITE:
      return "Write";
    case RDMAP_OP_READ_REQUEST:
      return "Read Request";
    case RDMAP_OP_READ_RESPONSE:
      return "Read Response";
    case RDMAP_OP_SEND:
      return "Send";
    case RDMAP_OP_SEND_INVALIDATE:
      return "Send with Invalidate";
    case RDMAP_OP_SEND_SE:
      return "Send with Solicited Event";
    case RDMAP_OP_SEND_SE_INVALIDATE:
      return "Send with Solicited Event and Invalidate";
    case RDMAP_OP_TERMINATE:
      return "Terminate";
    default:
      return "FPDU";
  }
}

// Of a call on a stream.
const char* text_of(int error) {
  switch (error) {
    case ECONNRESET:
      return "connection reset by peer";
    case EPIPE:
      return "broken pipe";
    case EPROTO:
      return "protocol error";
    case ETIMEDOUT:
      return "connection timed out";
    default:
      return "the call has failed";
  }
}

base::TcpAddress address_of(long call, int fd) {
  sockaddr_in6 name{};
  socklen_t size = sizeof name;
  return base::kernel_call(call, fd, &name, &size) == 0 ? base::tcp_address_of(name)
                                                        : base::TcpAddress{};
}

// Of a socket that is gone, or whose two ends the kernel does not name alike.
bool are_known(const std::array<base::TcpAddress, 2>& addresses) {
  return addresses[0].family != 0 && addresses[0].family == addresses[1].family;
}

CapturedEnds ends_of_socket(const Start& start, uint32_t index) {
  if (!is_observed.load()) return {};
  const base::KeepErrno keep;
  const int fd = static_cast<int>(start.lower);
  CapturedEnds ends{.addresses = {address_of(SYS_getsockname, fd), address_of(SYS_getpeername, fd)},
                    .next = first_sequence()};
  if (!are_known(ends.addresses))
    ends.addresses = made_up_ends(index, start.agreed.is_initiator).addresses;
  return ends;
}

// Each line says when, and in which process.
class Lines final : public Records {
 public:
  explicit Lines(RecordFile& file) : file_(file) {}
  void put(std::span<const Bytes> pieces) override {
    if (!file_.is_on()) return;
    const base::KeepErrno keep;
    const Time now = wall_clock();
    char head[48];
    const int length = std::snprintf(
        head, sizeof head, "%lld.%06lld %ld ", static_cast<long long>(now.ns / 1'000'000'000),
        static_cast<long long>(now.ns / 1'000 % 1'000'000), base::kernel_call(SYS_getpid));
    const std::array<Bytes, 2> line = {
        Bytes(reinterpret_cast<const uint8_t*>(head), static_cast<size_t>(length)), pieces.front()};
    file_.put(line);
  }

 private:
  RecordFile& file_;
};

class Recorder final : public Observer {
 public:
  Recorder() : packets_(capture_, wall_clock() - base::now()) {}

  bool set(const char* capture, const char* trace) {
    const bool has_trace = trace != nullptr && trace_.set(trace, {}, nullptr);
    Records* const notes = has_trace ? &lines_ : nullptr;
    const bool has_capture =
        capture != nullptr && capture_.set(capture, kCaptureHeader.bytes(), notes);
    trace_.open_early();
    capture_.open_early();
    return has_trace || has_capture;
  }

  void moved(const Named& who, Watched& state, Way way, Carrier carrier,
             std::span<const Bytes> fpdu) override {
    if (is_over()) return;
    const base::KeepErrno keep;
    const Quietly quietly(lock_);
    if (!quietly) return;
    meet(state);
    // A line of the trace needs no more than the header.
    const size_t most = capture_.is_on() ? sizeof scratch_ : kChunkHead;
    size_t size = 0;
    for (Bytes piece : fpdu) {
      const size_t n = std::min(piece.size(), most - size);
      if (n != 0) std::memcpy(scratch_ + size, piece.data(), n);
      size += n;
    }
    const Bytes head(scratch_, size);
    if (capture_.is_on()) capture(who, state, way, head);
    if (trace_.is_on()) trace(who, way, carrier, head);
  }

  void happened(const Named& who, Watched& state, Event event, const char* text,
                int error) override {
    if (is_over()) return;
    const base::KeepErrno keep;
    const Quietly quietly(lock_);
    if (!quietly) return;
    meet(state);
    if (event == Event::kSentEnd && !end(who, state, true)) return;
    if (event == Event::kReceivedEnd && !end(who, state, false)) return;
    if (!trace_.is_on()) return;
    const char* const why = text != nullptr ? text : "";
    switch (event) {
      case Event::kStarted:
      case Event::kInherited:
        line(who, "%s as %s: %s", event == Event::kStarted ? "started" : "inherited",
             who.is_initiator ? "initiator" : "responder", why);
        break;
      case Event::kInMemory:
        line(who, "%s in shared memory from here on", why);
        break;
      case Event::kPlain:
        line(who, "plain TCP from here on: %s", why);
        break;
      case Event::kFailed:
        line(who, "failed: %s", why);
        break;
      case Event::kError:
        line(who, "error %d: %s", error, text_of(error));
        break;
      case Event::kSentEnd:
        line(who, "sent end");
        break;
      case Event::kReceivedEnd:
        line(who, "received end");
        break;
      case Event::kClosed:
        line(who, "closed");
        break;
    }
  }

  void stayed_plain(int fd, const char* reason) override {
    if (is_over() || !trace_.is_on()) return;
    const base::KeepErrno keep;
    const Named who{.local = address_of(SYS_getsockname, fd),
                    .remote = address_of(SYS_getpeername, fd),
                    .fd = fd};
    line(who, "plain TCP: %s", reason);
  }

  void stop_recording(const char* why) override {
    capture_.stop(why);
    lines_.print("nothing more is written: %s", why);
    trace_.stop(why);
    is_observed.store(false);
  }

  void make_room(unsigned first, unsigned last) override {
    capture_.make_room(first, last);
    trace_.make_room(first, last);
  }

  std::unique_ptr<Engine> around(std::unique_ptr<Engine> engine) override {
    if (engine && capture_.is_on()) engine = pcap(std::move(engine), packets_, ends_of_socket);
    if (engine && trace_.is_on()) engine = wrap::trace(std::move(engine), lines_, ends_of_socket);
    return engine;
  }

 private:
  // Both files have ended, one perhaps just now.
  bool is_over() const {
    if (capture_.is_on() || trace_.is_on()) return false;
    is_observed.store(false, std::memory_order_relaxed);
    return true;
  }

  // REQUIRES, as all below: the lock.
  static void meet(Watched& state) {
    const uint32_t generation = base::process_generation();
    if (state.generation != generation) state = {.generation = generation};
  }

  CapturedTcp tcp_of(const Named& who, const Watched& state) {
    CapturedEnds ends{.addresses = {who.local, who.remote}, .next = state.sequence};
    if (!are_known(ends.addresses)) ends.addresses = made_up_ends(0, who.is_initiator).addresses;
    return {packets_, ends, who.is_initiator};
  }

  void capture(const Named& who, Watched& state, Way way, Bytes fpdu) {
    const bool is_new = !std::exchange(state.is_captured, true);
    if (is_new) state.sequence = first_sequence();
    const Time now = base::now();
    CapturedTcp tcp = tcp_of(who, state);
    if (is_new) {
      const Agreement agreed{
          .is_initiator = who.is_initiator, .revision = who.revision, .has_crc = who.has_crc};
      write_start(tcp, agreed, now);
    }
    tcp.segment(way == Way::kSent, fpdu, now);
    state.sequence = tcp.ends().next;
  }

  // False: it was told of before.
  bool end(const Named& who, Watched& state, bool is_ours) {
    if (std::exchange(state.has_fin[is_ours ? 0 : 1], true)) return false;
    if (!capture_.is_on() || !state.is_captured) return true;
    CapturedTcp tcp = tcp_of(who, state);
    tcp.fin(is_ours, base::now());
    state.sequence = tcp.ends().next;
    return true;
  }

  void trace(const Named& who, Way way, Carrier carrier, Bytes fpdu) {
    if (fpdu.size() < MPA_ULPDU_LENGTH_SIZE + 2) return;
    const uint32_t ulpdu = base::load_be16(fpdu.data());
    const uint8_t* const header = fpdu.data() + MPA_ULPDU_LENGTH_SIZE;
    const auto header_size = static_cast<uint32_t>(ddp::header_size(header[0]));
    line(who, "%s %s of %u bytes%s", way == Way::kSent ? "sent" : "received", operation(header[1]),
         ulpdu - std::min(ulpdu, header_size), carrier == Carrier::kMemory ? " in memory" : "");
  }

  [[gnu::format(printf, 3, 4)]]
  void line(const Named& who, const char* format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    lines_.print("fd %d %s > %s %s", who.fd, base::TcpAddressText(who.local).text.data(),
                 base::TcpAddressText(who.remote).text.data(), text);
  }

  RecordLock lock_;
  RecordFile capture_, trace_;
  Lines lines_{trace_};
  CaptureFile packets_;
  uint8_t scratch_[mpa::fpdu_size(MPA_MAX_ULPDU)];
};

}  // namespace

void start_recording(const char* capture, const char* trace) {
  alignas(Recorder) static char room[sizeof(Recorder)];
  if (observer != nullptr || !base::process_init()) return;
  const base::KeepErrno keep;
  auto* recorder = new (room) Recorder;
  if (!recorder->set(capture, trace)) return;
  observer = recorder;
  is_observed.store(true);
}

}  // namespace ddpsock::engine::wrap
