// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whose a place for an epoll set is: nobody's; claimed for a set that is not known there yet; a
// set's; or left, by a set that was forgotten while a thread waited in it, who must not find
// another there. Zero memory is a free one. Any thread, signal handlers too.
#ifndef DDPSOCK_SHIM_POLLERS_SET_PLACE_H_
#define DDPSOCK_SHIM_POLLERS_SET_PLACE_H_

#include <atomic>

namespace ddpsock::shim {

class SetPlace {
 public:
  using Order = std::memory_order;

  // The set's; negative without one.
  int number(Order order = Order::seq_cst) const { return set_.load(order) - 1; }
  bool is_of(int set, Order order = Order::seq_cst) const { return set_.load(order) == set + 1; }
  bool is_of_any(Order order = Order::seq_cst) const { return set_.load(order) > 0; }

  // False: it is not free. Who has claimed one calls take() or give_back().
  bool claim(int set) {
    int free = 0;
    return set_.load(Order::relaxed) == 0 && set_.compare_exchange_strong(free, claimed(set));
  }
  bool is_claimed_for(int set) const { return set_.load() == claimed(set); }
  // Does `set` have it? Or, with `or_claimed`, is it about to?
  bool is_taken_for(int set, bool or_claimed) const {
    const int known = set_.load();
    return known == set + 1 || (or_claimed && known == claimed(set));
  }
  // Unless somebody has dropped the claim.
  void give_back(int set) {
    int mine = claimed(set);
    set_.compare_exchange_strong(mine, 0);
  }
  // REQUIRES: claimed for `set`, by the caller.
  void take(int set) { set_.store(set + 1); }
  // number(); where it is claimed, by who will not come back to it, it is free from now on.
  int drop_claim(Order order = Order::seq_cst) {
    const int known = set_.load(order);
    if (known <= claimed(0)) set_.store(0, order);
    return known - 1;
  }

  // REQUIRES: a set has it, or a claim that the caller ends.
  void leave() { set_.store(kLeft); }
  bool is_left() const { return set_.load() == kLeft; }
  // False: it was not left, or somebody else has freed it. REQUIRES: nobody waits there.
  bool free_left() {
    int left = kLeft;
    return set_.compare_exchange_strong(left, 0);
  }

 private:
  static constexpr int kLeft = -1;
  static constexpr int claimed(int set) { return -2 - set; }

  std::atomic<int> set_;  // plus 1; 0: free; or one of these
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_SET_PLACE_H_
