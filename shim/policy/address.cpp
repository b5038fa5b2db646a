// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>

#include "base/kernel_call.h"

namespace ddpsock::shim {
namespace {

constexpr std::array<uint8_t, 12> kMappedHead = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr size_t kV4At = kMappedHead.size();
constexpr unsigned kMappedBits = 96;

Address from_v4(const in_addr& v4) {
  Address a;
  std::ranges::copy(kMappedHead, a.bytes.begin());
  std::memcpy(&a.bytes[kV4At], &v4, sizeof v4);
  return a;
}

Address from_v6(const in6_addr& v6) {
  Address a;
  std::memcpy(a.bytes.data(), &v6, sizeof v6);
  return a;
}

// getsockname and getpeername are intercepted names inside the library; the kernel is asked itself.
std::optional<Address> ask_name(long number, int fd) {
  sockaddr_storage name;
  socklen_t length = sizeof name;
  if (base::kernel_call(number, fd, &name, &length) != 0) return std::nullopt;
  return read_address(reinterpret_cast<const sockaddr*>(&name), length);
}

}  // namespace

bool Address::is_v4() const {
  return std::ranges::equal(kMappedHead, std::span(bytes).first<kV4At>());
}

bool Address::is_wildcard() const {
  const size_t from = is_v4() ? kV4At : 0;
  return std::all_of(bytes.begin() + from, bytes.end(), [](uint8_t b) { return b == 0; });
}

bool Address::is_loopback() const {
  if (is_v4()) return bytes[kV4At] == 127;
  return bytes.back() == 1 &&
         std::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t b) { return b == 0; });
}

std::optional<Address> read_address(const sockaddr* from, socklen_t length) {
  if (from == nullptr || length < sizeof from->sa_family) return std::nullopt;
  sa_family_t family;
  std::memcpy(&family, &from->sa_family, sizeof family);
  if (family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, from, sizeof in);
    Address a = from_v4(in.sin_addr);
    a.port = ntohs(in.sin_port);
    return a;
  }
  // The kernel takes IPv6 addresses without the scope too (SIN6_LEN_RFC2133).
  constexpr socklen_t kShortest = offsetof(sockaddr_in6, sin6_scope_id);
  if (family == AF_INET6 && length >= kShortest) {
    sockaddr_in6 in{};
    std::memcpy(&in, from, kShortest);
    Address a = from_v6(in.sin6_addr);
    a.port = ntohs(in.sin6_port);
    return a;
  }
  return std::nullopt;
}

std::optional<Address> local_address(int fd) {
  return ask_name(SYS_getsockname, fd);
}

std::optional<Address> peer_address(int fd) {
  return ask_name(SYS_getpeername, fd);
}

std::optional<Address> parse_address(std::string_view text) {
  char buffer[INET6_ADDRSTRLEN];
  if (text.size() >= sizeof buffer || text.find('\0') != text.npos) return std::nullopt;
  buffer[text.copy(buffer, text.size())] = '\0';
  in_addr v4;
  if (inet_pton(AF_INET, buffer, &v4) == 1) return from_v4(v4);
  in6_addr v6;
  if (inet_pton(AF_INET6, buffer, &v6) == 1) return from_v6(v6);
  return std::nullopt;
}

bool Prefix::has(const Address& a) const {
  if (base.is_v4() != a.is_v4()) return false;
  const unsigned total = base.is_v4() ? kMappedBits + bits : bits;
  const unsigned whole = total / 8;
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + whole, base.bytes.begin())) return false;
  if (total % 8 == 0) return true;
  const auto mask = static_cast<uint8_t>(0xff00 >> (total % 8));
  return (a.bytes[whole] & mask) == (base.bytes[whole] & mask);
}

std::optional<Prefix> parse_prefix(std::string_view text) {
  const size_t slash = text.find('/');
  const auto base = parse_address(text.substr(0, slash));
  if (!base) return std::nullopt;
  // "::ffff:10.0.0.0/104" counts its bits from the start of the 16 bytes, "10.0.0.0/8" does not.
  const bool is_mapped_text = base->is_v4() && text.find(':') != text.npos;
  const unsigned most = base->is_v4() && !is_mapped_text ? 32 : 128;
  unsigned bits = most;
  if (slash != text.npos) {
    const std::string_view digits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    if (error != std::errc{} || end != digits.data() + digits.size() || bits > most)
      return std::nullopt;
  }
  if (is_mapped_text) {
    if (bits < kMappedBits) return std::nullopt;
    bits -= kMappedBits;
  }
  return Prefix{*base, static_cast<uint8_t>(bits)};
}

}  // namespace ddpsock::shim
