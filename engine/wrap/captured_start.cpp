// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/captured_start.h"

#include <array>

#include "mpa/startup_frame.h"

namespace ddpsock::engine::wrap {
namespace {

// The frame that one side must have sent for this to be agreed.
mpa::StartupFrame startup_frame(const Agreement& a, mpa::FrameKind kind) {
  const bool is_ours = (kind == mpa::FrameKind::kRequest) == a.is_initiator;
  mpa::StartupFrame frame;
  frame.kind = kind;
  frame.revision = a.revision;
  frame.needs_markers = is_ours ? a.receive_markers : a.send_markers;
  frame.wants_crc = a.has_crc;
  if (a.revision == MPA_REVISION_ENHANCED) {
    frame.enhanced = mpa::Enhanced{
        .is_peer_to_peer = a.rtr != Rtr::kNone,
        .rtr = {.has_send = a.rtr == Rtr::kSend,
                .has_write = a.rtr == Rtr::kWrite,
                .has_read = a.rtr == Rtr::kRead},
        .ird = is_ours ? a.ird : a.ord,
        .ord = is_ours ? a.ord : a.ird,
    };
  }
  return frame;
}

void write_frame(CapturedTcp& tcp, const Agreement& agreed, mpa::FrameKind kind, Time now) {
  std::array<uint8_t, MPA_MAX_STARTUP_SIZE> storage;
  const auto size = mpa::write_startup(startup_frame(agreed, kind), storage);
  if (!size) return;
  const bool is_from_local = (kind == mpa::FrameKind::kRequest) == agreed.is_initiator;
  tcp.segment(is_from_local, Bytes(storage).first(*size), now);
}

}  // namespace

void write_start(CapturedTcp& tcp, const Agreement& agreed, Time now) {
  tcp.handshake(now);
  write_frame(tcp, agreed, mpa::FrameKind::kRequest, now);
  write_frame(tcp, agreed, mpa::FrameKind::kReply, now);
}

}  // namespace ddpsock::engine::wrap
