// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls are chosen so that most of them mean something: the generator follows which slots hold
// what, in which process, and roughly what is unread and who is asleep. Where it is wrong nothing
// breaks, for what is observed is compared, not what it thought.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <vector>

#include "script.h"

namespace ddpsock::sequences {
namespace {

enum class Held : uint8_t { kNothing, kListener, kClient, kStream, kSet, kUnix, kOther };

struct Slot {
  Held held = Held::kNothing;
  bool is_nonblocking = false;
  int connection = -1, side = 0;
};

// What a sequence is about: how often each kind of call is chosen.
struct Theme {
  int io, ends, sleep, pollers, sets, descriptors, options, processes, signals, full, passing,
      making, unseen, others;
};
constexpr Theme kThemes[] = {
    // io ends sleep poll sets desc opt proc sig full pass make unseen others
    {60, 8, 10, 10, 0, 5, 8, 0, 0, 2, 0, 3, 0, 1},    // bytes
    {30, 10, 10, 25, 25, 5, 0, 0, 0, 2, 0, 3, 3, 0},  // pollers
    {30, 12, 30, 8, 0, 12, 0, 0, 12, 0, 0, 3, 3, 0},  // sleepers
    {30, 12, 8, 5, 5, 30, 3, 0, 0, 0, 0, 12, 0, 2},   // descriptors
    {30, 12, 12, 5, 3, 6, 3, 20, 4, 0, 0, 4, 0, 2},   // processes
    {25, 12, 5, 5, 3, 10, 2, 5, 0, 0, 20, 4, 0, 0},   // passed on
    {25, 25, 8, 15, 10, 3, 4, 0, 0, 10, 0, 2, 3, 0},  // ends, and full
    {20, 10, 10, 10, 3, 5, 4, 3, 2, 1, 1, 25, 0, 1},  // connecting
    {40, 8, 8, 5, 0, 5, 4, 0, 3, 3, 0, 3, 30, 0},     // pollers that libc does not see
    {40, 8, 8, 3, 0, 8, 25, 5, 0, 0, 0, 3, 0, 12},    // options, and calls of others
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15u + 1) {
    theme_ = &kThemes[pick(std::size(kThemes))];
  }

  Script make() {
    const size_t length = 4 + pick(24);
    make_pair(0);
    if (chance(40)) make_pair(0);
    while (script_.count < length) step();
    return script_;
  }

 private:
  size_t pick(size_t below) { return static_cast<size_t>(random_() % below); }
  int pick_int(int below) { return static_cast<int>(pick(static_cast<size_t>(below))); }
  bool chance(unsigned percent) { return pick(100) < percent; }

  static int process_of(int actor) { return is_process(actor) ? actor - kThreads + 1 : 0; }
  std::array<Slot, kSlots>& slots(int actor) {
    return slots_[static_cast<size_t>(process_of(actor))];
  }
  Slot& at(int actor, int slot) { return slots(actor)[static_cast<size_t>(slot)]; }

  void add(Kind kind, int actor, std::array<int32_t, 5> argument) {
    if (script_.count == kMostOps) return;
    script_.ops[script_.count++] = {kind, static_cast<uint8_t>(actor), argument};
  }

  // An actor that is there and probably awake.
  int pick_actor() {
    if (chance(50) && !asleep_[0]) return 0;
    std::vector<int> all;
    for (int i = 0; i < kActors; ++i)
      if ((!is_process(i) || is_alive_[static_cast<size_t>(i)]) &&
          (!asleep_[static_cast<size_t>(i)] || chance(5)))
        all.push_back(i);
    return all.empty() ? 0 : all[pick(all.size())];
  }

