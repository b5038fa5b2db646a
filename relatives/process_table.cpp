// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/process_table.h"

#include "base/clock.h"
#include "relatives/arena_file.h"
#include "relatives/arena_layout.h"

namespace ddpsock::engine {
namespace {

using Proof = HolderPlace::Proof;

constexpr Duration kBirthTakesAtMost = Duration::from_ms(60'000);

}  // namespace

ProcessTable::ProcessTable(const ArenaFile& file) : file_(file), shared_(file.head()) {}

std::atomic<int>& ProcessTable::pid(uint32_t place) const {
  return shared_.processes[place];
}

HolderPlace& ProcessTable::at(uint32_t place) const {
  return shared_.places[place];
}

// Who gave the place up has made it ready.
uint32_t ProcessTable::claim(int process) {
  for (uint32_t i = 0; i < kNowhere; ++i) {
    int none = 0;
    if (pid(i).load(std::memory_order_relaxed) != 0 ||
        !pid(i).compare_exchange_strong(none, process))
      continue;
    at(i).awaited_since.store(0);
    return i;
  }
  return kNowhere;
}

void ProcessTable::make_ready(uint32_t index) {
  HolderPlace& place = at(index);
  shared_.plain[index].count.store(0, std::memory_order_relaxed);
  place.had_before.fetch_add(1);
  place.proof.store(Proof::kNone);
  place.is_executing.store(false);
  place.has_finished_adoption.store(false);
  place.pid_namespace.store(0);
  place.awaited_since.store(0);
  pid(index).store(0);
}

uint32_t ProcessTable::name_of(uint32_t place) const {
  constexpr uint32_t kMostTurns = UINT32_MAX / kNowhere;
  return (at(place).had_before.load() % kMostTurns + 1) * kNowhere + place;
}

LifeLock::State ProcessTable::look_at(off_t byte) const {
  const int fd = file_.find_fd();
  if (fd < 0) return LifeLock::State::kUnknown;
  const LifeLock::State state = LifeLock::look(fd, byte);
  file_.give_back(fd);
  return state;
}

bool ProcessTable::has_lost_lock(uint32_t place) const {
  return look_at(own_lock(place)) == LifeLock::State::kFree;
}

bool ProcessTable::is_gone(uint32_t index) const {
  HolderPlace& place = at(index);
  const int process = pid(index).load(std::memory_order_acquire);
  if (process == kLeaving) return true;
  const Proof proof = place.proof.load();
  if (process == kUnborn ||
      (process > 0 && proof == Proof::kNone && place.pid_namespace.load() == 0)) {
    // Who claimed the place may have been killed on the way: time runs from the first look.
    int64_t since = 0;
    const int64_t now = base::now().ns;
    if (place.awaited_since.compare_exchange_strong(since, now)) since = now;
    return now - since > kBirthTakesAtMost.ns;
  }
  if (process <= 0) return false;
  const bool is_executing = place.is_executing.load();
  if (proof == Proof::kStrong && !is_executing) return has_lost_lock(index);
  if (proof != Proof::kNone && !has_lost_lock(index)) return false;
  const uint64_t where = place.pid_namespace.load();
  // Somebody else's pid means nothing here. A lock that could be lost is then all there is.
  if (where == 0 || where != pid_namespace()) return proof == Proof::kWeak && !is_executing;
  return is_process_gone(process);
}

bool ProcessTable::may_have_heirs(uint32_t index) const {
  return at(index).proof.load() == Proof::kStrong &&
         look_at(lineage_lock(index)) != LifeLock::State::kFree;
}

}  // namespace ddpsock::engine
