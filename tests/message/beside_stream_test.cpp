// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations of a stream whose bytes stay in shared memory (doc/decisions/0065), and of
// one on the wire, of which the same is asked: order between the two, and what becomes of either
// when processes fork, are stopped, are killed or execute programs.
#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "streams.h"

extern char** environ;

namespace ddpsock::message_tests {
namespace {

using BesideStream = StreamTest;

bool is_in_memory() {
  return std::string_view(expected_engine()) == "shm";
}

ddp_region allocate(int fd, size_t length) {
  ddp_region region{};
  EXPECT_EQ(ddp_alloc(fd, length, kAllRights, &region), 0) << strerror(errno);
  return region;
}
char* bytes_of(const ddp_region& region) {
  return reinterpret_cast<char*>(region.to);
}

ddp_region hear_region(int fd) {
  ddp_region region{};
  EXPECT_EQ(recv(fd, &region, sizeof region, MSG_WAITALL), static_cast<ssize_t>(sizeof region));
  return region;
}
void tell_region(int fd, const ddp_region& region) {
  EXPECT_EQ(write(fd, &region, sizeof region), static_cast<ssize_t>(sizeof region));
}

// A peer in a process of its own, which plays `part` on its end.
template <typename Part>
pid_t play(Listener& listener, Part part) {
  const pid_t child = fork();
  if (child != 0) return child;
  arm_alarm();
  signal(SIGPIPE, SIG_IGN);
  const int fd = accept(listener.fd.get(), nullptr, nullptr);
  char word[3];
  if (fd < 0 || recv(fd, word, 2, MSG_WAITALL) != 2 || write(fd, "ok", 2) != 2) _exit(90);
  if (recv(fd, word, 2, MSG_WAITALL) != 2) _exit(91);
  _exit(part(fd));
}
Fd meet(Listener& listener) {
  Fd fd = make_socket();
  EXPECT_EQ(connect_to(fd.get(), listener), 0);
  char word[3];
  EXPECT_EQ(write(fd.get(), "hi", 2), 2);
  EXPECT_EQ(recv(fd.get(), word, 2, MSG_WAITALL), 2);
  EXPECT_EQ(write(fd.get(), "on", 2), 2);
  return fd;
}
int exit_status(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
void await_stop(pid_t child) {
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
}

// Of both kinds of memory; with a reader that sleeps, and one that asks again and again.
TEST_F(BesideStream, AByteIsReadOnceTheWritesBeforeItAreInPlace) {
  constexpr uint32_t kRounds = 4000, kMost = 40'000;
  std::string memory(kMost, '\0');
  const ddp_region usual = offer(server_, memory), own = allocate(server_, kMost);
  std::atomic<uint32_t> checked{0};
  std::jthread reading([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      uint32_t told = 0;
      const int flags = round % 3 == 0 ? MSG_DONTWAIT : round % 3 == 1 ? MSG_WAITALL : 0;
      ssize_t n = 0;
      do {
        n = recv(server_, &told, sizeof told, flags);
      } while (n < 0 && errno == EAGAIN);
      ASSERT_EQ(n, static_cast<ssize_t>(sizeof told));
      ASSERT_EQ(told, round);
      const size_t size = round * 7919 % kMost + 1;
      const char mark = static_cast<char>(round % 251);
      const char* at = round % 2 == 0 ? bytes_of(own) : memory.data();
      ASSERT_TRUE(std::all_of(at, at + size, [&](char c) { return c == mark; })) << round;
      checked.store(round);
    }
  });
  for (uint32_t round = 1; round <= kRounds; ++round) {
    const std::string bytes(round * 7919 % kMost + 1, static_cast<char>(round % 251));
    put(client_, bytes, round % 2 == 0 ? own : usual, 0, 1,
        DDP_SILENT | (round % 5 == 0 ? DDP_MORE : 0));
    say(client_, {reinterpret_cast<const char*>(&round), sizeof round});
    while (checked.load() < round && !testing::Test::HasFailure()) {
      if (round % 2 != 0) std::this_thread::yield();
    }
    if (testing::Test::HasFailure()) break;
  }
  shutdown(client_, SHUT_WR);
}

TEST_F(BesideStream, ManyOperationsLeaveTheSocketUnreadable) {
  std::string memory(3000, 'm'), sink(3000, '.');
  const ddp_region theirs = offer(server_, memory), ours = offer(client_, sink);
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(get(client_, sink, ours, theirs), 1) << strerror(errno);
    ASSERT_EQ(next(client_, DDP_READ, 2).status, 0);
  }
  EXPECT_TRUE(sink == memory);
  for (const int fd : {client_, server_}) {
    EXPECT_FALSE(has_bytes(fd));
    int queued = -1;
    EXPECT_EQ(ioctl(fd, FIONREAD, &queued), 0);
    EXPECT_EQ(queued, 0);
  }
}

TEST_F(BesideStream, NothingIsReadBehindAWriteThatIsRefused) {
  std::string memory(64, '\xa5');
  ddp_region region{};
  ASSERT_EQ(ddp_reg(server_, memory.data(), memory.size(), DDP_REMOTE_READ, &region), 0);
  put(client_, "w", region, 0, 1, DDP_SILENT);
  (void)!write(client_, "behind", 6);
  char byte = 0;
  ssize_t n = 0;
  while ((n = recv(server_, &byte, 1, MSG_DONTWAIT)) < 0 && errno == EAGAIN) {
  }
  EXPECT_LE(n, 0);
  EXPECT_EQ(next(server_, DDP_ENDED).status, EPROTO);
  EXPECT_EQ(next(client_, DDP_ENDED).status, EREMOTEIO);
  EXPECT_TRUE(std::ranges::all_of(memory, [](char c) { return c == '\xa5'; }));
}

// Only the process whose queue pair it is can take in what comes.
TEST_F(BesideStream, AForkedChildReadsBehindTheWrites) {
  // Open: on the wire the child sleeps before an FPDU that only its parent takes.
  if (!is_in_memory()) GTEST_SKIP() << "the child does not get to them";
  constexpr uint32_t kRounds = 300, kSize = 30'000;
  auto* shared = static_cast<char*>(
      mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ddp_region region{};
  ASSERT_EQ(ddp_reg(server_, shared, kSize, kAllRights, &region), 0);
  put(client_, "x", region);
  next(client_, DDP_WRITTEN, 1);
  const pid_t child = fork();
  if (child == 0) {
    close(client_);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      uint32_t told = 0;
      if (recv(server_, &told, sizeof told, MSG_WAITALL) != sizeof told || told != round) _exit(1);
      for (uint32_t i = 0; i < kSize; ++i)
        if (shared[i] != static_cast<char>(round)) _exit(2);
      if (write(server_, "!", 1) != 1) _exit(3);
    }
    _exit(0);
  }
  std::string bytes;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    bytes.assign(kSize, static_cast<char>(round));  // the last is in place
    put(client_, bytes, region, 0, 1, DDP_SILENT);
    say(client_, {reinterpret_cast<const char*>(&round), sizeof round});
    char answer = 0;
    if (!has_bytes(client_, 3000) || read(client_, &answer, 1) != 1) break;
  }
  EXPECT_EQ(exit_status(child), 0);
  munmap(shared, kSize);
}

