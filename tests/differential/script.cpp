// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/differential/script.h"

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

#include "rdmap/stag_table.h"

namespace ddpsock::differential {
namespace {

using engine::Rights;
using rdmap::kLocalRead;
using rdmap::kLocalWrite;
using rdmap::kRemoteAtomic;
using rdmap::kRemoteRead;
using rdmap::kRemoteWrite;

constexpr uint32_t kAtomicSize = 8;
constexpr uint32_t kMostRounds = 5;
constexpr uint32_t kLongestMessage = 3000;

class Chooser {
 public:
  explicit Chooser(uint64_t seed) : random_(seed) {}
  uint64_t any() { return random_(); }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <typename T, size_t N>
  T of(const T (&values)[N]) {
    return values[below(N)];
  }
  // Sizes at which something could go wrong, and any others.
  uint32_t size(uint32_t most) {
    const uint32_t few[] = {0, 1, 2, 3, 4, 5, 8, 63, 64, 65};
    const uint32_t chosen = one_in(8) ? most : one_in(2) ? of(few) : below(most + 1);
    return std::min(chosen, most);
  }

 private:
  std::mt19937_64 random_;
};

// What is known of an end while the script is made.
struct Region {
  bool is_registered = false;
  bool is_usable = false;  // false: invalidated
  Rights rights;
};
struct End {
  std::array<Region, kRegions> regions;
  std::deque<uint32_t> receives;  // sizes of those that nothing has consumed, oldest first
  uint64_t next_id = 1;
};

class Maker {
 public:
  explicit Maker(uint64_t seed) : choose_(seed) { script_.seed = seed; }

  Script make() {
    choose_sizes();
    for (int end = 0; end < kEnds; ++end)
      for (int region = 0; region < kRegions; ++region)
        if (!choose_.one_in(6)) begin_.push_back(registration(end, region));
    const uint32_t rounds = 1 + choose_.below(kMostRounds);
    for (uint32_t i = 0; i < rounds; ++i) add_round();
    end_script();
    return std::move(script_);
  }

 private:
  void choose_sizes() {
    script_.send_depth = choose_.of({4u, 8u, 16u, 64u});
    script_.recv_depth = choose_.of({32u, 64u});
    if (choose_.one_in(4)) script_.srq_depth = 64;
    script_.ird = script_.ord = choose_.of({uint16_t{0}, uint16_t{1}, uint16_t{2}, uint16_t{8}});
    script_.has_crc = !choose_.one_in(4);
    script_.has_markers = choose_.one_in(4);
    if (choose_.one_in(16)) script_.sizes.back() = kLargeRegion;
    longest_ = script_.sizes.back() == kLargeRegion ? kLargeRegion : kLongestMessage;
  }

  Registration registration(int end, int region) {
    Registration r{.end = end, .region = region};
    Region& known = ends_[static_cast<size_t>(end)].regions[static_cast<size_t>(region)];
    if (known.is_registered) {
      r.is_deregistration = true;
      known = {};
      return r;
    }
    r.rights = {static_cast<uint8_t>(choose_.one_in(2) ? 0x1f : choose_.below(0x20))};
    const uint32_t size = script_.sizes[static_cast<size_t>(region)];
    r.base_to =
        choose_.of({uint64_t{0}, uint64_t{0x1000}, UINT64_MAX - size - 7, uint64_t{1} << 40});
    const bool is_refused = r.rights.bits == 0;
    known = {.is_registered = !is_refused, .is_usable = !is_refused, .rights = r.rights};
    return r;
  }

