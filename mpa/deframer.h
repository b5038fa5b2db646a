// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Takes one direction of a stream of FPDUs apart, in any segmentation, and answers "where do the
// next n octets go?" so that an engine can read from a socket straight into final places (RFC 5044
// sections 4 and 6). Checks CRCs, strips Markers wherever they fall. Nothing is complete before its
// CRC was checked: what was placed before that is not to be delivered.
//
// Octets come in two ways, mixed at will:
//
//   step(bytes)     the caller has octets of the stream in a buffer of its own;
//   placed(bytes)   the caller has read want().octets of payload to where they belong.
//
//   for (;;) {
//     Step s = deframer.step(input);
//     input = input.subspan(s.taken);
//     switch (s.event) {
//       case Event::kNeedMore: return;             // input is used up; read want().octets or more
//       case Event::kHeader:   find the places for payload_size() octets by header();  break;
//       case Event::kPayload:  copy s.payload to its place, payload_offset octets in;  break;
//       case Event::kComplete: deliver the ULPDU;  break;
//       case Event::kError:    end the stream as error() says;  return;
//     }
//   }
//
// For a ULPDU without payload kHeader is followed by kComplete. A plain value of less than 100
// bytes: no pointer, no allocation, so it can live in shared memory. Not thread-safe.
#ifndef DDPSOCK_MPA_DEFRAMER_H_
#define DDPSOCK_MPA_DEFRAMER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "mpa/deframer_error.h"
#include "mpa/fpdu.h"
#include "mpa/fpdu_head.h"
#include "mpa/marker.h"

namespace ddpsock::mpa {

class Deframer {
 public:
  using HeaderRule = mpa::HeaderRule;

  struct Options {
    bool has_crc = true;
    bool has_markers = false;
    HeaderRule header_rule{};
    uint16_t max_ulpdu = MPA_MAX_ULPDU;  // lowered to MPA_MAX_ULPDU_WITH_MARKERS with Markers
  };

  enum class Event : uint8_t { kNeedMore, kHeader, kPayload, kComplete, kError };
  struct Step {
    Event event;
    size_t taken;             // octets used, from the front of the input
    Bytes payload;            // kPayload: a part of the input
    uint32_t payload_offset;  // kPayload: where it belongs, counted from the end of the header
  };

  enum class Part : uint8_t { kOverhead, kPayload };
  struct Want {
    Part part;      // kPayload: the octets may be read to their place and passed to placed()
    size_t octets;  // kOverhead: no event comes before so many; kPayload: this many in one piece
  };

  explicit Deframer(const Options& options);

  // Takes octets up to the next event. kNeedMore means that all were taken. After an error every
  // call gives that error again and takes nothing.
  Step step(Bytes input);

  // step(), with payload copied to `places` instead of given out: the places of this whole ULPDU's
  // payload in order, at least payload_size() octets together, the same ones in every call until
  // its kComplete. They are not used before kHeader was given out, so {} will do until then.
  Step step(Bytes input, std::span<const MutBytes> places);

  // What comes next in the stream. After kHeader and until the payload ends it is payload, in
  // pieces if there are Markers. An engine may read on past it in the same call: what follows goes
  // to step().
  Want want() const;

  // The next octets of payload are now at `payload`, at their place. REQUIRES: want().part is
  // kPayload and payload.size() <= want().octets.
  void placed(Bytes payload);

  // The FPDU whose kHeader was given out last. Valid until the first octet of the next one comes.
  // header() is a view into the deframer.
  Bytes header() const { return head_.header(); }
  size_t ulpdu_length() const { return head_.ulpdu_length(); }
  size_t payload_size() const { return ulpdu_length() - header().size(); }
  // Octets of the stream that it still takes: payload, pad, CRC and Markers. 0 once it is complete.
  size_t octets_left() const;

  // No octet of a next FPDU has come: the only place where a FIN is orderly (RFC 5044 section 7.2).
  bool is_between_fpdus() const { return seen_ == 0; }
  // The stream has ended. kTruncated unless between two FPDUs.
  DeframerError end();

  DeframerError error() const { return error_; }

 private:
  size_t ulpdu_end() const { return kHeaderSize + ulpdu_length(); }
  size_t with_markers(size_t n) const;
  size_t take_marker(Bytes input);
  size_t take_head(Bytes input);
  size_t take_trailer(Bytes input);
  void cover_head();
  void advance(size_t n);
  bool complete();

  DeframerError error_ = DeframerError::kNone;
  bool has_crc_;
  bool is_header_given_ = false;
  MarkerClock clock_;
  FpduHead head_;

  // This FPDU. `done_` counts its octets that are no Marker; `seen_` counts them all.
  uint32_t done_ = 0;
  uint32_t seen_ = 0;
  uint32_t crc_ = base::kCrc32cInit;
  uint8_t length_at_ = 0;  // in `seen_` octets: 4 if a Marker came first
  uint8_t marker_done_ = 0;
  std::array<uint8_t, MPA_MARKER_SIZE> marker_{};
  std::array<uint8_t, MPA_CRC_SIZE> crc_word_{};
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_DEFRAMER_H_
