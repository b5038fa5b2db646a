// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "act.h"
#include "calls.h"

namespace ddpsock::sequences {
namespace {

void add_events(Answer& answer, uint32_t events) {
  constexpr Name kNames[] = {{EPOLLIN, "IN"},   {EPOLLOUT, "OUT"}, {EPOLLPRI, "PRI"},
                             {EPOLLERR, "ERR"}, {EPOLLHUP, "HUP"}, {EPOLLRDHUP, "RDHUP"}};
  const char* between = "=";
  for (const Name& name : kNames) {
    if ((events & static_cast<uint32_t>(name.value)) == 0) continue;
    answer.add("%s%s", between, name.text);
    between = "|";
    events &= ~static_cast<uint32_t>(name.value);
  }
  if (events != 0) answer.add("%s%#x", between, events);
}

void poll_some(const Op& op, Answer& answer) {
  const int how = op.argument[0];
  std::array<Polled, 3> fds;
  for (size_t i = 0; i < fds.size(); ++i) {
    const int32_t which = op.argument[i + 2];
    fds[i] = {which < 0 ? -1 : fd_of(which >> 16), static_cast<short>(which & 0xffff), 0};
    if (op.argument[1] < 0 && !claim(object_of(fds[i].fd), false)) return answer.add("not certain");
    if (!is_reset_certain(object_of(fds[i].fd))) return answer.add("not certain");
    if (!is_room_certain(object_of(fds[i].fd))) fds[i].wanted &= static_cast<short>(~POLLOUT);
  }
  const int count = poll_by(how, fds, op.argument[1]);
  answer.add_result(count);
  if (count < 0) return;
  for (size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].got == 0) continue;
    answer.add(" s%d", op.argument[i + 2] >> 16);
    add_events(answer, static_cast<uint16_t>(fds[i].got));
  }
}

// Everything that can have come at a member and be an edge.
uint64_t arrived(int fd) {
  const Object object = object_of(fd);
  const Direction *in = incoming(object), *out = outgoing(object);
  if (in == nullptr) return 0;
  return in->sent * 16 + (in->is_ended ? 8 : 0) + (out->is_ended ? 4 : 0) + (out->is_full ? 2 : 0);
}

Watch* watch_of(int set, int fd) {
  for (int i = myself.watch_count - 1; i >= 0; --i) {
    Watch& watch = myself.watches[static_cast<size_t>(i)];
    if (watch.set == set && watch.fd == fd) return &watch;
  }
  return nullptr;
}

// Event data is the watch's place, so that what is told of a closed member names it still.
void control(const Op& op, Answer& answer) {
  const int set = fd_of(op.argument[0]), operation = op.argument[1], fd = fd_of(op.argument[2]);
  const uint32_t events = static_cast<uint32_t>(op.argument[3]);
  Watch* watch = watch_of(set, fd);
  const bool is_new = operation == EPOLL_CTL_ADD || watch == nullptr;
  if (is_new) {
    if (myself.watch_count == static_cast<int>(myself.watches.size()))
      return answer.add("too many");
    watch = &myself.watches[static_cast<size_t>(myself.watch_count)];
  }
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(watch - myself.watches.data());
  const int result = op.argument[4] != 0
                         ? static_cast<int>(syscall(SYS_epoll_ctl, set, operation, fd, &event))
                         : epoll_ctl(set, operation, fd, &event);
  answer.add_result(result);
  if (result != 0) return;
  if (is_new) ++myself.watch_count;
  *watch = {set, fd, operation == EPOLL_CTL_DEL ? 0 : events, ~uint64_t{0}};
}

bool is_everything_certain(int set) {
  for (int i = 0; i < myself.watch_count; ++i) {
    const Watch& watch = myself.watches[static_cast<size_t>(i)];
    if (watch.set != set) continue;
    if (!is_reset_certain(object_of(watch.fd))) return false;
    if ((watch.events & EPOLLOUT) != 0 && !is_room_certain(object_of(watch.fd))) return false;
  }
  return true;
}

int wait_by(int how, int set, epoll_event* events, int room, int timeout_ms) {
  const timespec time{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000L};
  switch (how) {
    case 0:
      return epoll_wait(set, events, room, timeout_ms);
    case 1:
      return epoll_pwait(set, events, room, timeout_ms, nullptr);
    case 2:
      return epoll_pwait2(set, events, room, timeout_ms < 0 ? nullptr : &time, nullptr);
    default:
      return static_cast<int>(syscall(SYS_epoll_wait, set, events, room, timeout_ms));
  }
}

void wait_for_events(const Op& op, Answer& answer) {
  const int set = fd_of(op.argument[0]);
  if (!is_everything_certain(set)) return answer.add("not certain");
  std::array<epoll_event, 8> events{};
  const int room = std::min(op.argument[1], static_cast<int>(events.size()));
  const int count = wait_by(op.argument[3], set, events.data(), room, op.argument[2]);
  if (count < 0) return answer.add_result(count);
  int told = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const size_t at = static_cast<size_t>(event.data.u64);
    if (at >= myself.watches.size()) {
      answer.add(" data that nobody gave");
      continue;
    }
    Watch& watch = myself.watches[at];
    const uint64_t now = arrived(watch.fd);
    // TCP may tell of an edge again when an acknowledgement comes.
    if ((watch.events & EPOLLET) != 0 && watch.told == now) continue;
    watch.told = now;
    ++told;
    answer.add(" w%zu", at);
    add_events(answer, event.events);
  }
  answer.add(" %d", told);
}

}  // namespace

void act_on_readiness(const Op& op, Answer& answer) {
  switch (op.kind) {
    case Kind::kPoll:
      return poll_some(op, answer);
    case Kind::kEpollCreate: {
      const int fd = epoll_create1(0);
      note(op.argument[0], fd, {Object::What::kSet, -1, 0});
      return answer.add_result(fd);
    }
    case Kind::kEpollControl:
      return control(op, answer);
    default:
      return wait_for_events(op, answer);
  }
}

}  // namespace ddpsock::sequences
