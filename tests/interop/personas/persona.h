// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A scripted peer: how one known iWARP stack behaves at start-up, and in the first FPDUs after it.
// TCP segments in, TCP segments out, and at the end an account of what it made of us. Sans-IO.
//
// The rules of siw, cxgb4 and irdma are in files of their own, each in the order in which the
// driver checks. Where a rule says [R] it was read in the Linux 6.1 driver, [M] is from the RFCs or
// from hearsay because firmware or hardware does it.
#ifndef DDPSOCK_TESTS_INTEROP_PERSONAS_PERSONA_H_
#define DDPSOCK_TESTS_INTEROP_PERSONAS_PERSONA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/interop/personas/wire.h"

namespace ddpsock::interop {

enum class Role : uint8_t { kInitiator, kResponder };
enum class Hangup : uint8_t { kNo, kFin, kReset };

// The message that says "ready to receive", as the peer sees it.
enum class PeerRtr : uint8_t { kNone, kSend, kWrite, kRead };

// What the ULP above the peer wants.
struct Ulp {
  uint16_t ird = 16;
  uint16_t ord = 16;
  Octets private_data = {};
  bool rejects = false;  // as responder
};

// What the peer believes to have agreed.
struct PeerAgreement {
  unsigned revision = 0;
  bool has_crc = false;
  bool wants_markers = false;  // in what we send
  bool sends_markers = false;
  PeerRtr rtr = PeerRtr::kNone;
  unsigned ird = 0;
  unsigned ord = 0;
};

struct PeerTerminate {
  uint8_t layer = 0;
  uint8_t type = 0;
  uint8_t code = 0;
};

struct Account {
  // "waits", "agreed", or why not: "rejected", "resets: ...", "closes: ...", "Terminate 7: ...".
  std::string verdict = "waits";
  PeerAgreement agreement = {};
  Octets private_data = {};             // ours, as the peer's ULP gets it
  std::vector<std::string> heard = {};  // Sends
  Octets first_ulpdu = {};              // the first that came
  bool has_read_response = false;       // of no octets, for its Read RTR
  bool was_spoken_to_early = false;     // FPDUs came before the initiator's first
  std::optional<PeerTerminate> terminate = {};
  std::string stream_error = {};  // in what we sent as FPDUs
  size_t unfinished_octets = 0;   // of an FPDU that never ended
};

// What it sends as its first message, and what we send.
inline const std::string kPeerText = "from the peer";
inline const std::string kOurText = "from ours";

class Persona {
 public:
  virtual ~Persona() = default;

  // The TCP connection is there.
  void connected() { open(); }
  // One TCP segment, as far as it cares.
  void input(const Octets& segment);
  // Our FIN or RST.
  void ended();
  // What it sends, a TCP segment each. Then it hangs up, if hangup() says so.
  std::vector<Octets> take_segments();
  Hangup hangup() const { return hangup_; }

  const Account& account();
  // cxgb4 as initiator: it wants to call again, with revision 1.
  bool wants_to_call_again() const { return wants_to_call_again_; }

  // Sends its start-up frame octet by octet.
  void split() { is_split_ = true; }

 protected:
  explicit Persona(Role role) : role_(role) {}

  // Initiators say their Request.
  virtual void open() {}
  // stream_ has grown by `segment` octets, and nothing is decided.
  virtual void on_startup(size_t segment) = 0;
  // We have closed, and nothing is decided.
  virtual void on_close() { refuse("is left alone", Hangup::kFin); }

  void say(Octets segment) { out_.push_back(std::move(segment)); }
  // The end of the road, and how it tells.
  void refuse(std::string verdict, Hangup how);
  // FPDU mode: the first `taken` octets of stream_ were start-up. The initiator sends its RTR
  // message and its first Send.
  void agree(const PeerAgreement& agreement, size_t taken);
  // FPDU mode just for a Terminate of layer LLP and type MPA.
  void terminate(uint8_t code, std::string why, bool has_crc, bool is_swapped);

  // The STag and TO of its RTR messages, which nobody may look at.
  struct RtrPlace {
    uint32_t stag = 1;
    uint64_t to = 0;
    uint32_t sink_stag = 1;
    uint64_t sink_to = 0;
  };
  virtual RtrPlace rtr_place() const { return {}; }

  Role role_;
  Octets stream_;  // what has come in start-up
  Account account_;
  FpduWriter writer_;
  bool speaks_first_ = true;  // initiator: its ULP sends as soon as it can

 private:
  void read_fpdus();
  void on_ulpdu(const Octets& ulpdu);
  void on_send(const Octets& ulpdu);
  void check_rtr(const Octets& ulpdu);
  void say_rtr();
  void say_ulpdu(const Octets& ulpdu) { out_.push_back(writer_.write(ulpdu)); }
  void speak();

  enum class Phase : uint8_t { kStartup, kFpdus, kOver };
  Phase phase_ = Phase::kStartup;
  std::vector<Octets> out_;
  Hangup hangup_ = Hangup::kNo;
  FpduReader reader_;
  uint32_t next_msn_ = 1;
  uint32_t awaited_msn_ = 1;
  bool has_heard_ = false;   // an FPDU came
  bool has_spoken_ = false;  // its first FPDU was taken
  bool is_split_ = false;

 protected:
  bool wants_to_call_again_ = false;
};

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_PERSONAS_PERSONA_H_
