// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Peers from before RFC 5044, frames that the RFCs have an answer to, and peers that do not speak
// MPA.
#include "tests/interop/matrix/cells.h"

namespace ddpsock::interop {
namespace {

constexpr uint8_t kCs = kFlagC | kFlagS;
constexpr Words kSixteen{16, 16};

// A Reply (or Request) of revision 2 with CRC.
Frame enhanced(uint16_t ird_word, uint16_t ord_word) {
  return {.flags = kCs, .words = Words{ird_word, ord_word}, .agreement = PeerAgreement{2, true}};
}
Frame with_agreement(Frame frame, PeerRtr rtr) {
  frame.agreement = PeerAgreement{.revision = frame.revision, .has_crc = true, .rtr = rtr};
  return frame;
}

void add_old(std::vector<Cell>& to) {
  const PeerKind rdmac = framer("RDMAC, revision 0", {.flags = kFlagC, .revision = 0});
  const PeerKind osc = framer("OSC, revision 1 in Replies", {.flags = kFlagC, .revision = 1});
  const PeerKind bare = framer(
      "OSC without CRC and CRC word",
      {.flags = 0, .revision = 1, .agreement = PeerAgreement{1, false}, .omits_crc_word = true});
  to.push_back(agrees(rdmac, of_revision(0), {.revision = 0}, "asked in its own revision"));
  to.push_back(agrees(rdmac, by_default(), {.revision = 0},
                      "a Reply below revision 2 asks for the second call, and may be lower still",
                      {.has_fallen_back = true}));
  to.push_back(agrees(osc, by_default(), {.revision = 1}, "a Reply below revision 2",
                      {.has_fallen_back = true}));
  to.push_back(fails(osc, of_revision(0), {StartupError::kUnknownRevision}, "agreed",
                     "a Reply above its Request"));
  to.push_back(agrees(bare,
                      calling("revision 1, CRC off",
                              [](auto& c) {
                                c.revision = 1;
                                c.wants_crc = false;
                              }),
                      {.revision = 1, .has_crc = false},
                      "without the CRC word no FPDU ends where it should",
                      {.then = Then::kNothingHeard}));
  to.push_back(agrees(rdmac, accepting(), {.revision = 0}, "answered in its own revision"));
  to.push_back(agrees(
      framer("RDMAC with Markers",
             {.flags = kFlagC | kFlagM, .revision = 0, .agreement = PeerAgreement{0, true, true}}),
      accepting(), {.revision = 0, .send_markers = true}, "M is the receiver's right"));
  to.push_back(agrees(bare, accepting_without_crc(), {.revision = 1, .has_crc = false},
                      "without the CRC word no FPDU ends where it should",
                      {.then = Then::kNothingHeard}));
}

void add_odd_replies(std::vector<Cell>& to) {
  const auto no_match = Fails{StartupError::kNoMatchingRtr, 7};
  to.push_back(fails(framer("Reply of revision 3", {.flags = kCs, .revision = 3}), by_default(),
                     {StartupError::kUnknownRevision}, "agreed", "nobody knows it"));
  to.push_back(fails(framer("Reply of revision 2 without S", {.flags = kFlagC}), by_default(),
                     {StartupError::kUnknownRevision}, "agreed",
                     "asks for the second call, and is then above revision 1",
                     {.has_fallen_back = true}));
  to.push_back(fails(framer("Reply of revision 2", {.flags = kCs, .words = kSixteen}),
                     of_revision(1), {StartupError::kUnknownRevision}, "agreed",
                     "a Reply above its Request"));
  to.push_back(fails(framer("Reply with C and D", enhanced(kBitA | 16, kBitC | kBitD | 16)),
                     by_default(), no_match, "agreed", "exactly one is to be chosen"));
  to.push_back(fails(framer("Reply with B", enhanced(kBitA | kBitB | 16, 16)), by_default(),
                     no_match, "agreed", "a Send was not offered"));
  to.push_back(fails(framer("Reply with A only", enhanced(kBitA | 16, 16)), by_default(), no_match,
                     "agreed", "none chosen"));
  to.push_back(fails(framer("Reply with C and no A", enhanced(16, kBitC | 16)), by_default(),
                     no_match, "agreed", "A is to be echoed"));
  to.push_back(agrees(framer("Reply with C unasked", enhanced(16, kBitC | 16)), without_p2p(), {},
                      "no RTR without A in the Request"));
  to.push_back(agrees(framer("Reply with A and D unasked", enhanced(kBitA | 16, kBitD | 16)),
                      without_p2p(), {}, "no RTR without A in the Request"));
  to.push_back(agrees(framer("Reply with B where all are offered",
                             with_agreement(enhanced(kBitA | kBitB | 16, 16), PeerRtr::kSend)),
                      offering("Send, Write and Read", {true, true, true}), {.rtr = Rtr::kSend},
                      "the Send consumes no receive of the peer's ULP"));
  to.push_back(agrees(framer("Reply with ORD 100",
                             with_agreement(enhanced(kBitA | 16, kBitC | 100), PeerRtr::kWrite)),
                      by_default(), {.rtr = Rtr::kWrite, .ird = 100},
                      "we raise our IRD, as far as 128"));
  to.push_back(fails(framer("Reply with ORD 129", enhanced(kBitA | 16, kBitC | 129)), by_default(),
                     {StartupError::kInsufficientIrd, 6}, "agreed", "more than we can serve"));
  to.push_back(fails(framer("Reply with D and IRD 0", enhanced(kBitA, kBitD | 16)), by_default(),
                     {StartupError::kInsufficientIrd, 6}, "agreed",
                     "it serves no Read, not even the RTR"));
  to.push_back(
      agrees(framer("Reply with D and IRD open",
                    with_agreement(enhanced(kBitA | kDepth, kBitD | kDepth), PeerRtr::kRead)),
             by_default(), {.rtr = Rtr::kRead}, "each side keeps its own numbers"));
  Frame careless = with_agreement(enhanced(kBitA | 16, kBitC | 16), PeerRtr::kWrite);
  careless.flags = kFlagS;
  to.push_back(agrees(framer("Reply without C", careless), by_default(), {.rtr = Rtr::kWrite},
                      "on if either side sets C, and we did"));
  Frame marked = with_agreement(enhanced(kBitA | 16, kBitC | 16), PeerRtr::kWrite);
  marked.flags |= kFlagM;
  marked.agreement->wants_markers = true;
  to.push_back(agrees(framer("Reply with M", marked), by_default(),
                      {.rtr = Rtr::kWrite, .send_markers = true}, "M is the receiver's right"));
  marked.words->ord = kBitC | kBitD | 16;
  marked.agreement->rtr = PeerRtr::kNone;
  to.push_back(fails(framer("Reply with M, C and D", marked), by_default(), no_match, "agreed",
                     "the Terminate has its Marker"));
  Frame trailing = enhanced(kBitA | 16, kBitC | 16);
  trailing.trailing = {0};
  to.push_back(fails(framer("Reply and one octet", trailing), by_default(),
                     {StartupError::kTrailingBytes}, "agreed",
                     "a responder waits for the first FPDU"));
  to.push_back(fails(framer("Reply with PD_Length 513",
                            {.flags = kCs, .words = kSixteen, .private_data = filled(509)}),
                     by_default(), {StartupError::kPrivateDataTooLong}, "agreed",
                     "512 is the RFC's limit"));
  to.push_back(
      fails(framer("Reply with S and PD_Length 3", {.flags = kCs, .private_data = filled(3)}),
            by_default(), {StartupError::kEnhancedTooShort}, "agreed", "the words are missing"));
  to.push_back(
      fails(framer("Reply with R of revision 1", {.flags = kFlagC | kFlagR, .revision = 1}),
            by_default(), {StartupError::kRejected}, "agreed",
            "the second call learns whether R meant the revision", {.has_fallen_back = true}));
}

void add_odd_requests(std::vector<Cell>& to) {
  to.push_back(fails(framer("Request of revision 3", {.flags = kCs, .revision = 3}), accepting(),
                     {StartupError::kUnknownRevision}, "is left alone", "nobody knows it"));
  to.push_back(agrees(framer("Request of revision 2 without S",
                             {.flags = kFlagC, .agreement = PeerAgreement{2, true}}),
                      accepting(), {}, "answered in kind, without words"));
  to.push_back(fails(framer("Request with A only", enhanced(kBitA | 16, 16)), accepting(),
                     {StartupError::kNoMatchingRtr}, "rejected", "no RTR offered"));
  to.push_back(agrees(framer("Request with A and B",
                             with_agreement(enhanced(kBitA | kBitB | 16, 16), PeerRtr::kSend)),
                      accepting(), {.rtr = Rtr::kSend}, "the Send consumes no receive of ours"));
  to.push_back(agrees(framer("Request with C and D, no A", enhanced(16, kBitC | kBitD | 16)),
                      accepting(), {}, "no RTR without A"));
  Frame rejecting = enhanced(16, 16);
  rejecting.flags |= kFlagR;
  to.push_back(agrees(framer("Request with R", rejecting), accepting(), {},
                      "a Request cannot reject; the bit is not looked at"));
  to.push_back(agrees(framer("Request with IRD and ORD open", enhanced(kDepth, kDepth)),
                      accepting(), {}, "each side keeps its own numbers"));
  Frame trailing = enhanced(16, 16);
  trailing.trailing = {0};
  to.push_back(fails(framer("Request and one octet", trailing), accepting(),
                     {StartupError::kTrailingBytes}, "is left alone",
                     "an initiator waits for the Reply"));
  to.push_back(fails(framer("Request with PD_Length 513",
                            {.flags = kCs, .words = kSixteen, .private_data = filled(509)}),
                     accepting(), {StartupError::kPrivateDataTooLong}, "is left alone",
                     "512 is the RFC's limit"));
  to.push_back(fails(
      framer("Request with S and PD_Length 3", {.flags = kCs, .private_data = filled(3)}),
      accepting(), {StartupError::kEnhancedTooShort}, "is left alone", "the words are missing"));
  Frame ended = enhanced(kBitA | 16, kBitC | 16);
  ended.terminate = 6;
  to.push_back(agrees(
      framer("Request, then Terminate 6", ended), accepting(), {.rtr = Rtr::kWrite},
      "layer LLP, type MPA, insufficient IRD",
      {.then = Then::kPeerTerminates, .peer_term_code = 6, .verdict = "Terminate 6: as told"}));
  ended.terminate = 7;
  ended.is_terminate_swapped = true;
  to.push_back(agrees(
      framer("Request, then Terminate 7 as siw writes it", ended), accepting(),
      {.rtr = Rtr::kWrite}, "in start-up a flagless Terminate of RDMAP's is read as one of MPA's",
      {.then = Then::kPeerTerminates, .peer_term_code = 7, .verdict = "Terminate 7: as told"}));
}

}  // namespace

std::vector<Cell> old_and_odd_cells() {
  std::vector<Cell> cells;
  add_old(cells);
  add_odd_replies(cells);
  add_odd_requests(cells);
  return cells;
}

std::vector<Cell> plain_cells() {
  const Octets http = octets("HTTP/1.1 400 Bad Request\r\n\r\n");
  const Octets half_reply = octets("MPA ID Rep Fr");
  const Octets half_request = octets("MPA ID Req Fr");
  const Octets request = startup_frame(kRequestKey, kCs, 2, kSixteen, {});
  const Octets reply = startup_frame(kReplyKey, kCs, 2, kSixteen, {});
  return {
      fails(plain("HTTP server", {.answer = http}), by_default(), {StartupError::kNotMpa},
            "is left alone", "its first octet shows it"),
      fails(plain("SMTP server", {.greeting = octets("220 mail ready\r\n")}), by_default(),
            {StartupError::kNotMpa}, "is left alone", "its first octet shows it"),
      fails(plain("echo server", {.answer = request}), by_default(), {StartupError::kNotMpa},
            "is left alone", "a Request is no Reply"),
      fails(plain("server that closes", {.then = Hangup::kFin}), by_default(),
            {StartupError::kClosed}, "closes", "two calls and no more", {.has_fallen_back = true}),
      fails(plain("server that resets", {.then = Hangup::kReset}), by_default(),
            {StartupError::kClosed}, "closes", "two calls and no more", {.has_fallen_back = true}),
      fails(plain("server that resets before it has read",
                  {.then = Hangup::kReset, .hangs_up_at_once = true}),
            by_default(), {StartupError::kClosed}, "closes", "two calls and no more",
            {.has_fallen_back = true}),
      fails(plain("silent server", {}), by_default(), {StartupError::kTimedOut}, "is left alone",
            "5 s after the Request; silence is no hint at revision 1"),
      fails(plain("server that stalls inside its Reply", {.answer = half_reply}), by_default(),
            {StartupError::kTimedOut}, "is left alone", "5 s after the Request"),
      fails(plain("server that closes inside its Reply",
                  {.answer = half_reply, .then = Hangup::kFin}),
            by_default(), {StartupError::kTruncated}, "closes", "MPA, but broken"),
      fails(plain("HTTP client", {.greeting = octets("GET / HTTP/1.1\r\n\r\n")}), accepting(),
            {StartupError::kNotMpa}, "is left alone", "its first octet shows it"),
      fails(plain("TLS client", {.greeting = {0x16, 0x03, 0x01, 0x02, 0x00}}), accepting(),
            {StartupError::kNotMpa}, "is left alone", "its first octet shows it"),
      fails(plain("client in the wrong role", {.greeting = reply}), accepting(),
            {StartupError::kNotMpa}, "is left alone", "a Reply is no Request"),
      fails(plain("port scanner", {.then = Hangup::kFin, .hangs_up_at_once = true}), accepting(),
            {StartupError::kClosed}, "closes", "not an error to a responder"),
      fails(plain("silent client", {}), accepting(), {StartupError::kTimedOut}, "is left alone",
            "10 s after it was accepted"),
      fails(plain("client that stalls inside its Request", {.greeting = half_request}), accepting(),
            {StartupError::kTimedOut}, "is left alone",
            "10 s after it was accepted; octets that trickle move nothing"),
      fails(plain("client that closes inside its Request",
                  {.greeting = half_request, .then = Hangup::kFin, .hangs_up_at_once = true}),
            accepting(), {StartupError::kTruncated}, "closes", "MPA, but broken"),
  };
}

}  // namespace ddpsock::interop
