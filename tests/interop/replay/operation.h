// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One direction of a connection as the list of what was said in it, by our own readers: start-up
// frame, deframer, DDP and RDMAP headers.
#ifndef DDPSOCK_TESTS_INTEROP_REPLAY_OPERATION_H_
#define DDPSOCK_TESTS_INTEROP_REPLAY_OPERATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp/segment.h"
#include "mpa/deframer.h"
#include "mpa/startup_frame.h"
#include "rdmap/message.h"
#include "tests/interop/replay/capture.h"

namespace ddpsock::interop {

// One FPDU.
struct Operation {
  size_t at = 0;  // of its ULPDU_Length, in the stream
  rdmap::Opcode opcode = rdmap::Opcode::kSend;
  bool is_tagged = false;
  ddp::TaggedHeader tagged = {};
  ddp::UntaggedHeader untagged = {};
  std::optional<rdmap::ReadRequest> read = {};
  Octets payload = {};
  bool is_last() const { return is_tagged ? tagged.is_last : untagged.is_last; }
};

// Feed it a direction in any pieces.
class DirectionReader {
 public:
  DirectionReader(Side from, bool has_crc);
  void feed(Bytes octets);
  // "": all is well so far.
  const std::string& error() const { return error_; }
  bool is_between_fpdus() const { return deframer_.is_between_fpdus(); }

  // The start-up frame and every FPDU, a line each, as operations.py prints them from tshark.
  const std::vector<std::string>& lines() const { return lines_; }
  const std::vector<Operation>& operations() const { return operations_; }
  size_t startup_size() const { return startup_size_; }

 private:
  Bytes read_startup(Bytes octets);
  void note_operation();

  std::string name_;
  mpa::FrameKind kind_;
  mpa::StartupReader startup_;
  bool is_started_ = false;
  size_t startup_size_ = 0;
  mpa::Deframer deframer_;
  Octets payload_;
  size_t position_ = 0;  // of the FPDU under way
  std::vector<std::string> lines_;
  std::vector<Operation> operations_;
  std::string error_;
};

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_REPLAY_OPERATION_H_
