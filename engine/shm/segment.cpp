// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/shm/segment.h"

#include <errno.h>
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/random.h"

namespace ddpsock::engine::shm {
namespace {

constexpr size_t kLaneStride = (sizeof(Lane) + kPage - 1) / kPage * kPage;
constexpr size_t kSegmentSize = 2 * kLaneStride;
// Another layout gets another number.
constexpr uint64_t kLayout = 0x0001'6d656d'70646464 ^ kRingSize;
// SegmentHead::joining; 0 as long as it is open.
constexpr uint32_t kJoined = 1, kWithdrawn = 2;
constexpr char kName[] = "ddpsock-stream";

uint8_t* bytes_of(Segment* segment) {
  return reinterpret_cast<uint8_t*>(segment);
}

SegmentHead& head_of(Segment* segment) {
  return *reinterpret_cast<SegmentHead*>(
      reinterpret_cast<Lane*>(bytes_of(segment))->reserved.data());
}

Result<Segment*> map(int fd) {
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
  return Made{*segment, std::move(*fd), secret};
}

Result<Segment*> Segment::open(const Offer& offer) {
  const auto fd = open_sealed_file(offer.pid, offer.fd, kName, kSegmentSize);
  if (!fd) return fail(fd.error());
  const auto segment = map(fd->get());
  if (!segment) return segment;
  SegmentHead& head = head_of(*segment);
  if (head.layout.load(std::memory_order_acquire) == kLayout && head.secret == offer.secret)
    return segment;
  (*segment)->unmap();
  return fail_errno(EPROTO);
}

bool Segment::join() {
  uint32_t open = 0;
  return head_of(this).joining.compare_exchange_strong(open, kJoined, std::memory_order_acq_rel);
}

bool Segment::withdraw() {
  uint32_t open = 0;
  return head_of(this).joining.compare_exchange_strong(open, kWithdrawn, std::memory_order_acq_rel);
}

void Segment::unmap() {
  munmap(this, kSegmentSize);
}

Lane& Segment::lane_from(End end) {
  return *reinterpret_cast<Lane*>(bytes_of(this) + static_cast<size_t>(end) * kLaneStride);
}

bool Segment::is_joined() const {
  return head_of(const_cast<Segment*>(this)).joining.load(std::memory_order_acquire) == kJoined;
}

bool Segment::provide(Lane& lane, size_t from, size_t to) {
  const auto base = reinterpret_cast<uintptr_t>(lane.data.data());
  const uintptr_t first = (base + from) / kPage * kPage;
  const uintptr_t last = (base + to + kPage - 1) / kPage * kPage;
  return populate(reinterpret_cast<void*>(first), last - first);
}

}  // namespace ddpsock::engine::shm
