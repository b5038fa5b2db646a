// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ddpsock::engine::shm {
namespace {

class SegmentTest : public testing::Test {
 protected:
  SegmentTest() {
    auto made = Segment::make();
    EXPECT_TRUE(made.has_value());
    mine = std::move(*made);
    offer = {static_cast<uint32_t>(getpid()), static_cast<uint32_t>(mine.fd.get()), mine.secret};
  }
  ~SegmentTest() override { mine.segment->unmap(); }

  Segment::Made mine;
  Offer offer;
};

Errno error_of(const Offer& offer) {
  const auto opened = Segment::open(offer);
  if (!opened) return opened.error();
  const bool is_joined = (*opened)->joining().join();
  (*opened)->unmap();
  return is_joined ? Errno{0} : Errno{EALREADY};
}

TEST(Segment, OnceWithdrawnNobodyJoins) {
  const auto made = Segment::make();
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->segment->joining().withdraw());
  EXPECT_FALSE(made->segment->joining().join());
  EXPECT_FALSE(made->segment->joining().is_joined());
  made->segment->unmap();
  const auto other = Segment::make();
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->segment->joining().join());
  EXPECT_FALSE(other->segment->joining().withdraw());
  EXPECT_TRUE(other->segment->joining().is_joined());
  other->segment->unmap();
}

TEST_F(SegmentTest, BothEndsSeeTheSameLanes) {
  EXPECT_FALSE(mine.segment->joining().is_joined());
  const auto theirs = Segment::open(offer);
  ASSERT_TRUE(theirs.has_value());
  EXPECT_FALSE(mine.segment->joining().is_joined());
  EXPECT_TRUE((*theirs)->joining().join());
  EXPECT_TRUE(mine.segment->joining().is_joined());
  for (const End end : {End::kConnected, End::kAccepted}) {
    Lane& lane = mine.segment->lane_from(end);
    EXPECT_EQ((*theirs)->lane_from(end).bell.armed.load(), 1u);
    lane.small[kSmallSize - 1] = 7;
    EXPECT_EQ((*theirs)->lane_from(end).small[kSmallSize - 1], 7);
  }
  (*theirs)->unmap();
}

TEST_F(SegmentTest, BothEndsHaveTheSameRings) {
  const auto theirs = Segment::open(offer);
  ASSERT_TRUE(theirs.has_value());
  mine.fd.reset();
  for (const End end : {End::kConnected, End::kAccepted}) {
    MappedRings rings(mine.segment, end), same(*theirs, end);
    EXPECT_TRUE(rings.provide(kRingSize, kRingsSize));
    rings.data()[kRingsSize - 1] = 9;
    EXPECT_EQ(same.data()[kRingsSize - 1], 9);
    rings.give_back(kRingSize, kRingsSize);
    EXPECT_EQ(same.data()[kRingsSize - 1], 0);
  }
  (*theirs)->unmap();
}

TEST_F(SegmentTest, NoneWhereTheAddressSpaceIsLimited) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limited{rlim_t{1} << 45, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const auto made = Segment::make();
  const auto theirs = Segment::open(offer);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(to_int(made.error()), ENOMEM);
  ASSERT_FALSE(theirs.has_value());
  EXPECT_EQ(to_int(theirs.error()), ENOMEM);
}

TEST_F(SegmentTest, ItMovesWhenNobodyIsSendingFpdus) {
  Segment& s = *mine.segment;
  const uint64_t first = s.phase();
  EXPECT_TRUE(Segment::is_movable(first));
  EXPECT_TRUE(s.begin_fpdus(End::kConnected));
  EXPECT_FALSE(s.move(s.phase()));
  EXPECT_TRUE(s.begin_fpdus(End::kAccepted));
  s.end_fpdus(End::kConnected);
  EXPECT_FALSE(s.move(s.phase()));
  s.end_fpdus(End::kAccepted);
  EXPECT_FALSE(s.move(first)) << "what was known then may be wrong by now";
  EXPECT_TRUE(s.move(s.phase()));
  EXPECT_TRUE(s.has_moved());
  EXPECT_FALSE(s.begin_fpdus(End::kAccepted));
}

// One thread of an end leaves, another is sending.
TEST_F(SegmentTest, ItNeverMovesOnceAnEndStaysOnTheWire) {
  Segment& s = *mine.segment;
  ASSERT_TRUE(s.begin_fpdus(End::kConnected));
  EXPECT_TRUE(s.stay_on_wire());
  s.end_fpdus(End::kConnected);
  EXPECT_FALSE(Segment::is_movable(s.phase()));
  EXPECT_FALSE(s.move(s.phase()));
  ASSERT_TRUE(s.begin_fpdus(End::kAccepted)) << "the other end still sends FPDUs";
  s.end_fpdus(End::kAccepted);
  EXPECT_FALSE(s.move(s.phase()));
}

TEST_F(SegmentTest, WhatHasMovedStaysNot) {
  Segment& s = *mine.segment;
  ASSERT_TRUE(s.move(s.phase()));
  EXPECT_FALSE(s.stay_on_wire());
}

