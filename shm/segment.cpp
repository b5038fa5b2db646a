// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/segment.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/random.h"

namespace ddpsock::engine::shm {
namespace {

static_assert(kPage == kLanePage);
constexpr size_t kSegmentSize = kLanesSize + 2 * kRingsSize;
// Another layout gets another number.
constexpr uint64_t kLayout = 0x0009'6d656d'70646464 ^ kSegmentSize;
// SegmentHead::phase. Above them a count.
constexpr uint64_t kMoved = 4, kStays = 8, kCount = 16;
constexpr char kName[] = "ddpsock-stream";

uint64_t sending(End end) {
  return uint64_t{1} << static_cast<unsigned>(end);
}
constexpr uint64_t kSending = 3;

uint8_t* bytes_of(Segment* segment) {
  return reinterpret_cast<uint8_t*>(segment);
}

SegmentHead& head_of(Segment* segment) {
  return *reinterpret_cast<SegmentHead*>(
      reinterpret_cast<Lane*>(bytes_of(segment))->reserved.data());
}
const SegmentHead& head_of(const Segment* segment) {
  return head_of(const_cast<Segment*>(segment));
}

// Every connection costs all of its file's size. A program that was given a limit needs it itself.
bool is_address_space_limited() {
  rlimit limit;
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

Result<Segment*> map(int fd) {
  if (is_address_space_limited()) return fail_errno(ENOMEM);
  const auto mapped = map_sealed_file(fd, kSegmentSize);
  if (!mapped) return fail(mapped.error());
  return reinterpret_cast<Segment*>(*mapped);
}

}  // namespace

Result<Segment::Made> Segment::make() {
  Secret secret;
  if (!base::fill_random(secret)) return fail_errno(ENOSYS);
  auto fd = make_sealed_file(kName, kSegmentSize);
  if (!fd) return fail(fd.error());
  const auto segment = map(fd->get());
  if (!segment) return fail(segment.error());
  if (!populate(*segment, kLanesSize)) {
    const int error = errno;
    (*segment)->unmap();
    return fail_errno(error);
  }
  for (const End end : {End::kConnected, End::kAccepted}) (*segment)->lane_from(end).reset();
  SegmentHead& head = head_of(*segment);
  head.secret = secret;
  head.joining.offer(kLayout);
  return Made{*segment, std::move(*fd), secret};
}

Result<Segment*> Segment::open(const Offer& offer) {
  const auto fd = open_sealed_file(offer.pid, offer.fd, kSegmentSize);
  if (!fd) return fail(fd.error());
  const auto segment = map(fd->get());
  if (!segment) return segment;
  SegmentHead& head = head_of(*segment);
  if (head.joining.is_offered(kLayout) && head.secret == offer.secret) return segment;
  (*segment)->unmap();
  return fail_errno(EPROTO);
}

Joining& Segment::joining() {
  return head_of(this).joining;
}
const Joining& Segment::joining() const {
  return head_of(this).joining;
}

uint64_t Segment::phase() const {
  return head_of(this).phase.load(std::memory_order_seq_cst);
}

bool Segment::has_moved() const {
  return (phase() & kMoved) != 0;
}

bool Segment::is_movable(uint64_t phase) {
  return (phase & (kSending | kStays)) == 0;
}

bool Segment::move(uint64_t phase) {
  if ((phase & kMoved) != 0) return true;
  return is_movable(phase) && head_of(this).phase.compare_exchange_strong(
                                  phase, phase | kMoved, std::memory_order_seq_cst);
}

bool Segment::begin_fpdus(End end) {
  std::atomic<uint64_t>& phase = head_of(this).phase;
  uint64_t seen = phase.load(std::memory_order_relaxed);
  while ((seen & kMoved) == 0)
    if (phase.compare_exchange_weak(seen, seen | sending(end), std::memory_order_seq_cst))
      return true;
  return false;
}

void Segment::end_fpdus(End end) {
  std::atomic<uint64_t>& phase = head_of(this).phase;
  uint64_t seen = phase.load(std::memory_order_relaxed);
  while (!phase.compare_exchange_weak(seen, (seen & ~sending(end)) + kCount,
                                      std::memory_order_seq_cst)) {
  }
}

bool Segment::stay_on_wire() {
  std::atomic<uint64_t>& phase = head_of(this).phase;
  uint64_t seen = phase.load(std::memory_order_relaxed);
  while ((seen & kMoved) == 0)
    if (phase.compare_exchange_weak(seen, seen | kStays, std::memory_order_seq_cst)) return true;
  return false;
}

bool Segment::stays_on_wire() const {
  return (phase() & kStays) != 0;
}

void Segment::unmap() {
  munmap(this, kSegmentSize);
}

bool MappedRings::provide(size_t from, size_t to) {
  const size_t first = from / kPage * kPage;
  const size_t last = (to + kPage - 1) / kPage * kPage;
  const int error = errno;
  const bool is_provided = populate(data() + first, last - first);
  errno = error;
  return is_provided;
}

void MappedRings::give_back(size_t from, size_t to) {
  const int error = errno;
  madvise(data() + from, to - from, MADV_REMOVE);
  errno = error;
}

}  // namespace ddpsock::engine::shm
