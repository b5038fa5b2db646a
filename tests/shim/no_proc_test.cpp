// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where there is no /proc: in a container that has none, or behind chroot, as many servers are once
// they have opened their listener.
#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// For this process and what it forks.
bool hide_proc() {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
}

class NoProc : public TcpTest {
 protected:
  void SetUp() override {
    const pid_t child = fork();
    if (child == 0) _exit(hide_proc() ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) GTEST_SKIP() << "mount namespaces are not permitted";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { rmdir(folder_.data()); }
  bool hide_all() const {
    const bool is_hidden =
        chroot(folder_.data()) == 0 || (unshare(CLONE_NEWUSER) == 0 && chroot(folder_.data()) == 0);
    return is_hidden && chdir("/") == 0;
  }

 private:
  std::string folder_ = "/tmp/no_proc_XXXXXX";
};

void talk(int a, int b) {
  for (int i = 0; i < 5; ++i) expect_alive(a, b);
  const std::string much = pattern(3'000'000);
  std::jthread writer([&] { send_all(a, much); });
  EXPECT_TRUE(is_same(recv_exactly(b, much.size()), much));
}

TEST_F(NoProc, TwoEndsTalk) {
  Child([] {
    ASSERT_TRUE(hide_proc());
    const Pair pair = connected_pair();
    talk(pair.client.get(), pair.server.get());
    Child([&] { talk(pair.server.get(), pair.client.get()); }).expect_success();
    talk(pair.client.get(), pair.server.get());
  }).expect_success();
}

TEST_F(NoProc, OnlyOneEndSeesIt) {
  for (const bool is_server_blind : {false, true}) {
    const Listener listener = listen_loopback();
    Child server([&] {
      ASSERT_TRUE(!is_server_blind || hide_proc());
      const Fd fd = accept_one(listener.fd.get());
      for (int i = 0; i < 20; ++i) send_all(fd.get(), recv_exactly(fd.get(), 20'000));
    });
    Child client([&] {
      ASSERT_TRUE(is_server_blind || hide_proc());
      const Fd fd = dial(listener.address);
      const std::string bytes = pattern(20'000);
      for (int i = 0; i < 20; ++i) {
        send_all(fd.get(), bytes);
        EXPECT_TRUE(is_same(recv_exactly(fd.get(), bytes.size()), bytes));
      }
      expect_end_of_stream(fd.get());
    });
    client.expect_success();
    server.expect_success();
  }
}

// More than the library looks after itself, of streams that are in memory.
TEST_F(NoProc, ManyEpollSets) {
  Child([] {
    std::vector<Pair> pairs;
    for (size_t i = 0; i < 40; ++i) {
      pairs.push_back(connected_pair());
      for (int n = 0; n < 3; ++n) expect_alive(pairs[i].client.get(), pairs[i].server.get());
    }
    ASSERT_TRUE(hide_proc());
    constexpr uint64_t kChanged = 1000;
    std::vector<Fd> sets;
    const auto use = [&](size_t i, uint64_t data) {
      send_all(pairs[i].client.get(), "abc");
      epoll_event event{};
      ASSERT_EQ(epoll_wait(sets[i].get(), &event, 1, 3000), 1) << i;
      EXPECT_EQ(event.data.u64, data);
      EXPECT_EQ(recv_exactly(pairs[i].server.get(), 3), "abc");
    };
    for (size_t i = 0; i < pairs.size(); ++i) {
      sets.emplace_back(epoll_create1(EPOLL_CLOEXEC));
      epoll_event event{EPOLLIN, {.u64 = i}};
      ASSERT_EQ(epoll_ctl(sets[i].get(), EPOLL_CTL_ADD, pairs[i].server.get(), &event), 0);
      for (int n = 0; n < 3; ++n) use(i, i);
      // Which the kernel may hear of later.
      event.data.u64 = kChanged;
      ASSERT_EQ(epoll_ctl(sets[i].get(), EPOLL_CTL_MOD, pairs[i].server.get(), &event), 0);
    }
    for (int round = 0; round < 5; ++round)
      for (size_t i = 0; i < sets.size(); ++i) use(i, kChanged);
  }).expect_success();
}

TEST_F(NoProc, AServerBehindChroot) {
  const Listener listener = listen_loopback();
  Child server([&] {
    ASSERT_TRUE(hide_all());
    for (int i = 0; i < 3; ++i) {
      const Fd fd = accept_one(listener.fd.get());
      Child worker([&] { send_all(fd.get(), recv_exactly(fd.get(), 20'000)); });
      worker.expect_success();
    }
  });
  for (int i = 0; i < 3; ++i) {
    const Fd fd = dial(listener.address);
    const std::string bytes = pattern(20'000);
    send_all(fd.get(), bytes);
    EXPECT_TRUE(is_same(recv_exactly(fd.get(), bytes.size()), bytes));
    expect_end_of_stream(fd.get());
  }
  server.expect_success();
}

TEST_F(NoProc, AClientBehindChroot) {
  const Listener listener = listen_loopback();
  Child client([&] {
    ASSERT_TRUE(hide_all());
    const Fd fd = dial(listener.address);
    const std::string bytes = pattern(20'000);
    send_all(fd.get(), bytes);
    EXPECT_TRUE(is_same(recv_exactly(fd.get(), bytes.size()), bytes));
    expect_end_of_stream(fd.get());
  });
  {
    const Fd fd = accept_one(listener.fd.get());
    send_all(fd.get(), recv_exactly(fd.get(), 20'000));
  }
  client.expect_success();
}

}  // namespace
}  // namespace ddpsock::shim_tests