// Which takes the stream out of shared memory, if it is there, for the program's sake.
TEST_F(BesideStream, AProgramThatIsStartedChangesNothing) {
  std::string memory(20'000, '\0'), sink(20'000, '.');
  const ddp_region theirs = offer(server_, memory), ours = offer(client_, sink);
  for (int round = 1; round <= 60; ++round) {
    if (round == 30) {
      fcntl(server_, F_SETFD, 0);
      fcntl(client_, F_SETFD, 0);
      pid_t child = 0;
      std::string path = "/bin/true";
      char* const arguments[] = {path.data(), nullptr};
      ASSERT_EQ(posix_spawn(&child, path.c_str(), nullptr, nullptr, arguments, environ), 0);
      EXPECT_EQ(exit_status(child), 0);
    }
    const std::string bytes(memory.size(), static_cast<char>(round));
    put(client_, bytes, theirs, 0, 1, DDP_SILENT);
    say(client_, std::string(1, static_cast<char>(round)));
    ASSERT_EQ(hear(server_, 1)[0], static_cast<char>(round));
    ASSERT_TRUE(memory == bytes) << round;
    say(server_, "?");
    ASSERT_EQ(hear(client_, 1), "?");
    ASSERT_EQ(get(client_, sink, ours, theirs), 1);
    ASSERT_EQ(next(client_, DDP_READ, 2).status, 0);
    ASSERT_TRUE(sink == bytes) << round;
  }
}