  void add_round() {
    script_.rounds.emplace_back();
    Round& round = this->round();
    round.registrations = std::exchange(begin_, {});
    for (uint32_t i = choose_.below(3); i > 0; --i)
      round.registrations.push_back(registration(static_cast<int>(choose_.below(kEnds)),
                                                 static_cast<int>(choose_.below(kRegions))));
    const auto active = static_cast<int>(choose_.below(kEnds));
    has_request_ = false;
    sinks_ = 0;
    const uint32_t room = script_.send_depth - 1;
    for (uint32_t i = choose_.below(std::min(room, 12u) + 1); i > 0; --i) add_work(active);
    for (uint32_t i = choose_.below(std::min(room, 5u) + 1); i > 0; --i) add_message(1 - active);
    for (int end = 0; end < kEnds; ++end) {
      add_message(end);
      work(end).back().is_signalled = true;
    }
    if (choose_.one_in(8)) overfill(active);
  }

  // More than there is room for: those are refused. The mark of the round's end is in.
  void overfill(int end) {
    size_t accepted = 0;
    for (const Work& w : work(end)) accepted += !is_refused(w);
    for (uint32_t i = 0; i < 3; ++i) {
      const bool is_for_nothing = accepted >= script_.send_depth;
      // One of no octets, placed nowhere.
      work(end).push_back(new_work(end, is_for_nothing ? Verb::kSend : Verb::kWrite));
      if (is_for_nothing) continue;
      work(end).back().is_signalled = true;
      ++accepted;
      i = 0;
    }
  }

  bool is_refused(const Work& w) const {
    return (w.is_answered() && script_.ord == 0) || w.flaw == Flaw::kNoSink ||
           w.flaw == Flaw::kSlices || w.flaw == Flaw::kTooLong;
  }

  Work new_work(int end, Verb verb) {
    Work w{.id = this->end(end).next_id++, .verb = verb};
    w.value = choose_.any();
    w.is_signalled = !choose_.one_in(3);
    w.is_solicited = choose_.one_in(4);
    w.has_fence = choose_.one_in(8);
    return w;
  }
  void choose_payload(Work& w, uint32_t most) {
    w.length = choose_.size(most);
    w.pieces = 1 + choose_.below(3);
    w.is_inline = w.length <= rdmap::kMaxInline && choose_.one_in(3);
  }

  // A receive that the message will find, and what it may hold of it.
  uint32_t allow_message(int end, uint32_t wanted) {
    End& peer = this->end(1 - end);
    if (peer.receives.empty()) {
      const uint32_t size = wanted + (choose_.one_in(2) ? choose_.below(100) : 0);
      add_receive(1 - end, size);
      if (choose_.one_in(8)) add_receive(1 - end, choose_.below(2000));
    }
    const uint32_t room = peer.receives.front();
    peer.receives.pop_front();
    return std::min(wanted, room);
  }
  void add_receive(int end, uint32_t size) {
    End& e = this->end(end);
    round().receives[static_cast<size_t>(end)].push_back(
        {.id = e.next_id++, .size = size, .pieces = 1 + choose_.below(3)});
    e.receives.push_back(size);
  }

  void add_message(int end) {
    const bool is_immediate = choose_.one_in(6);
    Work w = new_work(end, is_immediate ? Verb::kImmediate : Verb::kSend);
    if (!is_immediate) choose_payload(w, longest_);
    w.length = allow_message(end, w.length);
    if (w.length > rdmap::kMaxInline) w.is_inline = false;
    work(end).push_back(w);
  }

  void add_work(int end) {
    if (choose_.one_in(14)) return add_refused(end);
    switch (choose_.below(10)) {
      case 0:
      case 1:
        return add_message(end);
      case 2:
      case 3:
      case 4:
        return add_write(end);
      case 5:
      case 6:
        return add_read(end);
      case 7:
        return add_atomic(end);
      case 8:
        return choose_.one_in(2) ? add_send_invalidate(end) : add_message(end);
      default:
        return choose_.one_in(2) ? add_local_invalidate(end) : add_write(end);
    }
  }

