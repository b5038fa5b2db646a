// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "base/random.h"
#include "base/sys.h"

namespace ddpsock::engine::shm {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLaneStride = (sizeof(Lane) + kPage - 1) / kPage * kPage;
constexpr size_t kSegmentSize = 2 * kLaneStride;
// Another layout gets another number.
constexpr uint64_t kLayout = 0x0001'6d656d'70646464 ^ kRingSize;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr char kName[] = "ddpsock-stream";
constexpr std::string_view kLinkName = "/memfd:ddpsock-stream (deleted)";

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

uint8_t* bytes_of(Segment* segment) {
  return reinterpret_cast<uint8_t*>(segment);
}

SegmentHead& head_of(Segment* segment) {
  return *reinterpret_cast<SegmentHead*>(
      reinterpret_cast<Lane*>(bytes_of(segment))->reserved.data());
}

// Programs get the lowest numbers and try round ones; not so high that the kernel must grow the
// table of descriptors much.
base::UniqueFd move_out_of_the_way(base::UniqueFd fd) {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return fd;
  const auto high = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 4096) * 3 / 4);
  const int copy = base::sys.fcntl(fd.get(), F_DUPFD_CLOEXEC, high);
  return copy >= 0 ? base::UniqueFd(copy) : std::move(fd);
}

// A limit on files would answer ftruncate with a signal.
bool may_have_file() {
  rlimit size;
  return getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur >= kSegmentSize;
}

Result<Segment*> map(int fd) {
  void* p = mmap(nullptr, kSegmentSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return fail_errno(errno);
  return static_cast<Segment*>(p);
}

bool populate(void* from, size_t size) {
  return madvise(from, size, MADV_POPULATE_WRITE) == 0;
}

bool is_sealed_whole(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  if (st.st_uid != geteuid() || st.st_size != static_cast<off_t>(kSegmentSize)) return false;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

// Opening is not harmless for every kind of file, so the name is looked at first.
Result<base::UniqueFd> open_offered(const Offer& offer) {
  char path[48], name[64];
  snprintf(path, sizeof path, "/proc/%u/fd/%u", offer.pid, offer.fd);
  const ssize_t n = readlink(path, name, sizeof name);
  if (n < 0) return fail_errno(errno);
  if (std::string_view(name, static_cast<size_t>(n)) != kLinkName) return fail_errno(EPROTO);
  const auto fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0));
  if (fd < 0) return fail_errno(errno);
  return base::UniqueFd(fd);
}

}  // namespace

Result<Segment::Made> Segment::make() {
  if (!may_have_file()) return fail_errno(EFBIG);
  Secret secret;
  if (!base::fill_random(secret)) return fail_errno(ENOSYS);
  base::UniqueFd fd(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_valid()) return fail_errno(errno);
  fd = move_out_of_the_way(std::move(fd));
  if (ftruncate(fd.get(), static_cast<off_t>(kSegmentSize)) != 0) return fail_errno(errno);
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return fail_errno(errno);
  const auto segment = map(fd.get());
  if (!segment) return fail(segment.error());
  for (const End end : {End::kConnected, End::kAccepted}) {
    Lane& lane = (*segment)->lane_from(end);
    if (!populate(&lane, kPage)) {
      const int error = errno;
      (*segment)->unmap();
      return fail_errno(error);
    }
    lane.reset();
  }
  SegmentHead& head = head_of(*segment);
  head.secret = secret;
  head.layout.store(kLayout, std::memory_order_release);
  return Made{*segment, std::move(fd), secret};
}

Result<Segment*> Segment::open(const Offer& offer) {
  const auto fd = open_offered(offer);
  if (!fd) return fail(fd.error());
  if (!is_sealed_whole(fd->get())) return fail_errno(EPROTO);
  const auto segment = map(fd->get());
  if (!segment) return segment;
  SegmentHead& head = head_of(*segment);
  if (head.layout.load(std::memory_order_acquire) == kLayout && head.secret == offer.secret)
    return segment;
  (*segment)->unmap();
  return fail_errno(EPROTO);
}

bool Segment::join() {
  return head_of(this).is_joined.exchange(1, std::memory_order_acq_rel) == 0;
}

void Segment::unmap() {
  munmap(this, kSegmentSize);
}

Lane& Segment::lane_from(End end) {
  return *reinterpret_cast<Lane*>(bytes_of(this) + static_cast<size_t>(end) * kLaneStride);
}

bool Segment::is_joined() const {
  return head_of(const_cast<Segment*>(this)).is_joined.load(std::memory_order_acquire) != 0;
}

bool Segment::provide(Lane& lane, size_t from, size_t to) {
  const auto base = reinterpret_cast<uintptr_t>(lane.data.data());
  const uintptr_t first = (base + from) / kPage * kPage;
  const uintptr_t last = (base + to + kPage - 1) / kPage * kPage;
  return populate(reinterpret_cast<void*>(first), last - first);
}

FileId file_of(int fd) {
  struct stat st;
  return fd >= 0 && fstat(fd, &st) == 0 ? FileId{st.st_dev, st.st_ino} : FileId{};
}

}  // namespace ddpsock::engine::shm
