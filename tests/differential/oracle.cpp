// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/differential/oracle.h"

#include <algorithm>

#include "tests/differential/payload.h"

namespace ddpsock::differential {
namespace {

using engine::Completion;
using engine::WorkKind;
using engine::WorkStatus;

WorkKind kind_of(Verb verb) {
  switch (verb) {
    case Verb::kSend:
    case Verb::kSendInvalidate:
      return WorkKind::kSend;
    case Verb::kWrite:
      return WorkKind::kWrite;
    case Verb::kRead:
      return WorkKind::kRead;
    case Verb::kImmediate:
      return WorkKind::kImmediate;
    case Verb::kFetchAdd:
      return WorkKind::kFetchAdd;
    case Verb::kSwap:
      return WorkKind::kSwap;
    case Verb::kCmpSwap:
      return WorkKind::kCmpSwap;
    case Verb::kLocalInvalidate:
      return WorkKind::kLocalInvalidate;
  }
  return WorkKind::kSend;
}

std::string about(const char* what, uint64_t id) {
  return what + (" " + std::to_string(id));
}

}  // namespace

void Promised::note_accepted(const Work& w) {
  accepted.push_back(&w);
  if (w.is_message()) messages.push_back(&w);
  if (w.is_signalled) ++signalled;
}

// Each once and in order, and no success behind a flush, but of what had left before the answer to
// something earlier was given up. Behind a flush the silent ones fail, and tell.
std::string judge_sent(const Promised& end, std::span<const Completion> completions) {
  auto work = end.accepted.begin();
  bool is_flushing = false;
  const auto skip_silent = [&](uint64_t id) {
    while (!is_flushing && work != end.accepted.end() && (*work)->id != id &&
           !(*work)->is_signalled)
      ++work;
  };
  for (const Completion& c : completions) {
    skip_silent(c.id);
    if (work == end.accepted.end() || (*work)->id != c.id)
      return about("completes out of turn", c.id);
    if (c.kind != kind_of((*work)->verb)) return about("completes as another kind", c.id);
    if (c.status == WorkStatus::kLocalError && c.kind != WorkKind::kLocalInvalidate)
      return about("fails by itself", c.id);
    if (is_flushing && c.status != WorkStatus::kFlushed)
      return about("completes behind a flush", c.id);
    is_flushing |= c.status == WorkStatus::kFlushed && !(*work)->is_answered();
    ++work;
  }
  skip_silent(0);
  return work == end.accepted.end() ? "" : about("never completes", (*work)->id);
}

static bool is_untouched(Bytes octets) {
  return std::ranges::all_of(octets, [](uint8_t octet) { return octet == Promised::kUntouched; });
}

static bool is_what_was_sent(const Work& w, const Completion& c, Bytes octets) {
  if (w.verb == Verb::kImmediate) return c.immediate == w.value && is_untouched(octets);
  return c.length <= octets.size() && is_untouched(octets.subspan(c.length)) &&
         c.length == w.length && std::ranges::equal(octets.first(c.length), payload_of(w));
}

// The peer's messages, whole and in order, then flushes.
std::string judge_received(const Promised& end, const Promised& peer,
                           std::span<const Completion> completions, bool is_shared) {
  size_t n = 0;
  std::vector<bool> is_told(end.buffers.size());
  bool is_flushing = false;
  for (const Completion& c : completions) {
    const auto buffer =
        std::ranges::find(end.buffers, c.id, [](const auto& b) { return b.receive.id; });
    if (buffer == end.buffers.end()) return about("receives what it never posted:", c.id);
    const auto at = static_cast<size_t>(buffer - end.buffers.begin());
    if (is_told[at]) return about("receives twice", c.id);
    is_told[at] = true;
    if (c.status == WorkStatus::kFlushed) {
      is_flushing = true;
      continue;
    }
    if (c.status != WorkStatus::kOk) return about("receives with an error", c.id);
    if (is_flushing) return about("receives behind a flush", c.id);
    if (n == peer.messages.size()) return about("receives what was never sent:", c.id);
    if (!is_what_was_sent(*peer.messages[n++], c, buffer->octets))
      return about("receives other octets", c.id);
  }
  const bool is_all_told = std::ranges::find(is_told, false) == is_told.end();
  return is_shared || is_all_told ? "" : "never completes a receive";
}

}  // namespace ddpsock::differential
