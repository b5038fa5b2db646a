// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/registry.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "base/kernel_call.h"
#include "base/kernel_view.h"

namespace ddpsock::shim {
namespace {

constexpr std::string_view kUsualFolder = "/dev/shm";
constexpr mode_t kMode = 0644;
constexpr int kOpenFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
constexpr int kLooks = 64;

constexpr std::string_view kName = "/ddpsock-";
constexpr size_t kMostDigits = 10, kMostFolder = 256;
using Path = std::array<char, kMostFolder + kName.size() + kMostDigits + 1>;

// Read once and copied: programs change their environment under other threads.
struct Folder {
  std::array<char, kMostFolder> text{};
  size_t size = 0;
};

void read_folder(Folder& folder) {
  const char* given = secure_getenv("DDPSOCK_REGISTRY_DIR");
  const std::string_view text = given == nullptr ? kUsualFolder : given;
  if (!text.starts_with('/') || text.size() > folder.text.size()) return;  // then there is none
  folder.size = text.copy(folder.text.data(), folder.text.size());
}

std::string_view registry_folder() {
  enum : int { kUnread, kReading, kRead };
  static constinit std::atomic<int> state{kUnread};
  static constinit Folder folder;
  if (state.load(std::memory_order_acquire) != kRead) {
    int unread = kUnread;
    if (state.compare_exchange_strong(unread, kReading)) {
      read_folder(folder);
      state.store(kRead, std::memory_order_release);
    }
    while (state.load(std::memory_order_acquire) != kRead) {
    }
  }
  return {folder.text.data(), folder.size};
}

// False if there is no folder.
bool name_file(uid_t owner, Path& path) {
  const std::string_view folder = registry_folder();
  if (folder.empty()) return false;
  char* end = std::ranges::copy(folder, path.begin()).out;
  end = std::ranges::copy(kName, end).out;
  end = std::to_chars(end, path.end() - 1, owner).ptr;
  *end = '\0';
  return true;
}

bool is_trustworthy(const struct stat& st, uid_t owner) {
  return S_ISREG(st.st_mode) && st.st_uid == owner && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool is_whole(const struct stat& st) {
  return st.st_size == static_cast<off_t>(kRegistryFileSize);
}

// A limit on files would answer fallocate with a signal.
bool may_have_file() {
  rlimit size;
  return getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur >= kRegistryFileSize;
}

// Brings a file that is ours to its size. Every step may be repeated by anyone of the same user at
// any time, so that it does not matter who dies in between.
bool complete_file(int fd, uid_t owner, struct stat& st) {
  if (base::kernel::fstat(fd, st) != 0 || !is_trustworthy(st, owner)) return false;
  if (st.st_size != 0 && !is_whole(st)) return false;
  if ((st.st_mode & 0777) != kMode && base::kernel::fchmod(fd, kMode) != 0) return false;
  // Pages that the file system cannot give later would be a SIGBUS for the program.
  constexpr auto kWhole = static_cast<off_t>(kRegistryFileSize);
  const bool has_pages = st.st_blocks * 512 >= kWhole;
  return (has_pages && is_whole(st)) || (may_have_file() && fallocate(fd, 0, 0, kWhole) == 0);
}

int open_own(const Path& path) {
  const int flags = O_RDWR | kOpenFlags;
  for (int i = 0; i < kLooks; ++i) {
    long fd = base::kernel_call(SYS_openat, AT_FDCWD, path.data(), flags, 0);
    if (fd >= 0 || errno != ENOENT) return static_cast<int>(fd);
    fd = base::kernel_call(SYS_openat, AT_FDCWD, path.data(), flags | O_CREAT | O_EXCL, kMode);
    if (fd >= 0 || errno != EEXIST) return static_cast<int>(fd);
  }
  return -1;
}

RegistryFile* map_own(int fd) {
  void* p = mmap(nullptr, kRegistryFileSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return nullptr;
  auto* file = static_cast<RegistryFile*>(p);
  uint64_t magic = 0;
  if (file->magic.compare_exchange_strong(magic, kRegistryMagic) || magic == kRegistryMagic)
    return file;
  munmap(p, kRegistryFileSize);
  return nullptr;
}

// The files this process has mapped. A mapping stays for good: other threads may be using it.
struct Mapping {
  std::atomic<RegistryFile*> file{nullptr};  // set last
  std::atomic<bool> is_taken{false};
  // When the path was found to lead to it: a tick of the clock, 0 if it may lead elsewhere since.
  std::atomic<int64_t> seen_at{0};
  uid_t owner = 0;
  dev_t device = 0;
  ino_t inode = 0;
};
constinit std::array<Mapping, 16> mappings{};

template <typename Is>
RegistryFile* find_mapping(uid_t owner, Is is) {
  // The newest first: it is the one that others see.
  for (auto m = mappings.rbegin(); m != mappings.rend(); ++m) {
    RegistryFile* file = m->file.load(std::memory_order_acquire);
    if (file != nullptr && m->owner == owner && is(*m)) return file;
  }
  return nullptr;
}

RegistryFile* find_mapping_of(const struct stat& st) {
  return find_mapping(
      st.st_uid, [&](const Mapping& m) { return m.device == st.st_dev && m.inode == st.st_ino; });
}

// Who removes a file does so between the looks of two processes in any case; so one look at the
// path serves all verdicts of the next few ms.
constexpr Duration kLately = Duration::from_ms(4);

// `began`: no later than the look at the path.
void note_sight(const RegistryFile* file, Time began) {
  for (Mapping& m : mappings)
    if (m.file.load(std::memory_order_relaxed) == file)
      m.seen_at.store(began.ns, std::memory_order_release);
}

RegistryFile* find_mapping_seen_lately(uid_t owner) {
  const Time now = base::coarse_now();
  return find_mapping(owner, [=](const Mapping& m) {
    const int64_t seen_at = m.seen_at.load(std::memory_order_acquire);
    return seen_at != 0 && now - Time{seen_at} <= kLately;
  });
}

RegistryFile* keep_mapping(RegistryFile* file, uid_t owner, const struct stat& st) {
  for (Mapping& m : mappings) {
    if (m.is_taken.exchange(true, std::memory_order_acq_rel)) continue;
    m.owner = owner;
    m.device = st.st_dev;
    m.inode = st.st_ino;
    m.file.store(file, std::memory_order_release);
    for (Mapping& other : mappings)
      if (other.file.load(std::memory_order_acquire) != nullptr && other.owner == owner)
        other.seen_at.store(0, std::memory_order_release);
    return file;
  }
  munmap(file, kRegistryFileSize);
  return nullptr;
}

// What this process may do for the sockets of a user. It maps no file of anybody to whom it is
// superior, who could truncate it under the mapping.
enum class Standing : uint8_t { kStranger, kOwner, kSuperuser };

Standing standing_towards(uid_t owner) {
  uid_t real, effective, saved;
  if (base::kernel::getresuid(real, effective, saved) != 0) return Standing::kStranger;
  if (real == 0 || effective == 0 || saved == 0)
    return owner == 0 ? Standing::kOwner : Standing::kSuperuser;
  return owner == real && owner == effective && owner == saved ? Standing::kOwner
                                                               : Standing::kStranger;
}

// This thread opens files as `owner` meanwhile, and no signal handler with it. The system calls act
// on one thread; what a signal handler could see is held back.
class ActingAs {
 public:
  explicit ActingAs(uid_t owner)
      : effective_(base::kernel::geteuid()), is_other_(owner != effective_) {
    if (!is_other_) return;
    const uint64_t all = ~uint64_t{0};
    base::kernel_call(SYS_rt_sigprocmask, SIG_BLOCK, &all, &mask_, sizeof mask_);
    base::kernel_call(SYS_setfsuid, owner);
  }
  ~ActingAs() {
    if (!is_other_) return;
    base::kernel_call(SYS_setfsuid, effective_);
    base::kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, &mask_, nullptr, sizeof mask_);
  }
  // A superuser without CAP_SETUID may not. What it made would bear the wrong owner.
  bool is_so(uid_t owner) const {
    return !is_other_ || base::kernel_call(SYS_setfsuid, uid_t{~0u}) == static_cast<long>(owner);
  }
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;

 private:
  uid_t effective_;
  bool is_other_;
  uint64_t mask_ = 0;
};

RegistryFile* open_mapping(const Path& path, uid_t owner) {
  const ActingAs acting(owner);
  const int fd = open_own(path);
  if (fd < 0) return nullptr;
  struct stat st;
  RegistryFile* file = complete_file(fd, owner, st) ? map_own(fd) : nullptr;
  base::close_own(fd);
  return file != nullptr ? keep_mapping(file, owner, st) : nullptr;
}

bool is_as_it_should_be(const Path& path, uid_t owner, struct stat& st) {
  return base::kernel::lstat(path.data(), st) == 0 && is_trustworthy(st, owner) && is_whole(st);
}

RegistryFile* find_last_mapping(uid_t owner) {
  return find_mapping(owner, [](const Mapping&) { return true; });
}

// The root has changed since: what this process has mapped is still what others see.
bool has_lost_folder(Path path) {
  if (!mappings.front().is_taken.load(std::memory_order_acquire)) return false;
  path[registry_folder().size()] = '\0';
  struct stat st;
  return base::kernel::lstat(path.data(), st) != 0;
}

RegistryFile* find_current_mapping(const Path& path, uid_t owner) {
  struct stat st;
  if (is_as_it_should_be(path, owner, st)) return find_mapping_of(st);
  return has_lost_folder(path) ? find_last_mapping(owner) : nullptr;
}

// The last file in which this process has said that the superuser vouches. That of another user is
// said again.
struct SaidIn {
  std::atomic<uint64_t> device{0}, inode{0};
  bool is(const struct stat& st) const {
    return device.load(std::memory_order_relaxed) == st.st_dev &&
           inode.load(std::memory_order_relaxed) == st.st_ino;
  }
};
constinit SaidIn said_in{};

// What the superuser's own file says of a user's sockets is looked for once that user's says so.
bool say_superuser_vouches(uid_t owner) {
  Path path;
  struct stat st;
  if (!name_file(owner, path)) return false;
  if (is_as_it_should_be(path, owner, st) && said_in.is(st)) return true;
  const ActingAs acting(owner);
  if (!acting.is_so(owner) || !may_have_file()) return false;
  const int fd = open_own(path);
  if (fd < 0) return false;
  const std::array<uint64_t, 2> head{kRegistryMagic, 1};
  std::array<uint64_t, 2> known{};
  const bool is_said =
      complete_file(fd, owner, st) &&
      pread(fd, known.data(), sizeof known, 0) == ssize_t{sizeof known} &&
      (known[0] == 0 || known[0] == kRegistryMagic) &&
      (known == head || pwrite(fd, head.data(), sizeof head, 0) == ssize_t{sizeof head});
  base::close_own(fd);
  if (!is_said) return false;
  said_in.device.store(st.st_dev, std::memory_order_relaxed);
  said_in.inode.store(st.st_ino, std::memory_order_relaxed);
  return true;
}

bool read_at(int fd, void* into, size_t size, size_t offset) {
  return pread(fd, into, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

// Another user's file is read twice: a slot that is the same both times, sequence number included,
// was whole. Nothing: it kept changing, or the file shrank.
std::optional<Lookup> search(int fd, const SocketKey& key) {
  const size_t at = offsetof(RegistryFile, slots) + first_slot(key) * kSlotSize;
  std::array<SlotWords, kProbes> once, again;
  for (int i = 0; i < kLooks; ++i) {
    if (!read_at(fd, &once, sizeof once, at)) return std::nullopt;
    const auto has_key = [&](const SlotWords& words) {
      const auto entry = decode_slot(words);
      return entry && entry->key == key;
    };
    const auto found = std::ranges::find_if(once, has_key);
    if (found == once.end()) return Lookup{Lookup::Outcome::kAbsent};
    const auto index = static_cast<size_t>(found - once.begin());
    if (!read_at(fd, &again[index], kSlotSize, at + index * kSlotSize)) return std::nullopt;
    if (again[index] == *found) return Lookup{Lookup::Outcome::kFound, *decode_slot(*found)};
  }
  return std::nullopt;
}

// As look_up(), of one file; and whether it says that the superuser vouches.
Lookup look_up_in_file(const Path& path, uid_t owner, const SocketKey& key, bool& is_vouched) {
  constexpr Lookup kOutOfSight{Lookup::Outcome::kOutOfSight};
  const base::UniqueFd fd(static_cast<int>(
      base::kernel_call(SYS_openat, AT_FDCWD, path.data(), O_RDONLY | kOpenFlags, kMode)));
  if (!fd.is_valid()) {
    const bool is_there_none = errno == ENOENT && !has_lost_folder(path);
    return is_there_none ? Lookup{Lookup::Outcome::kAbsent} : kOutOfSight;
  }
  struct stat st;
  std::array<uint64_t, 2> head;
  if (base::kernel::fstat(fd.get(), st) != 0 || !is_trustworthy(st, owner) || !is_whole(st))
    return kOutOfSight;
  if (!read_at(fd.get(), &head, sizeof head, 0) || head[0] != kRegistryMagic) return kOutOfSight;
  is_vouched = head[1] != 0;
  return search(fd.get(), key).value_or(kOutOfSight);
}

Lookup look_up_in_mapping(RegistryFile& file, const SocketKey& key, bool& is_vouched) {
  is_vouched = file.superuser_vouches.load(std::memory_order_relaxed) != 0;
  const auto entry = RegistryTable(file).find(key);
  return entry ? Lookup{Lookup::Outcome::kFound, *entry} : Lookup{Lookup::Outcome::kAbsent};
}

Lookup look_up_mapped_or_not(const Path& path, uid_t owner, const SocketKey& key,
                             FoundRegistry* read, bool& is_vouched) {
  const Time began = base::coarse_now();
  RegistryFile* file = find_current_mapping(path, owner);
  if (read != nullptr) {
    *read = {owner, file};
    if (file != nullptr) note_sight(file, began);
  }
  return file == nullptr ? look_up_in_file(path, owner, key, is_vouched)
                         : look_up_in_mapping(*file, key, is_vouched);
}

bool is_ambiguous(uid_t owner) {
  return owner == kOverflowUid && base::kernel::geteuid() != owner;
}

}  // namespace

Lookup look_up(uid_t owner, const SocketKey& key, FoundRegistry* read) {
  if (is_ambiguous(owner)) return {Lookup::Outcome::kOutOfSight};
  bool is_vouched = false;
  RegistryFile* file = read != nullptr ? find_mapping_seen_lately(owner) : nullptr;
  Lookup found{Lookup::Outcome::kOutOfSight};
  if (file != nullptr) {
    *read = {owner, file};
    found = look_up_in_mapping(*file, key, is_vouched);
  } else {
    Path path;
    if (!name_file(owner, path)) return found;
    found = look_up_mapped_or_not(path, owner, key, read, is_vouched);
  }
  const bool has_superuser_a_say =
      is_vouched && owner != 0 && found.outcome == Lookup::Outcome::kAbsent;
  return has_superuser_a_say ? look_up(0, key) : found;
}

std::optional<RegistryTable> own_registry(uid_t owner, For what) {
  Path path;
  if (!name_file(owner, path)) return std::nullopt;
  RegistryFile* file = find_current_mapping(path, owner);
  if (file == nullptr) {
    const Standing standing = standing_towards(owner);
    if (standing == Standing::kSuperuser) {
      if (what == For::kPublishing && !say_superuser_vouches(owner)) return std::nullopt;
      return own_registry(0, what);
    }
    if (standing == Standing::kOwner) file = open_mapping(path, owner);
  }
  if (file == nullptr) return std::nullopt;
  return RegistryTable(*file);
}

FoundRegistry current_registry(uid_t owner) {
  RegistryFile* file = find_mapping_seen_lately(owner);
  Path path;
  if (file == nullptr && name_file(owner, path)) {
    const Time began = base::coarse_now();
    file = find_current_mapping(path, owner);
    if (file != nullptr) note_sight(file, began);
  }
  return {owner, file};
}

std::optional<RegistryTable> mapped_registry(uid_t owner) {
  RegistryFile* file = find_last_mapping(owner);
  if (file == nullptr) file = find_last_mapping(0);
  if (file == nullptr) return std::nullopt;
  return RegistryTable(*file);
}

}  // namespace ddpsock::shim
