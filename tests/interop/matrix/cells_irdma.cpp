// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/matrix/cells.h"

namespace ddpsock::interop {
namespace {

void add_called(std::vector<Cell>& to) {
  const PeerKind usual = irdma("irdma");
  const Agrees read{.rtr = Rtr::kRead};
  to.push_back(agrees(usual, by_default(), read, "Read before Write; our frame is one segment"));
  to.push_back(agrees(usual, without_p2p(), {.revision = 1},
                      "it resets a Request without A; revision 1 has no A to miss",
                      {.has_fallen_back = true}));
  to.push_back(agrees(usual, without_crc(), read, "C in every Reply"));
  to.push_back(agrees(usual, of_revision(1), {.revision = 1}, "it answers in kind"));
  to.push_back(fails(usual, of_revision(0), {StartupError::kClosed}, "resets: revision",
                     "it knows 1 and 2; we have nothing lower to try"));
  to.push_back(agrees(usual, offering("Write only", kOnlyWrite), {.rtr = Rtr::kWrite},
                      "without Read it takes Write"));
  to.push_back(agrees(usual, offering("Read only", kOnlyRead), read, "it was offered"));
  to.push_back(agrees(usual, offering("Send only", kOnlySend), {.revision = 1},
                      "it resets an offer of neither Write nor Read", {.has_fallen_back = true}));
  to.push_back(agrees(usual, with_depths(0), {.rtr = Rtr::kRead, .ird = 0, .ord = 1},
                      "the Read RTR needs an ORD of 1, which we ask for"));
  to.push_back(agrees(usual, with_depths(1), {.rtr = Rtr::kRead, .ird = 1, .ord = 1},
                      "it lowers its ORD to our IRD"));
  to.push_back(agrees(usual, with_depths(128), {.rtr = Rtr::kRead, .ird = 128, .ord = 127},
                      "its hardware's 127 and 255, whatever its ULP said"));
  to.push_back(agrees(usual, without_negotiation(),
                      {.rtr = Rtr::kRead, .ird = mpa::kNotNegotiated, .ord = mpa::kNotNegotiated},
                      "it answers 0x3fff with 0x3fff"));
  to.push_back(agrees(usual, with_data(252), read, "512 is its limit"));
  to.push_back(agrees(usual, with_data(508), read, "512 with the words"));
  to.push_back(agrees(usual, asking_for_markers(), {.rtr = Rtr::kRead, .receive_markers = true},
                      "it can send Markers"));
  to.push_back(agrees(irdma("irdma, iw_ooo", {.wants_markers = true}), by_default(),
                      {.rtr = Rtr::kRead, .send_markers = true}, "M in the Reply is its right"));
  to.push_back(fails(usual, by_default(), {StartupError::kRejected}, "rejects: its ULP",
                     "R beside A, an RTR message and depths",
                     {.ulp = {.private_data = filled(251), .rejects = true}}));
  to.push_back(agrees(usual, by_default(), read, "its private data is ours to see",
                      {.ulp = {.private_data = filled(508)}}));
}

void add_caller(std::vector<Cell>& to) {
  const PeerKind usual = irdma("irdma");
  const Agrees write{.rtr = Rtr::kWrite};
  to.push_back(agrees(usual, accepting(), write, "we take Write before Read"));
  to.push_back(agrees(usual, accepting_without_crc(), write, "C is in its Request"));
  to.push_back(agrees(usual, taking("Read", kOnlyRead), {.rtr = Rtr::kRead}, "it offers both"));
  to.push_back(fails(usual, taking("Send", kOnlySend), {StartupError::kNoMatchingRtr},
                     "resets: no RTR it knows",
                     "nothing in common, and so nothing that it could recognise as a rejection"));
  const Answering bare = answering("takes RTR Read only, IRD and ORD 0", [](auto& c, auto& d) {
    c.rtr_accepted = kOnlyRead;
    d.acceptance.ird = d.acceptance.ord = 0;
  });
  to.push_back(agrees(usual, bare, {.rtr = Rtr::kRead, .ird = 1, .ord = 0},
                      "it resets a choice of Read with an IRD of 0, so we name 1"));
  to.push_back(agrees(usual, accepting_depths(0), {.rtr = Rtr::kWrite, .ird = 0, .ord = 0},
                      "an IRD of 0 is fine with a Write RTR"));
  to.push_back(agrees(usual, accepting_depths(1), {.rtr = Rtr::kWrite, .ird = 1, .ord = 1},
                      "the smaller ones"));
  to.push_back(agrees(usual, accepting_depths(128), write,
                      "our ORD meets its IRD, which it would not raise"));
  to.push_back(agrees(usual, accepting_without_negotiation(),
                      {.rtr = Rtr::kWrite, .ird = mpa::kNotNegotiated, .ord = 16},
                      "it takes 0x3fff for what it is"));
  to.push_back(agrees(usual, accepting(), {.rtr = Rtr::kWrite, .ird = 1, .ord = 0},
                      "it raises its ORD to 1 for a Read RTR", {.ulp = {.ird = 0, .ord = 0}}));
  to.push_back(agrees(usual, accepting_with_data(1), write, "its ULP sees four octets more"));
  to.push_back(agrees(usual, accepting_with_data(508), write, "512 with the words"));
  to.push_back(fails(usual, rejecting_with_data(0), {StartupError::kRejected}, "rejected",
                     "R is only looked at after A, RTR and depths, which our rejection carries"));
  to.push_back(fails(usual, rejecting_with_data(251), {StartupError::kRejected}, "rejected",
                     "the reason reaches its ULP"));
  to.push_back(agrees(irdma("irdma, iw_ooo", {.wants_markers = true}), accepting(),
                      {.rtr = Rtr::kWrite, .send_markers = true}, "M in the Request is its right"));
}

}  // namespace

std::vector<Cell> irdma_cells() {
  std::vector<Cell> cells;
  add_called(cells);
  add_caller(cells);
  return cells;
}

}  // namespace ddpsock::interop
