// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/arena_view.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/kernel_view.h"
#include "relatives/arena_layout.h"

namespace ddpsock::engine {
namespace {

static_assert(std::is_standard_layout_v<MessageRecord>);
static_assert(std::is_standard_layout_v<Record> && std::is_standard_layout_v<ArenaHead>);
static_assert(std::is_standard_layout_v<RecordGroup>);

// Read at a time, all of one group.
constexpr size_t kBatch = 64;
static_assert(RecordSlots::kGroupRecords % kBatch == 0);

Result<void> read_at(int fd, std::span<std::byte> into, size_t offset) {
  while (!into.empty()) {
    const ssize_t n = pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno);
    if (n == 0) return fail_errno(EPROTO);
    into = into.subspan(static_cast<size_t>(n));
    offset += static_cast<size_t>(n);
  }
  return {};
}

// Bytes that somebody else has written as a T are never looked at as one: a bool or an enumeration
// may have no value of its type.
class Raw {
 public:
  explicit Raw(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T at(size_t offset) const {
    static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>);
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  bool flag(size_t offset) const { return at<uint8_t>(offset) != 0; }
  template <size_t N>
  std::array<uint8_t, N> array(size_t offset) const {
    std::array<uint8_t, N> value;
    std::memcpy(value.data(), bytes_.data() + offset, N);
    return value;
  }
  std::string text(size_t offset, size_t room) const {
    const auto* p = reinterpret_cast<const char*>(bytes_.data() + offset);
    return {p, strnlen(p, room)};
  }
  Raw part(size_t offset, size_t size) const { return Raw(bytes_.subspan(offset, size)); }

 private:
  std::span<const std::byte> bytes_;
};

DirectionStatistics direction_of(Raw raw) {
  const auto value = [&](size_t offset) { return raw.at<uint64_t>(offset); };
  return {.bytes = value(offsetof(Counters, bytes)),
          .fpdus = value(offsetof(Counters, fpdus)),
          .bytes_copied = value(offsetof(Counters, bytes_copied)),
          .errors = value(offsetof(Counters, errors)),
          .system_calls = value(offsetof(Counters, system_calls)),
          .waits = value(offsetof(Counters, waits)),
          .spins = value(offsetof(Counters, spins)),
          .vain_spins = value(offsetof(Counters, vain_spins))};
}

AddressView address_of(Raw raw) {
  return {.family = raw.at<uint8_t>(offsetof(base::TcpAddress, family)),
          .port = raw.at<uint16_t>(offsetof(base::TcpAddress, port)),
          .host = raw.array<16>(offsetof(base::TcpAddress, host))};
}

void read_memory(Raw raw, ConnectionStatistics& c) {
  const auto state = static_cast<MemoryState>(raw.at<uint8_t>(offsetof(Memory, state)));
  c.is_in_memory = state == MemoryState::kJoined;
  c.memory = memory_text(state);
  const Raw offer = raw.part(offsetof(Memory, offer), sizeof(shm::Offer));
  c.secret = offer.array<16>(offsetof(shm::Offer, secret));
  const Raw tx = raw.part(offsetof(Memory, tx), sizeof(shm::LaneTx));
  c.ring_written = tx.at<uint64_t>(offsetof(shm::LaneTx, tail));
  c.ring_seen_read = tx.at<uint64_t>(offsetof(shm::LaneTx, head));
  const Raw rx = raw.part(offsetof(Memory, rx), sizeof(shm::LaneRx));
  c.ring_read = rx.at<uint64_t>(offsetof(shm::LaneRx, head));
}

WorkStatistics work_of(Raw raw, size_t posted, size_t completed, size_t failed) {
  return {.posted = raw.at<uint64_t>(posted),
          .completed = raw.at<uint64_t>(completed),
          .failed = raw.at<uint64_t>(failed)};
}

void read_message_counters(Raw raw, ConnectionStatistics& c) {
  using rdmap::QpCounters;
  c.sent.bytes = raw.at<uint64_t>(offsetof(QpCounters, bytes_sent));
  c.sent.fpdus = raw.at<uint64_t>(offsetof(QpCounters, segments_sent));
  c.received.bytes = raw.at<uint64_t>(offsetof(QpCounters, bytes_received));
  c.received.fpdus = raw.at<uint64_t>(offsetof(QpCounters, segments_received));
  c.crcs_checked = raw.at<uint64_t>(offsetof(QpCounters, crcs_checked));
  c.max_payload = raw.at<uint32_t>(offsetof(QpCounters, max_payload));
  c.sends = work_of(raw, offsetof(QpCounters, sends_posted), offsetof(QpCounters, sends_completed),
                    offsetof(QpCounters, sends_failed));
  const auto direct = raw.at<uint64_t>(offsetof(QpCounters, sends_direct));
  c.sends.posted += direct;
  c.sends.completed += direct;
  c.receives =
      work_of(raw, offsetof(QpCounters, receives_posted), offsetof(QpCounters, receives_completed),
              offsetof(QpCounters, receives_failed));
  c.sent.errors = c.sends.failed;
  c.received.errors = c.receives.failed;
}

bool read_message_record(Raw raw, ConnectionStatistics& c) {
  using R = MessageRecord;
  c.is_message = true;
  c.cookie = raw.at<uint64_t>(offsetof(R, cookie));
  if (c.cookie == 0) return false;
  switch (static_cast<R::State>(raw.at<uint8_t>(offsetof(R, state)))) {
    case R::State::kStarting:
      c.state = ConnectionState::kStarting;
      break;
    case R::State::kOpen:
      c.state = ConnectionState::kOpen;
      break;
    default:
      c.state = raw.at<int32_t>(offsetof(R, status)) == 0 ? ConnectionState::kEnded
                                                          : ConnectionState::kFailed;
      break;
  }
  c.is_initiator = raw.flag(offsetof(R, is_initiator));
  c.has_crc = raw.flag(offsetof(R, has_crc));
  c.mpa_revision = raw.at<uint8_t>(offsetof(R, mpa_revision));
  c.opened_as = raw.at<int32_t>(offsetof(R, opened_as));
  c.terminate = raw.at<uint32_t>(offsetof(R, terminate));
  c.local = address_of(raw.part(offsetof(R, local), sizeof(base::TcpAddress)));
  c.remote = address_of(raw.part(offsetof(R, remote), sizeof(base::TcpAddress)));
  c.engine = raw.text(offsetof(R, engine), sizeof(R::engine));
  c.progress = raw.text(offsetof(R, progress), sizeof(R::progress));
  c.memory = raw.text(offsetof(R, memory), sizeof(R::memory));
  c.verdict = "the program asked for messages";
  if (c.state == ConnectionState::kFailed)
    c.failure = raw.text(offsetof(R, reason), sizeof(R::reason));
  read_message_counters(raw.part(offsetof(R, counters), sizeof(rdmap::QpCounters)), c);
  return true;
}

// False: nothing to show (a record being made, or a connection that turned out to be plain).
bool read_record(Raw raw, ConnectionStatistics& c) {
  if (raw.at<uint64_t>(offsetof(MessageRecord, marker)) == MessageRecord::kMarker)
    return read_message_record(raw, c);
  c.cookie = raw.at<uint64_t>(offsetof(Record, cookie));
  switch (static_cast<StreamState>(raw.at<uint8_t>(offsetof(Record, state)))) {
    case StreamState::kStarting:
      c.state = ConnectionState::kStarting;
      break;
    case StreamState::kOpen:
    case StreamState::kTurning:
      c.state = ConnectionState::kOpen;
      break;
    case StreamState::kFailed:
      c.state = ConnectionState::kFailed;
      break;
    default:
      return false;
  }
  if (c.cookie == 0) return false;
  c.is_initiator =
      raw.at<uint8_t>(offsetof(Record, role)) == static_cast<uint8_t>(Role::kInitiator);
  c.is_proved = raw.at<uint8_t>(offsetof(Record, peer)) == static_cast<uint8_t>(Peer::kProved);
  c.has_crc = raw.flag(offsetof(Record, has_crc));
  c.opened_as = raw.at<int32_t>(offsetof(Record, opened_as));
  if (raw.flag(offsetof(Record, has_peer_revision)))
    c.mpa_revision = raw.at<uint8_t>(offsetof(Record, peer_revision));
  c.max_payload = raw.at<uint32_t>(offsetof(Record, max_payload));
  c.local = address_of(raw.part(offsetof(Record, local), sizeof(base::TcpAddress)));
  c.remote = address_of(raw.part(offsetof(Record, remote), sizeof(base::TcpAddress)));
  const Raw received = raw.part(offsetof(Record, received), sizeof(Counters));
  const Raw sent = raw.part(offsetof(Record, sent), sizeof(Counters));
  c.sent = direction_of(sent);
  c.received = direction_of(received);
  c.bells_rung = sent.at<uint64_t>(offsetof(Counters, bells_rung));
  c.crcs_checked = received.at<uint64_t>(offsetof(Counters, crcs_checked));
  c.verdict = raw.text(offsetof(Record, verdict), sizeof(Record::verdict));
  if (raw.flag(offsetof(Record, has_failure)))
    c.failure = raw.text(offsetof(Record, failure), sizeof(Record::failure));
  read_memory(raw.part(offsetof(Record, memory), sizeof(Memory)), c);
  return true;
}

class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}

