// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What relatives share, by hand: proofs of life, leases of the dead, the end of the table.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/sys.h"
#include "relatives/arena.h"
#include "relatives/life.h"
#include "stream/stream_testing.h"

namespace ddpsock::engine {
namespace {

pid_t clone_unseen() {
  return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

// Ends, but is not reaped yet.
void await_end(pid_t child) {
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
}

class LifeTest : public testing::Test {
 protected:
  LifeTest() : file_(memfd_create("ddpsock", MFD_CLOEXEC)) { EXPECT_EQ(pipe(done_), 0); }
  ~LifeTest() override {
    for (const int fd : done_) close(fd);
  }
  LifeLock::State state() const { return LifeLock::look(file_.get(), kByte); }
  void await_word() const {
    char byte;
    EXPECT_EQ(read(done_[0], &byte, 1), 1);
  }
  void say_word() const { EXPECT_EQ(write(done_[1], "x", 1), 1); }

  static constexpr off_t kByte = off_t{1} << 40;
  base::UniqueFd file_;
  int done_[2];
};

TEST_F(LifeTest, ALockEndsWithItsProcessAndNotBefore) {
  EXPECT_EQ(state(), LifeLock::State::kFree);
  const pid_t child = fork();
  if (child == 0) {
    LifeLock lock;
    if (!lock.hold(file_.get(), kByte, LifeLock::Heirs::kNone)) _exit(1);
    // What the program closes is of no account, nor are its children.
    close(dup(file_.get()));
    if (clone_unseen() == 0) {
      alarm(3);
      say_word();
      pause();
    }
    pause();
  }
  await_word();
  EXPECT_EQ(state(), LifeLock::State::kHeld);
  kill(child, SIGKILL);
  await_end(child);
  EXPECT_EQ(state(), LifeLock::State::kFree) << "of a zombie";
  waitpid(child, nullptr, 0);
}

TEST_F(LifeTest, AnInheritedLockEndsWithTheLastHeir) {
  int heirs[2];
  ASSERT_EQ(pipe(heirs), 0);
  const pid_t child = fork();
  if (child == 0) {
    LifeLock lock;
    if (!lock.hold(file_.get(), kByte, LifeLock::Heirs::kAll)) _exit(1);
    if (clone_unseen() == 0) {
      char byte;
      close(heirs[1]);
      if (read(heirs[0], &byte, 1) == 0) lock.let_go();
      say_word();
      alarm(3);
      pause();
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(state(), LifeLock::State::kHeld) << "by the child of one that is gone";
  close(heirs[0]);
  close(heirs[1]);
  await_word();
  EXPECT_EQ(state(), LifeLock::State::kFree);
}

TEST_F(LifeTest, ALineageKnowsOfChildrenThatNobodyForesaw) {
  Lineage lineage;
  lineage.begin();
  EXPECT_FALSE(lineage.has_unknown());
  lineage.expect_child();
  const pid_t foreseen = fork();
  if (foreseen == 0) {
    pause();
    _exit(0);
  }
  lineage.child_is_made();
  EXPECT_FALSE(lineage.has_unknown());
  const pid_t unseen = clone_unseen();
  if (unseen == 0) {
    pause();
    _exit(0);
  }
  EXPECT_TRUE(lineage.has_unknown());
  kill(unseen, SIGKILL);
  await_end(unseen);
  EXPECT_FALSE(lineage.has_unknown()) << "a zombie";
  for (const pid_t child : {foreseen, unseen}) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  lineage.begin();
}

// In a host of its own, as it were.
TEST_F(LifeTest, LineagesLeaveHalfOfTheHostsMemoryToOthers) {
  constexpr unsigned long kPieces = 64;
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWIPC) != 0) _exit(77);
    const base::UniqueFd limit(open("/proc/sys/kernel/shmmni", O_WRONLY | O_CLOEXEC));
    if (!limit.is_valid() || write(limit.get(), "64", 2) != 2) _exit(77);
    std::vector<Lineage> family(200);
    for (Lineage& lineage : family) lineage.begin();
    shm_info used{};
    if (shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&used)) < 0) _exit(1);
    if (used.used_ids < 8 || static_cast<unsigned long>(used.used_ids) > kPieces / 2 + 1) _exit(2);
    _exit(shmget(IPC_PRIVATE, 4096, S_IRUSR | S_IWUSR) < 0 ? 3 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no such namespace to be had";
  EXPECT_EQ(status, 0);
}

// Who has it by mistake cannot end the others by SIGBUS.
TEST(Relatives, TheMemorysSizeIsSealed) {
  const int fd = Arena::get()->file.fd();
  struct stat st;
  ASSERT_EQ(fstat(fd, &st), 0);
  for (const off_t size : {off_t{0}, st.st_size - 4096, st.st_size + 4096}) {
    EXPECT_EQ(ftruncate(fd, size), -1);
    EXPECT_EQ(errno, EPERM);
  }
}

TEST(Relatives, WhatTheDeadHeldIsUsedAgain) {
  TcpPair tcp;
  Arena& arena = *Arena::get();
  const uint32_t before = arena.slots.live();
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 300; ++i)
      if (!user_stream_engine().open(tcp.client, {})) _exit(1);
    kill(getpid(), SIGKILL);
  }
  await_end(child);
  EXPECT_EQ(arena.slots.live(), before + 300);
  // Nothing forks any more, and still they are found.
  std::vector<Stream*> streams;
  for (int i = 0; i < 300; ++i) {
    const auto s = user_stream_engine().open(tcp.client, {});
    ASSERT_TRUE(s.has_value());
    streams.push_back(*s);
  }
  EXPECT_EQ(arena.slots.live(), before + 300);
  for (Stream* s : streams) s->release(tcp.client);
  waitpid(child, nullptr, 0);
}

