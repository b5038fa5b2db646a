// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/matrix/cells.h"

namespace ddpsock::interop {
namespace {

void add_called(std::vector<Cell>& to) {
  const PeerKind usual = cxgb4("cxgb4");
  const PeerKind write = cxgb4("cxgb4, p2p_type Write", {.rtr = PeerRtr::kWrite});
  const PeerKind no_p2p = cxgb4("cxgb4, peer2peer off", {.is_peer_to_peer = false});
  const Agrees read{.rtr = Rtr::kRead};
  to.push_back(agrees(usual, by_default(), read, "its p2p_type, which we offer"));
  to.push_back(agrees(usual, without_p2p(), {}, "it echoes A only if it is set"));
  to.push_back(agrees(usual, without_crc(), read, "crc_enabled: C in every Reply"));
  to.push_back(agrees(usual, of_revision(1), {.revision = 1}, "no words, no negotiation"));
  to.push_back(agrees(usual, of_revision(0), {.revision = 0}, "it answers in kind"));
  to.push_back(agrees(usual, offering("Read only", kOnlyRead), read, "its p2p_type"));
  to.push_back(fails(usual, offering("Write only", kOnlyWrite), {StartupError::kNoMatchingRtr, 7},
                     "agreed", "it answers with its p2p_type, offered or not"));
  to.push_back(fails(usual, offering("Send only", kOnlySend), {StartupError::kNoMatchingRtr, 7},
                     "agreed", "it knows no Send RTR and answers without A"));
  to.push_back(agrees(usual, with_depths(0), {.rtr = Rtr::kRead, .ird = 0, .ord = 1},
                      "the Read RTR needs an ORD of 1, which we ask for"));
  to.push_back(agrees(usual, with_depths(1), {.rtr = Rtr::kRead, .ird = 1, .ord = 1},
                      "it lowers its ORD to our IRD"));
  to.push_back(
      agrees(usual, with_depths(128), {.rtr = Rtr::kRead, .ird = 16, .ord = 32}, "32 is its most"));
  to.push_back(agrees(usual, without_negotiation(),
                      {.rtr = Rtr::kRead, .ird = mpa::kNotNegotiated, .ord = 32},
                      "it takes 0x3fff for a number and answers with one, which we keep to"));
  to.push_back(agrees(usual, with_data(1), read, "any length up to the limit"));
  to.push_back(agrees(usual, with_data(251), read, "the most a careful peer sends"));
  to.push_back(agrees(usual, with_data(252), read, "256 with the words, its limit"));
  to.push_back(agrees(usual, with_data(253), {.revision = 1},
                      "257 with the words: reset; without them it fits",
                      {.has_fallen_back = true}));
  to.push_back(fails(usual, with_data(508), {StartupError::kClosed},
                     "resets: too much private data", "too much for revision 1 as well",
                     {.has_fallen_back = true}));
  to.push_back(agrees(usual, asking_for_markers(), {.rtr = Rtr::kRead, .receive_markers = true},
                      "it can send Markers"));
  to.push_back(agrees(write, by_default(), {.rtr = Rtr::kWrite}, "its p2p_type"));
  to.push_back(fails(write, offering("Read only", kOnlyRead), {StartupError::kNoMatchingRtr, 7},
                     "agreed", "it answers with its p2p_type, offered or not"));
  to.push_back(fails(no_p2p, by_default(), {StartupError::kNoMatchingRtr, 7}, "agreed",
                     "a Reply without A where A was asked for"));
  to.push_back(agrees(no_p2p, without_p2p(), {}, "client and server as in RFC 5044"));
  to.push_back(agrees(cxgb4("cxgb4, mpa_rev 1", {.revision = 1}), by_default(), {.revision = 1},
                      "it resets what is above its revision; we call again",
                      {.has_fallen_back = true}));
  to.push_back(agrees(cxgb4("cxgb4, markers_enabled", {.wants_markers = true}), by_default(),
                      {.rtr = Rtr::kRead, .send_markers = true}, "M in the Reply is its right"));
  to.push_back(fails(usual, by_default(), {StartupError::kRejected}, "rejects: its ULP",
                     "R, S and the ULP's data",
                     {.ulp = {.private_data = filled(251), .rejects = true}}));
  to.push_back(fails(usual, of_revision(1), {StartupError::kRejected}, "rejects: its ULP",
                     "R and the ULP's data",
                     {.ulp = {.private_data = filled(20), .rejects = true}}));
}

void add_caller(std::vector<Cell>& to) {
  const PeerKind usual = cxgb4("cxgb4");
  const PeerKind write = cxgb4("cxgb4, p2p_type Write", {.rtr = PeerRtr::kWrite});
  const PeerKind again = cxgb4("cxgb4, second call with revision 1", {.is_second_call = true});
  const Agrees read{.rtr = Rtr::kRead};
  to.push_back(agrees(usual, accepting(), read, "the only RTR it offers"));
  to.push_back(agrees(usual, accepting_without_crc(), read, "C is in its Request"));
  to.push_back(agrees(usual, accepting_depths(0), {.rtr = Rtr::kRead, .ird = 1, .ord = 0},
                      "a Read RTR takes an IRD of 1 whatever the ULP said"));
  to.push_back(agrees(usual, accepting_depths(1), {.rtr = Rtr::kRead, .ird = 1, .ord = 1},
                      "the smaller ones"));
  to.push_back(agrees(usual, accepting_depths(128), read, "no more than it asks and serves"));
  to.push_back(agrees(usual, accepting(), {.rtr = Rtr::kRead, .ird = 1, .ord = 0},
                      "it asks for an ORD of 1 for its RTR", {.ulp = {.ird = 0, .ord = 0}}));
  to.push_back(fails(usual, taking("Write", kOnlyWrite), {StartupError::kNoMatchingRtr}, "rejected",
                     "nothing in common; rejected without asking the ULP"));
  to.push_back(agrees(usual, accepting_with_data(1), read, "any length up to the limit"));
  to.push_back(agrees(usual, accepting_with_data(252), read, "256 with the words"));
  to.push_back(agrees(usual, accepting_with_data(508), read,
                      "we cannot know; it resets at our Reply",
                      {.then = Then::kPeerLeaves, .verdict = "resets: too much private data"}));
  to.push_back(fails(usual, rejecting_with_data(251), {StartupError::kRejected}, "rejected",
                     "the reason reaches its ULP"));
  to.push_back(agrees(write, accepting(), {.rtr = Rtr::kWrite}, "the only RTR it offers"));
  to.push_back(agrees(cxgb4("cxgb4, peer2peer off", {.is_peer_to_peer = false}), accepting(), {},
                      "client and server as in RFC 5044"));
  to.push_back(agrees(cxgb4("cxgb4, crc_enabled off", {.has_crc = false}), accepting_without_crc(),
                      {.has_crc = false, .rtr = Rtr::kRead}, "off because both leave C clear"));
  to.push_back(agrees(again, accepting(), {.revision = 1},
                      "its Read RTR comes although revision 1 has none; it is a Read of nothing"));
  to.push_back(agrees(again, accepting_depths(0), {.revision = 1, .ird = 0, .ord = 0},
                      "the same with an IRD of 0: a first Read of nothing is let pass"));
  to.push_back(agrees(cxgb4("cxgb4, markers_enabled", {.wants_markers = true}), accepting(),
                      {.rtr = Rtr::kRead, .send_markers = true}, "M in the Request is its right"));
}

}  // namespace

std::vector<Cell> cxgb4_cells() {
  std::vector<Cell> cells;
  add_called(cells);
  add_caller(cells);
  return cells;
}

}  // namespace ddpsock::interop
