// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/rping/protocol.h"

#include <fmt/core.h>

#include <algorithm>

namespace ddpsock::rping {
namespace {

constexpr uint8_t kFirstLetter = 'A';
constexpr uint32_t kLetters = 'z' - 'A' + 1;

bool is_wrapping(const Advert& advert) {
  return advert.size != 0 && advert.to + (advert.size - 1) < advert.to;
}

}  // namespace

Message encode(const Advert& advert) {
  Message message;
  uint8_t* at = base::store_be64(message.data(), advert.to);
  at = base::store_be32(at, advert.stag);
  base::store_be32(at, advert.size);
  return message;
}

Advert decode(const Message& message) {
  return {.to = base::load_be64(message.data()),
          .stag = base::load_be32(message.data() + 8),
          .size = base::load_be32(message.data() + 12)};
}

Status<Error> check_source(const Advert& advert, uint32_t room) {
  if (advert.size == 0) return iwarp::fail_with("the client advertises 0 bytes to read");
  if (advert.size > room) {
    return iwarp::fail_with(
        fmt::format("the client advertises {} bytes to read, and -S allows {}; if its -S is meant, "
                    "give the server the same",
                    advert.size, room));
  }
  if (is_wrapping(advert)) {
    return iwarp::fail_with(fmt::format(
        "the client advertises {} bytes at TO {:#x}, beyond 64 bits", advert.size, advert.to));
  }
  return {};
}

Status<Error> check_sink(const Advert& advert, uint32_t size) {
  if (advert.size < size) {
    return iwarp::fail_with(
        fmt::format("the client advertises {} bytes to write {} bytes into", advert.size, size));
  }
  if (is_wrapping(advert)) {
    return iwarp::fail_with(fmt::format(
        "the client advertises {} bytes at TO {:#x}, beyond 64 bits", advert.size, advert.to));
  }
  return {};
}

void fill(MutBytes data, uint32_t ping) {
  if (data.empty()) return;
  const std::string head = fmt::format("rdma-ping-{}: ", ping);
  const size_t head_size = std::min(head.size(), data.size());
  std::copy_n(head.begin(), head_size, data.begin());
  for (size_t i = head_size; i < data.size(); ++i) {
    data[i] = static_cast<uint8_t>(kFirstLetter + (ping + (i - head_size)) % kLetters);
  }
  data.back() = 0;
}

Status<Error> compare(Bytes data, Bytes expected) {
  const auto [got, wanted] = std::mismatch(data.begin(), data.end(), expected.begin());
  if (got == data.end()) return {};
  return iwarp::fail_with(fmt::format("byte {} of {} is {:#04x} and should be {:#04x}",
                                      got - data.begin(), data.size(), *got, *wanted));
}

std::string to_text(Bytes data) {
  std::string text;
  for (const uint8_t octet : data.first(std::find(data.begin(), data.end(), 0) - data.begin())) {
    const bool is_printable = octet >= ' ' && octet <= '~';
    text +=
        is_printable ? std::string(1, static_cast<char>(octet)) : fmt::format("\\x{:02x}", octet);
  }
  return text;
}

}  // namespace ddpsock::rping
