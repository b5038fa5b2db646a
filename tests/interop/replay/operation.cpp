// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/replay/operation.h"

#include <algorithm>
#include <cstdio>

#include "ddp/format.h"
#include "mpa/fpdu.h"

namespace ddpsock::interop {
namespace {

constexpr mpa::Deframer::HeaderRule kDdpHeader{
    .mask = DDP_CTRL_TAGGED,
    .size_if_set = DDP_TAGGED_HEADER_SIZE,
    .size_if_clear = DDP_UNTAGGED_HEADER_SIZE,
};

const char* name_of(rdmap::Opcode opcode) {
  switch (opcode) {
    case rdmap::Opcode::kWrite:
      return "write";
    case rdmap::Opcode::kReadRequest:
      return "read-request";
    case rdmap::Opcode::kReadResponse:
      return "read-response";
    case rdmap::Opcode::kSend:
      return "send";
    default:
      return "other";
  }
}

template <typename... Values>
std::string text(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string startup_line(const std::string& side, const mpa::StartupFrame& frame) {
  const bool is_request = frame.kind == mpa::FrameKind::kRequest;
  std::string line =
      side + text(" %s revision=%d markers=%d crc=%d rejected=%d", is_request ? "request" : "reply",
                  frame.revision, frame.needs_markers, frame.wants_crc, frame.is_rejected);
  if (frame.enhanced) {
    const mpa::Enhanced& e = *frame.enhanced;
    line += text(" a=%d b=%d c=%d d=%d ird=%d ord=%d", e.is_peer_to_peer, e.rtr.has_send,
                 e.rtr.has_write, e.rtr.has_read, e.ird, e.ord);
  }
  return line + text(" private=%zu", frame.private_data.size());
}

std::string fpdu_line(const std::string& side, const Operation& o) {
  std::string line = side + text(" %s last=%d", name_of(o.opcode), o.is_last());
  if (o.is_tagged)
    line += text(" stag=0x%08x to=0x%016llx", o.tagged.stag,
                 static_cast<unsigned long long>(o.tagged.to));
  else
    line += text(" qn=%u msn=%u mo=%u", o.untagged.qn, o.untagged.msn, o.untagged.mo);
  line += text(" length=%zu", o.payload.size());
  if (o.read)
    line +=
        text(" sink-stag=0x%08x sink-to=0x%016llx size=%u source-stag=0x%08x source-to=0x%016llx",
             o.read->sink_stag, static_cast<unsigned long long>(o.read->sink_to), o.read->length,
             o.read->source_stag, static_cast<unsigned long long>(o.read->source_to));
  return line;
}

}  // namespace

DirectionReader::DirectionReader(Side from, bool has_crc)
    : name_(from == Side::kClient ? "client" : "server"),
      kind_(from == Side::kClient ? mpa::FrameKind::kRequest : mpa::FrameKind::kReply),
      startup_(kind_),
      deframer_({.has_crc = has_crc, .has_markers = false, .header_rule = kDdpHeader}) {}

Bytes DirectionReader::read_startup(Bytes octets) {
  const auto taken = startup_.take(octets);
  startup_size_ += taken.octets;
  if (taken.error) {
    error_ = mpa::to_text(*taken.error);
  } else if (startup_.is_complete()) {
    is_started_ = true;
    position_ = startup_size_;
    lines_.push_back(startup_line(name_, startup_.frame()));
  }
  return octets.subspan(taken.octets);
}

void DirectionReader::feed(Bytes octets) {
  if (!is_started_) octets = read_startup(octets);
  while (is_started_ && error_.empty()) {
    const mpa::Deframer::Step step = deframer_.step(octets);
    octets = octets.subspan(step.taken);
    switch (step.event) {
      case mpa::Deframer::Event::kNeedMore:
        return;
      case mpa::Deframer::Event::kHeader:
        payload_.assign(deframer_.payload_size(), 0);
        break;
      case mpa::Deframer::Event::kPayload:
        std::copy(step.payload.begin(), step.payload.end(),
                  payload_.begin() + static_cast<ptrdiff_t>(step.payload_offset));
        break;
      case mpa::Deframer::Event::kComplete:
        note_operation();
        break;
      case mpa::Deframer::Event::kError:
        error_ = mpa::to_text(deframer_.error());
        return;
    }
  }
}

void DirectionReader::note_operation() {
  const Bytes header = deframer_.header();
  Operation o{.at = position_, .is_tagged = ddp::is_tagged(header[0]), .payload = payload_};
  position_ += mpa::fpdu_size(deframer_.ulpdu_length());
  uint8_t control = 0;
  if (o.is_tagged) {
    const auto view = ddp::TaggedView::parse(header);
    if (!view) {
      error_ = ddp::to_string(view.error());
      return;
    }
    o.tagged = view->value();
    control = o.tagged.rsvd_ulp;
  } else {
    const auto view = ddp::UntaggedView::parse(header);
    if (!view) {
      error_ = ddp::to_string(view.error());
      return;
    }
    o.untagged = view->value();
    control = o.untagged.rsvd_ulp.control;
  }
  const auto opcode = rdmap::opcode_of(control);
  if (!opcode || !rdmap::is_version_known(control) || rdmap::is_tagged(*opcode) != o.is_tagged) {
    error_ = "an RDMAP control byte that cannot be";
    return;
  }
  o.opcode = *opcode;
  if (o.opcode == rdmap::Opcode::kReadRequest) {
    o.read = rdmap::decode_read_request(payload_);
    if (!o.read) error_ = "a Read Request of the wrong size";
  }
  lines_.push_back(fpdu_line(name_, o));
  operations_.push_back(std::move(o));
}

}  // namespace ddpsock::interop
