// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A queue pair in shared memory whose peer writes whatever it likes there. It may lose the
// connection, and nothing else: not its memory, not its mind. More with DDPSOCK_ATTACKS=5000.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "ddp/segment.h"
#include "engine/memory/message_memory.h"
#include "engine/user/user_engine.h"
#include "shm/own_memory.h"
#include "shm/peer_process.h"

namespace ddpsock::engine {
namespace {

using shm::MessageLane;
using shm::MessageMemory;
using shm::RecordHead;

int attacks() {
  const char* wanted = std::getenv("DDPSOCK_ATTACKS");
  return wanted != nullptr ? std::atoi(wanted) : 200;
}

struct TcpPair {
  base::UniqueFd a, b;
};
TcpPair connect_tcp() {
  const base::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), generic, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &size), 0);
  TcpPair pair;
  pair.a.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(pair.a.get(), generic, size), 0);
  pair.b.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return pair;
}

struct OwnMemoryIsAPeers {
  OwnMemoryIsAPeers() { shm::take_own_memory_for_a_peers(true); }
  ~OwnMemoryIsAPeers() { shm::take_own_memory_for_a_peers(false); }
};

// The victim, with work posted and memory registered between canaries.
class Victim {
 public:
  static constexpr size_t kRoom = 512;
  static constexpr uint8_t kCanary = 0xa5;

  Victim() {
    engine_ = open_user_message_engine();
    pd_ = *engine_->open_pd();
    cq_ = *engine_->make_cq({.depth = 256});
    // What rooms and region lie between is nobody's to write.
    canaries_.assign(16 * kRoom, kCanary);
    regions_[0] = *engine_->register_memory(
        {.memory = room(1), .base_to = 0x1000, .rights = rdmap::kRemoteRead, .pd = pd_});
    qp_ = *engine_->make_qp({.pd = pd_, .send_cq = cq_.get(), .recv_cq = cq_.get()});
    regions_[1] = *engine_->register_memory(
        {.memory = room(10), .base_to = 0, .rights = rdmap::kRemoteWrite, .pd = pd_});
    for (size_t i = 3; i < 7; i += 2) {
      const MutBytes to = room(i);
      const RecvWr work{.id = i, .buffer = {&to, 1}};
      EXPECT_EQ(qp_->recv({&work, 1}).accepted, 1u);
    }
    auto made = MessageMemory::make({});
    memory_ = std::move(*made);
    peer_ = *MessageMemory::join(static_cast<uint32_t>(getpid()),
                                 static_cast<uint32_t>(memory_->descriptor()), {});
    EXPECT_TRUE(memory_->settle());
    const InMemory medium(*memory_);
    EXPECT_TRUE(qp_->start({.lower = lower_layer_of(tcp_.a.get()),
                            .medium = &medium,
                            .agreed = {.is_initiator = true, .ird = 4, .ord = 4}}));
  }

  MutBytes room(size_t i) { return MutBytes(canaries_).subspan(i * kRoom, kRoom); }
  Qp& qp() { return *qp_; }
  MessageMemory& peer() { return *peer_; }
  const Mr& region() const { return regions_[0]; }
  const Mr& writable_region() const { return regions_[1]; }
  // Completed with success since the last question.
  size_t received() { return completed(WorkKind::kReceive); }
  size_t sent() { return completed(WorkKind::kSend); }
  void close_wire() { tcp_.b.reset(); }
  void end_wire() { EXPECT_EQ(shutdown(tcp_.b.get(), SHUT_WR), 0); }

  // Its receive buffers may hold anything.
  bool are_canaries_alive() {
    for (const size_t i : {0u, 1u, 2u, 4u, 6u, 7u, 8u, 9u})
      for (uint8_t b : room(i))
        if (b != kCanary) return false;
    return true;
  }

 private:
  size_t completed(WorkKind kind) {
    Completion done[8];
    const uint32_t n = cq_->poll(done);
    return static_cast<size_t>(std::count_if(done, done + n, [kind](const Completion& c) {
      return c.kind == kind && c.status == WorkStatus::kOk;
    }));
  }

