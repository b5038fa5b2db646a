// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/personas/irdma.h"

#include <algorithm>

namespace ddpsock::interop {
namespace {

constexpr size_t kMaxPrivateData = 512;  // [R] IETF_MAX_PRIV_DATA_LEN
constexpr uint16_t kMaxIrd = 127;        // [R] ICRDMA_MAX_IRD_SIZE
constexpr uint16_t kMaxOrd = 255;        // [R] ICRDMA_MAX_ORD_SIZE

class Irdma final : public Persona {
 public:
  Irdma(Role role, const IrdmaOptions& options) : Persona(role), options_(options) {}

 private:
  // [R] irdma_make_cm_node, irdma_record_ird_ord: a responder starts from the hardware's depths and
  // never looks at its ULP's; an initiator makes room for its Read RTR.
  void open() override {
    if (role_ == Role::kResponder) return;
    ird_ = std::min(options_.ulp.ird, kMaxIrd);
    ord_ = std::min(options_.ulp.ord, kMaxOrd);
    if (ord_ == 0) ord_ = 1;
    say_frame(kRequestKey, 0);
  }

  // [R] irdma_build_mpa_v1 and _v2: C always, A always.
  void say_frame(const char* key, uint8_t more_flags) {
    const bool is_enhanced = revision_ == 2;
    uint8_t flags = static_cast<uint8_t>(kFlagC | more_flags);
    Words words{is_not_negotiated_ ? kDepth : ird_, is_not_negotiated_ ? kDepth : ord_};
    words.ird |= kBitA;
    if (role_ == Role::kInitiator)
      words.ord |= kBitC | kBitD;
    else
      words.ord |= rtr_ == PeerRtr::kWrite ? kBitC : kBitD;
    if (is_enhanced) {
      flags |= kFlagS;
      if (options_.wants_markers) flags |= kFlagM;
    }
    say(startup_frame(key, flags, revision_, is_enhanced ? std::optional(words) : std::nullopt,
                      options_.ulp.private_data));
  }

  // [R] irdma_parse_mpa: looks at one TCP segment by itself, which must hold the whole frame. What
  // follows in the segment is acknowledged and dropped. Every failure is a reset.
  void on_startup(size_t segment) override {
    stream_.erase(stream_.begin(), stream_.end() - static_cast<ptrdiff_t>(segment));
    const FrameView frame(stream_);
    if (!frame.has_header()) return reset("part of a frame");
    if (frame.pd_length() > kMaxPrivateData) return reset("too much private data");
    if (frame.revision() != 1 && frame.revision() != 2) return reset("revision");
    if (frame.revision() > revision_) return reset("revision");
    revision_ = frame.revision();
    if (!frame.has_key(role_ == Role::kResponder ? kRequestKey : kReplyKey))
      return reset("wrong key");
    if (!frame.is_whole()) return reset("part of a frame");
    // The S flag does not matter, and R is looked at only afterwards.
    if (revision_ == 2) {
      if (const char* why = negotiate(frame.words())) return reset(why);
    }
    // [R] It copies PD_Length octets from behind the words: four octets too many.
    account_.private_data = frame.private_data(revision_ == 2 ? 4 : 0);
    if (revision_ == 2) account_.private_data.resize(account_.private_data.size() + 4);
    conclude(frame);
  }

  void reset(const std::string& why) { refuse("resets: " + why, Hangup::kReset); }

  // [R] irdma_negotiate_mpa_v2_ird_ord. Why not, or nothing.
  const char* negotiate(Words words) {
    const uint16_t their_ird = words.ird & kDepth;
    const uint16_t their_ord = words.ord & kDepth;
    const bool has_read = (words.ord & kBitD) != 0;
    const bool has_write = (words.ord & kBitC) != 0;
    if ((words.ird & kBitA) == 0) return "not peer-to-peer";
    if (their_ird == kDepth || their_ord == kDepth) {
      is_not_negotiated_ = true;
    } else if (role_ == Role::kResponder) {
      if (their_ord == 0 && has_read) ird_ = 1;
      ord_ = std::min(ord_, their_ird);
    } else {
      if (their_ird == 0 && has_read) return "no IRD for its Read RTR";
      ord_ = std::min(ord_, their_ird);
      if (ird_ < their_ord) return "IRD";  // it neither raises its own nor sends a Terminate
    }
    if (!has_read && !has_write) return "no RTR it knows";
    rtr_ = has_read ? PeerRtr::kRead : PeerRtr::kWrite;
    return nullptr;
  }

  void conclude(const FrameView& frame) {
    if (role_ == Role::kInitiator && (frame.flags() & kFlagR) != 0)
      return refuse("rejected", Hangup::kFin);
    if (role_ == Role::kResponder) {
      say_frame(kReplyKey, options_.ulp.rejects ? kFlagR : 0);
      if (options_.ulp.rejects) return refuse("rejects: its ULP", Hangup::kFin);
    }
    // [R] irdma_cm_event_connected sends the RTR message whatever the revision was. CRCs are always
    // on [M].
    const bool has_rtr = revision_ == 2 || role_ == Role::kInitiator;
    agree({.revision = revision_,
           .has_crc = true,
           .wants_markers = options_.wants_markers && revision_ == 2,
           .sends_markers = (frame.flags() & kFlagM) != 0,
           .rtr = has_rtr ? rtr_ : PeerRtr::kNone,
           .ird = ird_,
           .ord = ord_},
          stream_.size());
  }

  // [R] irdma_sc_send_rtt.
  RtrPlace rtr_place() const override {
    if (rtr_ == PeerRtr::kWrite) return {.stag = 0, .to = 0};
    return {.stag = 0x1234, .to = 0, .sink_stag = 0xabcd, .sink_to = 0};
  }

  IrdmaOptions options_;
  uint8_t revision_ = 2;  // [R] IRDMA_CM_DEFAULT_MPA_VER
  uint16_t ird_ = kMaxIrd;
  uint16_t ord_ = kMaxOrd;
  PeerRtr rtr_ = PeerRtr::kRead;
  bool is_not_negotiated_ = false;
};

}  // namespace

std::unique_ptr<Persona> make_irdma(Role role, const IrdmaOptions& options) {
  return std::make_unique<Irdma>(role, options);
}

}  // namespace ddpsock::interop
