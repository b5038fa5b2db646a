// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/records.h"

#include <algorithm>
#include <cstdarg>

namespace ddpsock::engine::wrap {

void Records::print(const char* format, ...) {
  char line[kLongestLine + 1];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  const size_t size = std::min(static_cast<size_t>(length), kLongestLine);
  line[size] = '\n';
  const Bytes text(reinterpret_cast<const uint8_t*>(line), size + 1);
  put({&text, 1});
}

void StdioRecords::put(std::span<const Bytes> pieces) {
  flockfile(out_);
  for (Bytes piece : pieces) {
    if (!piece.empty()) std::fwrite(piece.data(), 1, piece.size(), out_);
  }
  funlockfile(out_);
}

}  // namespace ddpsock::engine::wrap
