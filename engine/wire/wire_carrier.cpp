// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wire/wire_carrier.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "mpa/fpdu.h"

namespace ddpsock::engine {
namespace {

// On the stack of advance(): one read of small and medium FPDUs.
constexpr size_t kSpillSize = 32 * 1024;

size_t total(std::span<const MutBytes> ranges) {
  size_t n = 0;
  for (MutBytes r : ranges) n += r.size();
  return n;
}

// What the tap sees: the first `octets` of `ranges`.
template <typename Range, typename Tell>
void tell(std::span<const Range> ranges, size_t octets, const Tell& to_tap) {
  std::array<Bytes, Transmitter::kMaxPieces> seen;
  size_t count = 0;
  for (const Range& r : ranges) {
    if (octets == 0) break;
    const size_t n = std::min(octets, r.size());
    seen[count++] = Bytes(r).first(n);
    octets -= n;
  }
  to_tap(std::span<const Bytes>(seen).first(count));
}

}  // namespace

std::unique_ptr<Carrier> WireCarrier::make(std::unique_ptr<Channel> channel, const Start& start,
                                           const QpAttr& attr) {
  if (!channel) return nullptr;
  std::unique_ptr<WireCarrier> made(new (std::nothrow)
                                        WireCarrier(std::move(channel), start, attr));
  if (!made || !made->tx_.has_memory()) return nullptr;
  return made;
}

WireCarrier::WireCarrier(std::unique_ptr<Channel> channel, const Start& start, const QpAttr& attr)
    : channel_(std::move(channel)),
      tap_(start.tap),
      max_ulpdu_(start.max_ulpdu),
      send_markers_(start.agreed.send_markers) {
  const Agreement& agreed = start.agreed;
  tx_.configure(agreed.has_crc, agreed.send_markers);
  rx_.configure(agreed.has_crc, agreed.receive_markers);
  if (agreed.is_initiator) nudge_.configure(attr.nudge);
}

Received WireCarrier::receive(Pass& pass) {
  if (!pass.budget.may_be_readable) {
    nudge_.put_off(pass.now);
    return {};
  }
  if (pass.is_fin_received) return {};
  std::array<uint8_t, kSpillSize> spill;  // NOLINT: deliberately not cleared
  for (uint32_t octets = 0; octets < pass.budget.bytes;) {
    pass.lock.unlock();
    const std::span<const MutBytes> targets = rx_.targets(spill);
    const size_t wanted = total(targets);
    const Result<size_t> n = channel_->receive(targets, pass.now);
    if (n && *n != 0) {
      if (tap_ != nullptr) tell(targets, *n, [&](auto seen) { tap_->received(seen, pass.now); });
      nudge_.heard();
      rx_.took(*n, spill);
    } else if (n && tap_ != nullptr) {
      tap_->received_fin(pass.now);
    }
    pass.lock.lock();
    if (!n) return {.turn = to_int(n.error()) == EAGAIN ? Turn::kIdle : Turn::kLost};
    if (*n == 0) return {.end = rx_.end(pass.core)};
    rx_.consume(pass.core);
    pass.queues.signal(pass.lock);
    octets += static_cast<uint32_t>(*n);
    if (*n < wanted && channel_->is_emptied_by_short_read()) return {};
  }
  return {.turn = Turn::kMore};
}

Turn WireCarrier::transmit(Pass& pass) {
  // A peer whose words lay unread needs none.
  if (nudge_.take(pass.now)) pass.core.nudge();
  if (pass.is_fin_sent) return Turn::kIdle;
  for (uint32_t octets = 0;;) {
    const bool is_new = tx_.is_empty();
    if (is_new) {
      if (!pass.core.has_output()) return Turn::kIdle;
      if (octets >= pass.budget.bytes) return Turn::kMore;
      if (!gather(pass, pass.budget.bytes - octets)) return Turn::kIdle;
    }
    pass.lock.unlock();
    if (is_new) tx_.frame();
    uint32_t fpdus = 0;  // whole ones that the core has not been told of
    int error = 0;
    while (!tx_.is_empty()) {
      const Result<size_t> n = channel_->send(tx_.pieces(), pass.now);
      if (!n) {
        error = to_int(n.error());
        break;
      }
      if (tap_ != nullptr) tell(tx_.pieces(), *n, [&](auto seen) { tap_->sent(seen, pass.now); });
      nudge_.sent(pass.now);
      octets += static_cast<uint32_t>(*n);
      fpdus += tx_.taken(*n);
    }
    pass.lock.lock();
    if (fpdus != 0) {
      pass.core.segments_sent(fpdus);
      pass.queues.signal(pass.lock);
    }
    if (error != 0) return error == EAGAIN ? Turn::kBlocked : Turn::kLost;
  }
}

bool WireCarrier::gather(Pass& pass, uint32_t budget) {
  // It may have to ask the kernel.
  if (max_ulpdu_ == 0) pass.lock.unlock();
  const uint32_t limit = mulpdu(pass.now);
  if (max_ulpdu_ == 0) pass.lock.lock();
  note_mulpdu(pass.core, limit);
  return tx_.gather(pass.core, limit, budget);
}

void WireCarrier::shut_write(Time now) {
  channel_->shut_write(now);
  if (tap_ != nullptr) tap_->sent_fin(now);
}

uint32_t WireCarrier::mulpdu(Time now) {
  const uint32_t most = send_markers_ ? MPA_MAX_ULPDU_WITH_MARKERS : MPA_MAX_ULPDU;
  if (max_ulpdu_ == 0) return mpa::mulpdu(channel_->emss(now), send_markers_);
  return std::clamp<uint32_t>(max_ulpdu_, MPA_MIN_MULPDU, most);
}

void WireCarrier::add_to(Need& need, Turn sent, const Pass& pass) {
  need.wants_writable = sent == Turn::kBlocked;
  need.deadline = std::min({need.deadline, nudge_.due(), channel_->next_event(pass.now)});
}

}  // namespace ddpsock::engine
