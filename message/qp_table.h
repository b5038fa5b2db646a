// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_MESSAGE_QP_TABLE_H_
#define DDPSOCK_MESSAGE_QP_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace ddpsock::message {

// Connections by the number of their queue pair (Member::qp_number()).
template <typename Member>
class QpTable {
 public:
  // False: no memory.
  bool insert(Member& c) {
    if (2 * (size_ + 1) > room_) {
      const uint32_t before = room_, more = std::max(kLeast, room_ * 2);
      std::unique_ptr<Member*[]> slots(new (std::nothrow) Member* [more] {});
      if (!slots) return false;
      std::swap(slots_, slots);
      room_ = more;
      for (uint32_t i = 0; i < before; ++i)
        if (slots[i] != nullptr) place(*slots[i]);
    }
    place(c);
    ++size_;
    return true;
  }

  void erase(const Member& c) {
    if (room_ == 0) return;
    uint32_t at = home_of(c.qp_number());
    while (slots_[at] != nullptr && slots_[at] != &c) at = after(at);
    if (slots_[at] == nullptr) return;
    slots_[at] = nullptr;
    --size_;
    // Those behind it may have been pushed there by it.
    for (at = after(at); slots_[at] != nullptr; at = after(at))
      place(*std::exchange(slots_[at], nullptr));
  }

  Member* find(uint32_t qp) const {
    if (room_ == 0) return nullptr;
    for (uint32_t at = home_of(qp); slots_[at] != nullptr; at = after(at))
      if (slots_[at]->qp_number() == qp) return slots_[at];
    return nullptr;
  }

  uint32_t size() const { return size_; }
  template <typename Visit>
  void visit(Visit visit) const {
    for (uint32_t i = 0; i < room_; ++i)
      if (slots_[i] != nullptr) visit(*slots_[i]);
  }

 private:
  static constexpr uint32_t kLeast = 4;

  // Numbers are handed out one after the other.
  uint32_t home_of(uint32_t qp) const { return (qp * 0x9e37'79b1u) & (room_ - 1); }
  uint32_t after(uint32_t at) const { return (at + 1) & (room_ - 1); }
  void place(Member& c) {
    uint32_t at = home_of(c.qp_number());
    while (slots_[at] != nullptr) at = after(at);
    slots_[at] = &c;
  }

  std::unique_ptr<Member*[]> slots_;
  uint32_t room_ = 0;  // a power of two, at least twice size_
  uint32_t size_ = 0;
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_QP_TABLE_H_
