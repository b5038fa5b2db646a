// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The parts of the matrix, and the few words they are written in.
#ifndef DDPSOCK_TESTS_INTEROP_MATRIX_CELLS_H_
#define DDPSOCK_TESTS_INTEROP_MATRIX_CELLS_H_

#include "tests/interop/matrix/matrix.h"
#include "tests/interop/matrix/peers.h"

namespace ddpsock::interop {

std::vector<Cell> siw_cells();
std::vector<Cell> cxgb4_cells();
std::vector<Cell> irdma_cells();
std::vector<Cell> old_and_odd_cells();
std::vector<Cell> plain_cells();

using mpa::Rtr;
using mpa::StartupError;

// Configurations of ours that many cells share. "Default" is the wire profile of the design:
// revision 2, CRC on, peer-to-peer with Write and Read offered, IRD and ORD 16.
Calling calling(std::string name, const std::function<void(mpa::InitiatorConfig&)>& change = {});
Answering answering(std::string name,
                    const std::function<void(mpa::ResponderConfig&, Decision&)>& change = {});

Calling by_default();
Calling without_p2p();
Calling without_crc();
Calling of_revision(uint8_t revision);
Calling offering(std::string name, mpa::RtrSet offer);
Calling with_depths(uint16_t depth);
Calling without_negotiation();
Calling with_data(size_t size);
Calling asking_for_markers();

Answering accepting();
Answering accepting_without_crc();
Answering taking(std::string name, mpa::RtrSet taken);
Answering accepting_depths(uint16_t depth);
Answering accepting_without_negotiation();
Answering accepting_with_data(size_t size);
Answering rejecting_with_data(size_t size);

inline constexpr mpa::RtrSet kOnlySend{.has_send = true};
inline constexpr mpa::RtrSet kOnlyWrite{.has_write = true};
inline constexpr mpa::RtrSet kOnlyRead{.has_read = true};

// Builders of rows. The peer agrees unless its verdict says otherwise.
struct Row {
  Ulp ulp = {};
  bool has_fallen_back = false;
  Then then = Then::kTalks;
  unsigned peer_term_code = 0;
  std::string verdict = "agreed";
};
Cell agrees(const PeerKind& peer, const Ours& ours, const Agrees& outcome, std::string reason,
            const Row& row = {});
Cell fails(const PeerKind& peer, const Ours& ours, const Fails& outcome, std::string verdict,
           std::string reason, const Row& row = {});

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_MATRIX_CELLS_H_
