// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The handshake matrix: each peer against configurations of ours, with what must come of it and
// why. The test walks it, and doc/interop.md shows it.
#ifndef DDPSOCK_TESTS_INTEROP_MATRIX_MATRIX_H_
#define DDPSOCK_TESTS_INTEROP_MATRIX_MATRIX_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "mpa/initiator.h"
#include "mpa/responder.h"
#include "tests/interop/matrix/our_end.h"
#include "tests/interop/personas/persona.h"

namespace ddpsock::interop {

// A kind of peer. `call` counts TCP connections from 0; cxgb4 says something else on its second.
struct PeerKind {
  std::string name;
  std::function<std::unique_ptr<Persona>(Role, const Ulp&, int call)> make;
};

// Our side: it calls, or it answers.
struct Calling {
  std::string name;
  mpa::InitiatorConfig config = {};
};
struct Answering {
  std::string name;
  mpa::ResponderConfig config = {};
  Decision decision = {};
};
using Ours = std::variant<Calling, Answering>;

struct Agrees {
  unsigned revision = 2;
  bool has_crc = true;
  mpa::Rtr rtr = mpa::Rtr::kNone;
  unsigned ird = 16;
  unsigned ord = 16;
  bool send_markers = false;
  bool receive_markers = false;
};
struct Fails {
  mpa::StartupError error;
  std::optional<unsigned> term_code = {};  // of the Terminate that the peer gets
};

// What becomes of the queue pair after an agreement.
enum class Then : uint8_t {
  kTalks,       // both hear the other's Send
  kPeerLeaves,  // it does not like what we agreed on, and closes
  kPeerTerminates,
  kNothingHeard,  // its FPDUs make no sense
};

struct Cell {
  PeerKind peer;
  Ours ours;
  Ulp ulp;
  std::variant<Agrees, Fails> outcome;
  // Our initiator got there by a second connection, with revision 1.
  bool has_fallen_back = false;
  Then then = Then::kTalks;
  unsigned peer_term_code = 0;  // kPeerTerminates
  std::string verdict;          // the peer's
  std::string reason;
};

const std::vector<Cell>& matrix();

// What happened.
struct Outcome {
  std::unique_ptr<OurEnd> ours;
  std::unique_ptr<Persona> peer;
  int calls = 0;  // TCP connections
  bool has_ended = false;
};
Outcome run(const Cell& cell);

std::string to_text(const Cell& cell);  // "siw calls; ours: CRC off"
std::string expected_text(const Cell& cell);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_MATRIX_MATRIX_H_