  const OwnMemoryIsAPeers both_ends_are_here_;
  TcpPair tcp_ = connect_tcp();
  std::vector<uint8_t> canaries_;
  std::unique_ptr<Engine> engine_;
  Pd pd_;
  Mr regions_[2];
  std::unique_ptr<Cq> cq_;
  std::unique_ptr<MessageMemory> memory_, peer_;
  std::unique_ptr<Qp> qp_;
};

// A Write of nothing: the first that any peer may send. Where the next record is.
uint64_t open_stream(Victim& victim) {
  uint8_t* here = victim.peer().outgoing().data.data();
  const RecordHead head{.tag = victim.peer().secret(),
                        .payload = 0,
                        .header = DDP_TAGGED_HEADER_SIZE,
                        .ranges = 0,
                        .reserved = 0};
  std::memcpy(here, &head, sizeof head);
  ddp::write_header(here + sizeof head,
                    ddpsock::ddp::TaggedHeader{.is_last = true, .rsvd_ulp = 0x40});
  return shm::record_size(DDP_TAGGED_HEADER_SIZE, 0);
}

// A Send of ten bytes, at `at`, as the first.
uint64_t send_first(Victim& victim, uint64_t at) {
  uint8_t* here = victim.peer().outgoing().data.data() + at;
  const RecordHead head{.tag = victim.peer().secret() + at,
                        .payload = 10,
                        .header = DDP_UNTAGGED_HEADER_SIZE,
                        .ranges = 0,
                        .reserved = 0};
  ddp::write_header(here + sizeof head,
                    ddpsock::ddp::UntaggedHeader{
                        .is_last = true, .rsvd_ulp = {.control = 0x43}, .qn = 0, .msn = 1});
  std::memcpy(here, &head, sizeof head);
  return at + shm::record_size(head.header, head.payload);
}

// Records that look right from afar.
void forge(std::mt19937& random, Victim& victim, uint64_t at) {
  MessageLane& lane = victim.peer().outgoing();
  for (int i = 0; i < 8; ++i) {
    uint8_t* here = lane.data.data() + (at & (shm::kMessageRing - 1));
    const bool is_tagged = random() % 2 == 0;
    RecordHead head{.tag = victim.peer().secret() + at,
                    .payload = static_cast<uint32_t>(random() % 4 == 0 ? random() : random() % 700),
                    .header = static_cast<uint8_t>(is_tagged ? 14 : 18),
                    .ranges = 0,
                    .reserved = 0};
    if (random() % 8 == 0) head.header = static_cast<uint8_t>(random());
    if (random() % 8 == 0) head.ranges = static_cast<uint8_t>(random());
    std::memcpy(here, &head, sizeof head);
    for (size_t b = sizeof head; b < 128; ++b) here[b] = static_cast<uint8_t>(random());
    uint8_t* ddp = here + sizeof head;
    if (is_tagged) {
      constexpr uint8_t kOpcodes[] = {0x40, 0x42, 0x41};
      ddp[0] = 0xc1;
      ddp[1] = kOpcodes[random() % 3];
      if (random() % 2 == 0) {
        base::store_be32(ddp + 2, victim.region().stag);
        base::store_be64(ddp + 6, 0x1000 + random() % 600);
      }
    } else {
      ddp[0] = random() % 2 == 0 ? 0x41 : 0x01;
      ddp[1] = static_cast<uint8_t>(0x40 + random() % 12);
      base::store_be32(ddp + 6, random() % 5);
      base::store_be32(ddp + 10, 1 + random() % 3);
      base::store_be32(ddp + 14, random() % 3 * 100);
    }
    at += shm::record_size(is_tagged ? 14 : 18, std::min(head.payload, shm::kMostInRecord));
  }
}

