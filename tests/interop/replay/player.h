// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Plays one end of a captured connection with a real queue pair: it is given the work that the end
// had then, and what the other end sent, and must complete it and say the same octets.
#ifndef DDPSOCK_TESTS_INTEROP_REPLAY_PLAYER_H_
#define DDPSOCK_TESTS_INTEROP_REPLAY_PLAYER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/wire/receiver.h"
#include "engine/wire/transmitter.h"
#include "rdmap/qp.h"
#include "tests/interop/replay/operation.h"

namespace ddpsock::interop {

// One direction behind its start-up frame.
struct Direction {
  Octets stream;
  std::vector<Operation> operations;  // Operation::at counts from the front of `stream`
};

class Player {
 public:
  // Makes memory for every STag that `theirs` uses and `ours` announces. Both outlive the player.
  Player(bool is_initiator, uint32_t reads, const Direction& ours, const Direction& theirs);

  // The next FPDU of ours was on the wire: what starts a message of the ULP is posted.
  void note_ours();
  // The next FPDU of theirs was, and comes in pieces of `piece` octets.
  void feed_theirs(size_t piece);
  // FINs.
  void end_ours();
  void end_theirs();

  // FPDUs said so far, with the STags of the capture.
  const Octets& said() const { return said_; }
  // Sends received, and how many Sends, Writes and Reads of ours are complete.
  const std::vector<Octets>& heard() const { return heard_; }
  size_t completed() const { return completed_; }
  bool has_all_memory_right() const { return is_memory_right_; }
  rdmap::QpState state() const { return qp_.state(); }
  rdmap::EndReason end_reason() const { return qp_.terminate_info().reason; }

 private:
  struct Region {
    uint64_t base = ~uint64_t{0};
    uint64_t end = 0;
    uint32_t stag = 0;  // here
    Octets memory = {};
  };

  void note_access(uint32_t stag, uint64_t to, uint64_t size);
  void make_regions();
  void post_receives();
  void post(const Operation& first, const Octets& payload);
  void fill_source(const rdmap::ReadRequest& read);
  MutBytes memory_at(uint32_t stag, uint64_t to, size_t size);
  void translate(const Operation& operation, MutBytes fpdu) const;
  void advance();

  const Direction& ours_;
  const Direction& theirs_;
  std::map<uint32_t, Region> regions_;  // by the STag of the capture
  rdmap::StagTable stags_;
  rdmap::CompletionQueue send_cq_;
  rdmap::CompletionQueue recv_cq_;
  rdmap::Qp qp_;
  engine::Transmitter tx_;
  engine::Receiver rx_;
  std::vector<Octets> receives_;
  std::vector<std::unique_ptr<Octets>> payloads_;  // posted
  size_t next_ours_ = 0;
  size_t next_theirs_ = 0;
  size_t next_response_ = 0;  // of ours, that no source was filled for
  bool is_inside_message_ = false;
  Octets said_;
  std::vector<Octets> heard_;
  size_t completed_ = 0;
  bool is_memory_right_ = true;
};

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_REPLAY_PLAYER_H_
