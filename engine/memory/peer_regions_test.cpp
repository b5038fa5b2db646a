// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory that the peer lets us reach, and whatever a peer may say instead.
#include "engine/memory/peer_regions.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "shm/own_memory.h"
#include "shm/region_memory.h"

namespace ddpsock::engine::shm {
namespace {

using rdmap::kAnyQp;
using rdmap::kRemoteRead;
using rdmap::kRemoteWrite;

constexpr SocketName kSocket{.netns = 7, .cookie = 9};
constexpr rdmap::StreamId kOwner{.qp = 3, .pd = 1};
constexpr uint32_t kStag = 5 << 8 | 0x77;
constexpr uint64_t kBase = 0x4000, kLength = 5'000;

size_t count_mappings(std::string_view of) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(of) != std::string::npos;
  return count;
}

// Both ends of a connection, and a region of the owner's.
class PeerRegionsTest : public testing::Test {
 protected:
  PeerRegionsTest() : owner_(*MessageMemory::make(kSocket)) {
    alarm(30);
    take_own_memory_for_a_peers(true);
    initiator_ = *MessageMemory::join(static_cast<uint32_t>(getpid()),
                                      static_cast<uint32_t>(owner_->descriptor()), kSocket);
    EXPECT_TRUE(owner_->settle());
    regions_.emplace(*initiator_);
  }
  ~PeerRegionsTest() override {
    take_own_memory_for_a_peers(false);
    alarm(0);
  }

  rdmap::MemoryRegion region(rdmap::Rights rights = kRemoteRead | kRemoteWrite,
                             uint32_t qp = kOwner.qp, uint32_t pd = kOwner.pd) {
    return {
        .buffer = {kBase, memory_->bytes().first(kLength)}, .rights = rights, .pd = pd, .qp = qp};
  }
  std::atomic<uint64_t>* share(const rdmap::MemoryRegion& what, uint32_t stag = kStag) {
    const auto shared = table_.share(stag, what, memory_->file());
    if (!told_ && table_.is_there()) {
      told_ = table_.enter(owner_->own_end(), kOwner);
      owner_->tell_table(*told_);
    }
    return shared;
  }
  uint8_t* find(uint64_t to = kBase, uint64_t length = 8, rdmap::Rights needed = kRemoteRead,
                uint32_t stag = kStag) {
    return regions_->find(stag, to, length, needed);
  }

  std::unique_ptr<MessageMemory> owner_, initiator_;
  std::unique_ptr<RegionMemory> memory_ = *RegionMemory::make(kLength, false);
  RegionTable table_;
  std::optional<RegionTablePlace> told_;
  std::optional<PeerRegions> regions_;
};

TEST_F(PeerRegionsTest, IsTheSameMemory) {
  EXPECT_EQ(find(), nullptr);
  ASSERT_NE(share(region()), nullptr);
  uint8_t* there = find();
  ASSERT_NE(there, nullptr);
  EXPECT_NE(there, memory_->bytes().data());
  there[0] = 'x';
  EXPECT_EQ(memory_->bytes()[0], 'x');
  EXPECT_EQ(find(kBase + 100), there + 100);
}

TEST_F(PeerRegionsTest, BoundsAndRights) {
  share(region(kRemoteRead));
  EXPECT_NE(find(kBase, kLength), nullptr);
  EXPECT_NE(find(kBase + kLength - 1, 1), nullptr);
  EXPECT_EQ(find(kBase, kLength + 1), nullptr);
  EXPECT_EQ(find(kBase + kLength, 1), nullptr);
  EXPECT_EQ(find(kBase - 1, 8), nullptr);
  EXPECT_EQ(find(kBase + 8, std::numeric_limits<uint64_t>::max()), nullptr);
  EXPECT_EQ(find(std::numeric_limits<uint64_t>::max(), 8), nullptr);
  EXPECT_EQ(find(kBase, 8, kRemoteWrite), nullptr);
  EXPECT_EQ(find(kBase, 8, rdmap::kRemoteAtomic), nullptr);
  EXPECT_EQ(find(kBase, 8, kRemoteRead, kStag + 1), nullptr);
  EXPECT_EQ(find(kBase, 8, kRemoteRead, 0), nullptr);
  EXPECT_EQ(find(kBase, 8, kRemoteRead, ~0u), nullptr);
}

TEST_F(PeerRegionsTest, WhatIsOverIsUnmapped) {
  for (int time = 0; time < 10; ++time) {
    const auto shared = share(region());
    ASSERT_NE(find(), nullptr);
    EXPECT_EQ(count_mappings("memfd:ddp-region "), 2u);
    shared->store(0);
    EXPECT_EQ(find(), nullptr);
    EXPECT_EQ(count_mappings("memfd:ddp-region "), 1u);
  }
  share(region());
  ASSERT_NE(find(), nullptr);
  regions_.reset();
  EXPECT_EQ(count_mappings("memfd:ddp-region "), 1u);
}

TEST_F(PeerRegionsTest, IsForThePeerOfItsQueuePairOrDomain) {
  share(region(kRemoteRead, kOwner.qp + 1));
  EXPECT_EQ(find(), nullptr);
  share(region(kRemoteRead, kAnyQp, kOwner.pd + 1));
  EXPECT_EQ(find(), nullptr);
  share(region(kRemoteRead, kAnyQp));
  EXPECT_NE(find(), nullptr);
}

// 64 places apart they have the same one here.
TEST_F(PeerRegionsTest, OneThatHasNoRoomWaits) {
  constexpr uint32_t kOther = kStag + (64 << 8);
  const auto first = share(region());
  share(region(), kOther);
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find(kBase, 8, kRemoteRead, kOther), nullptr);
  EXPECT_NE(find(), nullptr);
  first->store(0);
  EXPECT_NE(find(kBase, 8, kRemoteRead, kOther), nullptr);
  EXPECT_EQ(find(), nullptr);
}

