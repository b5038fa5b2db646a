// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The wire as personas write and read it: start-up frames, FPDUs and the few messages they need.
// Written from RFC 5040, 5041, 5044 and 6581 a second time and on purpose not from mpa/, ddp/ and
// rdmap/: a mistake that both ends of a test share would not be seen.
#ifndef DDPSOCK_TESTS_INTEROP_PERSONAS_WIRE_H_
#define DDPSOCK_TESTS_INTEROP_PERSONAS_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddpsock::interop {

using Octets = std::vector<uint8_t>;

inline constexpr uint8_t kFlagM = 0x80;
inline constexpr uint8_t kFlagC = 0x40;
inline constexpr uint8_t kFlagR = 0x20;
inline constexpr uint8_t kFlagS = 0x10;
inline constexpr uint16_t kBitA = 0x8000;  // in the IRD word
inline constexpr uint16_t kBitB = 0x4000;
inline constexpr uint16_t kBitC = 0x8000;  // in the ORD word
inline constexpr uint16_t kBitD = 0x4000;
inline constexpr uint16_t kDepth = 0x3fff;

inline constexpr const char* kRequestKey = "MPA ID Req Frame";
inline constexpr const char* kReplyKey = "MPA ID Rep Frame";

struct Words {
  uint16_t ird = 0;  // with A and B
  uint16_t ord = 0;  // with C and D
};

// A whole frame; PD_Length counts the words and the private data.
Octets startup_frame(const char* key, uint8_t flags, uint8_t revision, std::optional<Words> words,
                     const Octets& private_data);

// The front of a stream read as a start-up frame. REQUIRES: the first 20 octets for all but
// words(), which reads zeros where there are none.
class FrameView {
 public:
  explicit FrameView(const Octets& stream) : stream_(stream) {}
  bool has_header() const { return stream_.size() >= 20; }
  bool has_key(const char* key) const {
    return std::string(stream_.begin(), stream_.begin() + 16) == key;
  }
  uint8_t flags() const { return stream_[16]; }
  uint8_t revision() const { return stream_[17]; }
  size_t pd_length() const { return static_cast<size_t>(stream_[18] << 8 | stream_[19]); }
  size_t size() const { return 20 + pd_length(); }
  bool is_whole() const { return stream_.size() >= size(); }
  Words words() const;
  // From octet `from` of the private data to its end.
  Octets private_data(size_t from) const;

 private:
  const Octets& stream_;
};

// CRC-32C, bit by bit.
uint32_t crc32c(const Octets& octets);

// One direction's FPDUs out.
class FpduWriter {
 public:
  bool has_crc = true;
  bool has_markers = false;
  bool omits_crc_word = false;  // the mistake of the OSC stack
  Octets write(const Octets& ulpdu);

 private:
  size_t position_ = 0;
};

// One direction's FPDUs in. Anything wrong is said in error().
class FpduReader {
 public:
  bool has_crc = true;
  bool has_markers = false;
  void feed(const Octets& octets) { stream_.insert(stream_.end(), octets.begin(), octets.end()); }
  std::optional<Octets> next_ulpdu();
  const std::string& error() const { return error_; }
  size_t octets_left() const { return stream_.size(); }

 private:
  bool take_markers(size_t want);

  Octets stream_;      // not looked at yet
  Octets fpdu_;        // of the FPDU under way, without Markers
  Octets covered_;     // ... with them, for the CRC
  bool lead_ = false;  // a Marker stands before its length field
  size_t position_ = 0;
  std::string error_;
};

Octets send_ulpdu(uint32_t msn, const std::string& text);
Octets write_ulpdu(uint32_t stag, uint64_t to);
struct ReadBody {
  uint32_t sink_stag;
  uint64_t sink_to;
  uint32_t length;
  uint32_t source_stag;
  uint64_t source_to;
};
Octets read_request_ulpdu(uint32_t msn, const ReadBody& body);
Octets read_response_ulpdu(uint32_t stag, uint64_t to);
// Layer LLP, type MPA, no headers. `is_swapped`: nibbles as siw puts them on a little-endian host.
Octets terminate_ulpdu(uint8_t code, bool is_swapped);

uint16_t be16(const Octets& from, size_t at);
uint32_t be32(const Octets& from, size_t at);
uint64_t be64(const Octets& from, size_t at);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_PERSONAS_WIRE_H_
