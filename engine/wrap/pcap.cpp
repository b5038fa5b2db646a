// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/pcap.h"

#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "engine/queue/medium.h"
#include "engine/wrap/captured_start.h"
#include "engine/wrap/wrap.h"
#include "mpa/deframer.h"

namespace ddpsock::engine::wrap {
namespace {

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
      hold(part, write);
      octets = octets.subspan(part.size());
      if (is_lost || step.event == mpa::Deframer::Event::kComplete) flush(write);
    }
  }
  template <typename Write>
  void flush(const Write& write) {
    if (size_ > 0) write(Bytes(held_.get(), size_));
    size_ = 0;
  }

 private:
  static constexpr size_t kMost = 80'000;  // an FPDU with its Markers is not as long

  template <typename Write>
  void hold(Bytes part, const Write& write) {
    if (!held_) held_.reset(new (std::nothrow) uint8_t[kMost]);
    if (!held_ || part.size() > kMost - size_) flush(write);
    if (!held_ || part.size() > kMost) return write(part);
    std::memcpy(held_.get() + size_, part.data(), part.size());
    size_ += part.size();
  }

  mpa::Deframer deframer_;
  std::unique_ptr<uint8_t[]> held_;
  size_t size_ = 0;
};

// Writes one connection, from its first byte on, and passes everything to a tap that was there
// before.
class TappedQp final : public WireTap {
  struct Writer {
    CapturedTcp& tcp;
    bool is_from_local;
    Time now;
    void operator()(Bytes packet) const { tcp.segment(is_from_local, packet, now); }
  };

 public:
  TappedQp(CaptureFile& file, const CapturedEnds& ends, const Start& start)
      : tcp_(file, ends, start.agreed.is_initiator),
        agreed_(start.agreed),
        sent_(start.agreed.send_markers),
        received_(start.agreed.receive_markers),
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
    if (!std::exchange(has_begun_, true)) write_start(tcp_, agreed_, now);
  }

  CapturedTcp tcp_;
  const Agreement agreed_;
  FpduPackets sent_;
  FpduPackets received_;
  WireTap* const next_;
  bool has_begun_ = false;
};

class PcapQp final : public WrapQp {
 public:
  PcapQp(std::unique_ptr<Qp> inner, CaptureFile& file, EndsOf ends_of, uint32_t index)
      : WrapQp(std::move(inner)), file_(file), ends_of_(ends_of), index_(index) {}

  Status<StartError> start(const Start& start) override {
    // Who watches the byte stream sees its FPDUs, too.
    if (start.medium != nullptr && start.medium->is_of_stream()) return WrapQp::start(start);
    // A second start() is refused below; the first one's tap stays.
    std::optional<TappedQp> spare;
    std::optional<TappedQp>& tapped_qp = tapped_ ? spare : tapped_;
    tapped_qp.emplace(file_, ends_of_(start, index_), start);
    Start tapped = start;
    tapped.tap = &*tapped_qp;
    const auto done = WrapQp::start(tapped);
    if (!done) tapped_qp.reset();
    return done;
  }

 private:
  CaptureFile& file_;
  const EndsOf ends_of_;
  const uint32_t index_;
  std::optional<TappedQp> tapped_;
};

class PcapEngine final : public WrapEngine {
 public:
  PcapEngine(std::unique_ptr<Engine> inner, CaptureFile& file, EndsOf ends_of)
      : WrapEngine("pcap", std::move(inner)), file_(file), ends_of_(ends_of) {}
  PcapEngine(std::unique_ptr<Engine> inner, Records& out)
      : WrapEngine("pcap", std::move(inner)), own_(out), file_(*own_), ends_of_(ends_made_up) {
    file_.begin();
  }

 protected:
  std::unique_ptr<WrapQp> wrap_qp(std::unique_ptr<Qp> qp) override {
    return std::unique_ptr<WrapQp>(new (std::nothrow)
                                       PcapQp(std::move(qp), file_, ends_of_, next_index_++));
  }

 private:
  static CapturedEnds ends_made_up(const Start& start, uint32_t index) {
    return made_up_ends(index, start.agreed.is_initiator);
  }

  std::optional<CaptureFile> own_;
  CaptureFile& file_;
  const EndsOf ends_of_;
  std::atomic<uint32_t> next_index_ = 0;
};

}  // namespace

std::unique_ptr<Engine> pcap(std::unique_ptr<Engine> inner, Records& out) {
  return std::unique_ptr<Engine>(new (std::nothrow) PcapEngine(std::move(inner), out));
}

std::unique_ptr<Engine> pcap(std::unique_ptr<Engine> inner, CaptureFile& file, EndsOf ends_of) {
  return std::unique_ptr<Engine>(new (std::nothrow) PcapEngine(std::move(inner), file, ends_of));
}

}  // namespace ddpsock::engine::wrap
