// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/registry_table.h"

#include <sched.h>

#include <cstring>

namespace ddpsock::shim {
namespace {

// Word 0: pid (32 bits), flags (8), phase (8), sequence (16).
// kAmending is live with addresses that are being filled in; only who set it ends it.
enum class Phase : uint8_t { kFree, kWriting, kLive, kDoubtful, kAmending };
constexpr uint64_t kIsConnection = 1, kWantsCrc = 2, kIsAlone = 4, kIsRetired = 8, kIsAdopted = 16,
                   kAwaitsReply = 32, kHasListened = 64;
constexpr unsigned kFlagsAt = 32, kPhaseAt = 40, kSequenceAt = 48;

// The other words.
enum : size_t { kState, kCookie, kNetns, kLocal, kRemote = kLocal + 2, kPorts = kRemote + 2 };
static_assert(kPorts + 1 == kSlotWords);
constexpr size_t kEscaped = kRemote;  // of a listener, which has no remote address
constexpr unsigned kInFlightAt = 0, kGoneAt = 32;

// A slot that changes under every look is one that is being written.
constexpr int kLooks = 64;

Phase phase_of(uint64_t state) {
  return static_cast<Phase>((state >> kPhaseAt) & 0xff);
}

uint64_t next_state(uint64_t seen, Phase phase, uint64_t flags, uint32_t pid) {
  const uint64_t sequence = (seen >> kSequenceAt) + 1;
  return sequence << kSequenceAt | static_cast<uint64_t>(phase) << kPhaseAt | flags << kFlagsAt |
         pid;
}

uint64_t with_phase(uint64_t seen, Phase phase) {
  return next_state(seen, phase, (seen >> kFlagsAt) & 0xff, static_cast<uint32_t>(seen));
}

uint64_t flags_of(const Entry& e) {
  return (e.kind == Kind::kConnection ? kIsConnection : 0) | (e.wants_crc ? kWantsCrc : 0) |
         (e.is_alone ? kIsAlone : 0) | (e.is_retired ? kIsRetired : 0) |
         (e.is_adopted ? kIsAdopted : 0) | (e.awaits_reply ? kAwaitsReply : 0) |
         (e.has_listened ? kHasListened : 0);
}

Address take_address(const SlotWords& words, size_t at, uint64_t port) {
  Address a;
  std::memcpy(a.bytes.data(), &words[at], a.bytes.size());
  a.port = static_cast<uint16_t>(port);
  return a;
}

void put_address(RegistryFile::Slot& slot, size_t at, const Address& from) {
  for (size_t i = 0; i < 2; ++i) {
    uint64_t word;
    std::memcpy(&word, &from.bytes[i * sizeof word], sizeof word);
    slot.words[at + i].store(word, std::memory_order_relaxed);
  }
}

uint64_t join_ports(const Address& local, const Address& remote, uint32_t made_at) {
  return uint64_t{local.port} << 48 | uint64_t{remote.port} << 32 | made_at;
}

// A consistent copy, or one in the phase of being written.
SlotWords look(const RegistryFile::Slot& slot) {
  SlotWords words{};
  for (int i = 0; i < kLooks; ++i) {
    words[kState] = slot.words[kState].load(std::memory_order_acquire);
    for (size_t w = 1; w < kSlotWords; ++w)
      words[w] = slot.words[w].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.words[kState].load(std::memory_order_relaxed) == words[kState]) return words;
  }
  words[kState] = with_phase(words[kState], Phase::kWriting);
  return words;
}

bool is_being_amended(const SlotWords& words) {
  return phase_of(words[kState]) == Phase::kAmending;
}

bool has_key(const SlotWords& words, const SocketKey& key) {
  return words[kCookie] == key.cookie && words[kNetns] == key.netns;
}

// Saves the look at those that are another's.
bool may_have_key(const RegistryFile::Slot& slot, const SocketKey& key) {
  return slot.words[kCookie].load(std::memory_order_relaxed) == key.cookie;
}

}  // namespace