void scribble(std::mt19937& random, MessageLane& lane) {
  switch (random() % 6) {
    case 0:
      lane.reader.head.store(random() % 2 == 0 ? random() : ~uint64_t{0} - random());
      break;
    case 1:
      lane.bell.armed.store(random() % 3);
      break;
    case 2:
      lane.bell.room_wanted.store(random() % 3);
      break;
    case 4:
      lane.habit.is_looking.store(random() % 3);
      break;
    case 3:
      lane.writer.is_revoked.store(random() % 2);
      break;
    default:
      for (int i = 0; i < 64; ++i)
        lane.data[random() % shm::kMessageRing] = static_cast<uint8_t>(random());
  }
}

TEST(MessageHostileTest, WhateverLiesInTheMemoryEndsTheConnectionAtMost) {
  const std::vector<uint8_t> bytes(3000, 1);
  for (int attack = 0; attack < attacks(); ++attack) {
    SCOPED_TRACE(attack);
    std::mt19937 random(static_cast<uint32_t>(attack));
    Victim victim;
    const bool is_open = random() % 2 == 0;
    uint64_t first = is_open ? open_stream(victim) : 0;
    for (int i = 0; is_open && i < 4; ++i) victim.qp().advance(base::now(), {.is_spinning = true});
    Completion done[4];
    if (is_open && random() % 2 == 0) {
      first = send_first(victim, first);
      EXPECT_EQ(victim.qp().receive_directly(done), 1u);
    }
    forge(random, victim, first);
    for (int step = 0; step < 20; ++step) {
      if (random() % 2 == 0) scribble(random, victim.peer().outgoing());
      if (random() % 2 == 0) scribble(random, victim.peer().incoming());
      const Bytes from = Bytes(bytes).first(random() % bytes.size());
      const SendWr work{.op = op::Send{.payload = {&from, 1}}, .is_signalled = false};
      if (random() % 2 == 0) victim.qp().receive_directly(done);
      if (random() % 2 == 0 || victim.qp().send_directly({&work, 1}) == 0)
        (void)victim.qp().send({&work, 1});
      victim.qp().advance(base::now(), {.is_spinning = random() % 2 == 0});
      if (victim.qp().state() == QpState::kRts && random() % 4 != 0) continue;
      victim.qp().abort(std::nullopt);
    }
    victim.close_wire();
    for (int i = 0; i < 1000 && victim.qp().state() != QpState::kEnded; ++i) {
      victim.qp().abort(std::nullopt);
      victim.qp().advance(base::now(), {});
    }
    EXPECT_EQ(victim.qp().state(), QpState::kEnded);
    ASSERT_TRUE(victim.are_canaries_alive());
  }
}

// What the queue pair under test sends to a peer that only looks: record by record.
class Listener {
 public:
  explicit Listener(Victim& victim)
      : lane_(victim.peer().incoming()), reader_(lane_, victim.peer().secret()) {}
  void say(bool is_looking) { reader_.tell_looking(is_looking); }
  // Of the records there are: how many name their payload, and the bytes of all.
  std::pair<int, size_t> take() {
    int named = 0;
    size_t bytes = 0;
    for (shm::MessageReader::Record r; reader_.next(r), r.kind == Kind::kSegment;) {
      named += r.range_count != 0 ? 1 : 0;
      bytes += r.payload;
      reader_.take(r);
    }
    reader_.publish_head();
    return {named, bytes};
  }

 private:
  using Kind = shm::MessageReader::Record::Kind;
  MessageLane& lane_;
  shm::MessageReader reader_;
};

