// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An arena seen from outside: what it says of healthy streams, and pages that lie.
#include "relatives/arena_view.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "base/fd.h"
#include "relatives/arena_layout.h"
#include "shm/lane.h"
#include "stream/stream_testing.h"
#include "stream/user_stream.h"

namespace ddpsock::engine {
namespace {

uint64_t cookie_of(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size), 0);
  return cookie;
}

uint16_t port_of(int fd) {
  sockaddr_in a{};
  socklen_t size = sizeof a;
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size), 0);
  return ntohs(a.sin_port);
}

// Through a description of its own that cannot write, as another process has it.
base::UniqueFd open_own_arena() {
  const std::string path = "/proc/self/fd/" + std::to_string(Arena::get()->file.fd());
  return base::UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

std::optional<ConnectionStatistics> find(const ArenaStatistics& all, int fd) {
  for (const auto& c : all.connections)
    if (c.cookie == cookie_of(fd)) return c;
  return std::nullopt;
}

std::optional<ConnectionStatistics> look_at(int fd) {
  const auto all = read_arena(open_own_arena().get());
  EXPECT_TRUE(all.has_value());
  return all ? find(*all, fd) : std::nullopt;
}

TEST(ArenaView, SaysWhatAStreamHasDone) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(a.send(pattern(64)).count, 64);
    ASSERT_EQ(b.recv(64), pattern(64));
  }
  const auto here = look_at(a.fd), there = look_at(b.fd);
  ASSERT_TRUE(here && there);
  EXPECT_EQ(here->sent.bytes, 6400u);
  EXPECT_EQ(here->sent.fpdus, 100u);
  EXPECT_EQ(here->sent.bytes_copied, 6400u);
  EXPECT_EQ(here->received.bytes, 0u);
  EXPECT_EQ(there->received.bytes, 6400u);
  EXPECT_EQ(there->received.fpdus, 100u);
  EXPECT_EQ(there->received.bytes_copied, 6400u);
  EXPECT_EQ(there->crcs_checked, 100u);
  EXPECT_EQ(there->received.waits, 99u) << "a blocking recv each; the first came with the start";
  EXPECT_GE(here->sent.system_calls, 100u);
  EXPECT_LE(here->sent.system_calls, 120u);
  EXPECT_GE(there->received.system_calls, 100u);
  EXPECT_LE(there->received.system_calls, 120u);
  EXPECT_EQ(here->state, ConnectionState::kStarting) << "it has not read the peer's Reply";
  EXPECT_TRUE(here->is_initiator);
  EXPECT_FALSE(there->is_initiator);
  EXPECT_TRUE(here->is_proved);
  EXPECT_EQ(here->opened_as, a.fd);
  EXPECT_EQ(here->holders, std::vector<int>{getpid()});
  EXPECT_EQ(here->local.port, port_of(a.fd));
  EXPECT_EQ(here->remote.port, port_of(b.fd));
  EXPECT_EQ(there->local.family, 4);
  EXPECT_EQ(there->local.host[0], 127);
  EXPECT_FALSE(here->is_in_memory);
  EXPECT_EQ(here->sent.errors + here->received.errors, 0u);
}

TEST(ArenaView, CountsCopiesWhereThereAreAny) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  constexpr size_t kSize = 4 << 20;
  // In turns, so that each recv finds much in the kernel: what it learns to be queued is scattered.
  const Buffer all = pattern(kSize);
  Buffer got(kSize);
  for (size_t sent = 0, at = 0; at < kSize;) {
    const iovec rest{const_cast<uint8_t*>(all.data()) + sent, kSize - sent};
    if (sent < kSize) sent += static_cast<size_t>(a.s->send(a.fd, {&rest, 1}, MSG_DONTWAIT).count);
    const Io io = b.recv(got.data() + at, kSize - at, MSG_DONTWAIT);
    ASSERT_GT(io.count, 0) << strerror(io.error);
    at += static_cast<size_t>(io.count);
  }
  EXPECT_EQ(got, all);
  EXPECT_EQ(look_at(a.fd)->sent.bytes, kSize);
  EXPECT_EQ(look_at(a.fd)->sent.bytes_copied, kSize) << "what was checksummed is what leaves";
  EXPECT_LT(look_at(b.fd)->received.bytes_copied, kSize / 2) << "scattered into it";
}

