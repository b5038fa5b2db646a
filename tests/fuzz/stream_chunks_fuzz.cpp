// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A hostile peer's run of FPDUs, in any segmentation. Whoever walks over it sees the same chunks,
// however much of the run is there at a time, never looks beyond what is there, and never moves but
// by a whole FPDU that is good.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "stream/chunk_reader.h"

namespace {

using namespace ddpsock;
using namespace ddpsock::engine;
using Verdict = Fpdu::Verdict;

void require(bool is_kept) {
  if (!is_kept) abort();
}

bool is_whole(const Fpdu& fpdu) {
  return fpdu.is(Verdict::kChunk) || fpdu.is(Verdict::kControl);
}

void check(const Fpdu& fpdu, size_t have, uint32_t msn) {
  require(fpdu.is(Verdict::kNoHeader) == (have < kChunkHeader));
  if (fpdu.is(Verdict::kNoHeader) || fpdu.is(Verdict::kMalformed)) return;
  require(fpdu.size >= kChunkHeader && fpdu.size <= kMaxFpdu && fpdu.size % 4 == 0);
  require(fpdu.is(Verdict::kPartial) == (have < fpdu.size));
  require(fpdu.is_of_stream || fpdu.payload == 0);
  require(!fpdu.is_of_stream || kChunkHeader + fpdu.payload + MPA_CRC_SIZE <= fpdu.size);
  require(!fpdu.is(Verdict::kChunk) || fpdu.msn == msn || fpdu.msn == msn + 1);
}

// The sizes of the FPDUs that are good, walked over with `step` more bytes at a time.
std::vector<uint32_t> walk(Bytes run, uint32_t msn, bool has_crc, size_t step) {
  std::vector<uint32_t> sizes;
  ChunkReader reader(msn, 0, has_crc);
  size_t at = 0;
  for (size_t have = std::min(step, run.size());; have = std::min(have + step, run.size())) {
    for (;;) {
      const Bytes there = run.subspan(at, have - at);
      const Fpdu fpdu = reader.look(there);
      check(fpdu, there.size(), reader.msn());
      if (fpdu.is(Verdict::kMalformed) || fpdu.is(Verdict::kBadCrc)) return sizes;
      if (!is_whole(fpdu)) break;
      if (fpdu.is(Verdict::kChunk)) reader.take(fpdu);
      sizes.push_back(fpdu.is_of_stream ? fpdu.payload : UINT32_MAX);
      at += fpdu.size;
    }
    if (have == run.size()) return sizes;
  }
}

}  // namespace

// First octet: options. Second: bytes at a time. Third: the sequence number expected. The rest is
// the peer's.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const Bytes run(data + 3, size - 3);
  const bool has_crc = (data[0] & 1) != 0;
  const uint32_t msn = (data[0] & 2) != 0 ? 0u - data[2] : data[2];
  require(walk(run, msn, has_crc, data[1] + size_t{1}) == walk(run, msn, has_crc, run.size() + 1));
  return 0;
}
