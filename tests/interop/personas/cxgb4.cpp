// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/personas/cxgb4.h"

#include <algorithm>

namespace ddpsock::interop {
namespace {

constexpr size_t kMaxPrivateData = 256;  // [R] MPA_MAX_PRIVATE_DATA, the words among them
constexpr uint16_t kMaxDepth = 32;       // [R] c4iw_max_read_depth; the adapter's own is as much

class Cxgb4 final : public Persona {
 public:
  Cxgb4(Role role, const Cxgb4Options& options) : Persona(role), options_(options) {
    if (options_.is_second_call) options_.revision = 1;
  }

 private:
  // [R] send_mpa_req: one kind of RTR message and no other.
  void open() override {
    if (role_ == Role::kResponder) return;
    ird_ = options_.ulp.ird;
    ord_ = options_.ulp.ord;
    if (options_.is_peer_to_peer && ord_ == 0) ord_ = 1;
    const bool is_enhanced = options_.revision == 2;
    Words words{ird_, ord_};
    if (options_.is_peer_to_peer) {
      words.ird |= kBitA;
      words.ord |= rtr_bit();
    }
    say(startup_frame(kRequestKey, static_cast<uint8_t>(own_flags() | (is_enhanced ? kFlagS : 0)),
                      options_.revision, is_enhanced ? std::optional(words) : std::nullopt,
                      options_.ulp.private_data));
  }

  uint8_t own_flags() const {
    return static_cast<uint8_t>((options_.has_crc ? kFlagC : 0) |
                                (options_.wants_markers ? kFlagM : 0));
  }
  uint16_t rtr_bit() const { return options_.rtr == PeerRtr::kWrite ? kBitC : kBitD; }

  // [R] process_mpa_request and process_mpa_reply begin alike. Every failure is an abort: RST.
  void on_startup(size_t) override {
    const FrameView frame(stream_);
    if (stream_.size() > 20 + kMaxPrivateData)
      return refuse("resets: too much private data", Hangup::kReset);
    if (!frame.has_header()) return;
    if (frame.revision() > max_revision()) return refuse("resets: revision", Hangup::kReset);
    if (!frame.has_key(role_ == Role::kResponder ? kRequestKey : kReplyKey))
      return refuse("resets: wrong key", Hangup::kReset);
    if (frame.pd_length() > kMaxPrivateData)
      return refuse("resets: too much private data", Hangup::kReset);
    if (stream_.size() > frame.size())
      return refuse("resets: octets after the frame", Hangup::kReset);
    if (!frame.is_whole()) return;
    if (role_ == Role::kResponder)
      on_request(frame);
    else
      on_reply(frame);
  }

  // The module's, also when it calls again with revision 1.
  uint8_t max_revision() const { return options_.is_second_call ? 2 : options_.revision; }

  // The choice of a peer's frame: Write before Read, Sends are not known.
  PeerRtr chosen(Words words) const {
    if ((words.ird & kBitA) == 0) return PeerRtr::kNone;
    if ((words.ord & kBitC) != 0) return PeerRtr::kWrite;
    if ((words.ord & kBitD) != 0) return PeerRtr::kRead;
    return PeerRtr::kNone;
  }

