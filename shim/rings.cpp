// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/rings.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

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
