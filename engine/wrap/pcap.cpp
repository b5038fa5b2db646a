// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/pcap.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <vector>

#include "engine/wrap/capture_file.h"
#include "engine/wrap/wrap.h"
#include "mpa/deframer.h"
#include "mpa/startup_frame.h"

namespace ddpsock::engine::wrap {
namespace {

uint16_t depth(uint32_t agreed) {
  return static_cast<uint16_t>(std::min<uint32_t>(agreed, mpa::kNotNegotiated));
}

// The frame that one side must have sent for this to be agreed.
mpa::StartupFrame startup_frame(const Parameters& a, mpa::FrameKind kind) {
  const bool is_ours = (kind == mpa::FrameKind::kRequest) == a.is_initiator;
  mpa::StartupFrame frame;
  frame.kind = kind;
  frame.revision = a.revision;
  frame.needs_markers = is_ours ? a.receive_markers : a.send_markers;
  frame.wants_crc = a.has_crc;
  if (a.revision == MPA_REVISION_ENHANCED) {
    frame.enhanced = mpa::Enhanced{
        .is_peer_to_peer = a.rtr != Rtr::kNone,
        .rtr = {.has_send = a.rtr == Rtr::kSend,
                .has_write = a.rtr == Rtr::kWrite,
                .has_read = a.rtr == Rtr::kRead},
        .ird = depth(is_ours ? a.ird : a.ord),
        .ord = depth(is_ours ? a.ord : a.ird),
    };
  }
  return frame;
}

// One direction, regrouped so that each FPDU begins a packet: Wireshark finds FPDUs in the middle
// of a packet, but loses its way when one begins at a packet's last bytes. Holds at most one FPDU.
class FpduPackets {
 public:
  explicit FpduPackets(bool has_markers)
      : deframer_({.has_crc = false, .has_markers = has_markers, .header_rule = {}}) {}

  template <typename Write>
  void take(Bytes octets, const Write& write) {
    while (!octets.empty()) {
      const mpa::Deframer::Step step = deframer_.step(octets);
      // What is no FPDU at all is shown as it comes.
      const bool is_lost = step.event == mpa::Deframer::Event::kError;
      const Bytes part = is_lost ? octets : octets.first(step.taken);
      held_.insert(held_.end(), part.begin(), part.end());
      octets = octets.subspan(part.size());
      if (is_lost || step.event == mpa::Deframer::Event::kComplete) flush(write);
    }
  }
  template <typename Write>
  void flush(const Write& write) {
    if (!held_.empty()) write(Bytes(held_));
    held_.clear();
  }

 private:
  mpa::Deframer deframer_;
  std::vector<uint8_t> held_;
};

// Writes one connection, from its first byte on, and passes everything to a tap that was there
// before.
class Recorder final : public WireTap {
  struct Writer {
    CapturedTcp& tcp;
    bool is_from_local;
    Time now;
    void operator()(Bytes packet) const { tcp.segment(is_from_local, packet, now); }
  };

 public:
  Recorder(CaptureFile& file, uint32_t index, const Start& start)
      : tcp_(file, index, start.parameters.is_initiator),
        parameters_(start.parameters),
        sent_(start.parameters.send_markers),
        received_(start.parameters.receive_markers),
        next_(start.tap) {}

  void sent(std::span<const Bytes> octets, Time now) override {
    begin(now);
    for (Bytes r : octets) sent_.take(r, Writer{tcp_, true, now});
    if (next_ != nullptr) next_->sent(octets, now);
  }
  void received(std::span<const Bytes> octets, Time now) override {
    begin(now);
    for (Bytes r : octets) received_.take(r, Writer{tcp_, false, now});
    if (next_ != nullptr) next_->received(octets, now);
  }
  void sent_fin(Time now) override {
    begin(now);
    sent_.flush(Writer{tcp_, true, now});
    tcp_.fin(true, now);
    if (next_ != nullptr) next_->sent_fin(now);
  }
  void received_fin(Time now) override {
    begin(now);
    received_.flush(Writer{tcp_, false, now});
    tcp_.fin(false, now);
    if (next_ != nullptr) next_->received_fin(now);
  }

 private:
  void begin(Time now) {
    if (has_begun_) return;
    has_begun_ = true;
    tcp_.handshake(now);
    write_frame(mpa::FrameKind::kRequest, parameters_.is_initiator, now);
    write_frame(mpa::FrameKind::kReply, !parameters_.is_initiator, now);
  }

  void write_frame(mpa::FrameKind kind, bool is_from_local, Time now) {
    std::array<uint8_t, MPA_MAX_STARTUP_SIZE> storage;
    const auto size = mpa::write_startup(startup_frame(parameters_, kind), storage);
    if (!size) return;
    const Bytes frame = Bytes(storage).first(*size);
    tcp_.segment(is_from_local, frame, now);
  }

  CapturedTcp tcp_;
  const Parameters parameters_;
  FpduPackets sent_;
  FpduPackets received_;
  WireTap* const next_;
  bool has_begun_ = false;
};

class PcapQp final : public WrapQp {
 public:
  PcapQp(std::unique_ptr<Qp> inner, CaptureFile& file, uint32_t index)
      : WrapQp(std::move(inner)), file_(file), index_(index) {}

  Status<StartError> start(const Start& start) override {
    // A second start() is refused below; the first one's recorder stays.
    std::optional<Recorder> spare;
    std::optional<Recorder>& recorder = recorder_ ? spare : recorder_;
    recorder.emplace(file_, index_, start);
    Start tapped = start;
    tapped.tap = &*recorder;
    const auto done = WrapQp::start(tapped);
    if (!done) recorder.reset();
    return done;
  }

 private:
  CaptureFile& file_;
  const uint32_t index_;
  std::optional<Recorder> recorder_;
};

class PcapEngine final : public WrapEngine {
 public:
  PcapEngine(std::unique_ptr<Engine> inner, std::FILE* out)
      : WrapEngine("pcap", std::move(inner)), file_(out) {}

 protected:
  std::unique_ptr<WrapQp> wrap_qp(std::unique_ptr<Qp> qp) override {
    return std::unique_ptr<WrapQp>(new (std::nothrow) PcapQp(std::move(qp), file_, next_index_++));
  }

 private:
  CaptureFile file_;
  std::atomic<uint32_t> next_index_ = 0;
};

}  // namespace

std::unique_ptr<Engine> pcap(std::unique_ptr<Engine> inner, std::FILE* out) {
  return std::unique_ptr<Engine>(new (std::nothrow) PcapEngine(std::move(inner), out));
}

}  // namespace ddpsock::engine::wrap