// A large message goes through the ring as long as both ends are there to copy, and no longer.
TEST(MessageHostileTest, WhatIsLargeIsNamedUnlessBothLook) {
  const std::vector<uint8_t> bytes(100'000, 1);
  const Bytes from(bytes);
  const SendWr work{.op = op::Send{.payload = {&from, 1}}, .is_signalled = false};
  for (const bool peer_looks : {false, true})
    for (const bool we_look : {false, true}) {
      SCOPED_TRACE(testing::Message() << peer_looks << we_look);
      Victim victim;
      Listener listener(victim);
      listener.say(peer_looks);
      for (int i = 0; i < 8; ++i) victim.qp().advance(base::now(), {.is_spinning = we_look});
      ASSERT_EQ(victim.qp().send({&work, 1}).accepted, 1u);
      victim.qp().advance(base::now(), {.may_be_readable = false});
      const auto [named, size] = listener.take();
      EXPECT_EQ(named, peer_looks && we_look ? 0 : 1);
      EXPECT_EQ(size, bytes.size());
      // It has left.
      listener.say(false);
      ASSERT_EQ(victim.qp().send({&work, 1}).accepted, 1u);
      victim.qp().advance(base::now(), {.may_be_readable = false});
      EXPECT_EQ(listener.take().first, 1);
    }
}

// What waits for the peer goes on beside messages without end that are taken directly.
TEST(MessageHostileTest, AFloodOfSmallMessagesKeepsNothingFromGoingOn) {
  const std::vector<uint8_t> bytes(100'000, 1);
  const Bytes from(bytes);
  const SendWr work{.id = 77, .op = op::Send{.payload = {&from, 1}}};
  Victim victim;
  Listener listener(victim);
  uint64_t at = open_stream(victim);
  for (int i = 0; i < 8; ++i) victim.qp().advance(base::now(), {.is_spinning = true});
  ASSERT_EQ(victim.qp().send({&work, 1}).accepted, 1u);
  victim.qp().advance(base::now(), {.may_be_readable = false});
  EXPECT_EQ(listener.take().first, 1) << "named, and read by now";
  send_first(victim, at);
  Completion done[4];
  EXPECT_EQ(victim.qp().receive_directly(done), 0u) << "the Send has to be told first";
  victim.qp().advance(base::now(), {.is_spinning = true});
  EXPECT_EQ(victim.sent(), 1u);
}

// One Send of kRoom bytes, which lie at `from` in this process.
void name(Victim& victim, const uint8_t* from, uint64_t length) {
  uint8_t* here = victim.peer().outgoing().data.data();
  const shm::RemoteRange range{.address = reinterpret_cast<uintptr_t>(from), .length = length};
  std::memcpy(here + shm::body_offset(18, sizeof range), &range, sizeof range);
  ddp::write_header(here + sizeof(RecordHead),
                    ddpsock::ddp::UntaggedHeader{
                        .is_last = true, .rsvd_ulp = {.control = 0x43}, .qn = 0, .msn = 1});
  const RecordHead head{.tag = victim.peer().secret(),
                        .payload = Victim::kRoom,
                        .header = 18,
                        .ranges = 1,
                        .reserved = 0};
  std::memcpy(here, &head, sizeof head);
}

// What lies there before the end of the wire is done in turns, however much it names.
TEST(MessageHostileTest, ManyNamedWritesBehindTheEndAreDoneInTurns) {
  constexpr int kWrites = 64;
  constexpr uint32_t kBudget = 4 * Victim::kRoom;
  Victim victim;
  MessageLane& lane = victim.peer().outgoing();
  const std::vector<uint8_t> bytes(Victim::kRoom, 0x17);
  const shm::RemoteRange range{.address = reinterpret_cast<uintptr_t>(bytes.data()),
                               .length = bytes.size()};
  uint64_t end = 0;
  for (int i = 0; i < kWrites; ++i) {
    uint8_t* here = lane.data.data() + end;
    const RecordHead head{.tag = victim.peer().secret() + end,
                          .payload = Victim::kRoom,
                          .header = DDP_TAGGED_HEADER_SIZE,
                          .ranges = 1,
                          .reserved = 0};
    std::memcpy(here + shm::body_offset(head.header, sizeof range), &range, sizeof range);
    ddp::write_header(
        here + sizeof head,
        ddpsock::ddp::TaggedHeader{
            .is_last = true, .rsvd_ulp = 0x40, .stag = victim.writable_region().stag, .to = 0});
    std::memcpy(here, &head, sizeof head);
    end += shm::record_size(head.header, sizeof range);
  }
  victim.end_wire();
  const auto done = [&] { return lane.reader.head.load(); };
  victim.qp().advance(base::now(), {.bytes = kBudget});
  EXPECT_GT(done(), 0u);
  EXPECT_LE(done(), end / kWrites * (kBudget / Victim::kRoom));
  for (int i = 0; i < kWrites && done() < end; ++i)
    victim.qp().advance(base::now(), {.bytes = kBudget});
  EXPECT_EQ(done(), end);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), victim.room(10).begin()));
}

