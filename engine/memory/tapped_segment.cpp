// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/tapped_segment.h"

#include <algorithm>
#include <array>

#include "base/crc32c.h"
#include "ddp/segment.h"
#include "ddp/slices.h"
#include "mpa/fpdu.h"

namespace ddpsock::engine {
namespace {

constexpr size_t kMostPayload = 61'440;  // of the FPDUs that it is split into

using Header = std::array<uint8_t, MPA_ULPDU_LENGTH_SIZE + DDP_MAX_HEADER_SIZE>;

// The header of the part that begins `done` bytes into the segment.
void write_part(Header& to, Bytes header, size_t payload, size_t done, bool is_last) {
  const auto ulpdu = static_cast<uint16_t>(header.size() + payload);
  uint8_t* const p = mpa::write_header(to.data(), ulpdu);
  std::ranges::copy(header, p);
  if (!is_last) p[0] &= static_cast<uint8_t>(~DDP_CTRL_LAST);
  if (ddp::is_tagged(p[0])) {
    base::store_be64(p + DDP_TAGGED_TO_OFFSET, base::load_be64(p + DDP_TAGGED_TO_OFFSET) + done);
  } else {
    base::store_be32(p + DDP_UNTAGGED_MO_OFFSET,
                     base::load_be32(p + DDP_UNTAGGED_MO_OFFSET) + static_cast<uint32_t>(done));
  }
}

}  // namespace

void tell_segment(WireTap& tap, bool is_sent, Bytes header, std::span<const Bytes> payload) {
  size_t left = 0;
  for (const Bytes range : payload) left += range.size();
  size_t done = 0, range = 0, offset = 0;
  do {
    const size_t size = std::min(left, kMostPayload);
    Header head;
    write_part(head, header, size, done, size == left);
    std::array<Bytes, ddp::kMaxSlices + 2> fpdu;
    fpdu[0] = Bytes(head).first(MPA_ULPDU_LENGTH_SIZE + header.size());
    uint32_t crc = base::crc32c(fpdu[0]);
    size_t count = 1;
    for (size_t rest = size; rest > 0;) {
      const Bytes piece = payload[range].subspan(offset);
      const Bytes part = piece.first(std::min(piece.size(), rest));
      crc = base::crc32c_extend(crc, part);
      if (!part.empty()) fpdu[count++] = part;
      rest -= part.size();
      offset += part.size();
      if (offset == payload[range].size()) offset = 0, ++range;
    }
    std::array<uint8_t, MPA_MAX_PAD + MPA_CRC_SIZE> trailer{};
    const size_t pad = mpa::pad_size(header.size() + size);
    base::store_le32(&trailer[pad], base::crc32c_extend(crc, Bytes(trailer).first(pad)));
    fpdu[count++] = Bytes(trailer).first(pad + MPA_CRC_SIZE);
    const std::span<const Bytes> whole = std::span(fpdu).first(count);
    is_sent ? tap.sent(whole, base::now()) : tap.received(whole, base::now());
    done += size;
    left -= size;
  } while (left > 0);
}

}  // namespace ddpsock::engine