  // [R] process_mpa_request, then c4iw_accept_cr with send_mpa_reply, or send_mpa_reject.
  void on_request(const FrameView& request) {
    const bool is_enhanced = request.revision() == 2 && (request.flags() & kFlagS) != 0;
    const Words words = request.words();
    const bool has_rtr = is_enhanced && options_.is_peer_to_peer && chosen(words) != PeerRtr::kNone;
    const uint16_t their_ird = std::min<uint16_t>(words.ird & kDepth, kMaxDepth);
    const uint16_t their_ord = std::min<uint16_t>(words.ord & kDepth, kMaxDepth);
    account_.private_data = request.private_data(is_enhanced ? 4 : 0);
    if (options_.ulp.rejects) return reject(request.revision(), is_enhanced, their_ird, their_ord);

    uint16_t ird = options_.ulp.ird;
    uint16_t ord = options_.ulp.ord;
    if (is_enhanced) {
      ord = std::min(ord, their_ird);
      ird = std::max(ird, their_ord);
    }
    const bool is_read = options_.rtr == PeerRtr::kRead;
    const bool needs_ird = request.revision() == 1 ? options_.is_peer_to_peer : has_rtr && is_read;
    if (needs_ird && ird == 0) ird = 1;
    Words reply{ird, ord};
    if (has_rtr) {
      // Its own kind, whether it was offered or not.
      reply.ird |= kBitA;
      reply.ord |= rtr_bit();
    }
    const bool has_crc = (request.flags() & kFlagC) != 0 || options_.has_crc;
    const uint8_t flags =
        static_cast<uint8_t>((has_crc ? kFlagC : 0) | (options_.wants_markers ? kFlagM : 0) |
                             (is_enhanced ? kFlagS : 0));
    say(startup_frame(kReplyKey, flags, request.revision(),
                      is_enhanced ? std::optional(reply) : std::nullopt,
                      options_.ulp.private_data));
    agree({.revision = request.revision(),
           .has_crc = has_crc,
           .wants_markers = options_.wants_markers,
           .sends_markers = (request.flags() & kFlagM) != 0,
           .rtr = has_rtr ? options_.rtr : PeerRtr::kNone,
           .ird = ird,
           .ord = ord},
          stream_.size());
  }

  // [R] R and no other flag but S; A and its RTR bit even if nobody asked.
  void reject(uint8_t revision, bool is_enhanced, uint16_t their_ird, uint16_t their_ord) {
    Words words{their_ird, their_ord};
    if (options_.is_peer_to_peer) {
      words.ird |= kBitA;
      words.ord |= rtr_bit();
    }
    say(startup_frame(kReplyKey, static_cast<uint8_t>(kFlagR | (is_enhanced ? kFlagS : 0)),
                      revision, is_enhanced ? std::optional(words) : std::nullopt,
                      options_.ulp.private_data));
    refuse("rejects: its ULP", Hangup::kFin);
  }

  // [R] process_mpa_reply, second half.
  void on_reply(const FrameView& reply) {
    const bool is_enhanced = reply.revision() == 2 && (reply.flags() & kFlagS) != 0;
    const Words words = reply.words();
    account_.private_data = reply.private_data(is_enhanced ? 4 : 0);
    if ((reply.flags() & kFlagR) != 0) return refuse("rejected", Hangup::kReset);
    const bool has_crc = (reply.flags() & kFlagC) != 0 || options_.has_crc;
    PeerRtr rtr = PeerRtr::kNone;
    bool is_insufficient = false;
    if (is_enhanced) {
      const uint16_t their_ird = words.ird & kDepth;
      const uint16_t their_ord = words.ord & kDepth;
      is_insufficient = ird_ < their_ord && their_ord > kMaxDepth;
      ird_ = their_ord;
      ord_ = is_insufficient ? their_ird : std::min(ord_, their_ird);
      rtr = chosen(words);
    } else if (reply.revision() == 1 && options_.is_peer_to_peer) {
      rtr = options_.rtr;  // nobody agreed to it
    }
    if (reply.revision() == 2 && options_.is_peer_to_peer && rtr != options_.rtr)
      return terminate(7, "RTR", has_crc, false);
    if (is_insufficient) return terminate(6, "IRD", has_crc, false);
    agree({.revision = reply.revision(),
           .has_crc = has_crc,
           .wants_markers = options_.wants_markers,
           .sends_markers = (reply.flags() & kFlagM) != 0,
           .rtr = rtr,
           .ird = ird_,
           .ord = ord_},
          stream_.size());
  }

  // [R] peer_abort and c4iw_reconnect: only after a reset, only once.
  void on_close() override {
    const bool waits_for_reply = role_ == Role::kInitiator;
    wants_to_call_again_ = waits_for_reply && options_.revision == 2;
    refuse("is left alone", Hangup::kFin);
  }

  // [R] build_rtr_msg: all ones.
  RtrPlace rtr_place() const override { return {.stag = 1, .to = 1, .sink_stag = 1, .sink_to = 1}; }

  Cxgb4Options options_;
  uint16_t ird_ = 0;
  uint16_t ord_ = 0;
};

}  // namespace

std::unique_ptr<Persona> make_cxgb4(Role role, const Cxgb4Options& options) {
  return std::make_unique<Cxgb4>(role, options);
}

}  // namespace ddpsock::interop
