// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/crc32c.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <climits>

namespace ddpsock::base {
namespace {

// Slicing by eight: table k holds the CRC of a byte followed by k zero bytes.
constexpr auto make_tables() {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0x82f63b78u : 0u);
    t[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; ++i)
    for (size_t k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
  return t;
}
constexpr auto kTables = make_tables();

using IsalCrc = unsigned int (*)(unsigned char* data, int len, unsigned int init);
std::atomic<IsalCrc> isal_crc{nullptr};

}  // namespace

uint32_t crc32c_extend_table(uint32_t crc, Bytes data) {
  uint32_t c = ~crc;
  const uint8_t* p = data.data();
  size_t n = data.size();
  for (; n >= 8; n -= 8, p += 8) {
    const uint32_t lo = load_le32(p) ^ c;
    const uint32_t hi = load_le32(p + 4);
    c = kTables[7][lo & 0xff] ^ kTables[6][(lo >> 8) & 0xff] ^ kTables[5][(lo >> 16) & 0xff] ^
        kTables[4][lo >> 24] ^ kTables[3][hi & 0xff] ^ kTables[2][(hi >> 8) & 0xff] ^
        kTables[1][(hi >> 16) & 0xff] ^ kTables[0][hi >> 24];
  }
  for (; n > 0; --n, ++p) c = (c >> 8) ^ kTables[0][(c ^ *p) & 0xff];
  return ~c;
}

uint32_t crc32c_extend(uint32_t crc, Bytes data) {
  const IsalCrc isal = isal_crc.load(std::memory_order_relaxed);
  if (isal == nullptr || data.size() > INT_MAX) return crc32c_extend_table(crc, data);
  // ISA-L reads only; its prototype is from before const.
  return ~isal(const_cast<unsigned char*>(data.data()), static_cast<int>(data.size()), ~crc);
}

const char* crc32c_init() {
  crc32c_copy_init();
  if (isal_crc.load(std::memory_order_relaxed) != nullptr) return "isa-l";
  // Never closed: the function stays in use until the process ends.
  void* lib = dlopen("libisal.so.2", RTLD_NOW | RTLD_LOCAL);
  if (lib == nullptr) return "table";
  const auto fn = reinterpret_cast<IsalCrc>(dlsym(lib, "crc32_iscsi"));
  if (fn == nullptr) return "table";
  isal_crc.store(fn, std::memory_order_relaxed);
  return "isa-l";
}

}  // namespace ddpsock::base
