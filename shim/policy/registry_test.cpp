// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "shim/policy/policy_testing.h"

namespace ddpsock::shim {
namespace {

using Outcome = Lookup::Outcome;

bool never_gone(void*, const Entry&) {
  return false;
}

Entry make_entry(uint64_t cookie) {
  Entry e;
  e.key = {.netns = 7, .cookie = cookie};
  e.kind = Kind::kConnection;
  e.pid = 42;
  e.made_at = 1000;
  return e;
}

class TableTest : public ::testing::Test {
 protected:
  std::unique_ptr<RegistryFile> file_ = std::make_unique<RegistryFile>();
  RegistryTable table_{*file_};

  bool publish(const Entry& e) { return table_.publish(e, never_gone, nullptr); }
  void fill_window_of(const SocketKey& key) {
    uint64_t cookie = 1'000'000;
    for (size_t filled = 0; filled < kProbes; ++cookie) {
      const Entry e = make_entry(cookie);
      if (first_slot(e.key) == first_slot(key) && publish(e)) ++filled;
    }
  }
};

TEST_F(TableTest, FindsExactlyWhatWasPublished) {
  Entry e = make_entry(5);
  e.wants_crc = false;
  e.is_alone = true;
  e.local = Address{{1, 2, 3}, 4};
  e.remote = Address{{5, 6, 7}, 8};
  ASSERT_TRUE(publish(e));
  const Entry found = table_.find(e.key).value();
  EXPECT_EQ(found.key, e.key);
  EXPECT_EQ(found.kind, Kind::kConnection);
  EXPECT_FALSE(found.wants_crc);
  EXPECT_TRUE(found.is_alone);
  EXPECT_FALSE(found.is_retired);
  EXPECT_EQ(found.pid, 42u);
  EXPECT_EQ(found.made_at, 1000u);
  EXPECT_EQ(found.local, e.local);
  EXPECT_EQ(found.remote, e.remote);
  EXPECT_FALSE(table_.find({.netns = 8, .cookie = 5}));
  EXPECT_FALSE(table_.find({.netns = 7, .cookie = 6}));
}

TEST_F(TableTest, PublishingAgainReplaces) {
  ASSERT_TRUE(publish(make_entry(5)));
  ASSERT_TRUE(publish(make_entry(5)));
  ASSERT_TRUE(table_.withdraw(make_entry(5).key));
  EXPECT_FALSE(table_.find(make_entry(5).key));
  EXPECT_FALSE(table_.withdraw(make_entry(5).key));
  EXPECT_FALSE(table_.replace(make_entry(5)));
}

TEST_F(TableTest, DoubtTogglesAndEndsWithTheEntry) {
  const SocketKey key = make_entry(5).key;
  EXPECT_FALSE(table_.set_doubtful(key, true));
  ASSERT_TRUE(publish(make_entry(5)));
  EXPECT_FALSE(table_.set_doubtful(key, false));
  EXPECT_TRUE(table_.set_doubtful(key, true));
  EXPECT_TRUE(table_.find(key)->is_doubtful);
  EXPECT_TRUE(table_.set_doubtful(key, false));
  EXPECT_FALSE(table_.find(key)->is_doubtful);
  ASSERT_TRUE(table_.withdraw(key));
  EXPECT_FALSE(table_.set_doubtful(key, true));
}

TEST_F(TableTest, AddressesMayComeLater) {
  const SocketKey key = make_entry(5).key;
  ASSERT_TRUE(publish(make_entry(5)));
  EXPECT_EQ(table_.find(key)->local.port, 0);
  table_.set_addresses(key, Address{{1}, 2}, Address{{3}, 4});
  const Entry found = table_.find(key).value();
  EXPECT_EQ(found.local, (Address{{1}, 2}));
  EXPECT_EQ(found.remote, (Address{{3}, 4}));
  EXPECT_EQ(found.made_at, 1000u);
}

TEST_F(TableTest, WhatEscapedStaysSoWhoeverRegistersAgain) {
  Entry listener = make_entry(5);
  listener.kind = Kind::kListener;
  EXPECT_FALSE(table_.count_escaped(listener.key, Escape::kGone, 1)) << "nobody was told of it";
  ASSERT_TRUE(publish(listener));
  EXPECT_FALSE(table_.find(listener.key)->escaped.is_any());
  EXPECT_TRUE(table_.count_escaped(listener.key, Escape::kGone, 1));
  EXPECT_TRUE(table_.count_escaped(listener.key, Escape::kInFlight, 1));
  ASSERT_TRUE(publish(listener));
  EXPECT_EQ(table_.find(listener.key)->escaped.gone, 1u);
  EXPECT_EQ(table_.find(listener.key)->escaped.in_flight, 1u);
  // Nor does one that comes back twice make up for one that has gone.
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(table_.count_escaped(listener.key, Escape::kInFlight, -1));
  EXPECT_EQ(table_.find(listener.key)->escaped.gone, 1u);
  EXPECT_EQ(table_.find(listener.key)->escaped.in_flight, 0u);
  EXPECT_TRUE(table_.count_escaped(listener.key, Escape::kGone, -1));
  EXPECT_FALSE(table_.find(listener.key)->escaped.is_any());
}

TEST_F(TableTest, ConnectionsDoNotEscape) {
  Entry e = make_entry(5);
  e.remote = Address{{5, 6, 7}, 8};
  ASSERT_TRUE(publish(e));
  EXPECT_FALSE(table_.count_escaped(e.key, Escape::kGone, 1));
  EXPECT_EQ(table_.find(e.key)->remote, e.remote);
  // The same socket listens later.
  e.kind = Kind::kListener;
  ASSERT_TRUE(publish(e));
  EXPECT_FALSE(table_.find(e.key)->escaped.is_any());
}

TEST_F(TableTest, FullWindowTakesOnlyWhatIsGone) {
  const Entry e = make_entry(5);
  fill_window_of(e.key);
  EXPECT_FALSE(publish(e));
  EXPECT_FALSE(table_.find(e.key));
  uint64_t victim = 0;
  const auto first_is_gone = [](void* context, const Entry& old) {
    auto* chosen = static_cast<uint64_t*>(context);
    if (*chosen == 0) *chosen = old.key.cookie;
    return old.key.cookie == *chosen;
  };
  EXPECT_TRUE(table_.publish(e, first_is_gone, &victim));
  EXPECT_TRUE(table_.find(e.key));
  EXPECT_FALSE(table_.find({.netns = 7, .cookie = victim}));
}

TEST_F(TableTest, SlotLeftHalfWrittenIsLostAndHarmless) {
  const SocketKey key = make_entry(5).key;
  constexpr uint64_t kWriting = uint64_t{1} << 40;
  for (size_t i = 0; i < kProbes - 1; ++i) file_->slots[first_slot(key) + i].words[0] = kWriting;
  EXPECT_FALSE(table_.find(key));
  EXPECT_TRUE(publish(make_entry(5)));
  EXPECT_TRUE(table_.find(key));
}

TEST_F(TableTest, AnyContentsAreBounded) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    for (auto& slot : file_->slots)
      for (auto& word : slot.words) word = random();
    for (uint64_t cookie = 1; cookie < 200; ++cookie) {
      const Entry e = make_entry(cookie);
      EXPECT_FALSE(table_.find(e.key)) << "found what nobody published";
      table_.withdraw(e.key);
      table_.set_doubtful(e.key, true);
      table_.set_addresses(e.key, Address{}, Address{});
      publish(e);
    }
  }
}

