// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/rings.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/keep_errno.h"

namespace ddpsock::shim {
namespace {

// Each was looked at: sockets by libc, rings for files (databases, qemu's disks, samba's,
// PostgreSQL 18's) or for libuv's files and epoll_ctl.
constexpr std::string_view kForFiles[] = {"mariadbd", "mysqld", "qemu-system-", "qemu-img",
                                          "qemu-nbd", "smbd",   "postgres",     "fio",
                                          "node",     "nodejs", "named"};
constexpr std::string_view kLibraryForFiles = "libuv.so";

enum class Use : uint8_t { kUnknown, kNo, kYes };
constinit std::atomic<Use> use_of_rings{Use::kUnknown};

std::string_view name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// The user's own word, for programs that are not in the list.
bool is_excepted() {
  const char* word = secure_getenv("DDPSOCK_IO_URING");
  if (word != nullptr && strcmp(word, "files") == 0) return true;
  const auto* started_as = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (started_as != nullptr && has_rings_for_files_only(started_as)) return true;
  char binary[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", binary, sizeof binary);
  return n > 0 && has_rings_for_files_only({binary, static_cast<size_t>(n)});
}

// io_uring_setup by the bare instruction, as a copy of liburing has it that is part of a program:
// its number (0x1a9) goes into eax, and the system call follows.
bool sets_up_ring(std::span<const uint8_t> code) {
  constexpr size_t kBefore = 1, kAfter = 4, kNear = 40;
  constexpr uint8_t kNumber[] = {0xb8, 0xa9, 0x01, 0x00, 0x00}, kCall[] = {0x0f, 0x05};
  if (code.size() < kBefore + kAfter) return false;
  const uint8_t* const end = code.data() + code.size();
  const uint8_t* at = code.data() + kBefore;
  while ((at = static_cast<const uint8_t*>(
              memchr(at, kNumber[kBefore], static_cast<size_t>(end - at)))) != nullptr) {
    if (end - at < static_cast<ptrdiff_t>(kAfter)) return false;
    const uint8_t* const behind = at + kAfter;
    if (memcmp(at - kBefore, kNumber, sizeof kNumber) == 0 &&
        memmem(behind, std::min<size_t>(kNear, static_cast<size_t>(end - behind)), kCall,
               sizeof kCall) != nullptr)
      return true;
    ++at;
  }
  return false;
}

// Of the program itself, which comes first.
int has_ring_code(dl_phdr_info* object, size_t, void* result) {
  constexpr size_t kMost = size_t{64} << 20;
  for (const ElfW(Phdr) & part : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    if (part.p_type != PT_LOAD || (part.p_flags & (PF_R | PF_X)) != (PF_R | PF_X)) continue;
    const auto* begin = reinterpret_cast<const uint8_t*>(object->dlpi_addr + part.p_vaddr);
    if (sets_up_ring({begin, std::min<size_t>(part.p_filesz, kMost)}))
      *static_cast<bool*>(result) = true;
  }
  return 1;
}

int is_ring_library(dl_phdr_info* object, size_t, void*) {
  return object->dlpi_name != nullptr && name_of(object->dlpi_name).starts_with(kRingLibrary);
}

}  // namespace

bool has_rings_for_files_only(std::string_view path) {
  return std::ranges::any_of(kForFiles, [name = name_of(path)](std::string_view known) {
    return known.ends_with('-') ? name.starts_with(known) : name == known;
  });
}

bool may_use_sockets_by_rings() {
  const Use known = use_of_rings.load(std::memory_order_relaxed);
  if (known != Use::kUnknown) [[likely]]
    return known == Use::kYes;
  const base::KeepErrno keep;
  const bool does = dl_iterate_phdr(is_ring_library, nullptr) != 0 && !is_excepted();
  use_of_rings.store(does ? Use::kYes : Use::kNo, std::memory_order_relaxed);
  return does;
}

void look_for_ring_code() {
  static constinit std::atomic<bool> is_done{false};
  if (is_done.load(std::memory_order_relaxed)) [[likely]]
    return;
  const base::KeepErrno keep;
  bool has_code = false;
  dl_iterate_phdr(has_ring_code, &has_code);
  if (has_code) note_ring(Maker::kUnknown);
  is_done.store(true, std::memory_order_relaxed);
}

bool is_ring_for_sockets(const void* caller) {
  const base::KeepErrno keep;
  Dl_info object{};
  const bool is_for_files = dladdr(caller, &object) != 0 && object.dli_fname != nullptr &&
                            name_of(object.dli_fname).starts_with(kLibraryForFiles);
  return !is_for_files && !is_excepted();
}

void note_ring(Maker maker) {
  if (maker == Maker::kUnknown && is_excepted()) return;
  use_of_rings.store(Use::kYes, std::memory_order_relaxed);
}

}  // namespace ddpsock::shim