TEST(Relatives, WhatAnUnseenChildMayHaveIsKeptWhileItLives) {
  TcpPair tcp;
  Arena& arena = *Arena::get();
  const uint32_t before = arena.slots.live();
  const auto s = user_stream_engine().open(tcp.client, {});
  ASSERT_TRUE(s.has_value());
  const pid_t child = clone_unseen();
  if (child == 0) {
    pause();
    _exit(0);
  }
  (*s)->release(tcp.client);
  arena.dead_holders.collect();
  EXPECT_EQ(arena.slots.live(), before + 1);
  kill(child, SIGKILL);
  await_end(child);
  arena.dead_holders.collect();
  EXPECT_EQ(arena.slots.live(), before);
  waitpid(child, nullptr, 0);
}

// A call that must not wait asks after the holder, who is done just before the answer.
TEST(Leases, OneThatIsGivenBackWhileItsHolderIsAskedAfterIsTakenOnce) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  EXPECT_EQ(a.send(pattern(1)).count, 1);
  EXPECT_EQ(b.recv(1), pattern(1));
  static std::atomic<bool> is_inside, is_to_end;
  static std::thread holder;
  static End* sender;
  is_inside = is_to_end = false;
  sender = &a;
  const auto real_recv = base::sys.recv;
  const auto real_poll = base::sys.poll;
  base::sys.recv = [](int fd, void* to, size_t n, int flags) {
    if ((flags & MSG_DONTWAIT) == 0) is_inside = true;
    return ::recv(fd, to, n, flags);
  };
  base::sys.poll = [](pollfd* p, nfds_t n, int milliseconds) {
    if (!is_to_end.exchange(false)) return ::poll(p, n, milliseconds);
    const Time start = base::now();
    EXPECT_EQ(sender->send(pattern(5)).count, 5);
    holder.join();
    // Longer than a holder is believed to be at work.
    while (base::now() - start < Duration::from_ms(2)) sched_yield();
    p->revents = p->events;
    return 1;
  };
  holder = std::thread([&b] { EXPECT_EQ(b.recv(5), pattern(5)); });
  while (!is_inside) sched_yield();
  is_to_end = true;
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN) << "there is nothing more";
  EXPECT_FALSE(is_to_end);
  base::sys.recv = real_recv;
  base::sys.poll = real_poll;
  EXPECT_EQ(a.send(pattern(7)).count, 7);
  while (!kernel_says_readable(b.fd)) sched_yield();
  EXPECT_EQ(b.recv(7, MSG_DONTWAIT), pattern(7));
}