  int pick_slot(int actor, Held held) {
    std::vector<int> all;
    for (int i = 0; i < kSlots; ++i)
      if (at(actor, i).held == held) all.push_back(i);
    return all.empty() ? -1 : all[pick(all.size())];
  }
  // A stream, or rarely anything.
  int pick_stream(int actor) {
    if (chance(3)) return pick_int(kSlots);
    const int slot = pick_slot(actor, Held::kStream);
    return slot >= 0 ? slot : pick_int(kSlots);
  }
  int empty_slot(int actor) {
    const int slot = pick_slot(actor, Held::kNothing);
    return slot >= 0 ? slot : pick_int(kSlots);
  }

  size_t pick_size() {
    constexpr size_t kSizes[] = {0, 1, 2, 3, 7, 64, 100, 1000, 1460, 4096, 10000, 16384};
    return chance(70) ? kSizes[1 + pick(6)] : kSizes[pick(std::size(kSizes))];
  }

  size_t& unread(const Slot& slot) {
    static size_t nowhere;
    if (slot.connection < 0) return nowhere = 0;
    return unread_[static_cast<size_t>(slot.connection)][slot.side];
  }
  size_t& unread_of_peer(const Slot& slot) {
    Slot other = slot;
    other.side = 1 - slot.side;
    return unread(other);
  }

  // Who slept on it is taken to be awake.
  void wake_sleepers() { std::fill(asleep_.begin(), asleep_.end(), false); }

  void step() {
    const Theme& t = *theme_;
    const int weights[] = {t.io,          t.ends,    t.sleep,     t.pollers, t.sets,
                           t.descriptors, t.options, t.processes, t.signals, t.full,
                           t.passing,     t.making,  t.unseen,    t.others};
    int total = 0;
    for (const int weight : weights) total += weight;
    int at = pick_int(total);
    size_t which = 0;
    while (at >= weights[which]) at -= weights[which++];
    switch (which) {
      case 0:
        return move_bytes();
      case 1:
        return end_something();
      case 2:
        return sleep();
      case 3:
        return poll();
      case 4:
        return use_set();
      case 5:
        return use_descriptors();
      case 6:
        return use_options();
      case 7:
        return use_processes();
      case 8:
        return use_signals();
      case 9:
        return use_fullness();
      case 10:
        return use_passing();
      case 11:
        return make_connections();
      case 12:
        return use_unseen_poller();
      default:
        return use_others();
    }
  }

  void make_pair(int actor) {
    if (connections_ == static_cast<int>(unread_.size())) return;
    const int client = empty_slot(actor);
    at(actor, client).held = Held::kOther;
    const int server = empty_slot(actor);
    const int nonblocking = chance(30) ? pick_int(4) : 0;
    at(actor, client) = {Held::kStream, (nonblocking & 1) != 0, connections_, 0};
    at(actor, server) = {Held::kStream, (nonblocking & 2) != 0, connections_, 1};
    ++connections_;
    add(Kind::kPair, actor, {client, server, nonblocking});
  }

  void send_from(int actor, int slot) {
    const bool is_big = actor != 0 && chance(1);
    const size_t size = is_big ? 10 * 1024 * 1024 : pick_size();
    int flags = chance(50) ? int(MSG_NOSIGNAL) : 0;
    if (chance(20)) flags |= MSG_DONTWAIT;
    if (chance(3)) flags |= MSG_MORE;
    // Much with an urgent byte at its end would say the same as much.
    if (chance(1) && !is_big) flags |= MSG_OOB;
    // Two messages with an urgent byte each: which of them a reader sees is a matter of time.
    const int how = (flags & MSG_OOB) != 0 ? 0 : pick_int(kSenders);
    add(Kind::kSend, actor, {slot, int(size), flags, how});
    unread_of_peer(at(actor, slot)) += size;
    wake_sleepers();
  }

