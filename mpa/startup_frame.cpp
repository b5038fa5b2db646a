// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/startup_frame.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace ddpsock::mpa {
namespace {

const uint8_t* key_of(FrameKind kind) {
  const char* key = kind == FrameKind::kRequest ? MPA_REQUEST_KEY : MPA_REPLY_KEY;
  return reinterpret_cast<const uint8_t*>(key);
}

size_t pd_length_at(const uint8_t* frame) {
  return base::load_be16(frame + MPA_PD_LENGTH_OFFSET);
}

// What the 20 octets in front of the private data can already show to be wrong.
std::optional<StartupError> check_header(const uint8_t* frame) {
  const size_t pd_length = pd_length_at(frame);
  const uint8_t revision = frame[MPA_REVISION_OFFSET];
  if (pd_length > MPA_MAX_PD_LENGTH) return StartupError::kPrivateDataTooLong;
  if (revision > MPA_REVISION_ENHANCED) return StartupError::kUnknownRevision;
  // Below revision 2 the bit is a reserved one, which receivers do not look at.
  const bool is_enhanced =
      revision == MPA_REVISION_ENHANCED && (frame[MPA_FLAGS_OFFSET] & MPA_FLAG_ENHANCED) != 0;
  if (is_enhanced && pd_length < MPA_ENHANCED_SIZE) return StartupError::kEnhancedTooShort;
  return std::nullopt;
}

Enhanced read_enhanced(const uint8_t* words) {
  const uint16_t ird = base::load_be16(words + MPA_ENHANCED_IRD_OFFSET);
  const uint16_t ord = base::load_be16(words + MPA_ENHANCED_ORD_OFFSET);
  return {.is_peer_to_peer = (ird & MPA_IRD_PEER_TO_PEER) != 0,
          .rtr = {.has_send = (ird & MPA_IRD_RTR_SEND) != 0,
                  .has_write = (ord & MPA_ORD_RTR_WRITE) != 0,
                  .has_read = (ord & MPA_ORD_RTR_READ) != 0},
          .ird = static_cast<uint16_t>(ird & MPA_DEPTH_MASK),
          .ord = static_cast<uint16_t>(ord & MPA_DEPTH_MASK)};
}

uint8_t* write_enhanced(const Enhanced& e, uint8_t* p) {
  assert(e.ird <= MPA_DEPTH_MASK && e.ord <= MPA_DEPTH_MASK);
  const unsigned ird = e.ird | (e.is_peer_to_peer ? MPA_IRD_PEER_TO_PEER : 0) |
                       (e.rtr.has_send ? MPA_IRD_RTR_SEND : 0);
  const unsigned ord =
      e.ord | (e.rtr.has_write ? MPA_ORD_RTR_WRITE : 0) | (e.rtr.has_read ? MPA_ORD_RTR_READ : 0);
  p = base::store_be16(p, static_cast<uint16_t>(ird));
  return base::store_be16(p, static_cast<uint16_t>(ord));
}

uint8_t flags_of(const StartupFrame& frame) {
  return static_cast<uint8_t>(
      (frame.needs_markers ? MPA_FLAG_MARKERS : 0) | (frame.wants_crc ? MPA_FLAG_CRC : 0) |
      (frame.is_rejected ? MPA_FLAG_REJECT : 0) | (frame.enhanced ? MPA_FLAG_ENHANCED : 0));
}

}  // namespace

const char* to_text(StartupError error) {
  switch (error) {
    case StartupError::kNotMpa:
      return "the peer does not speak MPA in the other role";
    case StartupError::kUnknownRevision:
      return "MPA revision not known or not asked for";
    case StartupError::kPrivateDataTooLong:
      return "MPA private data above 512 octets";
    case StartupError::kEnhancedTooShort:
      return "enhanced MPA frame without its four octets";
    case StartupError::kTruncated:
      return "the stream ended inside an MPA start-up frame";
    case StartupError::kShortBuffer:
      return "no room for the MPA start-up frame";
    case StartupError::kClosed:
      return "closed before MPA start-up";
    case StartupError::kTimedOut:
      return "MPA start-up timed out";
    case StartupError::kTrailingBytes:
      return "octets after an MPA start-up frame";
    case StartupError::kRejected:
      return "rejected by the peer";
    case StartupError::kRevision1Only:
      return "the peer knows MPA revision 1 only";
    case StartupError::kInsufficientIrd:
      return "the peer's ORD is above our IRD";
    case StartupError::kNoMatchingRtr:
      return "no RTR message that both sides can work with";
    case StartupError::kMarkersTooLate:
      return "the peer needs Markers after FPDUs were sent";
  }
  return "unknown error";
}

