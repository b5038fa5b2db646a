// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The hash table in a registry file: which sockets of one user are in DDPMODE. Shared by the
// processes of that user without a lock, and read by everybody as input: no pointers, fixed size,
// bounded probing. A process may die at any instruction; at worst the slot it was filling is lost
// until the file is made anew.
//
// A slot is eight words. The first carries a sequence number, which every change increases, so that
// a reader knows that what it read belongs together.
#ifndef DDPSOCK_SHIM_POLICY_REGISTRY_TABLE_H_
#define DDPSOCK_SHIM_POLICY_REGISTRY_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shim/policy/address.h"

namespace ddpsock::shim {

inline constexpr size_t kSlotWords = 8;
inline constexpr size_t kSlotSize = kSlotWords * sizeof(uint64_t);
inline constexpr size_t kProbes = 32;
inline constexpr size_t kSlots = 4095;  // and one in front: the file is 256 KiB
// Names the layout; an other layout gets another number.
inline constexpr uint64_t kRegistryMagic = 0x0001'6b636f7370'6464;

using SlotWords = std::array<uint64_t, kSlotWords>;

// Names a socket of this boot.
struct SocketKey {
  uint64_t netns = 0;
  uint64_t cookie = 0;
  bool operator==(const SocketKey&) const = default;
};

// Copies of a listener that have gone to where the library is not, or whose connections go there,
// and those on the way to where it may not be.
struct Escaped {
  uint32_t gone = 0, in_flight = 0;
  bool is_any() const { return gone != 0 || in_flight != 0; }
};
enum class Escape : uint8_t { kGone, kInFlight };

enum class Kind : uint8_t { kListener, kConnection };

struct Entry {
  SocketKey key;
  Kind kind = Kind::kListener;
  bool wants_crc = true;
  bool is_alone = false;      // a listener without SO_REUSEPORT: it takes every connection
  bool is_retired = false;    // a listener that gets no new connections in DDPMODE
  bool has_listened = false;  // a listener: once it is not in the kernel's table, it is gone
  bool is_doubtful = false;   // a client is about to decide whether to withdraw
  bool is_adopted = false;    // a listener that was found, and not opened, by who registered it
  bool awaits_reply = false;  // a client that goes in unproved: it waits for MPA's Reply
  uint32_t pid = 0;           // who made it, in its own pid namespace
  uint32_t made_at = 0;       // seconds of CLOCK_BOOTTIME
  Escaped escaped;            // a listener's
  // A connection's are unknown (port 0) until it is established. `remote` carries the name of the
  // pid namespace instead, and of one that offers memory `local` a descriptor's number
  // (discovery.cpp).
  Address local, remote;
};

// What a slot says; nothing if it is free or being written, and then `is_busy` tells which.
std::optional<Entry> decode_slot(const SlotWords& words);
bool is_slot_busy(const SlotWords& words);

// Where the probes for a key begin; they never wrap around.
size_t first_slot(const SocketKey& key);

struct RegistryFile {
  struct Slot {
    std::array<std::atomic<uint64_t>, kSlotWords> words;
  };
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> superuser_vouches;  // in its own file, for some of this user's sockets
  std::array<std::atomic<uint64_t>, kSlotWords - 2> reserved;
  std::array<Slot, kSlots> slots;
};
inline constexpr size_t kRegistryFileSize = sizeof(RegistryFile);
static_assert(kRegistryFileSize == 256 * 1024);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The file of a user that this process has mapped, as it was found to be the one that others see a
// moment ago.
struct FoundRegistry {
  uid_t owner = 0;
  RegistryFile* file = nullptr;
};

// Writes to a mapping of the own user's file. All functions are lock-free and async-signal-safe.
class RegistryTable {
 public:
  explicit RegistryTable(RegistryFile& file) : file_(&file) {}

  // Tells whether the socket of an entry is gone for good. Called for entries in the way only.
  using IsGone = bool (*)(void* context, const Entry& entry);

  // Replaces the entry with its key (what has escaped stays so), else puts it into a free slot,
  // else into that of a socket which is gone. False: the table is full there.
  bool publish(const Entry& entry, IsGone is_gone, void* context);

  // The same, but only into a free slot. REQUIRES: there is none with its key.
  bool add(const Entry& entry);

  // Puts `entry` in place of one with its key. False: there was none.
  bool replace(const Entry& entry);

  // False: there was none.
  bool withdraw(const SocketKey& key);

  // False: there was none in the other state; somebody consumed it.
  bool set_doubtful(const SocketKey& key, bool is_doubtful);

  // For those who clean up: listen(2) has succeeded.
  void set_listened(const SocketKey& key);
  // For those who clean up: what the connection's addresses turned out to be.
  void set_addresses(const SocketKey& key, const Address& local, const Address& remote);

  // Counts copies of a listener that escape (1), or have not escaped after all (-1, which never
  // takes a count below none). False: there is no such listener.
  bool count_escaped(const SocketKey& key, Escape how, int change);

  std::optional<Entry> find(const SocketKey& key) const;

 private:
  using Slot = RegistryFile::Slot;
  std::span<Slot> window(const SocketKey& key) const;
  static bool fill(Slot& slot, uint64_t seen, const Entry& entry);

  RegistryFile* file_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_REGISTRY_TABLE_H_
