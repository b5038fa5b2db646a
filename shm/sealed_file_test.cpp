// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a peer offers may be any file of any file system, and another by the time it is opened.
#include "shm/sealed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

namespace ddpsock::engine::shm {
namespace {

constexpr size_t kSize = 16 * kPage;

int offered(int fd) {
  const auto opened =
      open_sealed_file(static_cast<uint32_t>(getpid()), static_cast<uint32_t>(fd), kSize);
  return opened ? 0 : to_int(opened.error());
}

class SealedFile : public testing::Test {
 protected:
  SealedFile() {
    char name[] = "/tmp/ddpsock-offer-XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    alarm(20);
  }
  ~SealedFile() override {
    alarm(0);
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/file"; }

 private:
  std::string folder_;
};

TEST_F(SealedFile, IsOpenedAgain) {
  const auto made = make_sealed_file("offer", kSize);
  ASSERT_TRUE(made);
  EXPECT_EQ(offered(made->get()), 0);
}

// Somebody may wait for its other end to be opened.
TEST_F(SealedFile, AFifoIsNotOpened) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  const base::UniqueFd named(open(path().c_str(), O_PATH));
  const base::UniqueFd opened(inotify_init1(IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(opened.get(), path().c_str(), IN_OPEN), 0);
  EXPECT_EQ(offered(named.get()), EPROTO);
  std::array<char, 256> event;
  EXPECT_LT(read(opened.get(), event.data(), event.size()), 0);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(SealedFile, OthersAreRefused) {
  const base::UniqueFd on_disk(open(path().c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(ftruncate(on_disk.get(), kSize), 0);
  const base::UniqueFd device(open("/dev/zero", O_RDWR));
  const base::UniqueFd folder(open("/", O_PATH));
  const base::UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const auto other_size = make_sealed_file("offer", 2 * kSize);
  ASSERT_TRUE(other_size);
  for (const int fd :
       {on_disk.get(), device.get(), folder.get(), socket.get(), other_size->get()}) {
    EXPECT_NE(offered(fd), 0) << fd;
  }
}

// Whatever the number stands for at whatever moment.
TEST_F(SealedFile, SwappedBetweenLookAndOpening) {
  const auto good = make_sealed_file("offer", kSize);
  const auto other_size = make_sealed_file("offer", 2 * kSize);
  ASSERT_TRUE(good && other_size);
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  const base::UniqueFd fifo(open(path().c_str(), O_PATH));
  const base::UniqueFd number(dup(good->get()));
  std::atomic<bool> is_over{false};
  std::thread swapper([&] {
    while (!is_over)
      for (const int fd : {fifo.get(), other_size->get(), good->get()}) dup2(fd, number.get());
  });
  int taken = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto opened = open_sealed_file(static_cast<uint32_t>(getpid()),
                                         static_cast<uint32_t>(number.get()), kSize);
    if (!opened) continue;
    ++taken;
    EXPECT_EQ(file_of(opened->get()), file_of(good->get()));
  }
  is_over = true;
  swapper.join();
  EXPECT_GT(taken, 0);
}

// In a namespace of mounts of its own. A server in user space that never answers: whoever asks it
// anything waits for ever, and is killed by its alarm.
int look_at_silent_server(const std::string& path) {
  alarm(5);
  if (unshare(CLONE_NEWNS) != 0) return 77;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
  const base::UniqueFd server(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!server.is_valid()) return 77;
  const std::string options =
      "fd=" + std::to_string(server.get()) + ",rootmode=100000,user_id=0,group_id=0";
  if (mount("silent", path.c_str(), "fuse", 0, options.c_str()) != 0) return 77;
  const base::UniqueFd named(open(path.c_str(), O_PATH));
  if (!named.is_valid()) return 77;
  return offered(named.get()) == EPROTO ? 0 : 1;
}

TEST_F(SealedFile, AServerThatNeverAnswersIsNotAsked) {
  const base::UniqueFd under(open(path().c_str(), O_RDWR | O_CREAT, 0600));
  const pid_t child = fork();
  if (child == 0) _exit(look_at_silent_server(path()));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "needs the right to mount, and /dev/fuse";
  EXPECT_TRUE(WIFEXITED(status)) << "it was asked, and waited for";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ddpsock::engine::shm
