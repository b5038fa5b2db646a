// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The peers of the matrix by name.
#ifndef DDPSOCK_TESTS_INTEROP_MATRIX_PEERS_H_
#define DDPSOCK_TESTS_INTEROP_MATRIX_PEERS_H_

#include <string_view>

#include "tests/interop/matrix/matrix.h"
#include "tests/interop/personas/cxgb4.h"
#include "tests/interop/personas/irdma.h"
#include "tests/interop/personas/script.h"
#include "tests/interop/personas/siw.h"

namespace ddpsock::interop {

PeerKind siw(std::string name, const SiwOptions& options = {});
PeerKind siw_in_pieces();
PeerKind cxgb4(std::string name, const Cxgb4Options& options = {});
PeerKind irdma(std::string name, const IrdmaOptions& options = {});
PeerKind framer(std::string name, const Frame& frame);
PeerKind plain(std::string name, const Script& script);

Octets octets(std::string_view text);
Octets filled(size_t size);
mpa::PrivateData private_data(const Octets& octets);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_MATRIX_PEERS_H_