  Result<ArenaStatistics> run() {
    if (const auto checked = check(); !checked) return fail(checked.error());
    if (const auto read = read_processes(); !read) return fail(read.error());
    for (size_t first = 0; first < rotation_; first += kBatch)
      if (const auto read = read_batch(first, std::min(kBatch, rotation_ - first)); !read)
        return fail(read.error());
    return std::move(found_);
  }

 private:
  // The kernel knows seals of a memfd and of nothing else, so nothing else is read.
  Result<void> check() {
    struct stat st;
    if (base::kernel::fstat(fd_, st) != 0) return fail_errno(errno);
    if (!S_ISREG(st.st_mode) || fcntl(fd_, F_GET_SEALS) < 0) return fail_errno(EPROTO);
    std::array<std::byte, offsetof(ArenaHead, processes)> bytes{};
    if (const auto read = read_at(fd_, bytes, 0); !read) return read;
    const Raw head(bytes);
    const auto build = head.at<uint64_t>(offsetof(ArenaHead, build));
    if (build == 0) return fail_errno(EAGAIN);
    if (build != kArenaBuild) return fail_errno(ENOEXEC);
    if (st.st_size != static_cast<off_t>(kArenaSize)) return fail_errno(EPROTO);
    rotation_ =
        std::min(head.at<uint32_t>(offsetof(ArenaHead, rotation)), RecordSlots::kMaxRecords);
    return {};
  }