  void receive_at(int actor, int slot, bool may_sleep) {
    const Slot& from = at(actor, slot);
    size_t& there = unread(from);
    const size_t size = std::max(pick_size(), size_t{1});
    int how = pick_int(kReceivers);
    int flags = 0;
    if (chance(15)) flags |= MSG_PEEK;
    if (chance(8)) flags |= MSG_WAITALL;
    if (chance(4)) flags |= MSG_TRUNC;
    if (chance(1)) flags |= MSG_OOB;
    const bool would_sleep =
        (there == 0 || (((flags & MSG_WAITALL) != 0 || how == kByFile) && there < size)) &&
        !from.is_nonblocking;
    if (would_sleep && !may_sleep) {
      flags |= MSG_DONTWAIT;
      how = pick_int(kWithFlags);
    }
    add(Kind::kReceive, actor, {slot, int(size), flags, how});
    if (would_sleep && may_sleep) asleep_[static_cast<size_t>(actor)] = true;
    if ((flags & MSG_PEEK) == 0) there -= std::min(there, size);
  }

  void move_bytes() {
    const int actor = pick_actor(), slot = pick_stream(actor);
    switch (pick(20)) {
      case 0:
        return add(Kind::kQueued, actor, {slot, pick_int(int(Queued::kNumber))});
      case 1:
        return add(Kind::kDrain, actor, {slot});
      case 2:
        unread_of_peer(at(actor, slot)) += 1;
        return chance(50) ? add(Kind::kSendFile, actor, {slot, int(1 + pick_size())})
                          : add(Kind::kSplice, actor, {slot, int(1 + pick_size()), pick_int(2)});
      default:
        if (chance(50)) return send_from(actor, slot);
        return receive_at(actor, slot, false);
    }
  }

  void sleep() {
    const int actor = 1 + pick_int(2);
    if (asleep_[static_cast<size_t>(actor)]) return move_bytes();
    const int slot = pick_stream(actor);
    receive_at(actor, slot, true);
  }

  void end_something() {
    const int actor = pick_actor(), slot = pick_stream(actor);
    wake_sleepers();
    if (chance(50)) return add(Kind::kShutdown, actor, {slot, pick_int(3), chance(20)});
    add(Kind::kClose, actor, {slot, chance(30) ? pick_int(3) : 0});
    at(actor, slot) = {};
  }

  int poll_entry(int actor) {
    constexpr int kEvents[] = {1, 4, 5, 1, 0x2001, 0, 3};
    return pick_stream(actor) * 65536 + kEvents[pick(std::size(kEvents))];
  }

  void poll() {
    const int actor = chance(20) ? 1 + pick_int(2) : pick_actor();
    const int how = pick_int(kPollers);
    const int timeout = chance(75) ? 0 : chance(60) ? 2 : -1;
    // Without anything in it, it would be a sleep that nobody ends.
    const std::array<int32_t, 5> argument = {how, timeout, poll_entry(actor),
                                             chance(50) ? poll_entry(actor) : -1,
                                             chance(20) ? poll_entry(actor) : -1};
    add(Kind::kPoll, actor, argument);
    if (timeout < 0) asleep_[static_cast<size_t>(actor)] = true;
  }

  void use_unseen_poller() {
    const bool may_sleep = chance(40);
    const int actor = may_sleep ? 1 + pick_int(2) : pick_actor();
    add(Kind::kAwait, actor,
        {pick_stream(actor), pick_int(int(Unseen::kNumber)), may_sleep ? -1 : 0});
    if (may_sleep) asleep_[static_cast<size_t>(actor)] = true;
  }

  void use_others() {
    const int actor = pick_actor(), slot = pick_stream(actor);
    if (chance(60)) return add(Kind::kRefused, actor, {slot, pick_int(int(Refused::kNumber))});
    const bool is_out = chance(50);
    size_t& there = unread(at(actor, slot));
    const bool is_aio = chance(60);
    if (is_aio && !is_out) {
      there -= std::min(there, size_t{5});
    } else {
      unread_of_peer(at(actor, slot)) += is_aio ? 5 : 3;
    }
    if (is_aio) return add(Kind::kAio, actor, {slot, 0, is_out});
    add(Kind::kShell, actor, {slot, pick_int(int(Shell::kNumber))});
  }

