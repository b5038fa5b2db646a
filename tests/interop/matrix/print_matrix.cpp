// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Prints the handshake matrix as the tables of doc/interop.md.
#include <cstdio>
#include <string>

#include "tests/interop/matrix/matrix.h"

namespace ddpsock::interop {
namespace {

std::string peer_text(const Cell& cell) {
  std::string text = cell.peer.name;
  const Ulp usual;
  if (cell.ulp.ird != usual.ird) text += "; IRD and ORD " + std::to_string(cell.ulp.ird);
  if (cell.ulp.rejects) text += "; rejects";
  if (!cell.ulp.private_data.empty())
    text += "; " + std::to_string(cell.ulp.private_data.size()) + " octets of private data";
  return text;
}

const std::string& our_text(const Cell& cell) {
  if (const Calling* calling = std::get_if<Calling>(&cell.ours)) return calling->name;
  return std::get<Answering>(cell.ours).name;
}

void print_rows(bool is_calling) {
  std::printf("| peer | ours | must come of it | the peer | because |\n|---|---|---|---|---|\n");
  for (const Cell& cell : matrix()) {
    if (std::holds_alternative<Calling>(cell.ours) != is_calling) continue;
    std::printf("| %s | %s | %s | %s | %s |\n", peer_text(cell).c_str(), our_text(cell).c_str(),
                expected_text(cell).c_str(), cell.verdict.c_str(), cell.reason.c_str());
  }
}

}  // namespace
}  // namespace ddpsock::interop

int main() {
  std::printf("### We call\n\n");
  ddpsock::interop::print_rows(true);
  std::printf("\n### The peer calls\n\n");
  ddpsock::interop::print_rows(false);
}
