// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A peer of this host and user that means harm: it speaks MPA itself, owns half of the memory or
// all of it, and writes there what it likes. It may end its own connection and nothing else.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/process.h"
#include "mpa/startup_frame.h"
#include "shm/segment.h"
#include "stream/chunk.h"
#include "stream/hello.h"
#include "stream/stream_testing.h"
#include "stream/user_stream.h"

namespace ddpsock::engine {
namespace {

constexpr size_t kPage = 4096;

// The hostile end of `fd`, either one.
class Attacker {
 public:
  explicit Attacker(int fd) : fd_(fd) {}
  ~Attacker() {
    if (segment_ != nullptr) segment_->unmap();
  }
  Attacker(const Attacker&) = delete;

  // As the connecting end: makes memory, and offers it.
  void make_memory() {
    auto made = shm::Segment::make();
    ASSERT_TRUE(made.has_value());
    segment_ = made->segment;
    memory_ = std::move(made->fd);
    secret_ = made->secret;
  }
  void send_request() {
    send_request(stream::MemoryOffer{own_pid(), static_cast<uint32_t>(memory_.get()), secret_});
  }
  void send_request(std::optional<stream::MemoryOffer> offer) {
    stream::Hello hello{.max_payload = 60'000};
    hello.memory = offer;
    send_start_frame(mpa::FrameKind::kRequest, hello);
  }

  void send_bytes(Bytes bytes) {
    ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  // As the accepting end: takes what the victim offers. REQUIRES: it has sent its Request.
  void join() {
    uint8_t bytes[4096];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, MSG_PEEK);
    ASSERT_GT(n, 0);
    const auto view =
        mpa::StartupView::over({bytes, static_cast<size_t>(n)}, mpa::FrameKind::kRequest);
    ASSERT_TRUE(view.has_value());
    const auto frame = mpa::StartupFrame::from(*view);
    ASSERT_TRUE(frame.has_value());
    const auto hello = stream::decode_hello(frame->private_data);
    ASSERT_TRUE(hello && hello->memory);
    ASSERT_EQ(::recv(fd_, bytes, view->size(), 0), static_cast<ssize_t>(view->size()));
    const std::string path = "/proc/self/fd/" + std::to_string(hello->memory->fd);
    memory_.reset(open(path.c_str(), O_RDWR | O_CLOEXEC));
    const auto segment =
        shm::Segment::open({hello->memory->pid, hello->memory->fd, hello->memory->secret});
    ASSERT_TRUE(segment.has_value());
    segment_ = *segment;
    ASSERT_TRUE(segment_->joining().join());
    victims_end_ = shm::End::kConnected;
    send_start_frame(mpa::FrameKind::kReply, {.max_payload = 60'000});
  }

  void send_chunk(uint32_t payload) {
    Buffer f(chunk_size(payload), 0);
    write_chunk_header(f.data(), payload, msn_++);
    base::store_le32(f.data() + f.size() - 4, base::crc32c(Bytes(f).first(f.size() - 4)));
    static_cast<void>(::send(fd_, f.data(), f.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }

  // Seen from the victim.
  shm::Lane& lane_in() {
    return segment_->lane_from(victims_end_ == shm::End::kConnected ? shm::End::kAccepted
                                                                    : shm::End::kConnected);
  }
  shm::Lane& lane_out() { return segment_->lane_from(victims_end_); }
  // The victim's word for it that all FPDUs were sent: from now on octets follow.
  void move_to_memory() {
    lane_in().writer.fpdus.store(msn_);
    ASSERT_TRUE(segment_->move(segment_->phase()));
  }
  bool stay_on_wire() { return segment_->stay_on_wire(); }
  uint64_t phase_now() const { return segment_->phase(); }
  void ring() {
    lane_in().writer.octets.fetch_add(1);
    lane_in().writer.settled_octets.fetch_add(1);
    ASSERT_EQ(::send(fd_, "", 1, MSG_NOSIGNAL), 1);
  }
  const base::UniqueFd& memory() const { return memory_; }
  const shm::Secret& secret() const { return secret_; }
  uint32_t next_msn() const { return msn_; }
  static uint32_t own_pid() { return static_cast<uint32_t>(getpid()); }

  // One of the kinds whose bit is set in `kinds`: some end the connection at once, and others are
  // worth a longer life.
  static constexpr unsigned kKinds = 22;
  void do_harm(std::mt19937_64& rng, uint32_t kinds) {
    const auto kind = static_cast<unsigned>(rng() % kKinds);
    if ((kinds >> kind & 1) == 0) return;
    shm::Lane& lane = rng() % 2 == 0 ? lane_in() : lane_out();
    const uint64_t lie = rng() >> (rng() % 64);
    const auto small_lie = static_cast<uint32_t>(lie);
    switch (kind) {
      case 0:
        return lane.writer.tail.store(lie);
      case 1:
        return static_cast<void>(lane.writer.tail.fetch_add(rng() % 5000));
      case 2:
        return static_cast<void>(lane.writer.tail.fetch_xor(shm::kClosedBit));
      case 3:
        return lane.writer.base.store(lie);
      case 4:
        return lane.writer.ring_from.store(rng() % 2 == 0 ? lie : lane.writer.tail.load());
      case 5:
        return lane.writer.fpdus.store(rng() % 2 == 0 ? small_lie : msn_ + small_lie % 3);
      case 6:
        lane.writer.keeps_spill.store(small_lie % 2);
        return lane.writer.spill_from.store(rng() % 2 == 0 ? lie : lane.writer.tail.load());
      case 7:
        return (rng() % 2 == 0 ? lane.writer.octets : lane.writer.settled_octets)
            .store(rng() % 2 == 0 ? lie : rng() % 200'000);
      case 8:
        return lane.writer.cpu.store(small_lie);
      case 9:
        return lane.reader.head.store(rng() % 2 == 0 ? lie : lane.writer.tail.load());
      case 10:
        return lane.reader.next_fpdu.store(small_lie);
      case 11:
        return lane.reader.cpu.store(small_lie);
      case 12:
        return lane.bell.armed.store(small_lie);
      case 13:
        return lane.bell.room_wanted.store(small_lie);
      case 14:
        return write_anywhere(rng);
      case 15:
        return punch_a_hole(rng);
      case 16: {
        uint8_t waste[4096];
        return static_cast<void>(::recv(fd_, waste, 1 + rng() % sizeof waste, MSG_DONTWAIT));
      }
      case 17:
        return lane.writer.last_octet.store(rng() % 2 == 0 ? lie : rng() % 3);
      case 18:
        return lane.writer.is_resetting.store(small_lie);
      case 19:
        return static_cast<void>(phase().fetch_xor(uint64_t{1} << rng() % 6));
      case 20: {  // filler, announced or not, more or less of it
        const Buffer filler(1 + rng() % 70'000, static_cast<uint8_t>(lie));
        if (rng() % 2 == 0) lane_in().writer.octets.fetch_add(filler.size() + lie % 3);
        return static_cast<void>(
            ::send(fd_, filler.data(), filler.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
      }
      default:
        return send_chunk(rng() % 3 == 0 ? static_cast<uint32_t>(rng() % 3000) : 0);
    }
  }

 private:
  void send_start_frame(mpa::FrameKind kind, const stream::Hello& words) {
    std::array<uint8_t, DDPSOCK_HELLO_MAX_SIZE> hello;
    const auto hello_size = stream::encode(hello, words);
    ASSERT_TRUE(hello_size.has_value());
    mpa::StartupFrame frame{.kind = kind, .private_data = Bytes(hello).first(*hello_size)};
    frame.enhanced = mpa::Enhanced{};
    uint8_t bytes[512];
    const auto size = mpa::write_startup(frame, bytes);
    ASSERT_TRUE(size.has_value());
    ASSERT_EQ(::send(fd_, bytes, *size, MSG_NOSIGNAL), static_cast<ssize_t>(*size));
  }

  std::atomic<uint64_t>& phase() {
    auto& lane = segment_->lane_from(shm::End::kConnected);
    return reinterpret_cast<shm::SegmentHead*>(lane.reserved.data())->phase;
  }

  // Any word of all that is mapped, the control words more often than others.
  void write_anywhere(std::mt19937_64& rng) {
    auto* lane = reinterpret_cast<uint8_t*>(rng() % 2 == 0 ? &lane_in() : &lane_out());
    const size_t size = rng() % 4 == 0 ? sizeof(shm::Lane) : offsetof(shm::Lane, small);
    auto* word = reinterpret_cast<std::atomic<uint64_t>*>(lane + rng() % size / 8 * 8);
    word->store(rng() >> (rng() % 64), std::memory_order_relaxed);
  }
  void punch_a_hole(std::mt19937_64& rng) {
    const off_t pages = lseek(memory_.get(), 0, SEEK_END) / static_cast<off_t>(kPage);
    const off_t some = rng() % 2 == 0 ? pages : 2;
    const auto first = static_cast<off_t>(rng() % static_cast<uint64_t>(some));
    fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              first * static_cast<off_t>(kPage), static_cast<off_t>((1 + rng() % 8) * kPage));
  }

  const int fd_;
  shm::Segment* segment_ = nullptr;
  base::UniqueFd memory_;
  shm::Secret secret_{};
  shm::End victims_end_ = shm::End::kAccepted;
  uint32_t msn_ = DDP_FIRST_MSN;
};

void set_short_timeouts(int fd) {
  const timeval limit{0, 2'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// The victim has accepted, and has joined what the attacker offered.
class HostilePeer : public testing::Test {
 protected:
  HostilePeer() {
    set_short_timeouts(tcp.server);
    attacker.make_memory();
  }
  void start() {
    attacker.send_request();
    attacker.send_chunk(1);
    EXPECT_EQ(b.recv(1).size(), 1u);
    EXPECT_STREQ(b.s->status().engine, "shm");
    attacker.move_to_memory();
  }

  static constexpr size_t kAtMost = size_t{40} << 20, kFlood = size_t{96} << 20;
  static constexpr const char* kNoRoom =
      "SO_SNDBUFFORCE is needed, for a socket that holds a flood";
  size_t lying() const {
    int unsent = 0, unread = 0;
    ioctl(tcp.client, SIOCOUTQNSD, &unsent);
    ioctl(b.fd, FIONREAD, &unread);
    return static_cast<size_t>(unsent) + static_cast<size_t>(unread);
  }
  // So many octets that nobody has announced, or the sender's kernel has no room for them.
  bool flood() {
    const int room = 2 * static_cast<int>(kFlood);
    setsockopt(tcp.client, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    const Buffer octets(64 * 1024);
    while (lying() < kFlood &&
           ::send(tcp.client, octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
      continue;
    return lying() >= kFlood;
  }

  TcpPair tcp;
  Attacker attacker{tcp.client};
  MemoryEnd b{tcp.server, Role::kResponder};
};

TEST_F(HostilePeer, NonsenseEndsItsConnectionOnly) {
  start();
  attacker.lane_in().writer.tail.store(1 << 30);
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1).error, ECONNRESET);
  EXPECT_EQ(b.send(pattern(1), MSG_NOSIGNAL).error, EPIPE);
  EXPECT_NE(b.s->status().failure, nullptr);
}

// What only recv noticed kept these busy for ever.
TEST_F(HostilePeer, NonsenseIsFoundByLooksAndPollersToo) {
  start();
  attacker.lane_in().writer.tail.store(1 << 30);
  attacker.ring();
  EXPECT_TRUE(b.s->is_recv_ready(b.fd));
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_PEEK | MSG_DONTWAIT).error, ECONNRESET);
  EXPECT_NE(b.s->status().failure, nullptr);
}

TEST_F(HostilePeer, ATailThatMovesUnderTheWriterEndsIt) {
  start();
  EXPECT_EQ(b.send(pattern(10)).count, 10);
  attacker.lane_out().writer.tail.store(7);
  EXPECT_EQ(b.send(pattern(10), MSG_NOSIGNAL).error, ECONNRESET);
}

// Whoever has joined it reads what the other end writes into it: to go on without would lose bytes.
TEST_F(HostilePeer, AnOfferThatSomebodyElseHasTakenEndsTheConnection) {
  start();
  TcpPair other;
  MemoryEnd second(other.server, Role::kResponder);
  Attacker again(other.client);
  again.send_request(stream::MemoryOffer{
      Attacker::own_pid(), static_cast<uint32_t>(attacker.memory().get()), attacker.secret()});
  again.send_chunk(5);
  uint8_t bytes[5];
  EXPECT_EQ(second.recv(bytes, sizeof bytes).error, ECONNRESET);
  EXPECT_NE(second.s->status().failure, nullptr);
  attacker.lane_in().writer.tail.store(7);
  EXPECT_EQ(b.recv(7).size(), 7u) << "the first is not disturbed";
}

// Nothing is said there of FPDUs any more.
TEST_F(HostilePeer, AStreamThatStaysOnTheWireLeavesTheMemoryAlone) {
  attacker.send_request();
  attacker.send_chunk(1);
  EXPECT_EQ(b.recv(1).size(), 1u);
  ASSERT_TRUE(attacker.stay_on_wire());
  EXPECT_EQ(b.send(pattern(10)).count, 10);
  const uint64_t phase = attacker.phase_now();
  EXPECT_EQ(b.send(pattern(10)).count, 10);
  EXPECT_EQ(attacker.phase_now(), phase);
  for (int i = 0; i < 2; ++i) attacker.send_chunk(1);
  EXPECT_EQ(b.recv(1).size(), 1u);
  EXPECT_EQ(b.recv(1).size(), 1u);
}

// What is kept of a ring is bounded by the ring, whatever is published while it is left.
TEST_F(HostilePeer, ALaneThatGrowsWhileItIsLeftYieldsNoMoreThanARing) {
  start();
  shm::Lane& lane = attacker.lane_in();
  lane.writer.ring_from.store(0);
  lane.writer.spill_from.store(shm::kRingSize);
  lane.writer.tail.store(shm::kMostBytes);
  attacker.ring();
  std::atomic<bool> is_over{false};
  std::thread grower([&] {
    while (!is_over) lane.writer.tail.store(lane.reader.head.load() + shm::kMostBytes);
  });
  b.s->leave_memory(b.fd);
  is_over = true;
  grower.join();
  Buffer room(3 * shm::kMostBytes);
  const ssize_t kept = b.recv(room.data(), room.size(), MSG_DONTWAIT).count;
  EXPECT_GT(kept, 0);
  EXPECT_LE(kept, static_cast<ssize_t>(shm::kMostBytes));
  EXPECT_EQ(b.recv(room.data(), room.size(), MSG_DONTWAIT).error, EAGAIN);
}

// Filler that nobody announced, or that never comes, costs this connection and no time.
TEST_F(HostilePeer, FillerIsTakenAsFarAsItIsCounted) {
  start();
  Buffer room(100);
  EXPECT_EQ(b.recv(room.data(), room.size(), MSG_DONTWAIT).error, EAGAIN);
  for (int i = 0; i < 20; ++i) attacker.ring();
  attacker.lane_in().writer.octets.fetch_add(1'000'000);
  EXPECT_EQ(b.recv(room.data(), room.size(), MSG_DONTWAIT).error, EAGAIN);
  EXPECT_FALSE(kernel_says_readable(b.fd));
  attacker.lane_in().writer.tail.store(10);
  EXPECT_EQ(b.recv(room.data(), room.size(), MSG_DONTWAIT).count, 10);
  b.release();
}

// How many octets a call eats is not the peer's to say, who can send as fast as they are eaten. A
// call may eat twice.
TEST_F(HostilePeer, NoCallEatsOctetsWithoutEnd) {
  start();
  attacker.lane_in().writer.octets.fetch_add(uint64_t{1} << 31);
  attacker.lane_in().writer.settled_octets.fetch_add(uint64_t{1} << 31);
  const auto expect_an_end = [&](const char* what, auto call) {
    if (!flood()) return false;
    call();
    EXPECT_GT(lying(), kFlood - kAtMost) << what;
    return true;
  };
  const bool has_room = expect_an_end("recv", [&] {
    attacker.lane_in().writer.tail.fetch_add(1);
    EXPECT_EQ(b.recv(100, MSG_DONTWAIT).size(), 1u);
  });
  uint8_t byte;
  if (!has_room) GTEST_SKIP() << kNoRoom;
  expect_an_end("recv in vain", [&] { EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN); });
  expect_an_end("poll", [&] { b.s->is_recv_ready(b.fd); });
  expect_an_end("settle", [&] { b.s->settle(b.fd); });
  expect_an_end("close", [&] { b.release(); });
}

TEST_F(HostilePeer, NoCallEatsOctetsWithoutEndBehindBytesLeftOver) {
  attacker.send_request();
  attacker.send_chunk(1);
  EXPECT_EQ(b.recv(1).size(), 1u);
  attacker.send_chunk(1);
  attacker.move_to_memory();
  attacker.lane_in().writer.octets.store(uint64_t{1} << 31);
  attacker.lane_in().writer.settled_octets.store(uint64_t{1} << 31);
  b.s->leave_memory(b.fd);
  EXPECT_EQ(b.recv(1).size(), 1u);
  if (!flood()) GTEST_SKIP() << kNoRoom;
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
  EXPECT_GT(lying(), kFlood - kAtMost);
}

// TCP counts SO_RCVTIMEO from when the call began to wait, not from the last octet; and a call that
// must not wait ends, however fast they come.
TEST_F(HostilePeer, OctetsWithoutBytesProlongNoCall) {
  start();
  constexpr Duration kMost = Duration::from_ms(10'000);
  for (const int pause_us : {500, 0}) {
    for (const int flags :
         {0, int{MSG_PEEK}, int{MSG_WAITALL}, int{MSG_DONTWAIT}, MSG_DONTWAIT | MSG_PEEK}) {
      std::atomic<bool> is_over{false};
      bool has_given_up = false;
      std::thread ringer([&] {
        for (const Time start = base::now(); !is_over && !has_given_up;) {
          attacker.ring();
          if (pause_us > 0) usleep(static_cast<useconds_t>(pause_us));
          has_given_up = base::now() - start > kMost;
        }
      });
      Buffer room(100);
      EXPECT_EQ(b.recv(room.data(), room.size(), flags).error, EAGAIN);
      is_over = true;
      ringer.join();
      EXPECT_FALSE(has_given_up) << pause_us << ' ' << flags;
      EXPECT_EQ(b.recv(room.data(), room.size(), MSG_DONTWAIT).error, EAGAIN);
    }
  }
}

// A poller that called such a socket idle would be woken by it for ever.
TEST_F(HostilePeer, AnOctetThatWasNotCountedIsFoundByPollersToo) {
  start();
  attacker.send_bytes(Buffer{0});
  ASSERT_TRUE(kernel_says_readable(b.fd));
  EXPECT_TRUE(b.s->is_recv_ready(b.fd));
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, ECONNRESET);
  EXPECT_NE(b.s->status().failure, nullptr);
}

// How far this end has read it knows by itself.
TEST_F(HostilePeer, AHeadThatGoesBackIsNoBytes) {
  start();
  shm::Lane& lane = attacker.lane_in();
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
  ASSERT_TRUE(b.s->glance().is_in_memory);
  ASSERT_FALSE(b.s->glance().is_wire_in_use);
  EXPECT_FALSE(b.s->glance().has_bytes);
  lane.reader.head.store(lane.writer.tail.load() - 1);
  EXPECT_FALSE(b.s->glance().has_bytes);
  lane.reader.head.store(lane.writer.tail.load() + 1);
  EXPECT_FALSE(b.s->glance().has_bytes);
}

class HostilePeerOfACall : public HostilePeer, public testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Flags, HostilePeerOfACall,
                         testing::Values(0, MSG_DONTWAIT, MSG_PEEK, MSG_PEEK | MSG_DONTWAIT));

// It says that it has left the memory, behind octets of which there will be none.
TEST_P(HostilePeerOfACall, AnOctetBeforeTheLastThatWasNotCountedHoldsNobody) {
  start();
  attacker.lane_in().writer.last_octet.store(1000);
  attacker.send_bytes(Buffer{0});
  ASSERT_TRUE(kernel_says_readable(b.fd));
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, GetParam()).error, ECONNRESET);
  EXPECT_NE(b.s->status().failure, nullptr);
}

// What the offer names is looked at and left: the connection stays with the user engine.
TEST(HostileOffer, OfSomethingElseIsNotTaken) {
  const base::UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  int fifo[2];
  ASSERT_EQ(pipe2(fifo, O_CLOEXEC), 0);
  const base::UniqueFd fifo_in(fifo[0]), fifo_out(fifo[1]);
  const base::UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const auto memory_named = [](const char* name, unsigned flags) {
    base::UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
    if (fd.is_valid() && ftruncate(fd.get(), 2 << 20) == 0)
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return fd;
  };
  const base::UniqueFd huge = memory_named("ddpsock-stream", MFD_HUGETLB);
  const base::UniqueFd large = memory_named("ddpsock-stream", 0);
  const base::UniqueFd folder(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const int fd : {null.get(), fifo_in.get(), fifo_out.get(), file.get(), huge.get(),
                       large.get(), folder.get(), 1 << 30}) {
    TcpPair tcp;
    MemoryEnd b(tcp.server, Role::kResponder);
    Attacker attacker(tcp.client);
    attacker.send_request(stream::MemoryOffer{Attacker::own_pid(), static_cast<uint32_t>(fd), {}});
    attacker.send_chunk(100);
    EXPECT_EQ(b.recv(100).size(), 100u) << fd;
    EXPECT_EQ(b.send(pattern(100)).count, 100) << fd;
    EXPECT_STREQ(b.s->status().engine, "user") << fd;
  }
}

// It cannot be written, or no more: no mapping, no signal.
TEST(HostileOffer, OfMemoryThatMayNotBeWrittenIsNotTaken) {
  auto made = shm::Segment::make();
  ASSERT_TRUE(made.has_value());
  const off_t size = lseek(made->fd.get(), 0, SEEK_END);
  for (const int seal : {F_SEAL_FUTURE_WRITE, F_SEAL_WRITE}) {
    const base::UniqueFd fd(memfd_create("ddpsock-stream", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(fd.get(), size), 0);
    void* p =
        mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(p, MAP_FAILED);
    std::memcpy(p, made->segment, kPage);
    if (seal == F_SEAL_WRITE) munmap(p, static_cast<size_t>(size));
    ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, seal | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    TcpPair tcp;
    MemoryEnd b(tcp.server, Role::kResponder);
    Attacker attacker(tcp.client);
    attacker.send_request(
        stream::MemoryOffer{Attacker::own_pid(), static_cast<uint32_t>(fd.get()), made->secret});
    attacker.send_chunk(100);
    EXPECT_EQ(b.recv(100).size(), 100u);
    EXPECT_STREQ(b.s->status().engine, "user");
    if (seal != F_SEAL_WRITE) munmap(p, static_cast<size_t>(size));
  }
  made->segment->unmap();
}

// FPDUs without payload are bells where there is memory, and nothing where there is none. The
// kernel calls a socket with one readable, and one that looks must not take that for bytes.
class EmptySegments : public testing::Test {
 protected:
  EmptySegments() {
    attacker.send_request(std::nullopt);
    attacker.send_chunk(1);
    EXPECT_EQ(b.recv(1).size(), 1u);
    for (int i = 0; i < 100; ++i) attacker.send_chunk(0);
  }
  int error_of_look() {
    uint8_t byte;
    return b.recv(&byte, 1, MSG_PEEK).error;
  }

  TcpPair tcp;
  Attacker attacker{tcp.client};
  End b{tcp.server, Role::kResponder};
};

TEST_F(EmptySegments, ALookEndsWhenItsTimeIsOver) {
  set_short_timeouts(b.fd);
  EXPECT_EQ(error_of_look(), EAGAIN);
  EXPECT_FALSE(kernel_says_readable(b.fd));
}

TEST_F(EmptySegments, ALookEndsWithTheStream) {
  ::shutdown(tcp.client, SHUT_WR);
  EXPECT_EQ(error_of_look(), 0);
}

TEST_F(EmptySegments, BeforeABeginningOfAnFpdu) {
  set_short_timeouts(b.fd);
  uint8_t header[kChunkHeader];
  write_chunk_header(header, 10, attacker.next_msn());
  attacker.send_bytes(Bytes(header).first(7));
  EXPECT_EQ(error_of_look(), EAGAIN);
  EXPECT_FALSE(kernel_says_readable(b.fd));
}

TEST_F(EmptySegments, AreNotReadyToBeReceived) {
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(b.s->is_recv_ready(b.fd));
  EXPECT_FALSE(kernel_says_readable(b.fd));
  attacker.send_chunk(3);
  EXPECT_TRUE(b.s->is_recv_ready(b.fd));
  EXPECT_EQ(b.recv(3).size(), 3u);
}

// One connection with honest ends, in the process that is attacked.
class Bystander {
 public:
  void exchange(size_t size) {
    const Buffer m = pattern(size, ++seed_);
    ASSERT_EQ(a_.send(m).count, static_cast<ssize_t>(m.size()));
    ASSERT_EQ(b_.recv(size, MSG_WAITALL), m);
    std::swap(a_.s, b_.s);
    std::swap(a_.fd, b_.fd);
  }
  bool is_in_memory() const { return std::string(a_.s->status().engine) == "shm"; }

 private:
  TcpPair tcp_;
  MemoryEnd a_{tcp_.client, Role::kInitiator}, b_{tcp_.server, Role::kResponder};
  uint32_t seed_ = 0;
};

std::atomic<uint64_t> round_seed;

void say_round_and_end(int) {
  char text[64];
  const int n = snprintf(text, sizeof text, "hangs: DDPSOCK_SEED=%llu\n",
                         static_cast<unsigned long long>(round_seed.load()));
  static_cast<void>(!write(STDERR_FILENO, text, static_cast<size_t>(n)));
  abort();
}

// Everything that a program can do with a connection, whatever comes of it.
void use(End& end, std::mt19937_64& rng, Buffer& room) {
  const int flags = MSG_NOSIGNAL | (rng() % 2 == 0 ? MSG_DONTWAIT : 0);
  const size_t size = 1 + rng() % (size_t{1} << rng() % 18);
  Io io = Io::ok(0);
  switch (rng() % 10) {
    case 0:
    case 1:
    case 2:
      io = end.recv(room.data(), size, flags);
      break;
    case 3:
      io = end.recv(room.data(), size, flags | MSG_PEEK);
      break;
    case 4:
      io = end.s->readable(end.fd, false);
      break;
    case 5:
      static_cast<void>(end.s->is_recv_ready(end.fd));
      break;
    case 6:
      static_cast<void>(end.s->glance());
      end.s->set_watcher(rng() % 2 == 0 ? base::thread_id() : 0);
      end.s->settle(end.fd);
      break;
    default: {
      const iovec v{room.data(), size};
      io = end.s->send(end.fd, {&v, 1}, flags);
      break;
    }
  }
  const bool is_clean = io.is_ok() || io.error == EAGAIN || io.error == ECONNRESET ||
                        io.error == EPIPE || io.error == EPROTO;
  EXPECT_TRUE(is_clean) << strerror(io.error);
  EXPECT_LE(io.count, static_cast<ssize_t>(shm::kMostBytes));
}

void attack_once(uint64_t seed, Bystander& bystander) {
  std::mt19937_64 rng(seed);
  const bool is_victim_client = rng() % 2 == 0;
  TcpPair tcp(20'000, 20'000);
  const int victims_fd = is_victim_client ? tcp.client : tcp.server;
  Attacker attacker(is_victim_client ? tcp.server : tcp.client);
  set_short_timeouts(victims_fd);
  MemoryEnd victim(victims_fd, is_victim_client ? Role::kInitiator : Role::kResponder);
  if (is_victim_client) {
    ASSERT_EQ(victim.send(pattern(1)).count, 1);
    attacker.join();
  } else {
    attacker.make_memory();
    attacker.send_request();
    attacker.send_chunk(1);
    ASSERT_EQ(victim.recv(1).size(), 1u);
  }
  if (testing::Test::HasFatalFailure()) return;
  std::atomic<bool> is_over{false};
  const auto kinds = static_cast<uint32_t>(rng() & rng());
  std::thread harm([&attacker, &is_over, kinds, rng_of_harm = std::mt19937_64(rng())]() mutable {
    while (!is_over) {
      attacker.do_harm(rng_of_harm, kinds);
      if (rng_of_harm() % 4 == 0) usleep(static_cast<useconds_t>(rng_of_harm() % 20));
    }
  });
  Buffer room(1 << 18);
  const int calls = 1 + static_cast<int>(rng() % 60);
  for (int i = 0; i < calls && victim.s->status().state != StreamState::kFailed; ++i) {
    use(victim, rng, room);
    if (rng() % 8 == 0) bystander.exchange(1 + rng() % 50'000);
  }
  if (rng() % 2 == 0) victim.s->leave_memory(victim.fd);
  if (rng() % 2 == 0) victim.s->shutdown(victim.fd, static_cast<int>(rng() % 3));
  use(victim, rng, room);
  victim.release();
  is_over = true;
  harm.join();
}

TEST(HostileMemory, WhateverIsWrittenAtRandomMoments) {
  const char* wanted = getenv("DDPSOCK_ATTACKS");
  const char* given_seed = getenv("DDPSOCK_SEED");
  const int attacks = wanted != nullptr ? atoi(wanted) : 150;
  const uint64_t first = given_seed != nullptr ? strtoull(given_seed, nullptr, 10)
                                               : static_cast<uint64_t>(getpid()) << 32;
  const auto old_handler = signal(SIGALRM, say_round_and_end);
  {
    Bystander bystander;
    for (int i = 0; i < 4; ++i) bystander.exchange(10);
    EXPECT_TRUE(bystander.is_in_memory());
    size_t files = 0;
    for (int i = 0; i < attacks && !testing::Test::HasFailure(); ++i) {
      if (i == 1) files = open_files();
      round_seed = first + static_cast<uint64_t>(i);
      SCOPED_TRACE("DDPSOCK_SEED=" + std::to_string(round_seed.load()));
      alarm(20);
      attack_once(round_seed, bystander);
      EXPECT_TRUE(i <= 1 || open_files() == files) << open_files() << " for " << files;
    }
    alarm(0);
    EXPECT_EQ(mapped_segments().size(), 2u) << "the bystander's";
  }
  EXPECT_TRUE(mapped_segments().empty());
  signal(SIGALRM, old_handler);
}

}  // namespace
}  // namespace ddpsock::engine
