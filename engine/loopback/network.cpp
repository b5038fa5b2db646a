// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/loopback/network.h"

#include <algorithm>
#include <cerrno>

namespace ddpsock::engine::loopback {
namespace {

constexpr uint32_t kMillion = 1'000'000;
constexpr Duration kRetransmit = Duration::from_ms(1);

}  // namespace

Link::Link(const LinkAttr& attr, uint64_t seed) : attr_(attr), random_(seed) {}

bool Link::chance(uint32_t in_a_million) {
  return in_a_million != 0 && random_() % kMillion < in_a_million;
}

Duration Link::delay() {
  const uint64_t extra =
      attr_.jitter.ns == 0 ? 0 : random_() % (static_cast<uint64_t>(attr_.jitter.ns) + 1);
  return {attr_.latency.ns + static_cast<int64_t>(extra)};
}

void Link::flip_bit(std::vector<uint8_t>& octets) {
  if (octets.empty()) return;
  const uint64_t bit = random_() % (octets.size() * 8);
  octets[bit / 8] = static_cast<uint8_t>(octets[bit / 8] ^ (1u << (bit % 8)));
}

void Link::launch(Direction& d, std::vector<uint8_t> octets, Time arrival, bool is_spoilt) {
  d.queued += octets.size();
  d.last_arrival = std::max(d.last_arrival, arrival);
  const auto later = std::upper_bound(d.in_flight.begin(), d.in_flight.end(), arrival,
                                      [](Time t, const Flight& f) { return t < f.arrival; });
  d.in_flight.insert(later, Flight{arrival, std::move(octets), 0, is_spoilt});
}

Result<size_t> Link::send(int end, std::span<const Bytes> from, Time now) {
  const std::lock_guard lock(mutex_);
  Direction& d = directions_[static_cast<size_t>(end)];
  if (now >= lost_at_ || d.fin) return fail_errno(ECONNRESET);
  if (d.queued >= attr_.capacity) return fail_errno(EAGAIN);
  std::vector<uint8_t> octets;
  size_t room = attr_.capacity - d.queued;
  for (Bytes r : from) {
    const size_t n = std::min(room, r.size());
    octets.insert(octets.end(), r.begin(), r.begin() + static_cast<ptrdiff_t>(n));
    room -= n;
  }
  const size_t n = octets.size();
  d.sent += n;
  for (uint8_t& octet : octets) {
    if (chance(attr_.flip)) octet = static_cast<uint8_t>(octet ^ (1u << (random_() % 8)));
  }
  launch(d, std::move(octets), std::max(d.last_arrival, now + delay()), false);
  return n;
}

// How much the next read from `d` may yield.
size_t Link::readable(const Direction& d, int from, Time now) {
  size_t n = 0;
  for (const Flight& f : d.in_flight) {
    if (f.arrival > now) break;
    n += f.octets.size() - f.taken;
  }
  if (n == 0) return 0;
  if (attr_.max_read != 0) n = std::min<size_t>(n, 1 + random_() % attr_.max_read);
  for (uint64_t cut : attr_.cuts[static_cast<size_t>(from)]) {
    if (cut > d.received) n = std::min<size_t>(n, cut - d.received);
  }
  return n;
}

Result<size_t> Link::receive(int end, std::span<const MutBytes> to, Time now) {
  const std::lock_guard lock(mutex_);
  Direction& d = directions_[static_cast<size_t>(1 - end)];
  if (now >= lost_at_) return fail_errno(ECONNRESET);
  size_t room = readable(d, 1 - end, now);
  if (room == 0) {
    if (d.fin && *d.fin <= now && d.in_flight.empty()) return size_t{0};
    return fail_errno(EAGAIN);
  }
  size_t done = 0;
  for (MutBytes r : to) {
    while (!r.empty() && room != 0) {
      Flight& f = d.in_flight.front();
      const size_t n = std::min({r.size(), room, f.octets.size() - f.taken});
      std::copy_n(f.octets.begin() + static_cast<ptrdiff_t>(f.taken), n, r.begin());
      r = r.subspan(n);
      f.taken += n;
      room -= n;
      done += n;
      if (f.taken == f.octets.size()) d.in_flight.pop_front();
    }
  }
  d.received += done;
  d.queued -= done;
  return done;
}

Status<> Link::give(int end, std::vector<uint8_t> ulpdu, Time now) {
  const std::lock_guard lock(mutex_);
  Direction& d = directions_[static_cast<size_t>(end)];
  if (now >= lost_at_ || d.fin) return fail_errno(ECONNRESET);
  if (d.queued + ulpdu.size() > attr_.capacity && d.queued != 0) return fail_errno(EAGAIN);
  d.sent += ulpdu.size();
  Time arrival = now + delay();
  for (uint32_t tries = 1; chance(attr_.drop); ++tries) {
    if (tries == kMaxTries) {
      lost_at_ = std::min(lost_at_, arrival);
      return {};
    }
    arrival = arrival + kRetransmit;
  }
  if (chance(attr_.duplicate)) launch(d, ulpdu, arrival + delay(), false);
  if (chance(attr_.flip)) flip_bit(ulpdu);
  const bool is_spoilt = chance(attr_.spoil);
  if (is_spoilt) flip_bit(ulpdu);
  launch(d, std::move(ulpdu), arrival, is_spoilt);
  return {};
}

Result<std::optional<Arrival>> Link::take(int end, Time now) {
  const std::lock_guard lock(mutex_);
  Direction& d = directions_[static_cast<size_t>(1 - end)];
  if (now >= lost_at_) return fail_errno(ECONNRESET);
  if (d.in_flight.empty() || d.in_flight.front().arrival > now) {
    if (d.fin && *d.fin <= now && d.in_flight.empty()) return std::optional<Arrival>();
    return fail_errno(EAGAIN);
  }
  Flight f = std::move(d.in_flight.front());
  d.in_flight.pop_front();
  d.queued -= f.octets.size();
  d.received += f.octets.size();
  return Arrival{std::move(f.octets), f.is_spoilt};
}

void Link::shut_write(int end, Time now) {
  const std::lock_guard lock(mutex_);
  Direction& d = directions_[static_cast<size_t>(end)];
  if (!d.fin) d.fin = std::max(d.last_arrival, now + delay());
}

void Link::drop(Time now) {
  const std::lock_guard lock(mutex_);
  lost_at_ = std::min(lost_at_, now);
}

void Link::inject(int end, Bytes octets, Time now) {
  const std::lock_guard lock(mutex_);
  Direction& d = directions_[static_cast<size_t>(end)];
  launch(d, {octets.begin(), octets.end()}, std::max(d.last_arrival, now + delay()), false);
}

Time Link::next_arrival(int end) const {
  const std::lock_guard lock(mutex_);
  const Direction& d = directions_[static_cast<size_t>(1 - end)];
  Time t = lost_at_;
  if (!d.in_flight.empty()) {
    t = std::min(t, d.in_flight.front().arrival);
  } else if (d.fin) {
    t = std::min(t, *d.fin);
  }
  return t;
}

uint64_t Link::octets_sent(int end) const {
  const std::lock_guard lock(mutex_);
  return directions_[static_cast<size_t>(end)].sent;
}

std::pair<LowerLayer, LowerLayer> Network::connect(const LinkAttr& attr) {
  const std::lock_guard lock(mutex_);
  links_.push_back(std::make_unique<Link>(attr, seed_ + links_.size()));
  const auto first = static_cast<int64_t>(2 * (links_.size() - 1));
  return {LowerLayer{first}, LowerLayer{first + 1}};
}

std::optional<Network::End> Network::find(LowerLayer lower) {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<int64_t>(lower);
  if (number < 0 || static_cast<size_t>(number / 2) >= links_.size()) return std::nullopt;
  return End{links_[static_cast<size_t>(number / 2)].get(), static_cast<int>(number % 2)};
}

}  // namespace ddpsock::engine::loopback