  void add_refused(int end) {
    const Verb verb = choose_.of({Verb::kSend, Verb::kWrite, Verb::kRead});
    Work w = new_work(end, verb);
    if (verb == Verb::kRead) {
      w.flaw = Flaw::kNoSink;
      w.length = 1 + choose_.below(100);
    } else if (choose_.one_in(2)) {
      w.flaw = Flaw::kSlices;
      w.length = 100;
      w.pieces = ddp::kMaxSlices + 1;
    } else {
      w.flaw = Flaw::kTooLong;
      w.length = rdmap::kMaxInline + 1 + choose_.below(100);
      w.is_inline = true;
    }
    work(end).push_back(w);
  }

  // A region of the peer's that lets us do that, or none.
  int find_region(int end, Rights needed) {
    const auto first = static_cast<int>(choose_.below(kRegions));
    for (int i = 0; i < kRegions; ++i) {
      const int region = (first + i) % kRegions;
      const Region& r = this->end(end).regions[static_cast<size_t>(region)];
      if (r.is_usable && r.rights.has_any(needed)) return region;
    }
    return -1;
  }
  uint32_t size_of(int region) const { return script_.sizes[static_cast<size_t>(region)]; }
  // What the peer changes for us must not overtake what it reads for us.
  void wait_for_requests(Work& w) {
    if (has_request_) w.has_fence = true;
  }

  void add_write(int end) {
    Work w = new_work(end, Verb::kWrite);
    w.region = find_region(1 - end, kRemoteWrite);
    if (w.region < 0) return add_message(end);
    const uint32_t size = size_of(w.region);
    choose_payload(w, size);
    w.offset = choose_.below(size - w.length + 1);
    wait_for_requests(w);
    work(end).push_back(w);
  }

  void add_read(int end) {
    Work w = new_work(end, Verb::kRead);
    w.region = find_region(1 - end, kRemoteRead);
    w.sink = find_region(end, kLocalWrite | kRemoteWrite);
    if (w.region < 0 || w.sink < 0) return add_message(end);
    w.length = choose_.size(std::min(size_of(w.region), size_of(w.sink)));
    w.offset = choose_.below(size_of(w.region) - w.length + 1);
    w.sink_offset = choose_.below(size_of(w.sink) - w.length + 1);
    // Answers may be placed in any order.
    const unsigned sink = 1u << w.sink;
    if ((sinks_ & sink) != 0) w.has_fence = true;
    sinks_ |= sink;
    has_request_ = true;
    work(end).push_back(w);
  }

  void add_atomic(int end) {
    Work w = new_work(end, choose_.of({Verb::kFetchAdd, Verb::kSwap, Verb::kCmpSwap}));
    w.region = find_region(1 - end, kRemoteAtomic);
    if (w.region < 0) return add_message(end);
    // TOs are to be aligned, and not all regions begin at one that is.
    const uint32_t size = size_of(w.region);
    w.offset = kAtomicSize * choose_.below(size / kAtomicSize);
    w.length = kAtomicSize;
    wait_for_requests(w);
    has_request_ = true;
    work(end).push_back(w);
  }

  void add_send_invalidate(int end) {
    const auto region = static_cast<int>(choose_.below(kRegions));
    Region& r = this->end(1 - end).regions[static_cast<size_t>(region)];
    if (!r.is_usable) return add_message(end);
    Work w = new_work(end, Verb::kSendInvalidate);
    choose_payload(w, longest_);
    w.length = allow_message(end, w.length);
    if (w.length > rdmap::kMaxInline) w.is_inline = false;
    w.region = region;
    r.is_usable = false;
    wait_for_requests(w);
    work(end).push_back(w);
  }

  // Also of what is invalid already: it fails, and nothing else does.
  void add_local_invalidate(int end) {
    Work w = new_work(end, Verb::kLocalInvalidate);
    w.sink = static_cast<int>(choose_.below(kRegions));
    w.is_signalled = true;
    this->end(end).regions[static_cast<size_t>(w.sink)].is_usable = false;
    wait_for_requests(w);
    work(end).push_back(w);
  }