// As most programs do: memory first, then words. Also where one end wants no shared memory.
TEST(BesideStreamApart, WhatBeginsBeforeTheFirstByteIsInMemoryToo) {
  arm_alarm();
  for (const bool is_mixed : {false, true}) {
    for (int round = 0; round < 20; ++round) {
      Listener listener = listen_on_loopback(true);
      Fd client = make_socket();
      if (is_mixed) {
        ASSERT_EQ(setsockopt(client.get(), SOL_DDP, DDP_ENGINE, "user", sizeof "user"), 0);
      }
      ASSERT_EQ(connect_to(client.get(), listener), 0);
      const Fd server(accept(listener.fd.get(), nullptr, nullptr));
      std::string memory(1000, '.'), sink(1000, '.');
      ddp_region theirs{}, ours{};
      ASSERT_EQ(ddp_reg(server.get(), memory.data(), 1000, kAllRights, &theirs), 0);
      ASSERT_EQ(ddp_reg(client.get(), sink.data(), 1000, kAllRights, &ours), 0);
      if (round % 2 == 0) {
        usleep(static_cast<useconds_t>(round * 100));
      }
      char word;
      ASSERT_EQ(write(client.get(), "?", 1), 1);
      ASSERT_EQ(recv(server.get(), &word, 1, MSG_WAITALL), 1);
      tell_region(server.get(), theirs);
      theirs = hear_region(client.get());
      const std::string bytes(1000, static_cast<char>('a' + round));
      const iovec part = part_of(bytes);
      const ddp_write_work work{.cookie = 2,
                                .iov = &part,
                                .iov_count = 1,
                                .flags = 0,
                                .remote_to = theirs.to,
                                .remote_stag = theirs.stag,
                                .reserved = 0};
      ASSERT_EQ(ddp_post_write(client.get(), &work, 1), 1) << strerror(errno);
      EXPECT_EQ(next(client.get(), DDP_WRITTEN, 2).status, 0);
      ASSERT_EQ(write(client.get(), "!", 1), 1);
      ASSERT_EQ(recv(server.get(), &word, 1, MSG_WAITALL), 1);
      EXPECT_EQ(memory, bytes);
      EXPECT_STREQ(status_of(client.get()).engine, is_mixed ? "user" : expected_engine());
      EXPECT_STREQ(status_of(server.get()).engine, is_mixed ? "user" : expected_engine());
    }
  }
}

