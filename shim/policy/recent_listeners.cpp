// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/recent_listeners.h"

#include <array>
#include <atomic>
#include <cstring>

#include "base/clock.h"

namespace ddpsock::shim {
namespace {

constexpr Duration kLately = Duration::from_ms(1000);

struct Note {
  Address server;
  RecentListener listener;
  Time at;
};
constexpr size_t kWords = (sizeof(Note) + 7) / 8;
using Words = std::array<uint64_t, kWords>;
static_assert(std::is_trivially_copyable_v<Note>);

// The sequence is odd while somebody writes. A child forked in that moment never uses the place.
struct Place {
  std::atomic<uint32_t> sequence{0};
  std::array<std::atomic<uint64_t>, kWords> words{};
};
constinit std::array<Place, 8> places{};

Place& place_of(const Address& server) {
  return places[(server.port ^ server.bytes[15]) % places.size()];
}

}  // namespace

void note_listener_met(const Address& server, const RecentListener& listener) {
  const Note note{server, listener, base::coarse_now()};
  Words words{};
  std::memcpy(words.data(), &note, sizeof note);
  Place& place = place_of(server);
  uint32_t sequence = place.sequence.load(std::memory_order_relaxed);
  if (sequence % 2 != 0 ||
      !place.sequence.compare_exchange_strong(sequence, sequence + 1, std::memory_order_acquire))
    return;
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < kWords; ++i) place.words[i].store(words[i], std::memory_order_relaxed);
  place.sequence.store(sequence + 2, std::memory_order_release);
}

std::optional<RecentListener> listener_met_lately(const Address& server) {
  const Place& place = place_of(server);
  const uint32_t sequence = place.sequence.load(std::memory_order_acquire);
  Words words;
  for (size_t i = 0; i < kWords; ++i) words[i] = place.words[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (sequence % 2 != 0 || place.sequence.load(std::memory_order_relaxed) != sequence)
    return std::nullopt;
  Note note;
  std::memcpy(static_cast<void*>(&note), words.data(), sizeof note);
  if (note.listener.cookie == 0 || note.server.port != server.port ||
      note.server.bytes != server.bytes || base::coarse_now() - note.at > kLately)
    return std::nullopt;
  return note.listener;
}

}  // namespace ddpsock::shim