std::optional<Entry> decode_slot(const SlotWords& words) {
  const Phase phase = phase_of(words[kState]);
  if (phase < Phase::kLive || phase > Phase::kAmending) return std::nullopt;
  const uint64_t flags = words[kState] >> kFlagsAt;
  Entry e;
  e.key = {.netns = words[kNetns], .cookie = words[kCookie]};
  e.kind = (flags & kIsConnection) != 0 ? Kind::kConnection : Kind::kListener;
  e.wants_crc = (flags & kWantsCrc) != 0;
  e.is_alone = (flags & kIsAlone) != 0;
  e.is_retired = (flags & kIsRetired) != 0;
  e.is_adopted = (flags & kIsAdopted) != 0;
  e.awaits_reply = (flags & kAwaitsReply) != 0;
  e.has_listened = (flags & kHasListened) != 0;
  e.is_doubtful = phase == Phase::kDoubtful;
  e.pid = static_cast<uint32_t>(words[kState]);
  e.made_at = static_cast<uint32_t>(words[kPorts]);
  if (phase == Phase::kAmending) return e;
  e.local = take_address(words, kLocal, words[kPorts] >> 48);
  if (e.kind == Kind::kListener)
    e.escaped = {.gone = static_cast<uint32_t>(words[kEscaped] >> kGoneAt),
                 .in_flight = static_cast<uint32_t>(words[kEscaped] >> kInFlightAt)};
  else
    e.remote = take_address(words, kRemote, words[kPorts] >> 32);
  return e;
}

bool is_slot_busy(const SlotWords& words) {
  return phase_of(words[kState]) == Phase::kWriting;
}

size_t first_slot(const SocketKey& key) {
  const uint64_t mixed = (key.cookie ^ key.netns << 32) * 0x9e37'79b9'7f4a'7c15;
  return (mixed >> 32) % (kSlots - kProbes + 1);
}

std::span<RegistryFile::Slot> RegistryTable::window(const SocketKey& key) const {
  return std::span(file_->slots).subspan(first_slot(key), kProbes);
}

bool RegistryTable::fill(Slot& slot, uint64_t seen, const Entry& entry) {
  const SlotWords before = look(slot);
  const bool was_listener = (before[kState] >> kFlagsAt & kIsConnection) == 0;
  const bool is_same = was_listener && has_key(before, entry.key);
  const uint64_t writing = next_state(seen, Phase::kWriting, flags_of(entry), entry.pid);
  if (!slot.words[kState].compare_exchange_strong(seen, writing, std::memory_order_acq_rel))
    return false;
  // A reader that sees any of the words below must see the phase as well.
  std::atomic_thread_fence(std::memory_order_release);
  slot.words[kCookie].store(entry.key.cookie, std::memory_order_relaxed);
  slot.words[kNetns].store(entry.key.netns, std::memory_order_relaxed);
  put_address(slot, kLocal, entry.local);
  // What is counted by others meanwhile stays.
  if (entry.kind == Kind::kConnection)
    put_address(slot, kRemote, entry.remote);
  else if (!is_same)
    put_address(slot, kRemote, {});
  slot.words[kPorts].store(join_ports(entry.local, entry.remote, entry.made_at),
                           std::memory_order_relaxed);
  slot.words[kState].store(with_phase(writing, Phase::kLive), std::memory_order_release);
  return true;
}

bool RegistryTable::replace(const Entry& entry) {
  for (Slot& slot : window(entry.key)) {
    if (!may_have_key(slot, entry.key)) continue;
    const SlotWords words = look(slot);
    if (decode_slot(words) && has_key(words, entry.key) && fill(slot, words[kState], entry))
      return true;
  }
  return false;
}

bool RegistryTable::add(const Entry& entry) {
  for (Slot& slot : window(entry.key)) {
    const uint64_t seen = slot.words[kState].load(std::memory_order_relaxed);
    if (phase_of(seen) == Phase::kFree && fill(slot, seen, entry)) return true;
  }
  return false;
}

bool RegistryTable::publish(const Entry& entry, IsGone is_gone, void* context) {
  if (replace(entry) || add(entry)) return true;
  for (Slot& slot : window(entry.key)) {
    const SlotWords words = look(slot);
    const auto old = decode_slot(words);
    if (old && is_gone(context, *old) && fill(slot, words[kState], entry)) return true;
  }
  return false;
}

