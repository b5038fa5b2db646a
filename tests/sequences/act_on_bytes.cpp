// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "act.h"
#include "base/kernel_call.h"
#include "calls.h"

namespace ddpsock::sequences {
namespace {

constexpr size_t kPiece = 64 * 1024;
constexpr char kUntouched = '\xee';
constexpr size_t kRoom = 128 * 1024;
// Each actor receives into a place of its own; a child's is its copy.
char* buffer() {
  static thread_local char bytes[kRoom];
  return bytes;
}

uint32_t hash(const char* bytes, size_t size) {
  uint32_t value = 2166136261u;
  for (size_t i = 0; i < size; ++i)
    value = (value ^ static_cast<unsigned char>(bytes[i])) * 16777619u;
  return value;
}

bool is_untouched(const char* bytes, size_t from, size_t to) {
  return std::all_of(bytes + from, bytes + to, [](char byte) { return byte == kUntouched; });
}

void say_what_came(const Object& object, const Moved& moved, size_t size, Answer& answer) {
  const char* bytes = buffer();
  const Direction* way = incoming(object);
  if (moved.bytes > 0 && way != nullptr) {
    const char* due = bytes_at(object.connection, 1 - object.side, way->received, kPiece);
    if (memcmp(bytes, due, moved.bytes) == 0) {
      answer.add(" right");
    } else if (is_untouched(bytes, 0, moved.bytes)) {
      answer.add(" untouched");
    } else {
      // Two messages that look at the same, for example. Behind a fill nobody knows which bytes.
      constexpr uint64_t kBeforeAnyFill = 256 * 1024;
      const bool is_known = way->received < kBeforeAnyFill;
      answer.add(" other bytes %08x", is_known ? hash(bytes, moved.bytes) : 0);
    }
  }
  if (moved.flags != 0) answer.add(" flags %#x", static_cast<unsigned>(moved.flags));
  if (!is_untouched(bytes, moved.bytes, size + 16)) answer.add(", touched what is behind");
}

void note_reset(const Object& object, long result) {
  if (Direction* way = incoming(object); way != nullptr && result < 0 && errno == ECONNRESET)
    way->is_cut = true;
}

bool asks_for_error_first(int how) {
  constexpr int kRecvmmsg = 3, kRawRecvmmsg = 6;
  return how == kRecvmmsg || how == kRawRecvmmsg;
}

void receive(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]), how = op.argument[3];
  const size_t size = std::min(static_cast<size_t>(op.argument[1]), kRoom - 16);
  const int flags = takes_flags(how) ? op.argument[2] : 0;
  const Object object = object_of(fd);
  const bool may_sleep =
      (flags & MSG_DONTWAIT) == 0 && (base::kernel_call(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK) == 0;
  if (may_sleep && (is_below_mark(fd, size) || !claim(object, true)))
    return answer.add("not certain");
  if (asks_for_error_first(how) && !is_reset_certain(object)) return answer.add("not certain");
  memset(buffer(), kUntouched, size + 16);
  const Moved moved = receive_by(how, fd, buffer(), size, flags);
  note_reset(object, moved.result);
  answer.add_result(moved.result);
  if (moved.result < 0) return;
  say_what_came(object, moved, size, answer);
  Direction* way = incoming(object);
  if (way == nullptr || (flags & MSG_PEEK) != 0 || moved.bytes == 0) return;
  way->received += moved.bytes;
  way->is_full = false;
}

const char* bytes_to_send(const Object& object, size_t size) {
  if (outgoing(object) == nullptr) return bytes_at(0, 0, 0, size);
  return bytes_at(object.connection, object.side, outgoing(object)->sent, size);
}

void count_sent(const Object& object, size_t bytes) {
  if (Direction* way = outgoing(object); way != nullptr) way->sent += bytes;
}

// How long MSG_MORE holds bytes back is TCP's affair; the next ones end that.
void send_what_ends_more(int fd, const Object& object, Answer& answer) {
  const ssize_t sent = send(fd, bytes_to_send(object, 1), 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) count_sent(object, 1);
  answer.add("one more: %zd, ", sent);
}

void send_bytes(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  const Object object = object_of(fd);
  // Who sleeps is woken by the first of two messages, and may or may not see the second.
  const bool is_two = op.argument[3] == 3 || op.argument[3] == 6;
  const int how = is_two && is_awaited(object) ? op.argument[3] - 1 : op.argument[3];
  if (!is_roomy(object) || !is_reset_certain(object)) return answer.add("not certain");
  const size_t most = how == kByFile ? kPiece : kMostBytes;
  const size_t size = std::min(static_cast<size_t>(op.argument[1]), most);
  int flags = takes_flags(how) ? op.argument[2] : 0;
  if (is_awaited(object)) flags &= ~MSG_MORE;
  if (size > kPiece) claim_room(object);
  const Moved moved = send_by(how, fd, bytes_to_send(object, size), size, flags);
  note_reset(object, moved.result);
  count_sent(object, moved.bytes);
  // How much TCP takes of what is more than it can take is its own affair, and of what follows.
  const bool is_part = moved.result > 0 && moved.bytes < size && size > kPiece;
  if ((flags & MSG_MORE) != 0 && moved.result > 0 && !is_part)
    send_what_ends_more(fd, object, answer);
  if (is_part) {
    answer.add("a part");
    if (outgoing(object) != nullptr) outgoing(object)->is_full = true;
    return;
  }
  // Which it is depends on whether the peer's end has come, and that on what room there is for what
  // stands before it.
  const Direction* in = incoming(object);
  const bool is_end_uncertain =
      in != nullptr && in->was_filled && in->is_ended && in->received < in->sent;
  if (moved.result < 0 && is_end_uncertain && (errno == ECONNRESET || errno == EPIPE))
    return answer.add("ECONNRESET or EPIPE");
  answer.add_result(moved.result);
  if (moved.result >= 0 && moved.bytes != static_cast<size_t>(moved.result))
    answer.add(", %zu bytes", moved.bytes);
  if (moved.bytes > 0 && (flags & MSG_OOB) != 0 && outgoing(object) != nullptr)
    ++outgoing(object)->urgent;
}

// Where what was refused is refused still a little later, too.
void fill(const Op& op, Answer& answer) {
  constexpr uint64_t kMost = 64 * 1024 * 1024;
  const int fd = fd_of(op.argument[0]);
  const Object object = object_of(fd);
  Direction* way = outgoing(object);
  if (way == nullptr) return answer.add("no stream");
  // When who reads no more refuses what finds no room is a matter of what room there is.
  if ((way->was_filled && way->is_unwanted) || !is_reset_certain(object))
    return answer.add("not certain");
  const bool is_some_due = is_roomy(object);
  way->was_filled = true;
  uint64_t total = 0;
  for (bool is_refused = false; total < kMost;) {
    const ssize_t sent =
        send(fd, bytes_to_send(object, kPiece), kPiece, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      total += static_cast<uint64_t>(sent);
      count_sent(object, static_cast<size_t>(sent));
      is_refused = false;
      continue;
    }
    if (errno != EAGAIN || is_refused) {
      if (is_some_due) answer.add("%s, then ", total > 0 ? "some" : "none");
      answer.add_result(-1);
      way->is_full = errno == EAGAIN;
      return;
    }
    is_refused = true;
    sleep_us(500);
  }
  answer.add("never refused");
}

void drain(const Op& op, Answer& answer) {
  const int patience = world->patience_ms > 0 ? 300 : 30;
  const int fd = fd_of(op.argument[0]);
  const Object object = object_of(fd);
  Direction* way = incoming(object);
  if (way == nullptr) return answer.add("no stream");
  // Linux offers who reads no more no window for what it has read: the rest comes some day.
  // Who sleeps until there is room goes on beside this.
  const Object peer{object.what, object.connection, static_cast<int8_t>(1 - object.side)};
  if ((way->is_unwanted && (way->was_filled || way->is_full)) || is_being_filled(peer))
    return answer.add("not certain");
  const int64_t deadline = now_ms() + patience;
  bool is_right = true;
  for (;;) {
    const ssize_t got = recv(fd, buffer(), kPiece, MSG_DONTWAIT);
    if (got > 0) {
      is_right =
          is_right &&
          memcmp(buffer(), bytes_at(object.connection, 1 - object.side, way->received, kPiece),
                 static_cast<size_t>(got)) == 0;
      way->received += static_cast<uint64_t>(got);
      way->is_full = false;
      continue;
    }
    const bool is_waiting = got < 0 && errno == EAGAIN;
    const bool is_all = way->received + way->urgent >= way->sent;
    if (is_waiting && !is_all && now_ms() < deadline) {
      sleep_us(100);
      continue;
    }
    // Who reads no more may be told of an end between bytes; how much of much a reset leaves is
    // TCP's affair.
    note_reset(object, got);
    const bool is_cut = way->was_filled && way->is_cut;
    const char* amount = way->is_unwanted || is_cut ? "some" : is_all ? "all" : "not all";
    answer.add("%s%s, then ", amount, is_right ? "" : " of other bytes");
    return answer.add_result(got);
  }
}

void send_file(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  const Object object = object_of(fd);
  if (!is_roomy(object)) return answer.add("not certain");
  const off_t start = bytes_to_send(object, 0) - bytes_at(0, 0, 0, 0);
  off_t offset = std::max(start, off_t{0});
  const off_t before = offset;
  const ssize_t sent = sendfile(fd, kPatternNumber, &offset, static_cast<size_t>(op.argument[1]));
  answer.add_result(sent);
  if (sent >= 0) answer.add(" offset %+ld", offset - before);
  if (sent > 0) count_sent(object, static_cast<size_t>(sent));
}

// Through a pipe that is there for this call.
void splice_out(int fd, const Object& object, size_t size, Answer& answer) {
  if (!is_roomy(object)) return answer.add("not certain");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return answer.add("no pipe");
  const ssize_t written = write(ends[1], bytes_to_send(object, size), size);
  const ssize_t moved =
      splice(ends[0], nullptr, fd, nullptr, static_cast<size_t>(written), SPLICE_F_NONBLOCK);
  answer.add_result(moved);
  if (moved > 0) count_sent(object, static_cast<size_t>(moved));
  close(ends[0]);
  close(ends[1]);
}

void splice_in(int fd, const Object& object, size_t size, Answer& answer) {
  if (!claim(object, true)) return answer.add("not certain");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return answer.add("no pipe");
  const ssize_t moved = splice(fd, nullptr, ends[1], nullptr, size, SPLICE_F_NONBLOCK);
  answer.add_result(moved);
  if (moved > 0) {
    memset(buffer(), kUntouched, size + 16);
    const ssize_t got = read(ends[0], buffer(), size);
    say_what_came(object, {got, static_cast<size_t>(got), 0}, size, answer);
    if (Direction* way = incoming(object); way != nullptr)
      way->received += static_cast<uint64_t>(moved);
  }
  close(ends[0]);
  close(ends[1]);
}

void splice_bytes(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  const size_t size = static_cast<size_t>(op.argument[1]);
  op.argument[2] != 0 ? splice_out(fd, object_of(fd), size, answer)
                      : splice_in(fd, object_of(fd), size, answer);
}

}  // namespace

void act_on_bytes(const Op& op, Answer& answer) {
  switch (op.kind) {
    case Kind::kSend:
      return send_bytes(op, answer);
    case Kind::kReceive:
      return receive(op, answer);
    case Kind::kFill:
      return fill(op, answer);
    case Kind::kDrain:
      return drain(op, answer);
    case Kind::kSendFile:
      return send_file(op, answer);
    default:
      return splice_bytes(op, answer);
  }
}

}  // namespace ddpsock::sequences