// Memory of the owner's that has no file is known by its address.
TEST_F(PeerRegionsTest, WhatHasNoFileIsThere) {
  const auto where = reinterpret_cast<uintptr_t>(memory_->bytes().data());
  const auto find_there = [&](uint64_t to, uint64_t length) {
    return regions_->find_there(kStag, to, length);
  };
  EXPECT_EQ(find_there(kBase, 8), 0u);
  const auto shared = table_.share(kStag, region(), -1);
  told_ = table_.enter(owner_->own_end(), kOwner);
  owner_->tell_table(*told_);
  EXPECT_EQ(find_there(kBase, kLength), where);
  EXPECT_EQ(find_there(kBase + 100, 8), where + 100);
  EXPECT_EQ(find_there(kBase + kLength, 1), 0u);
  EXPECT_EQ(find_there(kBase - 1, 1), 0u);
  EXPECT_EQ(find_there(kBase + 1, kLength), 0u);
  EXPECT_EQ(find(), nullptr) << "nothing is mapped of it";
  EXPECT_TRUE(regions_->is_still(kStag));
  shared->store(0);
  EXPECT_FALSE(regions_->is_still(kStag));
  EXPECT_EQ(find_there(kBase, 8), 0u);
  // Only to be written.
  table_.share(kStag, region(kRemoteWrite), -1);
  EXPECT_EQ(find_there(kBase, 8), 0u);
  table_.share(kStag, region(), memory_->file());
  EXPECT_EQ(find_there(kBase, 8), 0u) << "that is mapped";
}

TEST_F(PeerRegionsTest, AndGivesWayToWhatHasOne) {
  constexpr uint32_t kOther = kStag + (64 << 8);
  table_.share(kStag, region(), -1);
  share(region(), kOther);
  EXPECT_NE(regions_->find_there(kStag, kBase, 8), 0u);
  EXPECT_NE(find(kBase, 8, kRemoteRead, kOther), nullptr);
  EXPECT_EQ(regions_->find_there(kStag, kBase, 8), 0u) << "its place is taken";
}

// ... unless the kernel does not let us look into the owner.
TEST_F(PeerRegionsTest, OrIsNotWhereItCannotBeRead) {
  take_own_memory_for_a_peers(false);
  const auto owner = *MessageMemory::make(kSocket);
  const auto initiator = *MessageMemory::join(static_cast<uint32_t>(getpid()),
                                              static_cast<uint32_t>(owner->descriptor()), kSocket);
  ASSERT_TRUE(owner->settle());
  table_.share(kStag, region(), -1);
  told_ = table_.enter(owner->own_end(), kOwner);
  owner->tell_table(*told_);
  EXPECT_EQ(PeerRegions(*initiator).find_there(kStag, kBase, 8), 0u);
}

// What the owner's file cannot give is not asked for again and again.
TEST_F(PeerRegionsTest, AFileThatIsAnothersByNow) {
  const base::UniqueFd number(memory_->file());
  share(region());
  ASSERT_EQ(dup3(open("/dev/null", O_RDWR | O_CLOEXEC), number.get(), O_CLOEXEC), number.get());
  EXPECT_EQ(find(), nullptr);
  EXPECT_EQ(find(), nullptr);
}

