// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What ddpstat shows of a connection in message mode. It lies in the arena, as the state of streams
// does (record.h), but is for looking at only: nothing here depends on it, and a connection without
// one works as well.
#ifndef DDPSOCK_RELATIVES_MESSAGE_RECORD_H_
#define DDPSOCK_RELATIVES_MESSAGE_RECORD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rdmap/qp_counters.h"
#include "relatives/record.h"
#include "relatives/record_slots.h"

namespace ddpsock::engine {

struct MessageRecord {
  enum class State : uint8_t { kStarting, kOpen, kEnded };

  // Held by this process, and by those it forks, until each has released it; nullptr: no arena, or
  // no room in it.
  static MessageRecord* open();
  // Nobody counts into it any more.
  void release();

  // The socket, once it is connected or connecting.
  void note_socket(int fd, bool is_initiator);
  // `memory`: why it is in shared memory, or not. Texts are cut to fit.
  void note_engine(const char* engine, const char* progress, const char* memory);
  // Once.
  void note_end(int status, uint32_t terminate, const char* reason);

  // Where a stream has its cookie, which is never this.
  static constexpr uint64_t kMarker = ~uint64_t{0};
  uint64_t marker = kMarker;
  uint64_t cookie = 0;  // of the socket; 0: not known yet, and nothing to be shown

  std::atomic<State> state{State::kStarting};
  bool is_initiator = false;
  std::atomic<bool> has_crc{false};
  std::atomic<uint8_t> mpa_revision{0};
  int32_t opened_as = -1;
  std::atomic<int32_t> status{0};      // an errno value, once it has ended
  std::atomic<uint32_t> terminate{0};  // as ddp_completion has it
  std::array<char, 16> engine{};
  std::array<char, 16> progress{};
  std::array<char, 80> memory{};
  base::TcpAddress local{}, remote{};
  std::array<char, 96> reason{};  // why it has ended
  alignas(64) rdmap::QpCounters counters;
};
static_assert(sizeof(MessageRecord) <= RecordSlots::kRecordSize);
// Whoever has a record as a Record in hand looks at this first.
static_assert(offsetof(MessageRecord, marker) == offsetof(Record, cookie));

inline bool is_message_record(const void* record) {
  return static_cast<const MessageRecord*>(record)->marker == MessageRecord::kMarker;
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_MESSAGE_RECORD_H_
