// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who can do what to memory that a peer may map.
#include "shm/region_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace ddpsock::engine::shm {
namespace {

constexpr size_t kLength = 3 * kPage + 1;

base::UniqueFd as_a_peer_opens(const RegionMemory& region) {
  auto file = open_sealed_file(static_cast<uint32_t>(getpid()),
                               static_cast<uint32_t>(region.file()), region.bytes().size());
  EXPECT_TRUE(file) << to_int(file.error());
  return std::move(*file);
}

int error_of_mapping(int fd, int protection) {
  void* p = mmap(nullptr, kPage, protection, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return errno;
  munmap(p, kPage);
  return 0;
}

bool is_mapped(const void* at) {
  unsigned char is_resident;
  return mincore(const_cast<void*>(at), kPage, &is_resident) == 0;
}

// True in a forked child, whose answer is awaited.
template <typename Ask>
bool in_child(Ask ask) {
  const pid_t child = fork();
  if (child == 0) _exit(ask() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST(RegionMemory, IsWholePagesOfZeros) {
  const auto region = RegionMemory::make(kLength, false);
  ASSERT_TRUE(region);
  EXPECT_EQ((*region)->bytes().size(), 4 * kPage);
  EXPECT_EQ((*region)->bytes()[kLength - 1], 0);
}

TEST(RegionMemory, ForReadersNobodyElseWrites) {
  const auto region = RegionMemory::make(kLength, true);
  ASSERT_TRUE(region);
  const base::UniqueFd file = as_a_peer_opens(**region);
  EXPECT_EQ(error_of_mapping(file.get(), PROT_READ), 0);
  EXPECT_EQ(error_of_mapping(file.get(), PROT_READ | PROT_WRITE), EPERM);
  EXPECT_EQ(pwrite(file.get(), "x", 1, 0), -1);
  EXPECT_NE(fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
  EXPECT_NE(ftruncate(file.get(), 0), 0);
  (*region)->bytes()[0] = 'y';
  const auto seen = map_for_reading(file.get(), (*region)->bytes().size());
  ASSERT_TRUE(seen);
  EXPECT_EQ((*seen)[0], 'y');
  munmap(const_cast<uint8_t*>(*seen), (*region)->bytes().size());
}

TEST(RegionMemory, ForWritersItsSizeStays) {
  const auto region = RegionMemory::make(kLength, false);
  ASSERT_TRUE(region);
  const base::UniqueFd file = as_a_peer_opens(**region);
  EXPECT_EQ(error_of_mapping(file.get(), PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(ftruncate(file.get(), 0), 0);
  EXPECT_NE(ftruncate(file.get(), 1 << 20), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
}

TEST(RegionMemory, GoesWithItsObject) {
  auto region = RegionMemory::make(kLength, false);
  ASSERT_TRUE(region);
  const uint8_t* at = (*region)->bytes().data();
  const int file = (*region)->file();
  region->reset();
  EXPECT_FALSE(is_mapped(at));
  EXPECT_EQ(fcntl(file, F_GETFD), -1);
}

TEST(RegionMemory, MovesAwayFromWhoHasMappedIt) {
  auto region = RegionMemory::make(kLength, false);
  ASSERT_TRUE(region);
  const MutBytes bytes = (*region)->bytes();
  const base::UniqueFd file = as_a_peer_opens(**region);
  const auto peers = map_sealed_file(file.get(), bytes.size());
  ASSERT_TRUE(peers);
  std::strcpy(reinterpret_cast<char*>(*peers), "of the peer");
  ASSERT_TRUE((*region)->prepare_to_move());
  ASSERT_TRUE((*region)->move());
  region->reset();
  EXPECT_STREQ(reinterpret_cast<char*>(bytes.data()), "of the peer");
  std::strcpy(reinterpret_cast<char*>(*peers), "too late");
  EXPECT_STREQ(reinterpret_cast<char*>(bytes.data()), "of the peer");
  munmap(*peers, bytes.size());
  munmap(bytes.data(), bytes.size());
}

TEST(RegionMemory, AForkedChildHasNeitherPagesNorFile) {
  const auto region = RegionMemory::make(kLength, false);
  ASSERT_TRUE(region);
  const int file = (*region)->file();
  EXPECT_TRUE(in_child([&] { return !is_mapped((*region)->bytes().data()); }));
  EXPECT_TRUE(in_child([&] { return fcntl(file, F_GETFD) == -1 && errno == EBADF; }));
  EXPECT_EQ(fcntl(file, F_GETFD), FD_CLOEXEC);
}

// closefrom() and its like.
TEST(RegionMemory, AFileThatIsAnothersByNowStaysOpen) {
  auto region = RegionMemory::make(kLength, false);
  ASSERT_TRUE(region);
  const int number = (*region)->file();
  const base::UniqueFd other(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(dup3(other.get(), number, O_CLOEXEC), number);
  EXPECT_TRUE(in_child([&] { return fcntl(number, F_GETFD) != -1; }));
  region->reset();
  EXPECT_EQ(close(number), 0);
}

TEST(RegionMemory, WithoutDescriptorsItIsPrivate) {
  rlimit before, none;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto region = RegionMemory::make(kLength, true);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(region);
  EXPECT_EQ((*region)->file(), -1);
  EXPECT_EQ((*region)->bytes().size(), 4 * kPage);
  (*region)->bytes()[0] = 1;
}

TEST(RegionMemory, OfNothingOrOfEverythingIsRefused) {
  EXPECT_EQ(to_int(RegionMemory::make(0, false).error()), EINVAL);
  EXPECT_EQ(to_int(RegionMemory::make(~size_t{0}, false).error()), EINVAL);
  EXPECT_EQ(to_int(RegionMemory::make(size_t{1} << 44, false).error()), ENOMEM);
}

}  // namespace
}  // namespace ddpsock::engine::shm