TEST_F(SegmentTest, TheSizeIsSealed) {
  EXPECT_EQ(ftruncate(mine.fd.get(), 4096), -1);
  EXPECT_EQ(ftruncate(mine.fd.get(), 1 << 30), -1);
  EXPECT_EQ(fcntl(mine.fd.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_NE(fcntl(mine.fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(SegmentTest, IsJoinedOnce) {
  EXPECT_EQ(error_of(offer), Errno{0});
  EXPECT_EQ(error_of(offer), Errno{EALREADY});
}

TEST_F(SegmentTest, WrongSecretOrNumber) {
  Offer wrong = offer;
  wrong.secret[3] ^= 1;
  EXPECT_EQ(error_of(wrong), Errno{EPROTO});
  wrong = offer;
  wrong.fd = 1'000'000;
  EXPECT_EQ(error_of(wrong), Errno{ENOENT});
  wrong.pid = 0x7fff'fffe;
  EXPECT_EQ(error_of(wrong), Errno{ENOENT});
  wrong = {static_cast<uint32_t>(getpid()), STDERR_FILENO, {}};
  EXPECT_EQ(error_of(wrong), Errno{EPROTO});
}

// Files that would become a SIGBUS, or are not what the offer says.
TEST_F(SegmentTest, WhatIsNotSealedOrNotOfThatSizeIsNotMapped) {
  const off_t size = lseek(mine.fd.get(), 0, SEEK_END);
  struct {
    const char* name;
    off_t size;
    int seals;
  } const cases[] = {
      {"ddpsock-stream", size, 0},
      {"ddpsock-stream", size, F_SEAL_SHRINK | F_SEAL_GROW},
      {"ddpsock-stream", size, F_SEAL_GROW | F_SEAL_SEAL},
      {"ddpsock-stream", 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL},
      {"ddpsock-stream", size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL},
  };
  for (const auto& c : cases) {
    const base::UniqueFd fd(memfd_create(c.name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(fd.get(), c.size), 0);
    if (c.seals != 0) {
      ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, c.seals), 0);
    }
    offer.fd = static_cast<uint32_t>(fd.get());
    EXPECT_EQ(error_of(offer), Errno{EPROTO}) << c.name << " " << c.size << " " << c.seals;
  }
}

TEST_F(SegmentTest, AnotherProcessJoinsAndItsDeathLeavesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    mine.segment->unmap();
    const auto theirs = Segment::open(offer);
    if (theirs && (*theirs)->joining().join()) (*theirs)->lane_from(End::kAccepted).small[5] = 55;
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(mine.segment->lane_from(End::kAccepted).small[5], 55);
  EXPECT_TRUE(mine.segment->joining().is_joined());
}

// In a child: what this process has used up already would count too.
template <typename F>
bool holds_in_child(F f) {
  const pid_t child = fork();
  if (child == 0) _exit(f() ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST(SegmentLimits, ExhaustionIsAnErrorAndNotASignal) {
  EXPECT_TRUE(holds_in_child([] {
    const rlimit none{3, 3};
    setrlimit(RLIMIT_NOFILE, &none);
    return !Segment::make().has_value();
  })) << "RLIMIT_NOFILE";
  EXPECT_TRUE(holds_in_child([] {
    const rlimit none{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &none);
    return !Segment::make().has_value();
  })) << "RLIMIT_FSIZE";
  EXPECT_TRUE(holds_in_child([] {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_AS, &none);
    return !Segment::make().has_value();
  })) << "RLIMIT_AS";
}

TEST(SegmentLimits, AProcessThatHidesIsNotJoined) {
  if (geteuid() == 0) GTEST_SKIP() << "the superuser may look into every process";
  auto made = Segment::make();
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(holds_in_child([&] {
    const Offer offer{static_cast<uint32_t>(getppid()), static_cast<uint32_t>(made->fd.get()),
                      made->secret};
    prctl(PR_SET_DUMPABLE, 0);
    return error_of(offer) == Errno{0};
  }));
  made->segment->unmap();
}

TEST(SegmentUser, AnotherUserGetsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs the superuser to become two users";
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    if (setgid(65533) != 0 || setuid(65533) != 0) _exit(2);
    prctl(PR_SET_DUMPABLE, 1);
    auto made = Segment::make();
    const Offer offer{static_cast<uint32_t>(getpid()), static_cast<uint32_t>(made->fd.get()),
                      made->secret};
    if (write(ready[1], &offer, sizeof offer) != sizeof offer) _exit(3);
    char byte;
    _exit(read(go[0], &byte, 1) == 1 ? 0 : 4);
  }
  Offer offer;
  ASSERT_EQ(read(ready[0], &offer, sizeof offer), ssize_t{sizeof offer});
  EXPECT_EQ(error_of(offer), Errno{EPROTO}) << "root could open it, but it is another user's";
  EXPECT_TRUE(holds_in_child([&] {
    if (setgid(65532) != 0 || setuid(65532) != 0) return false;
    const Errno error = error_of(offer);
    return error == Errno{EACCES} || error == Errno{EPERM};
  }));
  EXPECT_EQ(write(go[1], "x", 1), 1);
  waitpid(owner, nullptr, 0);
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) close(fd);
}

}  // namespace
}  // namespace ddpsock::engine::shm