  void end_script() {
    script_.ending =
        choose_.of({Ending::kOrderly, Ending::kOneDrains, Ending::kError, Ending::kError,
                    Ending::kTerminate, Ending::kAbort, Ending::kMidway, Ending::kCut});
    script_.ender = static_cast<int>(choose_.below(kEnds));
    script_.steps = choose_.below(12);
    if (script_.ending == Ending::kError) add_error(script_.ender);
  }

  void add_error(int end) {
    script_.rounds.emplace_back();
    has_request_ = false;
    sinks_ = 0;
    // The responder speaks once it has heard something: it has by now.
    for (uint32_t i = choose_.below(3); i > 0; --i) add_work(end);
    Work w = new_work(end, choose_.of({Verb::kWrite, Verb::kRead, Verb::kFetchAdd, Verb::kSend,
                                       Verb::kSendInvalidate, Verb::kWrite}));
    w.is_signalled = true;
    w.length = 1 + choose_.below(50);
    w.region = static_cast<int>(choose_.below(kRegions));
    const int sink = find_region(end, kLocalWrite | kRemoteWrite);
    if ((w.verb == Verb::kRead && sink < 0) || (w.verb == Verb::kFetchAdd && script_.ord == 0) ||
        (w.verb == Verb::kRead && script_.ord == 0))
      w.verb = Verb::kWrite;
    w.sink = std::max(sink, 0);
    if (w.verb == Verb::kFetchAdd) w.length = kAtomicSize;
    wait_for_requests(w);
    if (w.verb == Verb::kSend) {
      // Too long for the receive that it finds, or there is none.
      const End& peer = this->end(1 - end);
      w.length = peer.receives.empty() ? choose_.below(100) : peer.receives.front() + 1;
    } else if (w.verb == Verb::kSendInvalidate) {
      w.length = allow_message(end, w.length);
      w.flaw = choose_.one_in(2) ? Flaw::kBadKey : Flaw::kNoStag;
    } else {
      spoil_access(end, w);
    }
    w.is_inline = false;
    script_.first_wrong = w.id;
    work(end).push_back(w);
    for (uint32_t i = choose_.below(3); i > 0 && w.verb != Verb::kSend; --i) add_message(end);
  }

  void spoil_access(int end, Work& w) {
    const Region& r = this->end(1 - end).regions[static_cast<size_t>(w.region)];
    const Rights needed = w.verb == Verb::kWrite  ? kRemoteWrite
                          : w.verb == Verb::kRead ? kRemoteRead
                                                  : kRemoteAtomic;
    if (!r.is_usable || !r.rights.has_any(needed)) return;
    const uint32_t size = size_of(w.region);
    switch (choose_.below(4)) {
      case 0:
        w.flaw = Flaw::kBadKey;
        return;
      case 1:
        w.flaw = Flaw::kNoStag;
        return;
      case 2:
        w.offset = choose_.any() & ~uint64_t{7};
        if (w.offset < size || w.offset > UINT64_MAX - size) w.offset = size;
        return;
      default:
        w.offset = size + kAtomicSize * choose_.below(3) - choose_.below(kAtomicSize);
        if (w.offset + w.length <= size) w.offset = size;
    }
  }

  Round& round() { return script_.rounds.back(); }
  std::vector<Work>& work(int end) { return round().work[static_cast<size_t>(end)]; }
  End& end(int i) { return ends_[static_cast<size_t>(i)]; }

  Chooser choose_;
  Script script_;
  std::array<End, kEnds> ends_;
  std::vector<Registration> begin_;
  uint32_t longest_ = kLongestMessage;
  unsigned sinks_ = 0;        // of the Reads of this round, a bit each
  bool has_request_ = false;  // a Read or an atomic is before what comes in this round
};

}  // namespace

Script make_script(uint64_t seed) {
  return Maker(seed).make();
}

}  // namespace ddpsock::differential