Result<StartupView, StartupError> StartupView::over(Bytes frame, FrameKind kind) {
  const size_t key_have = std::min<size_t>(frame.size(), MPA_KEY_SIZE);
  if (!std::equal(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(key_have), key_of(kind)))
    return fail(StartupError::kNotMpa);
  if (frame.size() < MPA_STARTUP_HEADER_SIZE) return fail(StartupError::kTruncated);
  const size_t pd_length = pd_length_at(frame.data());
  if (pd_length > MPA_MAX_PD_LENGTH) return fail(StartupError::kPrivateDataTooLong);
  const size_t size = MPA_STARTUP_HEADER_SIZE + pd_length;
  if (frame.size() < size) return fail(StartupError::kTruncated);
  return StartupView(frame.first(size), kind);
}

Result<StartupFrame, StartupError> StartupFrame::from(StartupView view) {
  if (view.revision() > MPA_REVISION_ENHANCED) return fail(StartupError::kUnknownRevision);
  StartupFrame frame{
      .kind = view.kind(),
      .revision = view.revision(),
      .needs_markers = (view.flags() & MPA_FLAG_MARKERS) != 0,
      .wants_crc = (view.flags() & MPA_FLAG_CRC) != 0,
      .is_rejected = view.kind() == FrameKind::kReply && (view.flags() & MPA_FLAG_REJECT) != 0,
      .enhanced = std::nullopt,
      .private_data = view.private_data()};
  if (frame.revision == MPA_REVISION_ENHANCED && (view.flags() & MPA_FLAG_ENHANCED) != 0) {
    if (frame.private_data.size() < MPA_ENHANCED_SIZE) return fail(StartupError::kEnhancedTooShort);
    frame.enhanced = read_enhanced(frame.private_data.data());
    frame.private_data = frame.private_data.subspan(MPA_ENHANCED_SIZE);
  }
  return frame;
}

size_t startup_size(const StartupFrame& frame) {
  return MPA_STARTUP_HEADER_SIZE + (frame.enhanced ? MPA_ENHANCED_SIZE : 0) +
         frame.private_data.size();
}

Result<size_t, StartupError> write_startup(const StartupFrame& frame, MutBytes out) {
  assert(frame.revision == MPA_REVISION_ENHANCED || !frame.enhanced);
  assert(frame.kind == FrameKind::kReply || !frame.is_rejected);
  const size_t size = startup_size(frame);
  if (size > MPA_MAX_STARTUP_SIZE) return fail(StartupError::kPrivateDataTooLong);
  if (out.size() < size) return fail(StartupError::kShortBuffer);
  std::memcpy(out.data(), key_of(frame.kind), MPA_KEY_SIZE);
  uint8_t* p = out.data() + MPA_KEY_SIZE;
  *p++ = flags_of(frame);
  *p++ = frame.revision;
  p = base::store_be16(p, static_cast<uint16_t>(size - MPA_STARTUP_HEADER_SIZE));
  if (frame.enhanced) p = write_enhanced(*frame.enhanced, p);
  p = std::copy(frame.private_data.begin(), frame.private_data.end(), p);
  assert(p == out.data() + size);
  return size;
}

Sniff sniff_request(Bytes first) {
  const auto key = Bytes(key_of(FrameKind::kRequest), MPA_KEY_SIZE);
  const size_t have = std::min(first.size(), key.size());
  if (!std::ranges::equal(first.first(have), key.first(have))) return Sniff::kNotMpa;
  return have == key.size() ? Sniff::kMpaRequest : Sniff::kNeedMore;
}

StartupReader::Taken StartupReader::take(Bytes input) {
  size_t taken = 0;
  while (taken < input.size() && have_ < MPA_STARTUP_HEADER_SIZE) {
    if (have_ < MPA_KEY_SIZE && input[taken] != key_of(kind_)[have_])
      return {taken, StartupError::kNotMpa};
    frame_[have_++] = input[taken++];
    if (have_ < MPA_STARTUP_HEADER_SIZE) continue;
    if (const auto error = check_header(frame_.data())) return {taken, error};
    need_ = static_cast<uint16_t>(MPA_STARTUP_HEADER_SIZE + pd_length_at(frame_.data()));
  }
  if (have_ < MPA_STARTUP_HEADER_SIZE) return {taken, std::nullopt};
  const size_t n = std::min<size_t>(input.size() - taken, need_ - have_);
  std::copy_n(input.begin() + static_cast<ptrdiff_t>(taken), n, frame_.begin() + have_);
  have_ = static_cast<uint16_t>(have_ + n);
  return {taken + n, std::nullopt};
}

StartupFrame StartupReader::frame() const {
  assert(is_complete());
  return *StartupFrame::from(*StartupView::over(Bytes(frame_).first(have_), kind_));
}

}  // namespace ddpsock::mpa