  void use_set() {
    const int actor = pick_actor();
    int set = pick_slot(actor, Held::kSet);
    if (set < 0 || chance(3)) {
      set = empty_slot(actor);
      at(actor, set).held = Held::kSet;
      add(Kind::kEpollCreate, actor, {set});
    }
    if (chance(45)) {
      constexpr uint32_t kEvents[] = {EPOLLIN, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP, EPOLLOUT,
                                      0};
      uint32_t events = kEvents[pick(std::size(kEvents))];
      if (chance(20)) events |= EPOLLET;
      if (chance(10)) events |= EPOLLONESHOT;
      const int operation = chance(70) ? EPOLL_CTL_ADD : chance(70) ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
      const int member = chance(5) ? pick_slot(actor, Held::kSet) : pick_stream(actor);
      return add(Kind::kEpollControl, actor, {set, operation, member, int(events), chance(10)});
    }
    const int timeout = chance(85) ? 0 : 2;
    add(Kind::kEpollWait, actor, {set, chance(20) ? 1 + pick_int(2) : 8, timeout, pick_int(4)});
  }

  void use_descriptors() {
    const int actor = pick_actor(), slot = pick_stream(actor);
    switch (pick(8)) {
      case 0:
      case 1:
      case 2: {
        const int target = empty_slot(actor);
        add(Kind::kDup, actor, {slot, target, pick_int(3)});
        at(actor, target) = at(actor, slot);
        return;
      }
      case 3:
      case 4: {
        const int target = pick_int(kSlots);
        add(Kind::kDup, actor, {slot, target, 3 + pick_int(3)});
        at(actor, target) = at(actor, slot);
        return wake_sleepers();
      }
      case 5: {
        const int target = empty_slot(actor);
        at(actor, target).held = Held::kOther;
        const int second = empty_slot(actor);
        const Opened what = static_cast<Opened>(pick(4));
        if (what == Opened::kPipe) at(actor, second).held = Held::kOther;
        return add(Kind::kOpen, actor, {target, int(what), second});
      }
      case 6:
        add(Kind::kNonblocking, actor, {slot, pick_int(2), pick_int(2)});
        at(actor, slot).is_nonblocking = script_.ops[script_.count - 1].argument[1] != 0;
        return;
      default: {
        const int other = pick_slot(actor, Held::kOther);
        const int which = other >= 0 ? other : slot;
        add(Kind::kClose, actor, {which, pick_int(3)});
        at(actor, which) = {};
      }
    }
  }

  void use_options() {
    const int actor = pick_actor(), slot = pick_stream(actor);
    if (chance(15)) return add(Kind::kName, actor, {slot, pick_int(2)});
    const size_t which = pick(kOptions.size());
    const int how = chance(10);
    if (chance(50)) return add(Kind::kGetOption, actor, {slot, int(which), 0, how});
    add(Kind::kSetOption, actor, {slot, int(which), kOptions[which].values[pick(2)], how});
  }

  void use_processes() {
    const int who = kThreads + pick_int(kProcesses);
    const size_t at_place = static_cast<size_t>(who);
    if (!is_alive_[at_place]) {
      const int actor = pick_actor();
      if (is_process(actor)) return;
      if (chance(20)) return add(Kind::kVfork, actor, {pick_stream(actor), pick_int(4)});
      add(Kind::kFork, actor, {who, pick_int(int(HowToFork::kNumber))});
      is_alive_[at_place] = true;
      asleep_[at_place] = false;
      slots(who) = slots(actor);
      return;
    }
    if (chance(8)) return add(Kind::kLimit, who, {pick_int(int(Limit::kNumber))});
    if (chance(60)) {
      const int slot = pick_stream(who);
      return chance(50) ? send_from(who, slot) : receive_at(who, slot, chance(30));
    }
    if (chance(20)) return add(Kind::kStop, 0, {who, 1}), add(Kind::kStop, 0, {who, 0});
    add(Kind::kEnd, 0, {who, pick_int(int(HowToEnd::kNumber))});
    is_alive_[at_place] = false;
    wake_sleepers();
  }