TEST(ArenaView, SaysWhatLiesInSharedMemory) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator, Peer::kProved, false, true, true);
  End b(tcp.server, Role::kResponder, Peer::kProved, false, true, true);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a.send(pattern(10)).count, 10);
    ASSERT_EQ(b.recv(10), pattern(10));
  }
  ASSERT_EQ(a.send(pattern(1000)).count, 1000);
  const auto here = look_at(a.fd), there = look_at(b.fd);
  ASSERT_TRUE(here && there);
  EXPECT_TRUE(here->is_in_memory) << here->memory;
  EXPECT_EQ(here->memory, "shared memory");
  EXPECT_EQ(here->secret, there->secret);
  EXPECT_EQ(here->ring_written - there->ring_read, 1000u);
  EXPECT_EQ(here->sent.bytes, 1030u);
  EXPECT_EQ(there->received.bytes, 30u);
  EXPECT_GE(here->bells_rung, 1u);
  EXPECT_EQ(there->bells_rung, 0u) << "it has sent nothing";
  ASSERT_EQ(b.recv(1000), pattern(1000));
  const auto after = look_at(b.fd);
  EXPECT_EQ(here->ring_written, after->ring_read);
}

TEST(ArenaView, CountsErrorsAndNotRefusals) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  ASSERT_EQ(a.send(pattern(10)).count, 10);
  ASSERT_EQ(b.recv(10), pattern(10));
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
  EXPECT_EQ(look_at(b.fd)->received.errors, 0u);
  // What is no FPDU at all.
  const Buffer junk(200, 0);
  ASSERT_EQ(::send(a.fd, junk.data(), junk.size(), 0), ssize_t{200});
  EXPECT_NE(b.recv(&byte, 1).error, 0);
  const auto failed = look_at(b.fd);
  EXPECT_EQ(failed->received.errors, 1u);
  EXPECT_EQ(failed->state, ConnectionState::kFailed);
  EXPECT_STREQ(failed->failure.c_str(), b.s->status().failure);
}

TEST(ArenaView, ForgetsAStreamThatWasReleased) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator);
  ASSERT_TRUE(look_at(tcp.client));
  a.release();
  EXPECT_FALSE(look_at(tcp.client));
}

