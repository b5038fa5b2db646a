// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Peers that are not a stack but one behaviour: plain TCP programs, stacks of the time before RFC
// 5044, and frames that no known stack sends but the RFCs give an answer to.
#ifndef DDPSOCK_TESTS_INTEROP_PERSONAS_SCRIPT_H_
#define DDPSOCK_TESTS_INTEROP_PERSONAS_SCRIPT_H_

#include "tests/interop/personas/persona.h"

namespace ddpsock::interop {

// Says `greeting` at once, `answer` when anything has come, and hangs up after that if it should.
struct Script {
  Octets greeting = {};
  Octets answer = {};
  Hangup then = Hangup::kNo;
  bool hangs_up_at_once = false;  // before anything comes
};
std::unique_ptr<Persona> make_script(const Script& script);

// A frame of our choice, and then FPDU mode as `agreement` says if the other side has agreed, too.
struct Frame {
  uint8_t flags = 0;
  uint8_t revision = 2;
  std::optional<Words> words = {};
  Octets private_data = {};
  Octets trailing = {};  // in the same segment
  std::optional<PeerAgreement> agreement = {};
  bool omits_crc_word = false;  // the OSC stack with CRC off
  uint8_t terminate = 0;        // instead of an RTR message: a Terminate of that code
  bool is_terminate_swapped = false;
};
std::unique_ptr<Persona> make_framer(Role role, const Frame& frame);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_PERSONAS_SCRIPT_H_
