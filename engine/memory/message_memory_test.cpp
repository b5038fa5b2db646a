// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/message_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace ddpsock::engine::shm {
namespace {

constexpr SocketName kSocket{.netns = 7, .cookie = 9};

Result<std::unique_ptr<MessageMemory>> join(const MessageMemory& made,
                                            const SocketName& socket = kSocket) {
  return MessageMemory::join(static_cast<uint32_t>(getpid()),
                             static_cast<uint32_t>(made.descriptor()), socket);
}

TEST(MessageMemoryTest, BothEndsSeeTheSame) {
  auto made = MessageMemory::make(kSocket);
  ASSERT_TRUE(made);
  auto joined = join(**made);
  ASSERT_TRUE(joined);
  EXPECT_TRUE((*made)->settle());
  EXPECT_TRUE((*joined)->settle());
  EXPECT_EQ((*made)->descriptor(), -1);
  EXPECT_EQ((*made)->secret(), (*joined)->secret());
  (*made)->outgoing().reader.head.store(5);
  EXPECT_EQ((*joined)->incoming().reader.head.load(), 5u);
  (*joined)->outgoing().reader.head.store(6);
  EXPECT_EQ((*made)->incoming().reader.head.load(), 6u);
}

TEST(MessageMemoryTest, WithoutTheOtherEndItIsNotUsed) {
  auto made = MessageMemory::make(kSocket);
  ASSERT_TRUE(made);
  const int copy = dup((*made)->descriptor());
  EXPECT_FALSE((*made)->settle());
  const auto late =
      MessageMemory::join(static_cast<uint32_t>(getpid()), static_cast<uint32_t>(copy), kSocket);
  ASSERT_FALSE(late);
  EXPECT_EQ(to_int(late.error()), EPROTO);
  close(copy);
}

TEST(MessageMemoryTest, OneEndJoinsAndNoOther) {
  auto made = MessageMemory::make(kSocket);
  ASSERT_TRUE(made);
  EXPECT_TRUE(join(**made));
  EXPECT_FALSE(join(**made));
}

TEST(MessageMemoryTest, ItIsForOneSocketOnly) {
  auto made = MessageMemory::make(kSocket);
  ASSERT_TRUE(made);
  EXPECT_FALSE(join(**made, {.netns = 7, .cookie = 8}));
  EXPECT_FALSE(join(**made, {.netns = 6, .cookie = 9}));
  EXPECT_TRUE(join(**made));
}

TEST(MessageMemoryTest, OnlySealedMemoryOfThisNameAndSizeIsMapped) {
  const int other = memfd_create("ddpsock-other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const int same = memfd_create("ddpsock-message", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {other, same, file}) {
    const auto joined =
        MessageMemory::join(static_cast<uint32_t>(getpid()), static_cast<uint32_t>(fd), kSocket);
    ASSERT_FALSE(joined);
    EXPECT_EQ(to_int(joined.error()), EPROTO);
    close(fd);
  }
}

TEST(MessageMemoryTest, AForkedChildHasNoneOfIt) {
  auto made = MessageMemory::make(kSocket);
  ASSERT_TRUE(made);
  const pid_t child = fork();
  if (child == 0) {
    unsigned char in_core;
    const auto page = reinterpret_cast<uintptr_t>(&(*made)->outgoing()) & ~uintptr_t{4095};
    _exit(mincore(reinterpret_cast<void*>(page), 4096, &in_core) != 0 && errno == ENOMEM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ddpsock::engine::shm
