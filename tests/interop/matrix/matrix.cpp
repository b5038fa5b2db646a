// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/matrix/matrix.h"

#include "tests/interop/matrix/cells.h"

namespace ddpsock::interop {
namespace {

const char* name_of(mpa::Rtr rtr) {
  switch (rtr) {
    case mpa::Rtr::kNone:
      return "no RTR";
    case mpa::Rtr::kSend:
      return "RTR Send";
    case mpa::Rtr::kWrite:
      return "RTR Write";
    case mpa::Rtr::kRead:
      return "RTR Read";
  }
  return "?";
}

std::string depth_text(unsigned depth) {
  return depth == mpa::kNotNegotiated ? "open" : std::to_string(depth);
}

std::string agrees_text(const Agrees& agrees) {
  std::string text = "revision " + std::to_string(agrees.revision);
  text += agrees.has_crc ? ", CRC, " : ", no CRC, ";
  text += name_of(agrees.rtr);
  text += ", IRD " + depth_text(agrees.ird) + ", ORD " + depth_text(agrees.ord);
  if (agrees.send_markers) text += ", Markers out";
  if (agrees.receive_markers) text += ", Markers in";
  return text;
}

std::string fails_text(const Fails& fails) {
  std::string text = std::string("fails: ") + mpa::to_text(fails.error);
  if (fails.term_code) text += "; Terminate " + std::to_string(*fails.term_code);
  return text;
}

std::vector<Cell> all_cells() {
  std::vector<Cell> all;
  for (auto* part : {siw_cells, cxgb4_cells, irdma_cells, old_and_odd_cells, plain_cells}) {
    std::vector<Cell> cells = part();
    all.insert(all.end(), cells.begin(), cells.end());
  }
  return all;
}

}  // namespace

const std::vector<Cell>& matrix() {
  static const std::vector<Cell> cells = all_cells();
  return cells;
}

std::string to_text(const Cell& cell) {
  const bool is_calling = std::holds_alternative<Calling>(cell.ours);
  const std::string& ours =
      is_calling ? std::get<Calling>(cell.ours).name : std::get<Answering>(cell.ours).name;
  return is_calling ? "ours (" + ours + ") calls " + cell.peer.name
                    : cell.peer.name + " calls ours (" + ours + ")";
}

std::string expected_text(const Cell& cell) {
  std::string text = cell.has_fallen_back ? "again with revision 1: " : "";
  if (const Agrees* agrees = std::get_if<Agrees>(&cell.outcome))
    text += agrees_text(*agrees);
  else
    text += fails_text(std::get<Fails>(cell.outcome));
  switch (cell.then) {
    case Then::kTalks:
    case Then::kPeerLeaves:
      break;
    case Then::kPeerTerminates:
      text += "; then ended by its Terminate " + std::to_string(cell.peer_term_code);
      break;
    case Then::kNothingHeard:
      text += "; then nothing is delivered";
      break;
  }
  return text;
}

}  // namespace ddpsock::interop