  Result<void> read_processes() {
    if (const auto read =
            read_at(fd_, std::as_writable_bytes(std::span(pids_)), offsetof(ArenaHead, processes));
        !read)
      return read;
    for (size_t i = 0; i < pids_.size(); ++i) {
      if (pids_[i] <= 0) continue;
      std::array<std::byte, sizeof(PlainNotes)> bytes;
      const size_t offset = offsetof(ArenaHead, plain) + i * sizeof(PlainNotes);
      if (const auto read = read_at(fd_, bytes, offset); !read) return read;
      const Raw notes(bytes);
      found_.processes.push_back(
          {.pid = pids_[i],
           .plain_connections = notes.at<uint32_t>(offsetof(PlainNotes, count)),
           .last_plain_reason =
               notes.text(offsetof(PlainNotes, last_reason), sizeof(PlainNotes::last_reason))});
    }
    return {};
  }

  Result<void> read_heads(size_t first, size_t count) {
    return read_at(fd_, std::span(heads_).first(count * sizeof(RecordHead)),
                   group_of(first) + offsetof(RecordGroup, heads) +
                       first % RecordSlots::kGroupRecords * sizeof(RecordHead));
  }
  static size_t group_of(size_t record) {
    return record_group_offset(static_cast<uint32_t>(record / RecordSlots::kGroupRecords));
  }
  Raw head(size_t i) const {
    return Raw(std::span(heads_).subspan(i * sizeof(RecordHead), sizeof(RecordHead)));
  }
  bool is_live(size_t i) const {
    return head(i).at<uint32_t>(offsetof(RecordHead, state)) == RecordHead::kLive;
  }

  Result<void> read_batch(size_t first, size_t count) {
    if (const auto read = read_heads(first, count); !read) return read;
    std::bitset<kBatch> was_live;
    for (size_t i = 0; i < count; ++i) was_live[i] = is_live(i);
    if (was_live.none()) return {};
    const auto records = std::span(records_).first(count * RecordSlots::kRecordSize);
    const size_t at = group_of(first) + offsetof(RecordGroup, records) +
                      first % RecordSlots::kGroupRecords * RecordSlots::kRecordSize;
    if (const auto read = read_at(fd_, records, at); !read) return read;
    // Not those that went in between, nor those that came: theirs are still the bytes of others.
    if (const auto read = read_heads(first, count); !read) return read;
    for (size_t i = 0; i < count; ++i) {
      if (!was_live[i] || !is_live(i)) continue;
      ConnectionStatistics c;
      c.index = static_cast<uint32_t>(first + i);
      if (!read_record(Raw(records.subspan(i * RecordSlots::kRecordSize, RecordSlots::kRecordSize)),
                       c))
        continue;
      c.holders = holders_of(head(i));
      found_.connections.push_back(std::move(c));
    }
    return {};
  }

  std::vector<int> holders_of(Raw head) const {
    static_assert(sizeof(HolderSet) == HolderSet::kMax / 8);
    std::vector<int> holders;
    for (size_t word = 0; word < HolderSet::kMax / 64; ++word) {
      auto bits = head.at<uint64_t>(offsetof(RecordHead, holders) + word * sizeof(uint64_t));
      for (; bits != 0; bits &= bits - 1) {
        const int pid = pids_[word * 64 + static_cast<size_t>(std::countr_zero(bits))];
        if (pid > 0) holders.push_back(pid);
      }
    }
    return holders;
  }

  const int fd_;
  size_t rotation_ = 0;
  ArenaStatistics found_;
  std::array<int, HolderSet::kMax> pids_{};
  std::array<std::byte, kBatch * sizeof(RecordHead)> heads_{};
  std::array<std::byte, kBatch * RecordSlots::kRecordSize> records_{};
};

}  // namespace

Result<ArenaStatistics> read_arena(int fd) {
  return Reader(fd).run();
}

}  // namespace ddpsock::engine