TEST(MessageHostileTest, WhatTheOwnerKeepsIsDelivered) {
  Victim victim;
  const std::vector<uint8_t> bytes(Victim::kRoom, 0x17);
  name(victim, bytes.data(), bytes.size());
  victim.qp().advance(base::now(), {});
  EXPECT_EQ(victim.received(), 1u);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), victim.room(3).begin()));
}

TEST(MessageHostileTest, WhatTheOwnerTookBackIsNotDelivered) {
  Victim victim;
  const std::vector<uint8_t> bytes(Victim::kRoom, 0x17);
  name(victim, bytes.data(), bytes.size());
  victim.peer().outgoing().writer.is_revoked.store(1);
  victim.qp().advance(base::now(), {});
  EXPECT_EQ(victim.received(), 0u);
  EXPECT_EQ(victim.qp().state(), QpState::kEnded);
}

TEST(MessageHostileTest, MemoryThatIsNotThereIsNotDelivered) {
  const std::vector<uint8_t> bytes(Victim::kRoom, 0x17);
  const uint8_t* nowhere = reinterpret_cast<const uint8_t*>(uintptr_t{4096});
  const struct {
    const uint8_t* from;
    uint64_t length;
  } bad[] = {{nowhere, Victim::kRoom},
             {bytes.data(), Victim::kRoom - 8},
             {bytes.data(), ~uint64_t{0}},
             {bytes.data(), 0}};
  for (const auto& named : bad) {
    Victim victim;
    name(victim, named.from, named.length);
    victim.qp().advance(base::now(), {});
    EXPECT_EQ(victim.received(), 0u) << named.length;
    EXPECT_EQ(victim.qp().state(), QpState::kEnded);
    EXPECT_TRUE(victim.are_canaries_alive());
  }
}

// Whoever it says it is: a thread of ours, or a process that shares our memory.
TEST(MessageHostileTest, WeAreNotReadForAPeer) {
  const uint64_t secret = 0x1234'5678;
  const auto can_read = [&](pid_t pid) {
    const auto at = reinterpret_cast<uintptr_t>(&secret);
    return shm::PeerProcess(static_cast<uint32_t>(pid), at, secret).can_read();
  };
  EXPECT_FALSE(can_read(getpid()));
  std::atomic<pid_t> thread_id = 0;
  std::atomic<bool> may_end = false;
  std::thread thread([&] {
    thread_id = gettid();
    while (!may_end) std::this_thread::yield();
  });
  while (thread_id == 0) std::this_thread::yield();
  EXPECT_FALSE(can_read(thread_id));
  may_end = true;
  thread.join();
  alignas(16) static char stack[64 * 1024];
  const auto sleep = [](void*) {
    pause();
    return 0;
  };
  const pid_t sharer = clone(sleep, stack + sizeof stack, CLONE_VM | SIGCHLD, nullptr);
  ASSERT_GT(sharer, 0);
  EXPECT_FALSE(can_read(sharer));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_TRUE(can_read(child));
  for (const pid_t one : {sharer, child}) {
    kill(one, SIGKILL);
    ASSERT_EQ(waitpid(one, nullptr, 0), one);
  }
}

// A file that this process has mapped for another connection has the secret where that lies.
TEST(MessageHostileTest, TheSameFileOfferedTwiceDoesNotHaveUsReadOurselves) {
  auto first = MessageMemory::make({});
  ASSERT_TRUE(first);
  const auto fd = static_cast<uint32_t>((*first)->descriptor());
  auto second = MessageMemory::join(static_cast<uint32_t>(getpid()), fd, {});
  ASSERT_TRUE(second);
  EXPECT_TRUE((*first)->settle());
  EXPECT_FALSE((*first)->may_name());
  EXPECT_FALSE((*second)->may_name());
}

