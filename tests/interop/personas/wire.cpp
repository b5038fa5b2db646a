// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/personas/wire.h"

#include <algorithm>

namespace ddpsock::interop {
namespace {

void put(Octets& to, uint64_t value, int octets) {
  for (int i = octets - 1; i >= 0; --i) to.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

Octets untagged(uint8_t opcode, uint32_t queue, uint32_t msn) {
  Octets ulpdu{0x41, static_cast<uint8_t>(0x40 | opcode), 0, 0, 0, 0};
  put(ulpdu, queue, 4);
  put(ulpdu, msn, 4);
  put(ulpdu, 0, 4);
  return ulpdu;
}

Octets tagged(uint8_t opcode, uint32_t stag, uint64_t to) {
  Octets ulpdu{0xc1, static_cast<uint8_t>(0x40 | opcode)};
  put(ulpdu, stag, 4);
  put(ulpdu, to, 8);
  return ulpdu;
}

}  // namespace

uint16_t be16(const Octets& from, size_t at) {
  return static_cast<uint16_t>(from.at(at) << 8 | from.at(at + 1));
}
uint32_t be32(const Octets& from, size_t at) {
  return static_cast<uint32_t>(be16(from, at)) << 16 | be16(from, at + 2);
}
uint64_t be64(const Octets& from, size_t at) {
  return static_cast<uint64_t>(be32(from, at)) << 32 | be32(from, at + 4);
}

Octets startup_frame(const char* key, uint8_t flags, uint8_t revision, std::optional<Words> words,
                     const Octets& private_data) {
  Octets frame(key, key + 16);
  frame.push_back(flags);
  frame.push_back(revision);
  put(frame, private_data.size() + (words ? 4 : 0), 2);
  if (words) {
    put(frame, words->ird, 2);
    put(frame, words->ord, 2);
  }
  frame.insert(frame.end(), private_data.begin(), private_data.end());
  return frame;
}

Words FrameView::words() const {
  if (stream_.size() < 24) return {};
  return {be16(stream_, 20), be16(stream_, 22)};
}

Octets FrameView::private_data(size_t from) const {
  const size_t end = std::min(size(), stream_.size());
  const size_t begin = std::min(20 + from, end);
  return {stream_.begin() + static_cast<ptrdiff_t>(begin),
          stream_.begin() + static_cast<ptrdiff_t>(end)};
}

uint32_t crc32c(const Octets& octets) {
  uint32_t crc = 0xffffffff;
  for (uint8_t octet : octets) {
    crc ^= octet;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

Octets FpduWriter::write(const Octets& ulpdu) {
  Octets plain;
  put(plain, ulpdu.size(), 2);
  plain.insert(plain.end(), ulpdu.begin(), ulpdu.end());
  while (plain.size() % 4 != 0) plain.push_back(0);
  Octets out;
  size_t length_field = 0;  // where it is in `out`
  for (size_t i = 0; i < plain.size(); ++i) {
    if (has_markers && position_ % 512 == 0) {
      put(out, 0, 2);
      put(out, i == 0 ? 0 : out.size() - 2 - length_field, 2);
      position_ += 4;
    }
    if (i == 0) length_field = out.size();
    out.push_back(plain[i]);
    ++position_;
  }
  if (has_markers && position_ % 512 == 0) {
    put(out, 0, 2);
    put(out, out.size() - 2 - length_field, 2);
    position_ += 4;
  }
  if (omits_crc_word) return out;
  const uint32_t crc = has_crc ? crc32c(out) : 0;
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(crc >> (8 * i)));
  position_ += 4;
  return out;
}

// Moves octets to fpdu_ until it has `want`, stepping over Markers.
bool FpduReader::take_markers(size_t want) {
  size_t used = 0;
  while (fpdu_.size() < want) {
    if (has_markers && position_ % 512 == 0) {
      if (stream_.size() - used < 4) break;
      if (stream_[used] != 0 || stream_[used + 1] != 0) error_ = "reserved bits in a Marker";
      const size_t pointer = be16(stream_, used + 2);
      const size_t back =
          fpdu_.empty() ? 0 : covered_.size() - (covered_.size() >= 4 && lead_ ? 4 : 0);
      if (pointer != back) error_ = "FPDUPTR is wrong";
      if (fpdu_.empty()) lead_ = true;
      covered_.insert(covered_.end(), stream_.begin() + static_cast<ptrdiff_t>(used),
                      stream_.begin() + static_cast<ptrdiff_t>(used + 4));
      used += 4;
      position_ += 4;
      continue;
    }
    if (used == stream_.size()) break;
    fpdu_.push_back(stream_[used]);
    covered_.push_back(stream_[used]);
    ++used;
    ++position_;
  }
  stream_.erase(stream_.begin(), stream_.begin() + static_cast<ptrdiff_t>(used));
  return fpdu_.size() >= want;
}

std::optional<Octets> FpduReader::next_ulpdu() {
  if (!error_.empty() || !take_markers(2)) return std::nullopt;
  const size_t length = be16(fpdu_, 0);
  const size_t padded = (2 + length + 3) / 4 * 4;
  if (!take_markers(padded + 4)) return std::nullopt;
  for (size_t i = 2 + length; i < padded; ++i)
    if (fpdu_[i] != 0) error_ = "pad is not zero";
  uint32_t word = 0;
  for (size_t i = 4; i-- > 0;) word = word << 8 | fpdu_[padded + i];
  covered_.resize(covered_.size() - 4);
  if (has_crc && word != crc32c(covered_)) error_ = "CRC is wrong";
  const Octets ulpdu(fpdu_.begin() + 2, fpdu_.begin() + 2 + static_cast<ptrdiff_t>(length));
  fpdu_.clear();
  covered_.clear();
  lead_ = false;
  if (!error_.empty()) return std::nullopt;
  return ulpdu;
}

Octets send_ulpdu(uint32_t msn, const std::string& text) {
  Octets ulpdu = untagged(3, 0, msn);
  ulpdu.insert(ulpdu.end(), text.begin(), text.end());
  return ulpdu;
}
Octets write_ulpdu(uint32_t stag, uint64_t to) {
  return tagged(0, stag, to);
}
Octets read_request_ulpdu(uint32_t msn, const ReadBody& body) {
  Octets ulpdu = untagged(1, 1, msn);
  put(ulpdu, body.sink_stag, 4);
  put(ulpdu, body.sink_to, 8);
  put(ulpdu, body.length, 4);
  put(ulpdu, body.source_stag, 4);
  put(ulpdu, body.source_to, 8);
  return ulpdu;
}
Octets read_response_ulpdu(uint32_t stag, uint64_t to) {
  return tagged(2, stag, to);
}
Octets terminate_ulpdu(uint8_t code, bool is_swapped) {
  Octets ulpdu = untagged(7, 2, 1);
  ulpdu.push_back(is_swapped ? 0x02 : 0x20);
  ulpdu.push_back(code);
  put(ulpdu, 0, 2);
  return ulpdu;
}

}  // namespace ddpsock::interop
