// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where captures and traces go: whole records, one after the other.
#ifndef DDPSOCK_ENGINE_WRAP_RECORDS_H_
#define DDPSOCK_ENGINE_WRAP_RECORDS_H_

#include <cstdio>
#include <span>

#include "base/bytes.h"

namespace ddpsock::engine::wrap {

class Records {
 public:
  // One record, in pieces; not torn by those of other threads. What cannot be written is lost.
  virtual void put(std::span<const Bytes> pieces) = 0;

  // The same of a line of text, cut at kLongestLine; the end of the line is added.
  static constexpr size_t kLongestLine = 400;
  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...);

 protected:
  ~Records() = default;
};

// To a file of stdio's, for tests and samples. `out` is borrowed.
class StdioRecords final : public Records {
 public:
  explicit StdioRecords(std::FILE* out) : out_(out) {}
  void put(std::span<const Bytes> pieces) override;

 private:
  std::FILE* out_;
};

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_RECORDS_H_