TEST(BesideStreamApart, AllocatedMemoryNeedsNobodyAtTheOwner) {
  if (!is_in_memory()) GTEST_SKIP() << "somebody must answer";
  arm_alarm();
  Listener listener = listen_on_loopback(true);
  const pid_t child = play(listener, [](int fd) {
    const ddp_region own = allocate(fd, 4096);
    std::memcpy(bytes_of(own), "theirs", 6);
    tell_region(fd, own);
    char word;
    if (recv(fd, &word, 1, MSG_WAITALL) != 1) return 1;
    usleep(20'000);
    raise(SIGSTOP);
    if (recv(fd, &word, 1, MSG_WAITALL) != 1) return 2;
    uint64_t counter = 0;
    std::memcpy(&counter, bytes_of(own) + 64, sizeof counter);
    return std::memcmp(bytes_of(own), "ours__", 6) == 0 && counter == 5 ? 0 : 3;
  });
  Fd fd = meet(listener);
  const ddp_region there = hear_region(fd.get()), here = allocate(fd.get(), 64);
  // The first goes the usual way.
  const iovec nothing{};
  const ddp_write_work empty{.cookie = 9,
                             .iov = &nothing,
                             .iov_count = 0,
                             .flags = 0,
                             .remote_to = there.to,
                             .remote_stag = there.stag,
                             .reserved = 0};
  ASSERT_EQ(ddp_post_write(fd.get(), &empty, 1), 1) << strerror(errno);
  next(fd.get(), DDP_WRITTEN, 9);
  ASSERT_EQ(write(fd.get(), "!", 1), 1);
  await_stop(child);
  const ddp_read_work read_it{.cookie = 1,
                              .address = bytes_of(here),
                              .length = 6,
                              .stag = here.stag,
                              .remote_to = there.to,
                              .remote_stag = there.stag,
                              .flags = 0};
  ASSERT_EQ(ddp_post_read(fd.get(), &read_it, 1), 1);
  EXPECT_EQ(next(fd.get(), DDP_READ, 1).status, 0);
  EXPECT_EQ(std::memcmp(bytes_of(here), "theirs", 6), 0);
  const iovec part = part_of("ours__");
  const ddp_write_work write_it{.cookie = 2,
                                .iov = &part,
                                .iov_count = 1,
                                .flags = 0,
                                .remote_to = there.to,
                                .remote_stag = there.stag,
                                .reserved = 0};
  ASSERT_EQ(ddp_post_write(fd.get(), &write_it, 1), 1);
  EXPECT_EQ(next(fd.get(), DDP_WRITTEN, 2).status, 0);
  ddp_atomic_work add{};
  add.cookie = 3;
  add.operation = DDP_FETCH_ADD;
  add.operand = 5;
  add.remote_to = there.to + 64;
  add.remote_stag = there.stag;
  ASSERT_EQ(ddp_post_atomic(fd.get(), &add, 1), 1);
  EXPECT_EQ(next(fd.get(), DDP_ATOMIC_DONE, 3).value, 0u);
  kill(child, SIGCONT);
  ASSERT_EQ(write(fd.get(), "!", 1), 1);
  EXPECT_EQ(exit_status(child), 0);
}

// More than the peer has room for: the kernel refuses, too, until it is there again.
TEST(BesideStreamApart, APeerThatIsStoppedIsNotWaitedFor) {
  if (!is_in_memory()) GTEST_SKIP() << "there is more room in the kernel";
  arm_alarm();
  constexpr size_t kSize = 16'000;
  Listener listener = listen_on_loopback(true);
  const pid_t child = play(listener, [](int fd) {
    std::string memory(kSize, '.');
    ddp_region own{};
    if (ddp_reg(fd, memory.data(), kSize, kAllRights, &own) != 0) return 1;
    tell_region(fd, own);
    char word;
    if (recv(fd, &word, 1, MSG_WAITALL) != 1) return 2;
    usleep(20'000);
    raise(SIGSTOP);
    if (recv(fd, &word, 1, MSG_WAITALL) != 1 || word != '?') return 3;
    return std::ranges::all_of(memory, [](char c) { return c == 'z'; }) ? 0 : 4;
  });
  Fd fd = meet(listener);
  const ddp_region there = hear_region(fd.get());
  ASSERT_EQ(write(fd.get(), "!", 1), 1);
  await_stop(child);
  std::string bytes(kSize, 'y');
  const iovec part = part_of(bytes);
  ddp_write_work work{.cookie = 2,
                      .iov = &part,
                      .iov_count = 1,
                      .flags = DDP_SILENT,
                      .remote_to = there.to,
                      .remote_stag = there.stag,
                      .reserved = 0};
  std::string last(kSize, 'z');
  const iovec last_part = part_of(last);
  for (int i = 0; i < 40; ++i) {
    if (i == 39) work.iov = &last_part;
    ASSERT_EQ(ddp_post_write(fd.get(), &work, 1), 1) << strerror(errno);
  }
  EXPECT_ERRNO(EAGAIN, send(fd.get(), "?", 1, MSG_DONTWAIT));
  pollfd p{fd.get(), POLLOUT, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0) << "it is not writable";
  kill(child, SIGCONT);
  ASSERT_EQ(poll(&p, 1, kPatienceMs), 1);
  ssize_t n = 0;
  while ((n = send(fd.get(), "?", 1, MSG_DONTWAIT)) < 0 && errno == EAGAIN) poll(&p, 1, 100);
  EXPECT_EQ(n, 1);
  EXPECT_EQ(exit_status(child), 0);
}

// Its child has the stream, and goes on.
TEST(BesideStreamApart, OfAnOwnerThatIsKilledTheQueuePairEnds) {
  if (!is_in_memory()) GTEST_SKIP() << "the stream ends, too: nobody takes its FPDUs";
  arm_alarm();
  Listener listener = listen_on_loopback(true);
  const pid_t child = play(listener, [](int fd) {
    static std::string memory(100, 'm');
    ddp_region own{};
    if (ddp_reg(fd, memory.data(), memory.size(), kAllRights, &own) != 0) return 1;
    if (fork() == 0) {
      char word;
      while (recv(fd, &word, 1, 0) == 1) (void)!write(fd, &word, 1);
      _exit(0);
    }
    tell_region(fd, own);
    pause();
    return 0;
  });
  Fd fd = meet(listener);
  const ddp_region there = hear_region(fd.get());
  std::string sink(100, '.');
  ddp_region here{};
  ASSERT_EQ(ddp_reg(fd.get(), sink.data(), sink.size(), kAllRights, &here), 0);
  ddp_read_work work{.cookie = 1,
                     .address = sink.data(),
                     .length = 100,
                     .stag = here.stag,
                     .remote_to = there.to,
                     .remote_stag = there.stag,
                     .flags = 0};
  ASSERT_EQ(ddp_post_read(fd.get(), &work, 1), 1);
  EXPECT_EQ(next(fd.get(), DDP_READ, 1).status, 0);
  EXPECT_EQ(sink, std::string(100, 'm'));
  usleep(20'000);  // killed in the middle of a call it would leave nothing to its child
  kill(child, SIGKILL);
  EXPECT_EQ(exit_status(child), 1000 + SIGKILL);
  if (ddp_post_read(fd.get(), &work, 1) == 1) {
    EXPECT_NE(next(fd.get(), DDP_READ, 1).status, 0);
  }
  EXPECT_NE(next(fd.get(), DDP_ENDED).status, 0);
  for (int i = 0; i < 10; ++i) {
    char word = 'w';
    ASSERT_EQ(write(fd.get(), &word, 1), 1);
    ASSERT_EQ(recv(fd.get(), &word, 1, 0), 1);
  }
}

TEST(BesideStreamApart, OfAnOwnerThatExecutesAProgramTheQueuePairEnds) {
  if (!is_in_memory()) GTEST_SKIP() << "the stream ends, too: nobody takes its FPDUs";
  arm_alarm();
  Listener listener = listen_on_loopback(true);
  const pid_t child = play(listener, [](int fd) {
    static std::string memory(100, 'm');
    ddp_region own{};
    if (ddp_reg(fd, memory.data(), memory.size(), kAllRights, &own) != 0) return 1;
    tell_region(fd, own);
    char word;
    if (recv(fd, &word, 1, MSG_WAITALL) != 1) return 2;
    dup2(fd, 0);
    dup2(fd, 1);
    execl("/bin/cat", "cat", nullptr);
    return 3;
  });
  Fd fd = meet(listener);
  const ddp_region there = hear_region(fd.get());
  std::string sink(100, '.');
  ddp_region here{};
  ASSERT_EQ(ddp_reg(fd.get(), sink.data(), sink.size(), kAllRights, &here), 0);
  ddp_read_work work{.cookie = 1,
                     .address = sink.data(),
                     .length = 100,
                     .stag = here.stag,
                     .remote_to = there.to,
                     .remote_stag = there.stag,
                     .flags = 0};
  ASSERT_EQ(ddp_post_read(fd.get(), &work, 1), 1);
  EXPECT_EQ(next(fd.get(), DDP_READ, 1).status, 0);
  ASSERT_EQ(write(fd.get(), "!echo", 5), 5);
  char word[5];
  ASSERT_EQ(recv(fd.get(), word, 4, MSG_WAITALL), 4) << "it is there by now";
  if (ddp_post_read(fd.get(), &work, 1) == 1) {
    EXPECT_NE(next(fd.get(), DDP_READ, 1).status, 0);
  }
  EXPECT_NE(next(fd.get(), DDP_ENDED).status, 0);
  ASSERT_EQ(write(fd.get(), "more", 4), 4);
  EXPECT_EQ(recv(fd.get(), word, 4, MSG_WAITALL), 4);
  fd.close();
  EXPECT_EQ(exit_status(child), 0);
}

// The memory of a Write is the program's again, as on the wire, when a send behind it returns, or
// close; the peer is stopped meanwhile, and goes on soon.
TEST(BesideStreamApart, ASendHandsOverAndSoDoesAClose) {
  if (!is_in_memory()) GTEST_SKIP() << "the kernel has room for it";
  arm_alarm();
  constexpr size_t kSize = 100'000;
  Listener listener = listen_on_loopback(true);
  const pid_t child = play(listener, [](int fd) {
    std::string memory(kSize, '.');
    ddp_region own{};
    if (ddp_reg(fd, memory.data(), kSize, kAllRights, &own) != 0) return 1;
    tell_region(fd, own);
    const auto is_all = [&](char mark) {
      return std::ranges::all_of(memory, [&](char c) { return c == mark; });
    };
    char word;
    for (const char mark : {'y', 'z'}) {
      if (recv(fd, &word, 1, MSG_WAITALL) != 1) return 2;
      usleep(20'000);
      raise(SIGSTOP);
      if (mark == 'y' && (recv(fd, &word, 1, MSG_WAITALL) != 1 || !is_all(mark))) return 3;
    }
    return recv(fd, &word, 1, 0) == 0 && is_all('z') ? 0 : 4;
  });
  Fd fd = meet(listener);
  const ddp_region there = hear_region(fd.get());
  std::string bytes(kSize, '.');
  iovec part = part_of(std::string_view(bytes).substr(0, 1));
  const ddp_write_work work{.cookie = 2,
                            .iov = &part,
                            .iov_count = 1,
                            .flags = DDP_SILENT,
                            .remote_to = there.to,
                            .remote_stag = there.stag,
                            .reserved = 0};
  // From now on the peer knows that it can read the payload where it is.
  ASSERT_EQ(ddp_post_write(fd.get(), &work, 1), 1) << strerror(errno);
  usleep(30'000);
  part = part_of(bytes);
  for (const char mark : {'y', 'z'}) {
    ASSERT_EQ(write(fd.get(), "!", 1), 1);
    await_stop(child);
    bytes.assign(kSize, mark);
    ASSERT_EQ(ddp_post_write(fd.get(), &work, 1), 1) << strerror(errno);
    if (mark == 'y') {
      EXPECT_ERRNO(EAGAIN, send(fd.get(), "?", 1, MSG_DONTWAIT));
    }
    std::jthread later([&] {
      usleep(30'000);
      kill(child, SIGCONT);
    });
    if (mark == 'y') {
      EXPECT_EQ(write(fd.get(), "?", 1), 1);
    } else {
      fd.close();
    }
    bytes.assign(kSize, '-');
  }
  EXPECT_EQ(exit_status(child), 0);
}

int kills() {
  const char* wanted = std::getenv("DDPSOCK_KILLS");
  return wanted != nullptr ? std::atoi(wanted) : 60;
}

// Wherever it is just then: what it has said before is in place, and the end comes soon.
TEST(BesideStreamApart, WhatAPeerThatIsKilledHasSaidIsInPlace) {
  arm_alarm();
  for (int round = 0; round < kills(); ++round) {
    Listener listener = listen_on_loopback(true);
    const pid_t child = play(listener, [](int fd) {
      const ddp_region usual = hear_region(fd), own = hear_region(fd);
      std::string all[16];
      for (uint32_t i = 1;; ++i) {
        // Of what was sent so long ago it is known to be in place.
        std::string& bytes = all[i % 16];
        bytes.assign(i % 5 * 5000 + 8, static_cast<char>(i));
        const iovec part = part_of(bytes);
        const ddp_region& to = i % 2 == 0 ? own : usual;
        const ddp_write_work work{.cookie = 2,
                                  .iov = &part,
                                  .iov_count = 1,
                                  .flags = DDP_SILENT,
                                  .remote_to = to.to + i % 16 * 25'000,
                                  .remote_stag = to.stag,
                                  .reserved = 0};
        char answer;
        if (ddp_post_write(fd, &work, 1) != 1 || write(fd, &i, sizeof i) != sizeof i) return 1;
        if (i % 8 == 0 && recv(fd, &answer, 1, 0) != 1) return 2;
      }
    });
    Fd fd = meet(listener);
    std::string memory(16 * 25'000, '\0');
    ddp_region usual{};
    ASSERT_EQ(ddp_reg(fd.get(), memory.data(), memory.size(), kAllRights, &usual), 0);
    const ddp_region own = allocate(fd.get(), memory.size());
    tell_region(fd.get(), usual);
    tell_region(fd.get(), own);
    std::jthread killing([&] {
      usleep(static_cast<useconds_t>(round * 97 % 3000));
      kill(child, SIGKILL);
    });
    uint32_t told = 0, last = 0;
    while (recv(fd.get(), &told, sizeof told, MSG_WAITALL) == sizeof told) {
      ASSERT_EQ(told, last + 1);
      last = told;
      const char* at = (told % 2 == 0 ? bytes_of(own) : memory.data()) + told % 16 * 25'000;
      const size_t size = told % 5 * 5000 + 8;
      ASSERT_TRUE(std::all_of(at, at + size, [&](char c) { return c == static_cast<char>(told); }))
          << told;
      if (told % 8 == 0) (void)!send(fd.get(), "+", 1, MSG_NOSIGNAL);
    }
    next(fd.get(), DDP_ENDED);
    EXPECT_EQ(exit_status(child), 1000 + SIGKILL);
  }
}

}  // namespace
}  // namespace ddpsock::message_tests
