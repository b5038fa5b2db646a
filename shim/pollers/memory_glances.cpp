// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/memory_glances.h"

#include "base/spin.h"
#include "stream/stream.h"

namespace ddpsock::shim {
namespace {

engine::Glance glance_at(const SocketUse& use) {
  return use->stream.load(std::memory_order_acquire)->glance();
}

}  // namespace

void MemoryGlances::add(int fd) {
  if (!engine::MemoryPart::is_memory_in_use()) return;
  const Socket* socket = socket_at(fd);
  if (socket == nullptr || socket->phase.load(std::memory_order_acquire) != Phase::kStream) return;
  if (count_ == kMost) {
    has_overflown_ = true;
    return;
  }
  std::optional<SocketUse>& use = uses_[count_];
  use.emplace(fd);
  if (*use && use->phase() == Phase::kStream && glance_at(*use).is_in_memory) {
    ++count_;
  } else {
    use.reset();
  }
}

bool MemoryGlances::is_any_with_bytes() const {
  for (unsigned i = 0; i < count_; ++i)
    if (glance_at(*uses_[i]).has_bytes) return true;
  return false;
}

uint32_t MemoryGlances::peer_cpu() const {
  uint32_t cpu = 0;
  for (unsigned i = 0; i < count_; ++i)
    if (const uint32_t peer = glance_at(*uses_[i]).peer_cpu; peer != 0) cpu = peer;
  return cpu;
}

bool MemoryGlances::await_bytes() const {
  if (count_ == 0 || has_overflown_) return false;
  base::Spin& spin = base::Spin::mine();
  const uint32_t cpu = peer_cpu();
  const auto has_bytes = [this] { return is_any_with_bytes(); };
  if (spin.is_beside(cpu)) return spin.by_yielding(has_bytes);
  return spin.is_worth(cpu, cpu) && spin.until(has_bytes);
}

}  // namespace ddpsock::shim
