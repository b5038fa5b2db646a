// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the next FPDU of a stream is. The only code that judges one that carries its bytes: length,
// header, CRC and place in the sequence; others it finds, for failure.h and raw.h to judge. Bytes
// and a place in, a verdict out; no system call, no state of a connection, nothing kept. Whoever
// walks over a run of bytes (recv, MSG_PEEK, FIONREAD, pollers, the drain beside a queue pair)
// walks from verdict to verdict.
#ifndef DDPSOCK_STREAM_CHUNK_READER_H_
#define DDPSOCK_STREAM_CHUNK_READER_H_

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "stream/chunk.h"

namespace ddpsock::engine {

struct Fpdu {
  enum class Verdict : uint8_t {
    kNoHeader,   // fewer bytes than a chunk's header; nothing is known
    kPartial,    // the header is here, the rest is not; `size` and `payload` are known
    kChunk,      // whole and intact; its payload begins kChunkHeader bytes behind its first
    kControl,    // whole, and not of the stream. Its CRC was not looked at
    kMalformed,  // of a length that no DDP segment has: where the next one begins is not known
    kBadCrc,     // whole, of the stream by its header, and damaged
  };
  Verdict verdict = Verdict::kNoHeader;
  bool is_of_stream = false;  // by its header, also if partial
  uint32_t size = 0;          // with header, pad and CRC word
  uint32_t payload = 0;       // bytes of stream in it; 0 if it is not of the stream
  uint32_t msn = 0, mo = 0;   // the place of the one after it, if it is of the stream

  uint32_t trailer() const { return size - kChunkHeader - payload; }
  bool is(Verdict v) const { return verdict == v; }
};

class ChunkReader {
 public:
  // `msn` of the Send in progress, and how many of its bytes have come. `speaks_raw`: the peer's
  // Sends with Solicited Event are not of the stream (DDPSOCK_FEATURE_RAW).
  ChunkReader(uint32_t msn, uint32_t mo, bool has_crc, bool speaks_raw = false)
      : msn_(msn), mo_(mo), has_crc_(has_crc), speaks_raw_(speaks_raw) {}

  // Judges the FPDU that `bytes` begins with; more may follow it.
  Fpdu look(Bytes bytes) const {
    Fpdu fpdu;
    if (bytes.size() < kChunkHeader) return fpdu;
    if (mo_ != 0 || !is_chunk(bytes.data(), msn_)) [[unlikely]]
      return look_closer(bytes);
    fpdu.is_of_stream = true;
    const uint32_t ulpdu = base::load_be16(bytes.data());
    fpdu.size = fpdu_size(ulpdu);
    fpdu.payload = ulpdu - DDP_UNTAGGED_HEADER_SIZE;
    fpdu.msn = msn_ + 1;
    fpdu.verdict = judge(fpdu.size, bytes);
    return fpdu;
  }
  // From here on the one after `fpdu` is expected. REQUIRES: `fpdu` is a verdict of this reader.
  void take(const Fpdu& fpdu) {
    msn_ = fpdu.msn;
    mo_ = fpdu.mo;
  }
  uint32_t msn() const { return msn_; }

  // For an FPDU whose parts lie apart: `crc` is that of its beginning, `pieces` what follows up to
  // the trailer, which is pad and CRC word.
  static bool is_intact(uint32_t crc, std::span<const iovec> pieces, Bytes trailer);
  static bool is_intact(Bytes fpdu) {
    const size_t covered = fpdu.size() - MPA_CRC_SIZE;
    return base::crc32c(fpdu.first(covered)) == base::load_le32(fpdu.data() + covered);
  }

 private:
  // Of an FPDU that is of the stream by its header.
  Fpdu::Verdict judge(uint32_t size, Bytes bytes) const {
    if (bytes.size() < size) return Fpdu::Verdict::kPartial;
    if (!has_crc_ || is_intact(bytes.first(size))) return Fpdu::Verdict::kChunk;
    return Fpdu::Verdict::kBadCrc;
  }
  Fpdu look_closer(Bytes bytes) const;
  bool is_segment(const uint8_t* p) const;

  uint32_t msn_, mo_;
  bool has_crc_, speaks_raw_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_CHUNK_READER_H_
