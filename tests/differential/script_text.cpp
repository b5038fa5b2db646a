// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/differential/script.h"

namespace ddpsock::differential {

const char* to_string(Verb verb) {
  constexpr const char* kNames[] = {"Send", "SendInvalidate", "Write",
                                    "Read", "Immediate",      "FetchAdd",
                                    "Swap", "CmpSwap",        "LocalInvalidate"};
  return kNames[static_cast<size_t>(verb)];
}

const char* to_string(Ending ending) {
  constexpr const char* kNames[] = {"orderly", "one drains",   "error",     "Terminate",
                                    "abort",   "abort midway", "cut midway"};
  return kNames[static_cast<size_t>(ending)];
}

std::string describe(const Work& w) {
  std::string text = std::to_string(w.id) + " " + to_string(w.verb) + " of " +
                     std::to_string(w.length) + " in " + std::to_string(w.pieces);
  if (w.verb != Verb::kSend && w.verb != Verb::kImmediate && w.verb != Verb::kLocalInvalidate)
    text += ", region " + std::to_string(w.region) + " + " + std::to_string(w.offset);
  if (w.verb == Verb::kRead || w.verb == Verb::kLocalInvalidate)
    text += ", sink " + std::to_string(w.sink) + " + " + std::to_string(w.sink_offset);
  constexpr const char* kFlaws[] = {"",          ", wrong key", ", STag 0",
                                    ", no sink", ", slices",    ", too long for inline"};
  text += kFlaws[static_cast<size_t>(w.flaw)];
  if (w.has_fence) text += ", fence";
  if (w.is_inline) text += ", inline";
  if (!w.is_signalled) text += ", silent";
  return text;
}

std::string describe(const Script& s) {
  std::string text = "seed " + std::to_string(s.seed) + ": depths " + std::to_string(s.send_depth) +
                     ", " + std::to_string(s.recv_depth) + ", shared " +
                     std::to_string(s.srq_depth) + "; IRD " + std::to_string(s.ird) +
                     (s.has_crc ? "" : "; no CRC") + (s.has_markers ? "; Markers" : "") +
                     "; end: " + to_string(s.ending) + " by " + std::to_string(s.ender) + "\n";
  for (size_t i = 0; i < s.rounds.size(); ++i) {
    text += "round " + std::to_string(i) + "\n";
    for (const Registration& r : s.rounds[i].registrations)
      text += "  " + std::to_string(r.end) +
              (r.is_deregistration ? " deregisters " : " registers ") + std::to_string(r.region) +
              ", rights " + std::to_string(r.rights.bits) + "\n";
    for (size_t end = 0; end < kEnds; ++end) {
      for (const Receive& r : s.rounds[i].receives[end])
        text += "  " + std::to_string(end) + " receives " + std::to_string(r.id) + " of " +
                std::to_string(r.size) + "\n";
      for (const Work& w : s.rounds[i].work[end])
        text += "  " + std::to_string(end) + " posts " + describe(w) + "\n";
    }
  }
  return text;
}

}  // namespace ddpsock::differential