// Ranges that bring more than there is room for would put the peer's bytes where the proof goes.
TEST(MessageHostileTest, LongerRangesAreNoProof) {
  const uint64_t secret = 0x1234'5678, planted[2] = {secret, 1};
  const auto self = static_cast<uint32_t>(getpid());
  const auto at = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  uint64_t room = 0;
  const MutBytes to(reinterpret_cast<uint8_t*>(&room), sizeof room);
  const shm::PeerProcess nobody(self, at(&secret) + 4096 * 1024, secret);
  const shm::RemoteRange longer[2] = {{at(planted), 8}, {at(planted), 16}};
  EXPECT_FALSE(nobody.read(longer, {&to, 1}));
  const OwnMemoryIsAPeers both_ends_are_here;
  const shm::PeerProcess self_by_secret(self, at(&secret), secret);
  EXPECT_TRUE(self_by_secret.read({longer, 1}, {&to, 1}));
  EXPECT_FALSE(self_by_secret.read(longer, {&to, 1}));
  const shm::RemoteRange shorter{at(planted), 4};
  EXPECT_FALSE(self_by_secret.read({&shorter, 1}, {&to, 1}));
  const shm::RemoteRange wraps[2] = {{at(planted), ~uint64_t{0}}, {at(planted), 9}};
  EXPECT_FALSE(self_by_secret.read(wraps, {&to, 1}));
}

// The word of the page at `page` that points into it is where the peer says the secret lies.
uint64_t* find_pointer_into(uint8_t* page) {
  auto* words = reinterpret_cast<uint64_t*>(page);
  for (size_t i = 0; i < 512; ++i)
    if (words[i] - reinterpret_cast<uintptr_t>(page) < 4096) return &words[i];
  return nullptr;
}
uint8_t* mapping_of(std::string_view name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(name) != std::string::npos)
      return reinterpret_cast<uint8_t*>(std::stoull(line, nullptr, 16));
  return nullptr;
}

// A secret that the peer has chosen may be what lies in a third process anyhow.
TEST(MessageHostileTest, ASecretThatLiesElsewhereProvesNothing) {
  auto made = MessageMemory::make({});
  ASSERT_TRUE(made);
  uint8_t* page = mapping_of("memfd:ddpsock-message");
  ASSERT_NE(page, nullptr);
  uint64_t* secret_at = find_pointer_into(page);
  ASSERT_NE(secret_at, nullptr);
  const uint64_t planted = (*made)->secret();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  *secret_at = reinterpret_cast<uintptr_t>(&planted);
  auto* pid = reinterpret_cast<std::atomic<uint32_t>*>(secret_at) - 2;
  ASSERT_EQ(pid->load(), static_cast<uint32_t>(getpid()));
  *pid = static_cast<uint32_t>(child);
  auto joined = MessageMemory::join(static_cast<uint32_t>(getpid()),
                                    static_cast<uint32_t>((*made)->descriptor()), {});
  ASSERT_TRUE(joined);
  EXPECT_FALSE((*joined)->can_read_peer());
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

// Where the process that a peer says it is has not mapped the connection's memory, or is ourselves.
TEST(MessageHostileTest, OnlyTheProcessWithTheSecretIsRead) {
  const uint64_t secret = 0x1234'5678;
  const auto at = reinterpret_cast<uintptr_t>(&secret);
  const auto self = static_cast<uint32_t>(getpid());
  const OwnMemoryIsAPeers both_ends_are_here;
  EXPECT_TRUE(shm::PeerProcess(self, at, secret).can_read());
  EXPECT_FALSE(shm::PeerProcess(self, at, secret + 1).can_read());
  EXPECT_FALSE(shm::PeerProcess(self, at + 4096 * 1024, secret).can_read());
  EXPECT_FALSE(shm::PeerProcess(0, at, secret).can_read());
  EXPECT_FALSE(shm::PeerProcess(~0u, at, secret).can_read());
  EXPECT_FALSE(shm::PeerProcess().can_read());
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_TRUE(shm::PeerProcess(static_cast<uint32_t>(child), at, secret).can_read());
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(shm::PeerProcess(static_cast<uint32_t>(child), at, secret).can_read());
}

}  // namespace
}  // namespace ddpsock::engine
