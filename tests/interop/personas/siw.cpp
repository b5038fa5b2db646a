// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/personas/siw.h"

#include <algorithm>

namespace ddpsock::interop {
namespace {

constexpr size_t kMaxPrivateData = 256;  // [R] RDMA_MAX_PRIVATE_DATA, the words among them
constexpr uint16_t kMaxDepth = 128;      // [R] SIW_MAX_IRD_QP, SIW_MAX_ORD_QP

class Siw final : public Persona {
 public:
  Siw(Role role, const SiwOptions& options) : Persona(role), options_(options) {}

 private:
  void open() override {
    if (role_ == Role::kResponder) return;
    // [R] siw_connect: C only if required, never M; a peer-to-peer start needs an ORD of one.
    ird_ = options_.ulp.ird;
    ord_ = options_.ulp.ord;
    if (options_.is_peer_to_peer && ord_ == 0) ord_ = 1;
    is_enhanced_ = options_.revision == 2;
    asked_ = {ird_, ord_};
    if (options_.is_peer_to_peer)
      asked_ = {static_cast<uint16_t>(ird_ | kBitA), static_cast<uint16_t>(ord_ | kBitC | kBitD)};
    const uint8_t flags =
        static_cast<uint8_t>((options_.is_crc_required ? kFlagC : 0) | (is_enhanced_ ? kFlagS : 0));
    send(kRequestKey, flags, options_.revision, asked_, options_.ulp.private_data);
  }

  // [R] siw_send_mpareqrep: the length of the private data passes through eight bits, once as it is
  // and once more with the four octets of the words.
  void send(const char* key, uint8_t flags, uint8_t revision, Words words, const Octets& data) {
    const auto sent = static_cast<uint8_t>(data.size());
    const Octets pd(data.begin(), data.begin() + sent);
    Octets frame =
        startup_frame(key, flags, revision, is_enhanced_ ? std::optional(words) : std::nullopt, pd);
    frame[18] = 0;
    frame[19] = static_cast<uint8_t>(sent + (is_enhanced_ ? 4 : 0));
    say(std::move(frame));
  }

  // [R] siw_recv_mpa_rr, in both roles: any number of pieces, PD_Length judged first, and not one
  // octet behind the frame. (A FIN right behind a frame without private data is an error, too.)
  void on_startup(size_t) override {
    const FrameView frame(stream_);
    if (!frame.has_header()) return;
    if (frame.pd_length() > kMaxPrivateData)
      return refuse("closes: too much private data", Hangup::kFin);
    if (!frame.is_whole()) return;
    if (stream_.size() > frame.size())
      return refuse("closes: octets after the frame", Hangup::kReset);
    if (role_ == Role::kResponder)
      on_request(frame);
    else
      on_reply(frame);
  }

  // [R] siw_proc_mpareq, then siw_accept or siw_reject.
  void on_request(const FrameView& request) {
    if (request.revision() > 2) return refuse("closes: revision", Hangup::kFin);
    if (!request.has_key(kRequestKey)) return refuse("closes: no Request", Hangup::kFin);
    const bool claims_words = request.revision() == 2 && (request.flags() & kFlagS) != 0;
    // The Reply is the Request's flags and revision, changed where they must be.
    if (claims_words && request.pd_length() < 4) return reject(request, {}, "rejects: no words");
    is_enhanced_ = claims_words;
    if ((request.flags() & kFlagM) != 0) return reject(request, {}, "rejects: Markers");
    Words reply = is_enhanced_ ? answer(request.words()) : Words{};
    account_.private_data = request.private_data(is_enhanced_ ? 4 : 0);
    if (options_.ulp.rejects) {
      // Revision 0 has no reject: it just closes.
      if (request.revision() == 0) return refuse("closes: rejected by its ULP", Hangup::kFin);
      send(kReplyKey, request.flags() | kFlagR, request.revision(), reply,
           options_.ulp.private_data);
      return refuse("rejects: its ULP", Hangup::kFin);
    }
    uint16_t ird = options_.ulp.ird;
    uint16_t ord = options_.ulp.ord;
    if (is_enhanced_) {
      ord = std::min(ord, ord_);
      ird = std::max(ird, ird_);
      reply.ird = static_cast<uint16_t>((reply.ird & ~kDepth) | ird);
      reply.ord = static_cast<uint16_t>((reply.ord & ~kDepth) | ord);
    }
    send(kReplyKey, request.flags(), request.revision(), reply, options_.ulp.private_data);
    const PeerRtr rtr = (reply.ord & kBitC) != 0   ? PeerRtr::kWrite
                        : (reply.ord & kBitD) != 0 ? PeerRtr::kRead
                                                   : PeerRtr::kNone;
    agree({.revision = request.revision(),
           .has_crc = (request.flags() & kFlagC) != 0,
           .rtr = rtr,
           .ird = ird,
           .ord = ord},
          stream_.size());
  }