TEST_F(TableTest, ThreadsDoNotLoseOrMixEntries) {
  constexpr int kThreads = 4, kRounds = 3000;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        // Few keys, so that the threads meet in the same slots all the time.
        Entry e = make_entry(static_cast<uint64_t>(i % 8 * kThreads + t + 1));
        e.pid = static_cast<uint32_t>(t);
        if (!publish(e)) ++failures;
        table_.set_addresses(e.key, Address{{}, static_cast<uint16_t>(t + 1)}, Address{});
        const auto found = table_.find(e.key);
        if (!found || found->pid != e.pid || found->local.port != t + 1) ++failures;
        if (!table_.withdraw(e.key)) ++failures;
        if (table_.find(e.key)) ++failures;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

// The tests below use files in the folder that run_with_policy made.
std::string file_of(uid_t owner) {
  return std::string(getenv("DDPSOCK_REGISTRY_DIR")) + "/ddpsock-" + std::to_string(owner);
}

class FileTest : public ::testing::Test {
 protected:
  const uid_t me_ = geteuid();
  const Entry entry_ = make_entry(77);
  void SetUp() override { unlink(file_of(me_).c_str()); }
  Outcome outcome(uid_t owner) { return look_up(owner, entry_.key).outcome; }
};

TEST_F(FileTest, IsMadeOnceAndFoundByPath) {
  EXPECT_EQ(outcome(me_), Outcome::kAbsent);
  EXPECT_FALSE(std::filesystem::exists(file_of(me_))) << "a look makes no file";
  const mode_t mask = umask(0077);
  auto mine = own_registry(me_);
  umask(mask);
  ASSERT_TRUE(mine);
  ASSERT_TRUE(mine->publish(entry_, never_gone, nullptr));
  struct stat st;
  ASSERT_EQ(stat(file_of(me_).c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0644u) << "others must be able to read it, whatever the umask";
  EXPECT_EQ(st.st_size, static_cast<off_t>(kRegistryFileSize));
  EXPECT_EQ(outcome(me_), Outcome::kFound);
}

TEST_F(FileTest, RemovedFileIsMadeAnewAndTheOldOneForgotten) {
  auto old = own_registry(me_);
  ASSERT_TRUE(old && old->publish(entry_, never_gone, nullptr));
  unlink(file_of(me_).c_str());
  EXPECT_EQ(outcome(me_), Outcome::kAbsent);
  auto fresh = own_registry(me_);
  ASSERT_TRUE(fresh);
  EXPECT_FALSE(fresh->find(entry_.key));
  ASSERT_TRUE(fresh->publish(entry_, never_gone, nullptr));
  EXPECT_EQ(outcome(me_), Outcome::kFound);
}

TEST_F(FileTest, WhatWasSeenDoesForAMoment) {
  constexpr useconds_t kLonger = 20'000;
  auto mine = own_registry(me_);
  ASSERT_TRUE(mine && mine->publish(entry_, never_gone, nullptr));
  FoundRegistry seen;
  EXPECT_EQ(look_up(me_, entry_.key, &seen).outcome, Outcome::kFound);
  EXPECT_EQ(current_registry(me_).file, seen.file);
  unlink(file_of(me_).c_str());
  usleep(kLonger);
  EXPECT_EQ(current_registry(me_).file, nullptr);
  EXPECT_EQ(look_up(me_, entry_.key, &seen).outcome, Outcome::kAbsent);
  EXPECT_EQ(seen.file, nullptr);
  // Not where this process has made another meanwhile.
  ASSERT_TRUE(own_registry(me_)->publish(entry_, never_gone, nullptr));
  RegistryFile* second = current_registry(me_).file;
  unlink(file_of(me_).c_str());
  ASSERT_TRUE(own_registry(me_));
  EXPECT_NE(current_registry(me_).file, second);
}

TEST_F(FileTest, WhatIsNotTrustworthyIsOutOfSight) {
  const std::string path = file_of(me_);
  const auto write = [&](size_t size) {
    std::ofstream(path, std::ios::binary) << std::string(size, '\xff');
    chmod(path.c_str(), 0644);
  };
  write(kRegistryFileSize);  // another magic
  EXPECT_EQ(outcome(me_), Outcome::kOutOfSight);
  EXPECT_FALSE(own_registry(me_));
  for (const size_t size : {size_t{1}, kRegistryFileSize - 1, kRegistryFileSize + 1}) {
    write(size);
    EXPECT_EQ(outcome(me_), Outcome::kOutOfSight) << size;
    EXPECT_FALSE(own_registry(me_)) << size;
  }
  unlink(path.c_str());
  ASSERT_EQ(symlink("/etc/passwd", path.c_str()), 0);
  EXPECT_EQ(outcome(me_), Outcome::kOutOfSight);
  EXPECT_FALSE(own_registry(me_));
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0644), 0);
  EXPECT_EQ(outcome(me_), Outcome::kOutOfSight);
  EXPECT_FALSE(own_registry(me_));
  unlink(path.c_str());
  ASSERT_TRUE(own_registry(me_));
  chmod(path.c_str(), 0666);
  EXPECT_EQ(outcome(me_), Outcome::kOutOfSight);
  EXPECT_FALSE(own_registry(me_));
}