// A table that is the peer's to write as it likes.
class HostileTableTest : public PeerRegionsTest {
 protected:
  HostileTableTest()
      : mapped_(*make_mapped_file(kRegionTableName, kRegionTableSize, true)),
        file_(*reinterpret_cast<RegionTableFile*>(mapped_.at)) {
    row_of(kSocket.cookie, true);
    tell(mapped_.file.get());
    RegionEntry& e = entry();
    e.stag = kStag;
    e.file = static_cast<uint32_t>(memory_->file());
    e.inode = file_of(memory_->file()).inode;
    e.base_to = kBase;
    e.length = kLength;
    e.rights = 0x1f;
    e.pd = kOwner.pd;
    e.qp = kOwner.qp;
    e.serial = 1;
  }
  ~HostileTableTest() override { munmap(mapped_.at, kRegionTableSize); }
  RegionEntry& entry() { return file_.entries[rdmap::index_of(kStag) - 1]; }
  void tell(int number, uint32_t row = kRow) {
    owner_->tell_table({static_cast<uint32_t>(number) + 1, row});
  }
  void row_of(uint64_t cookie, bool is_connected_end, uint64_t netns = kSocket.netns) {
    RegionRow& row = file_.rows[kRow];
    row.netns = netns;
    row.pd = kOwner.pd;
    row.qp = kOwner.qp;
    row.is_connected_end = is_connected_end ? 1 : 0;
    row.cookie = cookie;
  }
  // Of a table that is asked for anew.
  uint8_t* find_anew() {
    regions_.emplace(*initiator_);
    return find();
  }
  static constexpr uint32_t kRow = 11;
  // As `change` leaves it.
  template <typename Change>
  uint8_t* find_with(Change change) {
    change(entry());
    entry().serial += 1;
    return find();
  }

  MappedFile mapped_;
  RegionTableFile& file_;
};

TEST_F(HostileTableTest, AsItShouldBe) {
  EXPECT_NE(find(), nullptr);
}

TEST_F(HostileTableTest, LengthsThatAreNotTheFiles) {
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{1} << 20, uint64_t{1} << 40,
        uint64_t{1} << 62, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{4095}})
    EXPECT_EQ(find_with([=](RegionEntry& e) { e.length = length; }), nullptr) << length;
  EXPECT_NE(find_with([](RegionEntry& e) { e.length = kLength; }), nullptr);
}

TEST_F(HostileTableTest, TagsThatWrap) {
  EXPECT_EQ(find_with([](RegionEntry& e) { e.base_to = ~uint64_t{0} - 10; }), nullptr);
  EXPECT_NE(find(~uint64_t{0} - 10, 8), nullptr);
  EXPECT_EQ(find(~uint64_t{0} - 10, kLength + 1), nullptr);
  EXPECT_EQ(find(0, 8), nullptr);
}

TEST_F(HostileTableTest, FilesThatAreNoSealedMemory) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const base::UniqueFd in(pipe_ends[0]), out(pipe_ends[1]);
  const base::UniqueFd device(open("/dev/zero", O_RDWR | O_CLOEXEC));
  // It could be cut under who reads it.
  const base::UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), 2 * kPage), 0);
  for (const int fd : {in.get(), out.get(), device.get(), loose.get(), -1, 1 << 30}) {
    EXPECT_EQ(find_with([=](RegionEntry& e) {
                e.file = static_cast<uint32_t>(fd);
                e.inode = file_of(fd).inode;
              }),
              nullptr)
        << fd;
  }
}

TEST_F(HostileTableTest, AnotherRegionsFile) {
  const auto other = *RegionMemory::make(kLength, false);
  EXPECT_EQ(find_with([&](RegionEntry& e) { e.file = static_cast<uint32_t>(other->file()); }),
            nullptr);
}

// Read-only by its seals, whatever the table says.
TEST_F(HostileTableTest, RightsThatTheFileHasNot) {
  const auto other = *RegionMemory::make(kLength, true);
  EXPECT_EQ(find_with([&](RegionEntry& e) {
              e.file = static_cast<uint32_t>(other->file());
              e.inode = file_of(other->file()).inode;
            }),
            nullptr);
}

// An address is the peer's own affair: it is read from nobody else.
TEST_F(HostileTableTest, AddressesAndLengthsOfAnySize) {
  for (const uint64_t address : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
    find_with([=](RegionEntry& e) {
      e.file = kNoFile;
      e.address = address;
      e.length = ~uint64_t{0};
      e.base_to = 0;
    });
    const uint64_t there = regions_->find_there(kStag, 8, 8);
    EXPECT_EQ(there, address == 0 ? 0 : address + 8);
    uint64_t into = 0;
    const RemoteRange from{.address = there, .length = sizeof into};
    const MutBytes to(reinterpret_cast<uint8_t*>(&into), sizeof into);
    EXPECT_FALSE(initiator_->read_peer({&from, 1}, {&to, 1}));
  }
}

