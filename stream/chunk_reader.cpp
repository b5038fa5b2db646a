// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/chunk_reader.h"

#include "ddp/segment.h"

namespace ddpsock::engine {

using Verdict = Fpdu::Verdict;

// A segment of a Send as a stranger may cut it: several to a message, reserved bits set, with or
// without the solicited event. The lower layer keeps them in order, so each begins where the last
// one ended; a message has no more bytes than DDP can count.
bool ChunkReader::is_segment(const uint8_t* p) const {
  const uint32_t ulpdu = base::load_be16(p);
  const auto view = ddp::UntaggedView::parse({p + MPA_ULPDU_LENGTH_SIZE, DDP_UNTAGGED_HEADER_SIZE});
  if (!view || ulpdu < DDP_UNTAGGED_HEADER_SIZE) return false;
  const uint8_t opcode = view->rsvd_ulp().control & RDMAP_CTRL_OPCODE_MASK;
  const bool is_send = opcode == RDMAP_OP_SEND || (opcode == RDMAP_OP_SEND_SE && !speaks_raw_);
  return view->qn() == RDMAP_QN_SEND && is_send && view->msn() == msn_ && view->mo() == mo_ &&
         ulpdu - DDP_UNTAGGED_HEADER_SIZE <= UINT32_MAX - mo_;
}

Fpdu ChunkReader::look_closer(Bytes bytes) const {
  const uint8_t* p = bytes.data();
  const uint32_t ulpdu = base::load_be16(p);
  Fpdu fpdu{.size = fpdu_size(ulpdu), .msn = msn_, .mo = mo_};
  if (ulpdu < DDP_TAGGED_HEADER_SIZE) {
    fpdu.verdict = Verdict::kMalformed;
  } else if (is_segment(p)) {
    fpdu.is_of_stream = true;
    fpdu.payload = ulpdu - DDP_UNTAGGED_HEADER_SIZE;
    const bool is_last = (p[MPA_ULPDU_LENGTH_SIZE] & DDP_CTRL_LAST) != 0;
    fpdu.msn += is_last ? 1 : 0;
    fpdu.mo = is_last ? 0 : mo_ + fpdu.payload;
    fpdu.verdict = judge(fpdu.size, bytes);
  } else {
    fpdu.verdict = bytes.size() < fpdu.size ? Verdict::kPartial : Verdict::kControl;
  }
  return fpdu;
}

bool ChunkReader::is_intact(uint32_t crc, std::span<const iovec> pieces, Bytes trailer) {
  for (const iovec& v : pieces)
    crc = base::crc32c_extend(crc, {static_cast<const uint8_t*>(v.iov_base), v.iov_len});
  const size_t covered = trailer.size() - MPA_CRC_SIZE;
  crc = base::crc32c_extend(crc, trailer.first(covered));
  return crc == base::load_le32(trailer.data() + covered);
}

}  // namespace ddpsock::engine