  void use_signals() {
    for (int i = 1; i < kActors; ++i) {
      if (!asleep_[static_cast<size_t>(i)]) continue;
      if (chance(15) && !is_process(i)) {
        add(Kind::kCancel, 0, {i});
        asleep_[static_cast<size_t>(i)] = false;
        return;
      }
      return add(Kind::kSignal, 0, {i, pick_int(3)});
    }
    sleep();
  }

  void use_fullness() {
    const int actor = pick_actor(), slot = pick_stream(actor);
    const Slot& from = at(actor, slot);
    add(Kind::kFill, actor, {slot});
    if (chance(50)) poll();
    if (chance(30)) end_something();
    for (int i = 0; i < kSlots && chance(90); ++i) {
      const Slot& other = at(actor, i);
      if (other.held != Held::kStream || other.connection != from.connection ||
          other.side == from.side)
        continue;
      return add(Kind::kDrain, actor, {i});
    }
  }

  void use_passing() {
    const int actor = pick_actor();
    int through = pick_slot(actor, Held::kUnix);
    if (through < 0) {
      through = empty_slot(actor);
      at(actor, through).held = Held::kUnix;
      const int far = empty_slot(actor);
      at(actor, far).held = Held::kUnix;
      add(Kind::kOpen, actor, {through, int(Opened::kUnixPair), far});
      through = far;
      through_ = script_.ops[script_.count - 1].argument[0];
    }
    const int slot = pick_stream(actor);
    add(Kind::kPass, actor, {through, slot});
    if (chance(30)) {
      add(Kind::kClose, actor, {slot, 0});
    }
    if (chance(80)) {
      const int target = empty_slot(actor);
      at(actor, target) = at(actor, slot);
      add(Kind::kTake, actor, {through_, target});
    }
    for (int who = kThreads; who < kActors; ++who)
      if (is_alive_[static_cast<size_t>(who)] && chance(30)) add(Kind::kExec, who, {chance(50)});
  }

  void make_connections() {
    const int actor = pick_actor();
    const int listener = pick_slot(actor, Held::kListener),
              client = pick_slot(actor, Held::kClient);
    if (listener < 0) {
      const int slot = empty_slot(actor);
      const bool is_nonblocking = chance(70);
      at(actor, slot) = {Held::kListener, is_nonblocking, -1, 0};
      return add(Kind::kListen, actor, {slot, is_nonblocking});
    }
    if (client < 0 && connections_ < static_cast<int>(unread_.size())) {
      const int slot = empty_slot(actor);
      const bool is_nonblocking = chance(50);
      at(actor, slot) = {Held::kClient, is_nonblocking, connections_++, 0};
      add(Kind::kSocket, actor, {slot, is_nonblocking});
      if (chance(30)) return;
      add(Kind::kConnect, actor, {slot, chance(90) ? listener : empty_slot(actor)});
      at(actor, slot).held = Held::kStream;
      last_connection_ = at(actor, slot).connection;
      return;
    }
    if (client >= 0 && chance(50)) {
      add(Kind::kConnect, actor, {client, listener});
      at(actor, client).held = Held::kStream;
      last_connection_ = at(actor, client).connection;
      return;
    }
    const int slot = empty_slot(actor);
    const bool is_nonblocking = chance(30);
    add(Kind::kAccept, actor, {slot, listener, is_nonblocking, pick_int(3)});
    at(actor, slot) = {Held::kStream, is_nonblocking, last_connection_, 1};
  }

  std::mt19937_64 random_;
  const Theme* theme_;
  Script script_{};
  std::array<std::array<Slot, kSlots>, 1 + kProcesses> slots_{};
  std::array<std::array<size_t, 2>, 12> unread_{};
  std::array<bool, kActors> asleep_{}, is_alive_{};
  int connections_ = 0, last_connection_ = -1, through_ = -1;
};

}  // namespace

Script generate(uint64_t seed) {
  return Generator(seed).make();
}

}  // namespace ddpsock::sequences