TEST(ArenaView, TheFileIsForThisUserAlone) {
  struct stat st;
  ASSERT_EQ(fstat(Arena::get()->file.fd(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
}

TEST(ArenaView, PlainConnectionsAreTold) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator);
  user_stream_engine().note_plain("reason one");
  user_stream_engine().note_plain("reason two");
  const auto all = read_arena(open_own_arena().get());
  ASSERT_TRUE(all);
  const auto me = std::ranges::find(all->processes, getpid(), &ProcessStatistics::pid);
  ASSERT_NE(me, all->processes.end());
  EXPECT_EQ(me->plain_connections, 2u);
  EXPECT_EQ(me->last_plain_reason, "reason two");
}

// Ten thousand, and what they cost to look at is bounded by what there is.
TEST(ArenaView, ShowsManyStreams) {
  TcpPair tcp;
  std::vector<Stream*> streams;
  for (int i = 0; i < 10'000; ++i) {
    const auto s = user_stream_engine().open(tcp.client, {});
    ASSERT_TRUE(s.has_value());
    streams.push_back(*s);
  }
  const auto all = read_arena(open_own_arena().get());
  ASSERT_TRUE(all);
  EXPECT_EQ(all->connections.size(), 10'000u);
  for (Stream* s : streams) s->release(tcp.client);
  EXPECT_EQ(read_arena(open_own_arena().get())->connections.size(), 0u);
}

TEST(ArenaView, MayBeReadWhileStreamsComeAndGo) {
  std::atomic<bool> is_over{false};
  std::thread owner([&] {
    TcpPair tcp;
    while (!is_over) {
      End a(tcp.client, Role::kInitiator);
      a.s->status();
    }
  });
  for (int i = 0; i < 500; ++i) {
    const auto all = read_arena(open_own_arena().get());
    ASSERT_TRUE(all);
    // It looks at 64 at a time: the last of some, and then the first of the next.
    ASSERT_LE(all->connections.size(), 2u);
    for (const auto& c : all->connections) {
      ASSERT_NE(c.cookie, 0u);
      ASSERT_EQ(c.sent.bytes, 0u);
    }
  }
  is_over = true;
  owner.join();
}

// A memfd that its owner has written as it likes.
class HostileArena : public testing::Test {
 protected:
  HostileArena() : fd(memfd_create("ddpsock", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(kArenaSize)), 0);
    set<uint64_t>(offsetof(ArenaHead, build), kArenaBuild);
    set<uint32_t>(offsetof(ArenaHead, rotation), 1024);
  }
  void write_at(size_t offset, const void* data, size_t size) {
    EXPECT_EQ(pwrite(fd.get(), data, size, static_cast<off_t>(offset)), static_cast<ssize_t>(size));
  }
  template <typename T>
  void set(size_t offset, T value) {
    write_at(offset, &value, sizeof value);
  }
  void fill(size_t offset, size_t size, std::mt19937& rng) {
    Buffer junk(size);
    for (uint8_t& b : junk) b = static_cast<uint8_t>(rng());
    write_at(offset, junk.data(), junk.size());
  }
  static size_t group_of(size_t i) {
    return record_group_offset(static_cast<uint32_t>(i / RecordSlots::kGroupRecords));
  }
  static size_t head_at(size_t i) {
    return group_of(i) + offsetof(RecordGroup, heads) +
           i % RecordSlots::kGroupRecords * sizeof(RecordHead);
  }
  static size_t record_at(size_t i) {
    return group_of(i) + offsetof(RecordGroup, records) +
           i % RecordSlots::kGroupRecords * RecordSlots::kRecordSize;
  }
  int error() const {
    const auto all = read_arena(fd.get());
    return all ? 0 : to_int(all.error());
  }
  base::UniqueFd fd;
};

TEST_F(HostileArena, AnEmptyOneHasNothing) {
  const auto all = read_arena(fd.get());
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->connections.empty());
  EXPECT_TRUE(all->processes.empty());
}

TEST_F(HostileArena, AnotherBuildIsNamed) {
  set<uint64_t>(offsetof(ArenaHead, build), kArenaBuild + 2);
  EXPECT_EQ(error(), ENOEXEC);
  set<uint64_t>(offsetof(ArenaHead, build), 0);
  EXPECT_EQ(error(), EAGAIN);
}

TEST_F(HostileArena, EveryOtherSizeOfTheFileIsRefused) {
  const auto whole = static_cast<off_t>(kArenaSize);
  for (const off_t size : {off_t{0}, off_t{7}, off_t{4096}, whole / 2, whole - 1, whole + 1}) {
    ASSERT_EQ(ftruncate(fd.get(), size), 0);
    EXPECT_NE(error(), 0) << size;
  }
}

