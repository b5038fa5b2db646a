// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A hostile stream of FPDUs. The same octets go to three deframers: in the fuzzer's segmentation,
// octet by octet, and read by want() straight to their places. All must tell the same story, place
// each octet once, and keep every promise of the header.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "mpa/deframer.h"

namespace {

using ddpsock::Bytes;
using ddpsock::MutBytes;
using ddpsock::mpa::Deframer;
using ddpsock::mpa::DeframerError;
using Event = Deframer::Event;
using Octets = std::vector<uint8_t>;

void require(bool is_kept) {
  if (!is_kept) abort();
}

struct Story {
  std::vector<Octets> ulpdus;
  DeframerError error = DeframerError::kNone;
  bool operator==(const Story&) const = default;
};

class Listener {
 public:
  explicit Listener(const Deframer::Options& options) : deframer(options) {}

  void feed(Bytes input) {
    for (;;) {
      const bool had_error = deframer.error() != DeframerError::kNone;
      const auto s = deframer.step(input);
      require(s.taken <= input.size());
      input = input.subspan(s.taken);
      switch (s.event) {
        case Event::kNeedMore:
          require(input.empty());
          return;
        case Event::kError:
          require(deframer.error() != DeframerError::kNone && (!had_error || s.taken == 0));
          return;
        case Event::kHeader:
          require(deframer.header().size() + deframer.payload_size() == deframer.ulpdu_length());
          payload_.assign(deframer.payload_size(), 0);
          placed = 0;
          break;
        case Event::kPayload:
          require(s.payload_offset == placed && !s.payload.empty());
          require(s.payload.size() <= payload_.size() - placed);
          place(s.payload);
          break;
        case Event::kComplete:
          complete();
          break;
      }
    }
  }

  // Reads the stream as an engine does; never an octet that it was not asked for.
  void read(Bytes stream) {
    while (!stream.empty() && deframer.error() == DeframerError::kNone) {
      const auto want = deframer.want();
      require(want.octets > 0);
      const Bytes octets = stream.first(std::min(want.octets, stream.size()));
      stream = stream.subspan(octets.size());
      const size_t left = deframer.octets_left();
      if (want.part == Deframer::Part::kPayload) {
        require(octets.size() <= payload_.size() - placed);
        place(octets);
        deframer.placed(octets);
        require(deframer.octets_left() + octets.size() == left);
      } else {
        feed(octets);
      }
    }
  }

  Story story() {
    told.error = deframer.end();
    return told;
  }

 private:
  void place(Bytes octets) {
    std::copy(octets.begin(), octets.end(), payload_.begin() + static_cast<ptrdiff_t>(placed));
    placed += octets.size();
  }
  void complete() {
    require(placed == payload_.size() && deframer.is_between_fpdus());
    Octets whole(deframer.header().begin(), deframer.header().end());
    whole.insert(whole.end(), payload_.begin(), payload_.end());
    told.ulpdus.push_back(std::move(whole));
  }

  Deframer deframer;
  Story told;
  Octets payload_;
  size_t placed = 0;
};

}  // namespace

// First octet: options. Second: segment size. The rest is the stream.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  Deframer::Options options;
  options.has_crc = (data[0] & 1) != 0;
  options.has_markers = (data[0] & 2) != 0;
  if ((data[0] & 4) != 0) options.header_rule = {0x80, 14, 18};
  if ((data[0] & 8) != 0) options.max_ulpdu = 1500;
  const size_t segment = data[1] + size_t{1};
  const Bytes stream(data + 2, size - 2);

  Listener segmented(options), trickled(options), engine(options);
  for (size_t at = 0; at < stream.size(); at += segment)
    segmented.feed(stream.subspan(at, std::min(segment, stream.size() - at)));
  for (const uint8_t& octet : stream) trickled.feed({&octet, 1});
  engine.read(stream);
  const Story story = segmented.story();
  require(story == trickled.story());
  require(story == engine.story());
  return 0;
}
