// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/matrix/cells.h"

namespace ddpsock::interop {
namespace {

void add_called(std::vector<Cell>& to) {
  const PeerKind plain_siw = siw("siw");
  const Agrees write{.rtr = Rtr::kWrite};
  to.push_back(agrees(plain_siw, by_default(), write, "siw echoes C and takes Write before Read"));
  to.push_back(agrees(plain_siw, without_p2p(), {}, "siw asks for no RTR by itself"));
  to.push_back(agrees(plain_siw, without_crc(), {.has_crc = false, .rtr = Rtr::kWrite},
                      "off because both leave C clear"));
  to.push_back(agrees(plain_siw, of_revision(1), {.revision = 1}, "no words, no negotiation"));
  to.push_back(agrees(plain_siw, of_revision(0), {.revision = 0}, "siw accepts 0, 1 and 2"));
  to.push_back(agrees(plain_siw, offering("Write only", kOnlyWrite), write, "it was offered"));
  to.push_back(agrees(plain_siw, offering("Read only", kOnlyRead), {.rtr = Rtr::kRead},
                      "without Write siw takes Read"));
  to.push_back(fails(plain_siw, offering("Send only", kOnlySend), {StartupError::kNoMatchingRtr, 7},
                     "agreed",
                     "siw answers Write though only Send was offered; nothing but a Terminate may "
                     "follow (RFC 6581 section 9)"));
  to.push_back(agrees(plain_siw, with_depths(0), {.rtr = Rtr::kWrite, .ird = 0, .ord = 0},
                      "the ORD of 1 asked for a Read RTR is not kept for a Write"));
  to.push_back(agrees(plain_siw, with_depths(1), {.rtr = Rtr::kWrite, .ird = 1, .ord = 1},
                      "siw lowers its ORD to our IRD"));
  to.push_back(agrees(plain_siw, with_depths(128), {.rtr = Rtr::kWrite, .ird = 16, .ord = 128},
                      "siw raises its IRD to our ORD, and issues what its ULP wants"));
  to.push_back(agrees(plain_siw, with_depths(4096), {.rtr = Rtr::kWrite, .ird = 16, .ord = 128},
                      "128 is siw's most"));
  to.push_back(agrees(plain_siw, without_negotiation(),
                      {.rtr = Rtr::kWrite, .ird = mpa::kNotNegotiated, .ord = 128},
                      "siw takes 0x3fff for a number and answers with one, which we keep to"));
  to.push_back(agrees(plain_siw, with_data(1), write, "any length up to the limit"));
  to.push_back(agrees(plain_siw, with_data(251), write, "the most siw itself can send"));
  to.push_back(agrees(plain_siw, with_data(252), write, "256 with the words, siw's limit"));
  to.push_back(agrees(plain_siw, with_data(253), {.revision = 1},
                      "257 with the words: siw closes; without them it fits",
                      {.has_fallen_back = true}));
  to.push_back(fails(plain_siw, with_data(508), {StartupError::kClosed},
                     "closes: too much private data", "too much for revision 1 as well",
                     {.has_fallen_back = true}));
  to.push_back(fails(plain_siw, asking_for_markers(), {StartupError::kRejected}, "rejects: Markers",
                     "siw never sends Markers"));
  to.push_back(agrees(siw("siw, CRC required", {.is_crc_required = true}), without_crc(),
                      {.has_crc = false, .rtr = Rtr::kWrite},
                      "by reading: as responder it insists only if the peer asks"));
  to.push_back(fails(plain_siw, by_default(), {StartupError::kRejected}, "rejects: its ULP",
                     "R with 251 octets of the ULP's",
                     {.ulp = {.private_data = filled(251), .rejects = true}}));
  to.push_back(agrees(plain_siw, by_default(), write, "its private data is ours to see",
                      {.ulp = {.private_data = filled(251)}}));
  to.push_back(fails(plain_siw, by_default(), {StartupError::kEnhancedTooShort}, "agreed",
                     "siw's PD_Length has eight bits and is 0 now: a frame without its words",
                     {.ulp = {.private_data = filled(252)}}));
  to.push_back(agrees(plain_siw, by_default(), {.rtr = Rtr::kWrite, .ird = 0, .ord = 16},
                      "siw serves what we ask for even so", {.ulp = {.ird = 0, .ord = 0}}));
  to.push_back(agrees(plain_siw, by_default(), write, "siw lowers its ORD, and may serve more",
                      {.ulp = {.ird = 128, .ord = 128}}));
  to.push_back(agrees(siw_in_pieces(), by_default(), write, "a Reply may come in any pieces"));
}

void add_caller(std::vector<Cell>& to) {
  const PeerKind plain_siw = siw("siw");
  const PeerKind p2p = siw("siw, peer_to_peer", {.is_peer_to_peer = true});
  to.push_back(agrees(plain_siw, accepting(), {}, "siw offers no RTR; C because we want it"));
  to.push_back(agrees(plain_siw, accepting_without_crc(), {.has_crc = false},
                      "siw's default, and ours now"));
  to.push_back(agrees(plain_siw, accepting_depths(0), {.ird = 0, .ord = 0},
                      "siw takes over what the Reply says"));
  to.push_back(agrees(plain_siw, accepting_depths(1), {.ird = 1, .ord = 1}, "the smaller ones"));
  to.push_back(agrees(plain_siw, accepting_depths(128), {}, "no more than siw asks and serves"));
  to.push_back(agrees(plain_siw, accepting_without_negotiation(),
                      {.ird = mpa::kNotNegotiated, .ord = 16},
                      "siw would serve 16 and issue any number"));
  to.push_back(agrees(plain_siw, accepting_with_data(1), {}, "any length up to the limit"));
  to.push_back(agrees(plain_siw, accepting_with_data(251), {}, "the most siw itself can send"));
  to.push_back(agrees(plain_siw, accepting_with_data(252), {}, "256 with the words"));
  to.push_back(agrees(plain_siw, accepting_with_data(508), {},
                      "we cannot know; siw closes at our Reply",
                      {.then = Then::kPeerLeaves, .verdict = "closes: too much private data"}));
  to.push_back(fails(plain_siw, rejecting_with_data(0), {StartupError::kRejected}, "rejected",
                     "our ULP said no"));
  to.push_back(fails(plain_siw, rejecting_with_data(251), {StartupError::kRejected}, "rejected",
                     "the reason reaches siw's ULP"));
  to.push_back(agrees(p2p, accepting(), {.rtr = Rtr::kWrite}, "Write before Read"));
  to.push_back(agrees(p2p, taking("Read", kOnlyRead), {.rtr = Rtr::kRead},
                      "siw sends a Read of nothing and gets its Read Response"));
  to.push_back(fails(p2p, taking("Send", kOnlySend), {StartupError::kNoMatchingRtr}, "rejected",
                     "siw offers Write and Read; rejected without asking the ULP"));
  to.push_back(agrees(p2p, accepting(), {.rtr = Rtr::kWrite, .ird = 1, .ord = 0},
                      "siw raises its ORD to 1 for a Read RTR", {.ulp = {.ird = 0, .ord = 0}}));
  to.push_back(agrees(p2p, accepting_depths(0), {.rtr = Rtr::kWrite, .ird = 0, .ord = 0},
                      "a Write RTR needs no depth"));
  to.push_back(agrees(siw("siw, CRC required", {.is_crc_required = true}), accepting_without_crc(),
                      {}, "on if either side sets C"));
  to.push_back(agrees(siw("siw, revision 1", {.revision = 1}), accepting(), {.revision = 1},
                      "the Reply has the Request's revision"));
  to.push_back(agrees(plain_siw, accepting(), {}, "its private data is ours to see",
                      {.ulp = {.private_data = filled(251)}}));
  to.push_back(fails(plain_siw, accepting(), {StartupError::kEnhancedTooShort}, "is left alone",
                     "siw's PD_Length has eight bits and is 0 now: a frame without its words",
                     {.ulp = {.private_data = filled(252)}}));
  to.push_back(agrees(siw_in_pieces(), accepting(), {}, "a Request may come in any pieces"));
}

}  // namespace

std::vector<Cell> siw_cells() {
  std::vector<Cell> cells;
  add_called(cells);
  add_caller(cells);
  return cells;
}

}  // namespace ddpsock::interop