  // Depths crossed over and clamped, 0x3fff like any other number; of the RTR messages Write before
  // Read, and Write even if only the one it cannot take (Send) was offered.
  Words answer(const Words& request) {
    ord_ = std::min<uint16_t>(request.ird & kDepth, kMaxDepth);
    ird_ = std::min<uint16_t>(request.ord & kDepth, kMaxDepth);
    Words reply{ird_, ord_};
    if ((request.ird & kBitA) != 0) {
      reply.ird |= kBitA;
      const bool is_read = (request.ord & kBitC) == 0 && (request.ord & kBitD) != 0;
      reply.ord |= is_read ? kBitD : kBitC;
    }
    return reply;
  }

  void reject(const FrameView& request, Words words, std::string why) {
    send(kReplyKey, static_cast<uint8_t>((request.flags() & ~kFlagM) | kFlagR), request.revision(),
         words, {});
    refuse(std::move(why), Hangup::kFin);
  }

  // [R] siw_proc_mpareply.
  void on_reply(const FrameView& reply) {
    if (reply.revision() > 2) return refuse("closes: revision", Hangup::kFin);
    if (!reply.has_key(kReplyKey)) return terminate(4, "no Reply", false, true);
    account_.private_data = reply.private_data(is_enhanced_ ? 4 : 0);
    if ((reply.flags() & kFlagR) != 0) return refuse("rejected", Hangup::kFin);
    const bool has_crc = (reply.flags() & kFlagC) != 0;
    if ((reply.flags() & kFlagM) != 0) return refuse("closes: Markers", Hangup::kFin);
    if (options_.is_crc_required && !has_crc) return refuse("closes: no CRC", Hangup::kFin);
    PeerRtr rtr = PeerRtr::kNone;
    if (is_enhanced_) {
      // No fallback: a hard failure.
      if (reply.revision() < 2 || (reply.flags() & kFlagS) == 0)
        return refuse("closes: not enhanced", Hangup::kFin);
      const Words words = reply.words();
      const uint16_t their_ird = words.ird & kDepth;
      const uint16_t their_ord = words.ord & kDepth;
      const bool is_insufficient = ird_ < their_ord && their_ord > kMaxDepth;
      ird_ = their_ord;  // whatever it asked for
      ord_ = their_ird;
      if (is_insufficient) return terminate(6, "IRD", has_crc, true);
      const uint16_t asked = (asked_.ird & kBitA) != 0 ? asked_.ord & (kBitC | kBitD) : 0;
      if (asked != 0) {
        if ((asked & words.ord) == 0) return terminate(7, "RTR", has_crc, true);
        rtr = (words.ord & kBitC) != 0 ? PeerRtr::kWrite : PeerRtr::kRead;
        if (rtr == PeerRtr::kRead && ord_ == 0)
          return refuse("closes: no ORD for its Read RTR", Hangup::kFin);
      }
    }
    agree({.revision = reply.revision(), .has_crc = has_crc, .rtr = rtr, .ird = ird_, .ord = ord_},
          stream_.size());
  }

  // [R] siw_qp_mpa_rts: STag 1, TO 0; the sink of a Read is 0.
  RtrPlace rtr_place() const override { return {.stag = 1, .to = 0, .sink_stag = 0, .sink_to = 0}; }

  SiwOptions options_;
  Words asked_{};
  bool is_enhanced_ = false;
  uint16_t ird_ = 0;
  uint16_t ord_ = 0;
};

}  // namespace

std::unique_ptr<Persona> make_siw(Role role, const SiwOptions& options) {
  return std::make_unique<Siw>(role, options);
}

}  // namespace ddpsock::interop