// It goes on in the middle of its call when it is continued: nobody can take the direction over.
// But it does not look like one that is done soon.
TEST(Leases, OneThatIsStoppedIsNotWaitedFor) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  EXPECT_EQ(a.send(pattern(1)).count, 1);
  EXPECT_EQ(b.recv(1), pattern(1));
  const pid_t child = fork();
  uint8_t byte;
  if (child == 0) {
    base::sys.recv = [](int fd, void* to, size_t n, int flags) {
      const ssize_t got = ::recv(fd, to, n, flags);
      const base::KeepErrno keep;
      raise(SIGSTOP);
      return got;
    };
    _exit(b.recv(&byte, 1, MSG_DONTWAIT).error == EAGAIN ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(a.send(pattern(5)).count, 5);
  while (!kernel_says_readable(b.fd)) sched_yield();
  Duration shortest = Duration::from_ms(1'000);
  for (int i = 0; i < 5; ++i) {
    const Time start = base::now();
    EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
    shortest = std::min(shortest, base::now() - start);
  }
  EXPECT_LT(shortest.ns, Duration::from_ms(50).ns);
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(b.recv(5), pattern(5));
}

TEST(Relatives, ALeaseOfAThreadEndsWithExec) {
  Arena& arena = *Arena::get();
  int name[2];
  ASSERT_EQ(pipe2(name, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const uint32_t my_name = arena.family.my_name();
    arena.heirs.hold_for_program(getpid());
    if (write(name[1], &my_name, sizeof my_name) != sizeof my_name) _exit(1);
    execl("/bin/sleep", "sleep", "10", nullptr);
    _exit(1);
  }
  close(name[1]);
  uint32_t its_name = 0;
  ASSERT_EQ(read(name[0], &its_name, sizeof its_name), ssize_t{sizeof its_name});
  const Time give_up = base::now() + Duration::from_ms(5'000);
  const auto is_dead = [&] { return arena.family.is_dead(its_name, static_cast<uint32_t>(child)); };
  while (!is_dead() && base::now() < give_up) sched_yield();
  EXPECT_TRUE(is_dead());
  close(name[0]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Whoever is killed while it frees what a dead relative held is followed by the next.
TEST(Relatives, WhatADeadCollectorBeganIsDone) {
  TcpPair tcp;
  Arena& arena = *Arena::get();
  arena.dead_holders.collect();
  const uint32_t before = arena.slots.live();
  const pid_t holder = fork();
  if (holder == 0) {
    for (int i = 0; i < 3; ++i)
      if (!user_stream_engine().open(tcp.client, {})) _exit(1);
    kill(getpid(), SIGKILL);
  }
  await_end(holder);
  const pid_t collector = fork();
  if (collector == 0) {
    static int left = 2;
    arena.dead_holders.set_free_contents([](Blocks&, void*) {
      if (--left == 0) kill(getpid(), SIGKILL);
    });
    arena.dead_holders.collect();
    _exit(0);
  }
  await_end(collector);
  EXPECT_EQ(arena.slots.live(), before + 2);
  arena.dead_holders.collect();
  arena.dead_holders.collect();  // what the collector itself was about to free
  EXPECT_EQ(arena.slots.live(), before);
  for (const pid_t child : {holder, collector}) waitpid(child, nullptr, 0);
}

// Two look at what one dead relative held, the second while the first frees it.
TEST(Relatives, OneOfTwoCollectorsFreesARecord) {
  TcpPair tcp;
  static Arena& arena = *Arena::get();
  arena.dead_holders.collect();
  const uint32_t before = arena.slots.live();
  const auto shared = user_stream_engine().open(tcp.client, {});
  ASSERT_TRUE(shared.has_value());
  int born[2];
  ASSERT_EQ(pipe(born), 0);
  std::array<pid_t, 2> holders;
  for (pid_t& child : holders) {
    child = fork();
    if (child == 0) {
      if (write(born[1], "x", 1) == 1) pause();
      _exit(0);
    }
  }
  char byte;
  for (size_t i = 0; i < holders.size(); ++i) ASSERT_EQ(read(born[0], &byte, 1), 1);
  for (const int fd : born) close(fd);
  (*shared)->release(tcp.client);
  EXPECT_EQ(arena.slots.live(), before + 1);
  for (const pid_t child : holders) {
    kill(child, SIGKILL);
    await_end(child);
  }
  static int times_freed = 0;
  arena.dead_holders.set_free_contents([](Blocks&, void*) {
    // In the middle of the first, as another thread would.
    if (++times_freed == 1) std::jthread([] { arena.dead_holders.collect(); });
  });
  arena.dead_holders.collect();
  EXPECT_EQ(times_freed, 1);
  EXPECT_EQ(arena.slots.live(), before);
  EXPECT_TRUE(user_stream_engine().is_available());  // sets the collector again
  for (const pid_t child : holders) waitpid(child, nullptr, 0);
}

// As at RLIMIT_NPROC.
bool forbid_forks() {
  constexpr auto kSize = static_cast<uint8_t>(offsetof(seccomp_data, nr));
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSize),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(Relatives, FailedForksTakeNoPlaces) {
  TcpPair tcp;
  Arena& arena = *Arena::get();
  const uint32_t before = arena.slots.live();
  const auto s = user_stream_engine().open(tcp.client, {});
  ASSERT_TRUE(s.has_value());
  const pid_t child = fork();
  if (child == 0) {
    if (!forbid_forks()) _exit(77);
    for (uint32_t i = 0; i < HolderSet::kMax + 100; ++i) {
      errno = ENOENT;
      if (fork() != -1 || errno != EAGAIN) _exit(1);
    }
    arena.dead_holders.collect();
    (*s)->release(tcp.client);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  (*s)->release(tcp.client);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp to be had";
  EXPECT_EQ(status, 0);
  arena.dead_holders.collect();
  EXPECT_EQ(arena.slots.live(), before);
}

TEST(Relatives, TheEndOfTheTableIsSaid) {
  TcpPair tcp;
  std::vector<Stream*> streams;
  for (;;) {
    const auto s = user_stream_engine().open(tcp.client, {});
    if (!s) {
      EXPECT_EQ(to_int(s.error()), ENFILE);
      break;
    }
    streams.push_back(*s);
    ASSERT_LE(streams.size(), size_t{RecordSlots::kMaxRecords});
  }
  EXPECT_FALSE(user_stream_engine().is_available());
  EXPECT_GT(streams.size(), size_t{RecordSlots::kMaxRecords} - 100);
  streams.back()->release(tcp.client);
  streams.pop_back();
  EXPECT_TRUE(user_stream_engine().is_available());
  for (Stream* s : streams) s->release(tcp.client);
}

}  // namespace
}  // namespace ddpsock::engine
