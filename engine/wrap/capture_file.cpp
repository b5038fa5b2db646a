// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/capture_file.h"

#include <algorithm>

namespace ddpsock::engine::wrap {
namespace {

constexpr size_t kEthernetSize = 14;
constexpr size_t kIpSize = 20;
constexpr size_t kIp6Size = 40;
constexpr size_t kTcpSize = 20;
constexpr size_t kMaxPayload = 65'535 - kIpSize - kTcpSize;

constexpr uint8_t kFin = 0x01;
constexpr uint8_t kSyn = 0x02;
constexpr uint8_t kPush = 0x08;
constexpr uint8_t kAck = 0x10;

constexpr uint8_t kProtocolTcp = 6;

// The one's complement sum of RFC 1071, not yet folded.
uint64_t sum16(Bytes octets) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 1 < octets.size(); i += 2) sum += base::load_be16(&octets[i]);
  if (octets.size() % 2 != 0) sum += uint32_t{octets.back()} << 8;
  return sum;
}

uint16_t fold(uint64_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

Bytes host_of(const base::TcpAddress& address) {
  return Bytes(address.host).first(address.family == 6 ? 16 : 4);
}

// Locally administered, and ends like the IP address.
void put_ethernet(uint8_t* p, const base::TcpAddress& address) {
  p[0] = 0x02;
  const Bytes host = host_of(address);
  std::ranges::copy(host.last(4), p + 2);
}

// Returns the octet behind it. `length`: of what follows.
uint8_t* put_ip4(uint8_t* ip, const base::TcpAddress& from, const base::TcpAddress& to,
                 size_t length) {
  ip[0] = 0x45;
  base::store_be16(ip + 2, static_cast<uint16_t>(kIpSize + length));
  ip[6] = 0x40;  // do not fragment
  ip[8] = 64;
  ip[9] = kProtocolTcp;
  std::ranges::copy(host_of(from), ip + 12);
  std::ranges::copy(host_of(to), ip + 16);
  base::store_be16(ip + 10, fold(sum16({ip, kIpSize})));
  return ip + kIpSize;
}

uint8_t* put_ip6(uint8_t* ip, const base::TcpAddress& from, const base::TcpAddress& to,
                 size_t length) {
  ip[0] = 0x60;
  base::store_be16(ip + 4, static_cast<uint16_t>(length));
  ip[6] = kProtocolTcp;
  ip[7] = 64;
  std::ranges::copy(host_of(from), ip + 8);
  std::ranges::copy(host_of(to), ip + 24);
  return ip + kIp6Size;
}

}  // namespace

void CaptureFile::begin() {
  const CaptureHeader header;
  const Bytes bytes = header.bytes();
  out_.put({&bytes, 1});
}

void CaptureFile::packet(Bytes head, Bytes payload, Time now) {
  const auto size = static_cast<uint32_t>(head.size() + payload.size());
  const Time at = now + offset_;
  const std::array<uint32_t, 4> header = {static_cast<uint32_t>(at.ns / 1'000'000'000),
                                          static_cast<uint32_t>(at.ns % 1'000'000'000), size, size};
  const std::array<Bytes, 3> pieces = {
      Bytes(reinterpret_cast<const uint8_t*>(header.data()), sizeof header), head, payload};
  out_.put(pieces);
}

CapturedEnds made_up_ends(uint32_t index, bool is_local_initiator) {
  CapturedEnds ends{.addresses = {base::TcpAddress{4, kResponderPort, {10, 0, 0, 1}},
                                  base::TcpAddress{4, kResponderPort, {10, 0, 0, 2}}}};
  ends.addresses[is_local_initiator ? 0 : 1].port =
      static_cast<uint16_t>(kFirstInitiatorPort + index % 16'384);
  return ends;
}

void CapturedTcp::handshake(Time now) {
  write(is_local_initiator_, kSyn, {}, now);
  write(!is_local_initiator_, kSyn | kAck, {}, now);
  write(is_local_initiator_, kAck, {}, now);
}

void CapturedTcp::segment(bool is_from_local, Bytes octets, Time now) {
  while (!octets.empty()) {
    const Bytes part = octets.first(std::min(octets.size(), kMaxPayload));
    write(is_from_local, kPush | kAck, part, now);
    octets = octets.subspan(part.size());
  }
}

void CapturedTcp::fin(bool is_from_local, Time now) {
  write(is_from_local, kFin | kAck, {}, now);
}

void CapturedTcp::write(bool is_from_local, uint8_t flags, Bytes payload, Time now) {
  const size_t us = is_from_local ? 0 : 1;
  const base::TcpAddress& from = ends_.addresses[us];
  const base::TcpAddress& to = ends_.addresses[1 - us];
  const size_t tcp_length = kTcpSize + payload.size();
  const bool is_ip6 = from.family == 6;

  std::array<uint8_t, kEthernetSize + kIp6Size + kTcpSize> head{};
  put_ethernet(&head[0], to);
  put_ethernet(&head[6], from);
  base::store_be16(&head[12], is_ip6 ? 0x86dd : 0x0800);
  uint8_t* const tcp = is_ip6 ? put_ip6(&head[kEthernetSize], from, to, tcp_length)
                              : put_ip4(&head[kEthernetSize], from, to, tcp_length);
  base::store_be16(tcp, from.port);
  base::store_be16(tcp + 2, to.port);
  base::store_be32(tcp + 4, ends_.next[us]);
  base::store_be32(tcp + 8, (flags & kAck) != 0 ? ends_.next[1 - us] : 0);
  tcp[12] = (kTcpSize / 4) << 4;
  tcp[13] = flags;
  base::store_be16(tcp + 14, 0xffff);
  const uint64_t pseudo = sum16(host_of(from)) + sum16(host_of(to)) + kProtocolTcp + tcp_length;
  base::store_be16(tcp + 16, fold(pseudo + sum16({tcp, kTcpSize}) + sum16(payload)));

  ends_.next[us] += static_cast<uint32_t>(payload.size()) + ((flags & (kSyn | kFin)) != 0 ? 1 : 0);
  const auto head_size = static_cast<size_t>(tcp + kTcpSize - head.data());
  file_.packet(Bytes(head).first(head_size), payload, now);
}

}  // namespace ddpsock::engine::wrap