TEST_F(FileTest, AnotherUsersFileIsReadNotMapped) {
  if (me_ != 0) GTEST_SKIP() << "needs root to give a file to another user";
  constexpr uid_t kOther = 12345;
  const std::string path = file_of(kOther);
  auto file = std::make_unique<RegistryFile>();
  file->magic = kRegistryMagic;
  ASSERT_TRUE(RegistryTable(*file).publish(entry_, never_gone, nullptr));
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.get()), kRegistryFileSize);
  EXPECT_EQ(outcome(kOther), Outcome::kOutOfSight) << "owned by root, who squats on the name";
  ASSERT_EQ(chown(path.c_str(), kOther, kOther), 0);
  EXPECT_EQ(outcome(kOther), Outcome::kFound);
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  EXPECT_EQ(outcome(kOther), Outcome::kOutOfSight);
  EXPECT_FALSE(own_registry(kOther, For::kPublishing));
  unlink(path.c_str());
  EXPECT_EQ(outcome(kOther), Outcome::kAbsent);
}

TEST_F(FileTest, TheSuperuserVouchesForOthersInItsOwnFile) {
  if (me_ != 0) GTEST_SKIP() << "needs the superuser";
  constexpr uid_t kOther = 12345, kThird = 12346;
  for (int round = 0; round < 2; ++round) {
    auto mine = own_registry(kOther, For::kPublishing);
    ASSERT_TRUE(mine && mine->publish(entry_, never_gone, nullptr));
    struct stat st;
    ASSERT_EQ(stat(file_of(kOther).c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, kOther);
    EXPECT_EQ(outcome(kOther), Outcome::kFound);
    EXPECT_EQ(outcome(kThird), Outcome::kAbsent) << "whose file says nothing of it";
    EXPECT_EQ(look_up(kOther, make_entry(999).key).outcome, Outcome::kAbsent);
    // Its owner can do that at any time, and harms nobody else.
    ASSERT_EQ(truncate(file_of(kOther).c_str(), 0), 0);
    EXPECT_EQ(outcome(kOther), Outcome::kOutOfSight);
    EXPECT_TRUE(mine->withdraw(entry_.key));
  }
}

TEST_F(FileTest, WhoActsAsAnotherDoesNotMapTheirFile) {
  if (me_ != 0) GTEST_SKIP() << "needs the superuser";
  constexpr uid_t kOther = 12345;
  chmod(std::filesystem::path(file_of(kOther)).parent_path().c_str(), 01777);
  const auto in_child = [&](auto become) {
    const pid_t child = fork();
    if (child == 0) {
      if (!become()) _exit(1);
      auto mine = own_registry(kOther, For::kPublishing);
      if (!mine || truncate(file_of(kOther).c_str(), 0) != 0) _exit(2);
      _exit(mine->find(entry_.key) ? 3 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  };
  EXPECT_EQ(in_child([] { return seteuid(kOther) == 0; }), 0);
  EXPECT_EQ(in_child([] { return setresuid(kOther, kOther, 0) == 0; }), 0);
  EXPECT_EQ(in_child([] { return setresuid(0, kOther, kOther) == 0; }), 0);
}

TEST_F(FileTest, ProcessesShareOneTable) {
  ASSERT_TRUE(own_registry(me_));
  constexpr int kProcesses = 4, kRounds = 2000;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      int failures = 0;
      auto mine = own_registry(me_);
      for (int i = 0; mine && i < kRounds; ++i) {
        const Entry e = make_entry(static_cast<uint64_t>(i % 16 * kProcesses + p + 1));
        failures += !mine->publish(e, never_gone, nullptr);
        failures += look_up(me_, e.key).outcome != Outcome::kFound;
        failures += !mine->withdraw(e.key);
      }
      _exit(mine && failures == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(FileTest, KilledWritersLeaveAUsableTable) {
  auto mine = own_registry(me_);
  ASSERT_TRUE(mine);
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0)
      for (uint64_t i = 1;; ++i) {
        mine->publish(make_entry(i % 64 + 1), never_gone, nullptr);
        mine->withdraw(make_entry(i % 64 + 1).key);
      }
    usleep(500 + static_cast<useconds_t>(round) * 37);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  for (uint64_t cookie = 1; cookie <= 64; ++cookie) {
    ASSERT_TRUE(mine->publish(make_entry(cookie), never_gone, nullptr));
    EXPECT_EQ(look_up(me_, make_entry(cookie).key).outcome, Outcome::kFound);
  }
}

}  // namespace
}  // namespace ddpsock::shim

int main(int argc, char** argv) {
  return ddpsock::shim::testing::run_with_policy(argc, argv, "ddp1;d,prefer,-");
}