bool RegistryTable::withdraw(const SocketKey& key) {
  bool has_withdrawn = false;
  for (Slot& slot : window(key)) {
    if (!may_have_key(slot, key)) continue;
    SlotWords words = look(slot);
    for (int i = 0; is_being_amended(words) && i < kLooks; ++i) {
      sched_yield();
      words = look(slot);
    }
    // Who died amending leaves the entry to be found in the way some day.
    if (!decode_slot(words) || is_being_amended(words) || !has_key(words, key)) continue;
    has_withdrawn |= slot.words[kState].compare_exchange_strong(
        words[kState], with_phase(words[kState], Phase::kFree), std::memory_order_acq_rel);
  }
  return has_withdrawn;
}

bool RegistryTable::set_doubtful(const SocketKey& key, bool is_doubtful) {
  const Phase from = is_doubtful ? Phase::kLive : Phase::kDoubtful;
  const Phase to = is_doubtful ? Phase::kDoubtful : Phase::kLive;
  bool has_changed = false;
  for (Slot& slot : window(key)) {
    if (!may_have_key(slot, key)) continue;
    SlotWords words = look(slot);
    if (phase_of(words[kState]) != from || !has_key(words, key)) continue;
    has_changed |= slot.words[kState].compare_exchange_strong(
        words[kState], with_phase(words[kState], to), std::memory_order_seq_cst);
  }
  return has_changed;
}

void RegistryTable::set_listened(const SocketKey& key) {
  for (Slot& slot : window(key)) {
    if (!may_have_key(slot, key)) continue;
    SlotWords words = look(slot);
    const uint64_t flags = (words[kState] >> kFlagsAt & 0xff) | kHasListened;
    if (phase_of(words[kState]) != Phase::kLive || !has_key(words, key)) continue;
    // Whoever changes the entry at this moment has asked the kernel, or leaves it to age.
    slot.words[kState].compare_exchange_strong(
        words[kState],
        next_state(words[kState], Phase::kLive, flags, static_cast<uint32_t>(words[kState])),
        std::memory_order_acq_rel);
  }
}

void RegistryTable::set_addresses(const SocketKey& key, const Address& local,
                                  const Address& remote) {
  for (Slot& slot : window(key)) {
    if (!may_have_key(slot, key)) continue;
    SlotWords words = look(slot);
    if (phase_of(words[kState]) != Phase::kLive || !has_key(words, key)) continue;
    const uint64_t amending = with_phase(words[kState], Phase::kAmending);
    if (!slot.words[kState].compare_exchange_strong(words[kState], amending,
                                                    std::memory_order_acq_rel))
      continue;
    put_address(slot, kLocal, local);
    put_address(slot, kRemote, remote);
    const auto made_at = static_cast<uint32_t>(words[kPorts]);
    slot.words[kPorts].store(join_ports(local, remote, made_at), std::memory_order_relaxed);
    slot.words[kState].store(with_phase(amending, Phase::kLive), std::memory_order_release);
    return;
  }
}

bool RegistryTable::count_escaped(const SocketKey& key, Escape how, int change) {
  const unsigned shift = how == Escape::kGone ? kGoneAt : kInFlightAt;
  for (Slot& slot : window(key)) {
    const SlotWords words = look(slot);
    const bool is_listener = (words[kState] >> kFlagsAt & kIsConnection) == 0;
    if (phase_of(words[kState]) == Phase::kFree || !is_listener || !has_key(words, key)) continue;
    uint64_t seen = slot.words[kEscaped].load();
    uint64_t next;
    do {
      const auto count = static_cast<uint32_t>(seen >> shift);
      if (change < 0 ? count == 0 : count == ~uint32_t{0}) return true;
      next = seen + (static_cast<uint64_t>(int64_t{change}) << shift);
    } while (!slot.words[kEscaped].compare_exchange_weak(seen, next));
    return true;
  }
  return false;
}

std::optional<Entry> RegistryTable::find(const SocketKey& key) const {
  for (const Slot& slot : window(key)) {
    if (!may_have_key(slot, key)) continue;
    SlotWords words = look(slot);
    if (!has_key(words, key)) continue;
    // Being rewritten with the same key, or just taken for another: the next look will tell.
    for (int i = 0; is_slot_busy(words) && i < kLooks; ++i) {
      sched_yield();
      words = look(slot);
    }
    if (auto entry = decode_slot(words); entry && has_key(words, key)) return entry;
  }
  return std::nullopt;
}

}  // namespace ddpsock::shim
