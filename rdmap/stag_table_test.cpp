// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/stag_table.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>

namespace ddpsock::rdmap {
namespace {

constexpr StreamId kStream{.qp = 3, .pd = 7};
constexpr Rights kAll = kLocalRead | kLocalWrite | kRemoteRead | kRemoteWrite | kRemoteAtomic;

struct Fixture {
  Fixture() { stag = reg({{0x1000, memory}, kAll, 7, kAnyQp}); }
  uint32_t reg(const MemoryRegion& r) {
    const auto s = table.register_region(r);
    EXPECT_TRUE(s);
    return s.value_or(0);
  }
  AccessError error(uint32_t s, uint64_t to, uint32_t n, Rights rights, StreamId who = kStream) {
    const auto a = table.access(s, to, n, rights, who);
    EXPECT_FALSE(a.has_value());
    return a ? AccessError::kBounds : a.error();
  }
  std::array<uint8_t, 64> memory{};
  StagTable table{4};
  uint32_t stag;
};

TEST(StagTable, GivesAccessWithinTheRegion) {
  Fixture f;
  const auto a = f.table.access(f.stag, 0x1004, 8, kRemoteWrite, kStream);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->data(), f.memory.data() + 4);
  EXPECT_EQ(a->size(), 8u);
}

TEST(StagTable, Trap23EveryKeyButTheRightOneIsInvalid) {
  Fixture f;
  for (uint32_t key = 0; key < 256; ++key) {
    const uint32_t guess = (f.stag & ~0xffu) | key;
    EXPECT_EQ(f.table.access(guess, 0x1000, 1, kRemoteRead, kStream).has_value(), guess == f.stag);
  }
  EXPECT_EQ(f.error(0, 0x1000, 1, kRemoteRead), AccessError::kInvalidStag);
  EXPECT_EQ(f.error(0xffff'ffff, 0x1000, 1, kRemoteRead), AccessError::kInvalidStag);
  EXPECT_EQ(f.error(f.stag + 256, 0x1000, 1, kRemoteRead), AccessError::kInvalidStag);
}

TEST(StagTable, ChecksDomainBindingRightsBoundsAndWrap) {
  Fixture f;
  std::array<uint8_t, 8> m{};
  const uint32_t bound = f.reg({{0, m}, kRemoteRead, 7, 3});
  EXPECT_TRUE(f.table.access(bound, 0, 8, kRemoteRead, kStream));
  EXPECT_EQ(f.error(bound, 0, 8, kRemoteRead, {4, 7}), AccessError::kNotAssociated);
  EXPECT_EQ(f.error(f.stag, 0x1000, 1, kRemoteRead, {3, 8}), AccessError::kNotAssociated);
  EXPECT_EQ(f.error(bound, 0, 8, kRemoteWrite), AccessError::kRights);
  EXPECT_EQ(f.error(f.stag, 0xfff, 1, kRemoteRead), AccessError::kBounds);
  EXPECT_EQ(f.error(f.stag, 0x1000, 65, kRemoteRead), AccessError::kBounds);
  EXPECT_EQ(f.error(f.stag, ~uint64_t{0}, 2, kRemoteRead), AccessError::kWrap);
}

TEST(StagTable, Trap29EitherOfTwoRightsSuffices) {
  Fixture f;
  std::array<uint8_t, 8> m{};
  const uint32_t local = f.reg({{0, m}, kLocalWrite, 7, kAnyQp});
  const uint32_t remote = f.reg({{0, m}, kRemoteWrite, 7, kAnyQp});
  EXPECT_TRUE(f.table.access(local, 0, 8, kLocalWrite | kRemoteWrite, kStream));
  EXPECT_TRUE(f.table.access(remote, 0, 8, kLocalWrite | kRemoteWrite, kStream));
}

TEST(StagTable, RefusesBadRegionsAndAFullTable) {
  Fixture f;
  EXPECT_EQ(f.table.register_region({{0, {}}, kAll, 7, kAnyQp}).error(), RegisterError::kBadRegion);
  EXPECT_EQ(f.table.register_region({{0, f.memory}, {}, 7, kAnyQp}).error(),
            RegisterError::kBadRegion);
  EXPECT_EQ(f.table.register_region({{~uint64_t{0} - 62, f.memory}, kAll, 7, kAnyQp}).error(),
            RegisterError::kBadRegion);
  for (int i = 0; i < 3; ++i) f.reg({{0, f.memory}, kAll, 7, kAnyQp});
  EXPECT_EQ(f.table.register_region({{0, f.memory}, kAll, 7, kAnyQp}).error(),
            RegisterError::kTableFull);
}

TEST(StagTable, AReusedSlotNeverHasTheKeyItHadBefore) {
  StagTable table(1, [](MutBytes out) {
    out[0] = 0x55;  // a source that repeats itself
    return true;
  });
  std::array<uint8_t, 8> m{};
  uint32_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const auto s = table.register_region({{0, m}, kAll, 7, kAnyQp});
    ASSERT_TRUE(s);
    EXPECT_NE(*s, last);
    last = *s;
    ASSERT_TRUE(table.deregister(*s));
    EXPECT_FALSE(table.access(*s, 0, 1, kAll, kStream));
  }
}

TEST(StagTable, KeysDiffer) {
  StagTable table(64);
  std::array<uint8_t, 8> m{};
  std::set<uint8_t> keys;
  for (int i = 0; i < 64; ++i) {
    const auto s = table.register_region({{0, m}, kAll, 7, kAnyQp});
    ASSERT_TRUE(s);
    keys.insert(static_cast<uint8_t>(*s));
  }
  EXPECT_GT(keys.size(), 20u);
}

TEST(StagTable, WithoutRandomNoRegistration) {
  StagTable table(1, [](MutBytes) { return false; });
  std::array<uint8_t, 8> m{};
  EXPECT_EQ(table.register_region({{0, m}, kAll, 7, kAnyQp}).error(), RegisterError::kNoRandom);
}

TEST(StagTable, APinnedRegionIsNotDeregisteredButClosedToNewWork) {
  Fixture f;
  f.table.pin(f.stag);
  EXPECT_EQ(f.table.deregister(f.stag).error(), DeregisterError::kInUse);
  EXPECT_EQ(f.error(f.stag, 0x1000, 1, kRemoteRead), AccessError::kInvalidStag);
  f.table.unpin(f.stag);
  EXPECT_TRUE(f.table.deregister(f.stag));
  EXPECT_EQ(f.table.deregister(f.stag).error(), DeregisterError::kUnknown);
  EXPECT_EQ(f.table.size(), 0u);
}

TEST(StagTable, AccessAndPinIsBothOrNeither) {
  Fixture f;
  const auto a = f.table.access_and_pin(f.stag, 0x1004, 8, kLocalWrite, kStream);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->data(), f.memory.data() + 4);
  EXPECT_EQ(f.table.access_and_pin(f.stag, 0x1004, 61, kLocalWrite, kStream).error(),
            AccessError::kBounds);
  EXPECT_EQ(f.table.access_and_pin(f.stag, 0x1004, 8, kLocalWrite, {3, 8}).error(),
            AccessError::kNotAssociated);
  EXPECT_EQ(f.table.access_and_pin(f.stag ^ 1, 0x1004, 8, kLocalWrite, kStream).error(),
            AccessError::kInvalidStag);
  EXPECT_EQ(f.table.access_and_pin(0, 0, 8, kLocalWrite, kStream).error(),
            AccessError::kInvalidStag);
  EXPECT_EQ(f.table.deregister(f.stag).error(), DeregisterError::kInUse);
  EXPECT_EQ(f.table.access_and_pin(f.stag, 0x1004, 8, kLocalWrite, kStream).error(),
            AccessError::kInvalidStag);
  f.table.unpin(f.stag);
  EXPECT_TRUE(f.table.deregister(f.stag));
}

// One thread registers and deregisters, which needs the owner's lock; others pin without it. What
// is pinned is never taken away.
TEST(StagTable, ThreadsPinWhileRegionsComeAndGo) {
  StagTable table(2);
  std::array<uint8_t, 64> first{}, second{};
  std::atomic<uint32_t> stag = 0;
  std::atomic<bool> is_done = false;
  std::atomic<uint32_t> pinned = 0, refused = 0;
  const auto pin = [&] {
    while (!is_done) {
      const uint32_t s = stag;
      const auto where = table.access_and_pin(s, 0, 64, kLocalWrite, kStream);
      if (!where) {
        ++refused;
        continue;
      }
      ++pinned;
      ASSERT_TRUE(where->data() == first.data() || where->data() == second.data());
      table.unpin(s);
    }
  };
  {
    std::jthread one(pin), other(pin);
    for (int i = 0; i < 2000 || pinned < 100 || refused < 100; ++i) {
      const MutBytes memory = i % 2 == 0 ? MutBytes(first) : MutBytes(second);
      const auto made = table.register_region({{0, memory}, kAll, 7, kAnyQp});
      ASSERT_TRUE(made);
      stag = *made;
      if (i % 16 == 0) std::this_thread::yield();
      while (!table.deregister(*made)) std::this_thread::yield();
    }
    is_done = true;
  }
  EXPECT_EQ(table.size(), 0u);
}

TEST(StagTable, InvalidateActsOnceAndOnlyForItsStream) {
  Fixture f;
  EXPECT_EQ(f.table.invalidate(f.stag, {3, 8}).error(), AccessError::kNotAssociated);
  EXPECT_TRUE(f.table.invalidate(f.stag, kStream));
  EXPECT_EQ(f.table.invalidate(f.stag, kStream).error(), AccessError::kInvalidStag);
  EXPECT_EQ(f.error(f.stag, 0x1000, 1, kRemoteRead), AccessError::kInvalidStag);
  EXPECT_TRUE(f.table.deregister(f.stag)) << "the slot is still its owner's to free";
}

TEST(StagTable, ErrorsMapToTheLayerThatReportsThem) {
  EXPECT_EQ(to_ddp(AccessError::kInvalidStag), ddp::Error::kInvalidStag);
  EXPECT_EQ(to_ddp(AccessError::kRights), ddp::Error::kInvalidStag);
  EXPECT_EQ(to_ddp(AccessError::kBounds), ddp::Error::kBaseOrBounds);
  EXPECT_EQ(to_ddp(AccessError::kNotAssociated), ddp::Error::kStagNotAssociated);
  EXPECT_EQ(to_ddp(AccessError::kWrap), ddp::Error::kToWrap);
  EXPECT_EQ(to_rdmap(AccessError::kInvalidStag), TermCode::protection(0));
  EXPECT_EQ(to_rdmap(AccessError::kBounds), TermCode::protection(1));
  EXPECT_EQ(to_rdmap(AccessError::kRights), TermCode::protection(2));
  EXPECT_EQ(to_rdmap(AccessError::kNotAssociated), TermCode::protection(3));
  EXPECT_EQ(to_rdmap(AccessError::kWrap), TermCode::protection(4));
}

}  // namespace
}  // namespace ddpsock::rdmap
