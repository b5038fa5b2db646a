// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/replay/capture.h"

#include <fstream>
#include <iterator>
#include <optional>

#include "base/bytes.h"

namespace ddpsock::interop {
namespace {

constexpr uint32_t kPcapMagic =
    0xa1b2c3d4;  // host order of the writer, which here is little-endian
constexpr uint32_t kLinkEthernet = 1;
constexpr size_t kFileHeader = 24;
constexpr size_t kRecordHeader = 16;
constexpr size_t kEthernetHeader = 14;
constexpr uint16_t kEtherIpv4 = 0x0800;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kFin = 0x01;
constexpr uint8_t kSyn = 0x02;

struct TcpSegment {
  uint16_t source = 0;
  uint16_t target = 0;
  uint32_t sequence = 0;
  uint8_t flags = 0;
  Bytes payload;
};

// Nothing if it is something else, or cut.
std::optional<TcpSegment> tcp_in(Bytes frame) {
  if (frame.size() < kEthernetHeader + 20) return std::nullopt;
  if (base::load_be16(&frame[12]) != kEtherIpv4) return std::nullopt;
  Bytes ip = frame.subspan(kEthernetHeader);
  const size_t ip_header = (ip[0] & 0x0fu) * 4;
  const size_t total = base::load_be16(&ip[2]);
  if (ip[9] != kProtocolTcp || total > ip.size() || ip_header + 20 > total) return std::nullopt;
  const Bytes tcp = ip.first(total).subspan(ip_header);
  const size_t tcp_header = (tcp[12] >> 4u) * 4;
  if (tcp_header > tcp.size()) return std::nullopt;
  return TcpSegment{base::load_be16(&tcp[0]), base::load_be16(&tcp[2]), base::load_be32(&tcp[4]),
                    tcp[13], tcp.subspan(tcp_header)};
}

// One direction.
class Reassembly {
 public:
  // What has become complete by it.
  Octets take(const TcpSegment& s) {
    if ((s.flags & kSyn) != 0) {
      next_ = s.sequence + 1;
      has_start_ = true;
      return {};
    }
    if ((s.flags & kFin) != 0) fin_at_ = s.sequence + static_cast<uint32_t>(s.payload.size());
    if (!s.payload.empty()) waiting_.push_back({s.sequence, {s.payload.begin(), s.payload.end()}});
    Octets whole;
    for (bool is_moving = true; is_moving;) {
      const size_t before = whole.size();
      std::erase_if(waiting_, [&](const Part& part) { return append(part, whole); });
      is_moving = whole.size() != before;
    }
    return whole;
  }
  bool has_start() const { return has_start_; }
  bool has_gap() const { return !waiting_.empty(); }
  // Once.
  bool has_ended() {
    const bool is_now = fin_at_ && *fin_at_ == next_;
    if (is_now) fin_at_.reset();
    return is_now;
  }

 private:
  struct Part {
    uint32_t sequence;
    Octets octets;
  };

  // Whether the part is done with: it, or what was new of it, came next.
  bool append(const Part& part, Octets& whole) {
    const auto ahead = static_cast<int32_t>(part.sequence - next_);
    if (ahead > 0) return false;
    const auto known = static_cast<uint32_t>(-ahead);
    if (known < part.octets.size()) {
      whole.insert(whole.end(), part.octets.begin() + known, part.octets.end());
      next_ += static_cast<uint32_t>(part.octets.size()) - known;
    }
    return true;
  }

  uint32_t next_ = 0;
  bool has_start_ = false;
  std::optional<uint32_t> fin_at_;
  std::vector<Part> waiting_;
};

std::unexpected<std::string> wrong(const std::string& what) {
  return fail(what);
}

}  // namespace

Result<std::vector<Segment>, std::string> read_connection(const std::string& path,
                                                          uint16_t server_port) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return wrong("cannot be opened");
  const Octets all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Bytes left(all);
  if (left.size() < kFileHeader || base::load_le32(&left[0]) != kPcapMagic ||
      base::load_le32(&left[20]) != kLinkEthernet)
    return wrong("not a pcap file of Ethernet frames");
  left = left.subspan(kFileHeader);

  Reassembly to_server;
  Reassembly to_client;
  std::optional<uint16_t> client_port;
  std::vector<Segment> segments;
  while (!left.empty()) {
    if (left.size() < kRecordHeader) return wrong("cut inside a record header");
    const size_t size = base::load_le32(&left[8]);
    if (size > left.size() - kRecordHeader) return wrong("cut inside a record");
    const auto tcp = tcp_in(left.subspan(kRecordHeader, size));
    left = left.subspan(kRecordHeader + size);
    if (!tcp) continue;
    const bool is_to_server = tcp->target == server_port;
    if (!is_to_server && tcp->source != server_port) continue;
    const uint16_t client = is_to_server ? tcp->source : tcp->target;
    if (client_port.value_or(client) != client) return wrong("more than one connection");
    client_port = client;
    Reassembly& direction = is_to_server ? to_server : to_client;
    Octets octets = direction.take(*tcp);
    const bool is_fin = direction.has_ended();
    if (!octets.empty() || is_fin)
      segments.push_back({is_to_server ? Side::kClient : Side::kServer, std::move(octets), is_fin});
  }
  if (!to_server.has_start() || !to_client.has_start()) return wrong("no connection to that port");
  if (to_server.has_gap() || to_client.has_gap()) return wrong("octets are missing");
  return segments;
}

Octets stream_of(const std::vector<Segment>& segments, Side from) {
  Octets stream;
  for (const Segment& s : segments)
    if (s.from == from) stream.insert(stream.end(), s.octets.begin(), s.octets.end());
  return stream;
}

}  // namespace ddpsock::interop
