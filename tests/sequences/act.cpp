// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "act.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace ddpsock::sequences {

thread_local int current_actor = 0;

void Answer::add(const char* format, ...) {
  const int saved = errno;
  va_list list;
  va_start(list, format);
  const int size = vsnprintf(text_.data() + size_, text_.size() - size_, format, list);
  va_end(list);
  if (size > 0) size_ = std::min(size_ + static_cast<size_t>(size), text_.size() - 1);
  errno = saved;
}

void Answer::add_result(long result) {
  if (result >= 0) return add("%ld", result);
  const char* name = strerrorname_np(errno);
  add("%s", name != nullptr ? name : "errno without a name");
}

Object object_of(int fd) {
  if (fd < 0 || fd >= kNumbers) return {Object::What::kNothing, -1, 0};
  return myself.objects[static_cast<size_t>(fd)];
}

void note(int slot, int fd, Object object) {
  if (fd < 0) return;
  myself.slots[static_cast<size_t>(slot)] = fd;
  if (fd < kNumbers) myself.objects[static_cast<size_t>(fd)] = object;
}

void forget(int fd) {
  if (fd >= 0 && fd < kNumbers) myself.objects[static_cast<size_t>(fd)] = {};
}

namespace {

Direction* direction(const Object& object, int side) {
  if (object.what != Object::What::kStream || object.connection < 0) return nullptr;
  return &world->connections[static_cast<size_t>(object.connection)].from[side];
}

}  // namespace

Direction* outgoing(const Object& object) {
  return direction(object, object.side);
}

Direction* incoming(const Object& object) {
  return direction(object, 1 - object.side);
}

namespace {

// One bit for what a side of a connection receives, or sends.
uint64_t bit_of(const Object& object, int side) {
  return uint64_t{1} << (object.connection * 2 + side);
}

}  // namespace

bool is_being_filled(const Object& object) {
  if (outgoing(object) == nullptr) return false;
  const uint64_t bit = bit_of(object, object.side);
  return std::any_of(world->actors.begin(), world->actors.end(),
                     [bit](const Actor& actor) { return (actor.fills & bit) != 0; });
}

bool is_roomy(const Object& object) {
  constexpr uint64_t kSurely = 32 * 1024;
  const Direction* way = outgoing(object);
  if (way == nullptr) return true;
  // Who reads no more is told of an end before all is read.
  // Whom TCP lets in first beside who sleeps until there is room is its own affair.
  if (way->is_broken_off || is_being_filled(object) || (way->was_filled && way->is_unwanted))
    return false;
  return !way->is_full && way->sent - way->received <= kSurely;
}

bool is_reset_certain(const Object& object) {
  const Direction *in = incoming(object), *out = outgoing(object);
  if (in == nullptr) return true;
  const auto is_open = [](const Direction& filled, const Direction& back) {
    return filled.was_filled && filled.is_unwanted && back.is_ended;
  };
  return !is_open(*in, *out) && !is_open(*out, *in);
}

bool is_room_certain(const Object& object) {
  const Direction* way = outgoing(object);
  if (way != nullptr && way->is_broken_off) return false;
  return way == nullptr || (way->is_full && !way->is_unwanted) || is_roomy(object);
}

namespace {

bool is_claimed(uint64_t bit, bool by_takers_only) {
  for (int i = 0; i < kActors; ++i) {
    const Actor& other = world->actors[static_cast<size_t>(i)];
    if (i == current_actor) continue;
    if ((other.takes & bit) != 0 || (!by_takers_only && (other.sees & bit) != 0)) return true;
  }
  return false;
}

}  // namespace

bool claim(const Object& object, bool is_taking) {
  if (outgoing(object) == nullptr) return true;
  const uint64_t bit = bit_of(object, object.side);
  if (is_claimed(bit, !is_taking)) return false;
  Actor& self = world->actors[static_cast<size_t>(current_actor)];
  (is_taking ? self.takes : self.sees) |= bit;
  return true;
}

void claim_room(const Object& object) {
  if (outgoing(object) == nullptr) return;
  world->actors[static_cast<size_t>(current_actor)].fills |= bit_of(object, object.side);
}

bool is_awaited(const Object& object) {
  return outgoing(object) != nullptr && is_claimed(bit_of(object, 1 - object.side), true);
}

// Linux lets a call that asks for less than the mark sleep until there is as much; POSIX does not.
bool is_below_mark(int fd, size_t size) {
  int mark = 1;
  socklen_t length = sizeof mark;
  return getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &length) == 0 &&
         size < static_cast<size_t>(mark);
}

void act(const Op& op, Answer& answer) {
  switch (op.kind) {
    case Kind::kPair:
    case Kind::kListen:
    case Kind::kSocket:
    case Kind::kConnect:
    case Kind::kAccept:
    case Kind::kShutdown:
    case Kind::kName:
      return act_on_connections(op, answer);
    case Kind::kSend:
    case Kind::kReceive:
    case Kind::kFill:
    case Kind::kDrain:
    case Kind::kSendFile:
    case Kind::kSplice:
      return act_on_bytes(op, answer);
    case Kind::kPoll:
    case Kind::kEpollCreate:
    case Kind::kEpollControl:
    case Kind::kEpollWait:
      return act_on_readiness(op, answer);
    case Kind::kAwait:
      return act_on_unseen(op, answer);
    case Kind::kRefused:
    case Kind::kAio:
    case Kind::kShell:
      return act_on_others(op, answer);
    case Kind::kLimit:
      return act_on_limits(op, answer);
    case Kind::kNonblocking:
    case Kind::kGetOption:
    case Kind::kSetOption:
    case Kind::kQueued:
      return act_on_options(op, answer);
    case Kind::kClose:
    case Kind::kDup:
    case Kind::kOpen:
    case Kind::kPass:
    case Kind::kTake:
      return act_on_descriptors(op, answer);
    case Kind::kFork:
    case Kind::kVfork:
    case Kind::kExec:
      return act_on_processes(op, answer);
    default:
      answer.add("no call");
  }
}

}  // namespace ddpsock::sequences