TEST_F(HostileArena, WhatIsNoMemfdIsNotRead) {
  base::UniqueFd pipe_end, other_end;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  pipe_end.reset(ends[0]);
  other_end.reset(ends[1]);
  EXPECT_EQ(to_int(read_arena(pipe_end.get()).error()), EPROTO);
  base::UniqueFd device(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(to_int(read_arena(device.get()).error()), EPROTO);
  EXPECT_EQ(to_int(read_arena(-1).error()), EBADF);
}

TEST_F(HostileArena, ARotationBeyondTheRecordsIsBounded) {
  set<uint32_t>(offsetof(ArenaHead, rotation), ~0u);
  // What lies behind the last group is the first block.
  for (size_t i = RecordSlots::kMaxRecords - 1; i <= RecordSlots::kMaxRecords; ++i) {
    set<uint32_t>(head_at(i), RecordHead::kLive);
    set<uint64_t>(record_at(i) + offsetof(Record, cookie), 7);
  }
  const auto all = read_arena(fd.get());
  ASSERT_TRUE(all);
  ASSERT_EQ(all->connections.size(), 1u);
  EXPECT_EQ(all->connections[0].index, RecordSlots::kMaxRecords - 1);
}

TEST_F(HostileArena, TextWithoutAnEndIsBounded) {
  set<uint32_t>(head_at(0), RecordHead::kLive);
  const Buffer ones(RecordSlots::kRecordSize, 1);
  write_at(record_at(0), ones.data(), ones.size());
  const auto all = read_arena(fd.get());
  ASSERT_TRUE(all);
  ASSERT_EQ(all->connections.size(), 1u);
  EXPECT_EQ(all->connections[0].verdict.size(), sizeof(Record::verdict));
  EXPECT_EQ(all->connections[0].failure.size(), sizeof(Record::failure));
  EXPECT_TRUE(all->connections[0].holders.empty());
}

TEST_F(HostileArena, NoEnumerationIsTakenForGranted) {
  set<uint32_t>(head_at(0), RecordHead::kLive);
  set<uint64_t>(record_at(0) + offsetof(Record, cookie), 7);
  for (unsigned value = 0; value < 256; ++value) {
    set(record_at(0) + offsetof(Record, state), static_cast<uint8_t>(value));
    const auto all = read_arena(fd.get());
    ASSERT_TRUE(all);
    const bool is_shown = value == static_cast<unsigned>(StreamState::kStarting) ||
                          value == static_cast<unsigned>(StreamState::kOpen) ||
                          value == static_cast<unsigned>(StreamState::kTurning) ||
                          value == static_cast<unsigned>(StreamState::kFailed);
    EXPECT_EQ(all->connections.size(), is_shown ? 1u : 0u) << value;
  }
  set(record_at(0) + offsetof(Record, state), static_cast<uint8_t>(StreamState::kOpen));
  for (unsigned value = 0; value < 256; ++value) {
    set(record_at(0) + offsetof(Record, memory) + offsetof(Memory, state),
        static_cast<uint8_t>(value));
    const auto all = read_arena(fd.get());
    ASSERT_TRUE(all);
    EXPECT_EQ(all->connections.at(0).is_in_memory, value == unsigned(MemoryState::kJoined))
        << value;
  }
}

TEST_F(HostileArena, NoiseIsSurvived) {
  std::mt19937 rng(1);
  for (int round = 0; round < 200; ++round) {
    fill(offsetof(ArenaHead, processes), sizeof(ArenaHead::processes), rng);
    fill(offsetof(ArenaHead, plain), sizeof(ArenaHead::plain), rng);
    fill(head_at(0), 128 * sizeof(RecordHead), rng);
    for (size_t i = 0; i < 128; i += 1 + rng() % 3) set<uint32_t>(head_at(i), RecordHead::kLive);
    fill(record_at(0), 128 * RecordSlots::kRecordSize, rng);
    const auto all = read_arena(fd.get());
    ASSERT_TRUE(all);
    for (const auto& p : all->processes) ASSERT_GT(p.pid, 0);
    for (const auto& c : all->connections) {
      ASSERT_LT(c.index, 128u);
      ASSERT_LE(c.holders.size(), size_t{HolderSet::kMax});
    }
  }
}

TEST_F(HostileArena, ChangesOfSizeUnderTheReaderAreSurvived) {
  for (size_t i = 0; i < 1024; ++i) set<uint32_t>(head_at(i), RecordHead::kLive);
  std::atomic<bool> is_over{false};
  const auto whole = static_cast<off_t>(kArenaSize);
  std::thread owner([&] {
    while (!is_over) {
      ftruncate(fd.get(), static_cast<off_t>(record_at(100)));
      ftruncate(fd.get(), whole);
    }
  });
  for (int i = 0; i < 1000; ++i) static_cast<void>(read_arena(fd.get()));
  is_over = true;
  owner.join();
}

}  // namespace
}  // namespace ddpsock::engine
