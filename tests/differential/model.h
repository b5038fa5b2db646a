// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the work of a script comes to, where that is determined: the memory of both ends, and what
// is told of each request. Every carrier is held against it, for all of them share what is above
// them.
#ifndef DDPSOCK_TESTS_DIFFERENTIAL_MODEL_H_
#define DDPSOCK_TESTS_DIFFERENTIAL_MODEL_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/differential/script.h"

namespace ddpsock::differential {

class Model {
 public:
  // `content`: of region r of an end.
  void begin(int end, int r, Bytes content);
  // A registration, or the end of one, that was to succeed.
  void note_registration(const Registration& registration);
  // An accepted request is done, in its turn. `work.id` is unique at its end.
  void carry_out(int end, const Work& work);

  Bytes memory(int end, int r) const { return at(end).regions[static_cast<size_t>(r)]; }
  // What is wrong with the completion of a request that was carried out, or nothing.
  std::string judge(int end, const engine::Completion& completion) const;

 private:
  struct Expected {
    engine::WorkStatus status = engine::WorkStatus::kOk;
    uint32_t length = 0;
    uint64_t original = 0;
  };
  struct End {
    std::array<std::vector<uint8_t>, kRegions> regions;
    std::array<bool, kRegions> is_usable{};
    std::map<uint64_t, Expected> expected;
  };
  End& at(int end) { return ends_[static_cast<size_t>(end)]; }
  const End& at(int end) const { return ends_[static_cast<size_t>(end)]; }
  // The value found.
  static uint64_t change(const Work& work, uint8_t* at);

  std::array<End, kEnds> ends_;
};

}  // namespace ddpsock::differential

#endif  // DDPSOCK_TESTS_DIFFERENTIAL_MODEL_H_
