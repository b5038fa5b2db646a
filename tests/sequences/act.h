// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One call of a sequence: made, and answered in words that are the same wherever TCP is the same.
// What TCP leaves open is not in them: how many bytes a peer that does not read is good for, which
// port, when an edge comes that nothing new stands behind. Where the model cannot tell what is due,
// the call is not made ("not certain"), in every column alike.
#ifndef DDPSOCK_TESTS_SEQUENCES_ACT_H_
#define DDPSOCK_TESTS_SEQUENCES_ACT_H_

#include <array>
#include <cstddef>

#include "script.h"
#include "world.h"

namespace ddpsock::sequences {

class Answer {
 public:
  explicit Answer(std::array<char, kTextSize>& text) : text_(text) { text_[0] = '\0'; }
  void add(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // A call's result: the number, or the name of errno. `value` is shown where it means something.
  void add_result(long result);

 private:
  std::array<char, kTextSize>& text_;
  size_t size_ = 0;
};

extern thread_local int current_actor;  // who is asked
void act(const Op& op, Answer& answer);

// By subject.
void act_on_connections(const Op& op, Answer& answer);
void act_on_bytes(const Op& op, Answer& answer);
void act_on_readiness(const Op& op, Answer& answer);
void act_on_descriptors(const Op& op, Answer& answer);
void act_on_options(const Op& op, Answer& answer);
void act_on_unseen(const Op& op, Answer& answer);
void act_on_others(const Op& op, Answer& answer);
void act_on_limits(const Op& op, Answer& answer);
void act_on_processes(const Op& op, Answer& answer);

inline int fd_of(int slot) {
  return slot >= 0 && slot < kSlots ? myself.slots[static_cast<size_t>(slot)] : -1;
}
Object object_of(int fd);
void note(int slot, int fd, Object object);
void forget(int fd);
bool is_below_mark(int fd, size_t size);  // SO_RCVLOWAT
// The direction in which `object` sends, and that in which it receives; null if it is no stream.
Direction* outgoing(const Object& object);
Direction* incoming(const Object& object);
// Is it certain that there is room, or that there is none?
bool is_room_certain(const Object& object);
bool is_roomy(const Object& object);  // that there is room
// Notes in the shared mapping what the call is about to take or to be told of; false if another
// sleeps for the same.
bool claim(const Object& object, bool is_taking);
void claim_room(const Object& object);  // notes that more is sent there than may find room
// Not where one has been filled and ends both directions with that unread: its kernel resets the
// connection when it is sent more, which is a matter of the window that it had offered.
bool is_reset_certain(const Object& object);
bool is_being_filled(const Object& object);  // by who has noted that
bool is_awaited(const Object& object);       // does another wait for what is sent there?

// What this process does once it is an actor of its own; in actors.cpp.
[[noreturn]] void live_as(int actor);

}  // namespace ddpsock::sequences

#endif  // DDPSOCK_TESTS_SEQUENCES_ACT_H_