TEST_F(HostileTableTest, RightsBeyondTheirByte) {
  EXPECT_EQ(find_with([](RegionEntry& e) { e.rights = 0xffff'ff00; }), nullptr);
}

TEST_F(HostileTableTest, ATableThatIsNone) {
  const base::UniqueFd small(std::move(*make_sealed_file("small", kPage)));
  for (const int number : {small.get(), 1 << 30, -1, -2}) {
    tell(number);
    EXPECT_EQ(find_anew(), nullptr) << number;
    EXPECT_EQ(find(), nullptr) << number;
  }
  for (const uint32_t row : {0u, kRow + 1, kMostRows, ~0u}) {
    tell(mapped_.file.get(), row);
    EXPECT_EQ(find_anew(), nullptr) << row;
  }
  tell(mapped_.file.get());
  EXPECT_NE(find_anew(), nullptr);
}

// Of somebody else, to whom the peer's word would lead us; or our own.
TEST_F(HostileTableTest, ATableOfAnotherConnectionOrEnd) {
  row_of(kSocket.cookie + 1, true);
  EXPECT_EQ(find_anew(), nullptr);
  row_of(kSocket.cookie, true, kSocket.netns + 1);
  EXPECT_EQ(find_anew(), nullptr);
  row_of(kSocket.cookie, false);
  EXPECT_EQ(find_anew(), nullptr);
  row_of(kSocket.cookie, true);
  EXPECT_NE(find_anew(), nullptr);
}

TEST_F(PeerRegionsTest, OurOwnTableIsNotThePeers) {
  share(region(kRemoteRead, kAnyQp));
  const auto ours = table_.enter(initiator_->own_end(), kOwner);
  owner_->tell_table(*ours);
  EXPECT_EQ(find(), nullptr);
}

TEST_F(PeerRegionsTest, RowsAreUsedAgain) {
  share(region());
  for (uint32_t i = 0; i < 2 * kMostRows; ++i) {
    const auto row = table_.enter(owner_->own_end(), kOwner);
    ASSERT_TRUE(row);
    EXPECT_EQ(row->row, 1u);
    table_.leave(*row);
  }
  std::vector<RegionTablePlace> all;
  while (const auto row = table_.enter(owner_->own_end(), kOwner)) all.push_back(*row);
  EXPECT_EQ(all.size(), kMostRows - 1);
}

TEST_F(PeerRegionsTest, SweptWhatIsOverIsUnmapped) {
  const auto shared = share(region());
  ASSERT_NE(find(), nullptr);
  regions_->sweep();
  EXPECT_EQ(count_mappings("memfd:ddp-region "), 2u);
  shared->store(0);
  regions_->sweep();
  EXPECT_EQ(count_mappings("memfd:ddp-region "), 1u);
}

TEST_F(PeerRegionsTest, TheLastPlaceOfTheTable) {
  constexpr uint32_t kLast = kMostShared << 8 | 1;
  share(region(), kLast);
  EXPECT_NE(find(kBase, 8, kRemoteRead, kLast), nullptr);
  EXPECT_EQ(share(region(), (kMostShared + 1) << 8), nullptr);
}

TEST_F(HostileTableTest, AnEntryThatChangesAllTheTime) {
  std::atomic<bool> is_over{false};
  std::thread changing([&] {
    for (uint64_t i = 2; !is_over; ++i) {
      const bool is_right = i % 16 == 0;
      entry().serial.store(i % 7 == 0 && !is_right ? 0 : i);
      entry().length = is_right ? kLength : i * 4096;
      entry().stag = i % 5 == 0 && !is_right ? kStag + 1 : kStag;
      if (is_right) sched_yield();
    }
  });
  int found = 0;
  for (int i = 0; i < 20'000; ++i) {
    uint8_t* there = find(kBase, kLength);
    if (there == nullptr) continue;
    // It is there, whatever has been said since.
    there[kLength - 1] = 1;
    ++found;
  }
  EXPECT_GT(found, 0);
  is_over = true;
  changing.join();
  regions_.reset();
  EXPECT_EQ(count_mappings("memfd:ddp-region "), 1u);
}

}  // namespace
}  // namespace ddpsock::engine::shm
