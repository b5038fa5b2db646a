// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/capture_file.h"

#include <algorithm>

namespace ddpsock::engine::wrap {
namespace {

constexpr uint32_t kMagicNanoseconds = 0xa1b23c4d;
constexpr uint32_t kSnapLength = 1u << 18;
constexpr uint32_t kLinkTypeEthernet = 1;

constexpr size_t kEthernetSize = 14;
constexpr size_t kIpSize = 20;
constexpr size_t kTcpSize = 20;
constexpr size_t kMaxPayload = 65'535 - kIpSize - kTcpSize;

constexpr uint8_t kFin = 0x01;
constexpr uint8_t kSyn = 0x02;
constexpr uint8_t kPush = 0x08;
constexpr uint8_t kAck = 0x10;

// The one's complement sum of RFC 1071, not yet folded.
uint32_t sum16(Bytes octets) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < octets.size(); i += 2) sum += base::load_be16(&octets[i]);
  if (octets.size() % 2 != 0) sum += uint32_t{octets.back()} << 8;
  return sum;
}

uint16_t fold(uint64_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

CaptureFile::CaptureFile(std::FILE* out) : out_(out) {
  // In this machine's byte order, as the magic number tells the reader.
  const struct {
    uint32_t magic = kMagicNanoseconds;
    uint16_t major = 2, minor = 4;
    uint32_t zone = 0, accuracy = 0;
    uint32_t snap_length = kSnapLength;
    uint32_t link_type = kLinkTypeEthernet;
  } header;
  static_assert(sizeof header == 24);
  std::fwrite(&header, sizeof header, 1, out_);
}

void CaptureFile::packet(std::span<const Bytes> octets, Time now) {
  uint32_t size = 0;
  for (Bytes r : octets) size += static_cast<uint32_t>(r.size());
  const std::array<uint32_t, 4> header = {static_cast<uint32_t>(now.ns / 1'000'000'000),
                                          static_cast<uint32_t>(now.ns % 1'000'000'000), size,
                                          size};
  const std::lock_guard lock(mutex_);
  std::fwrite(header.data(), sizeof header, 1, out_);
  for (Bytes r : octets) {
    if (!r.empty()) std::fwrite(r.data(), 1, r.size(), out_);
  }
}

CapturedTcp::CapturedTcp(CaptureFile& file, uint32_t index, bool is_local_initiator)
    : file_(file),
      local_{{10, 0, 0, 1}, kResponderPort, 1000},
      remote_{{10, 0, 0, 2}, kResponderPort, 500'000},
      is_local_initiator_(is_local_initiator) {
  End& initiator = is_local_initiator ? local_ : remote_;
  initiator.port = static_cast<uint16_t>(kFirstInitiatorPort + index % 16'384);
}

void CapturedTcp::handshake(Time now) {
  End& initiator = is_local_initiator_ ? local_ : remote_;
  End& responder = is_local_initiator_ ? remote_ : local_;
  write(initiator, responder, kSyn, {}, now);
  write(responder, initiator, kSyn | kAck, {}, now);
  write(initiator, responder, kAck, {}, now);
}

void CapturedTcp::segment(bool is_from_local, Bytes octets, Time now) {
  End& from = is_from_local ? local_ : remote_;
  const End& to = is_from_local ? remote_ : local_;
  while (!octets.empty()) {
    const Bytes part = octets.first(std::min(octets.size(), kMaxPayload));
    write(from, to, kPush | kAck, part, now);
    octets = octets.subspan(part.size());
  }
}

void CapturedTcp::fin(bool is_from_local, Time now) {
  End& from = is_from_local ? local_ : remote_;
  write(from, is_from_local ? remote_ : local_, kFin | kAck, {}, now);
}

void CapturedTcp::write(End& from, const End& to, uint8_t flags, Bytes payload, Time now) {
  std::array<uint8_t, kEthernetSize + kIpSize + kTcpSize> head{};
  const auto put = [](uint8_t* p, const std::array<uint8_t, 4>& address) {
    return std::copy(address.begin(), address.end(), p);
  };
  // Locally administered Ethernet addresses that end like the IP ones.
  head[0] = head[6] = 0x02;
  put(&head[2], to.address);
  put(&head[8], from.address);
  base::store_be16(&head[12], 0x0800);

  uint8_t* ip = &head[kEthernetSize];
  const auto tcp_length = static_cast<uint16_t>(kTcpSize + payload.size());
  ip[0] = 0x45;
  base::store_be16(ip + 2, static_cast<uint16_t>(kIpSize + tcp_length));
  base::store_be16(ip + 4, ++ip_id_);
  ip[6] = 0x40;  // do not fragment
  ip[8] = 64;
  ip[9] = 6;
  put(ip + 12, from.address);
  put(ip + 16, to.address);
  base::store_be16(ip + 10, fold(sum16({ip, kIpSize})));

  uint8_t* tcp = ip + kIpSize;
  base::store_be16(tcp, from.port);
  base::store_be16(tcp + 2, to.port);
  base::store_be32(tcp + 4, from.next);
  base::store_be32(tcp + 8, (flags & kAck) != 0 ? to.next : 0);
  tcp[12] = (kTcpSize / 4) << 4;
  tcp[13] = flags;
  base::store_be16(tcp + 14, 0xffff);
  const uint64_t pseudo = uint64_t{sum16({ip + 12, 8})} + 6 + tcp_length;
  base::store_be16(tcp + 16, fold(pseudo + sum16({tcp, kTcpSize}) + sum16(payload)));

  from.next += static_cast<uint32_t>(payload.size()) + ((flags & (kSyn | kFin)) != 0 ? 1 : 0);
  const std::array<Bytes, 2> packet = {Bytes(head), payload};
  file_.packet(packet, now);
}

}  // namespace ddpsock::engine::wrap
