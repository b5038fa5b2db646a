// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations on a byte stream, mixed with read and write. Run once with the user engine
// and once where shared memory may be had.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

constexpr unsigned kAllRights =
    DDP_LOCAL_WRITE | DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC;

Ends connect_streams() {
  Listener listener = listen_on_loopback(true);
  Ends ends{.client = make_socket(), .server = {}};
  EXPECT_EQ(connect_to(ends.client.get(), listener), 0) << strerror(errno);
  ends.server = Fd(accept(listener.fd.get(), nullptr, nullptr));
  EXPECT_GE(ends.server.get(), 0);
  return ends;
}

bool has_bytes(int fd, int timeout_ms = 0) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN) != 0;
}

class Stream : public testing::Test {
 protected:
  Stream() {
    arm_alarm();
    signal(SIGPIPE, SIG_IGN);
    // A round trip, so that each side knows the other.
    say(client_, "hello");
    EXPECT_EQ(hear(server_, 5), "hello");
    say(server_, "yes");
    EXPECT_EQ(hear(client_, 3), "yes");
  }

  static void say(int fd, std::string_view text) {
    ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()))
        << strerror(errno);
  }
  static std::string hear(int fd, size_t size) {
    std::string text(size, '\0');
    const ssize_t n = recv(fd, text.data(), size, MSG_WAITALL);
    EXPECT_EQ(n, static_cast<ssize_t>(size)) << strerror(errno);
    text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return text;
  }
  static ddp_region offer(int fd, std::string& memory, unsigned rights = kAllRights) {
    ddp_region region{};
    EXPECT_EQ(ddp_reg(fd, memory.data(), memory.size(), rights, &region), 0) << strerror(errno);
    return region;
  }
  static void put(int fd, std::string_view bytes, const ddp_region& to, uint64_t offset = 0,
                  uint64_t cookie = 1, uint32_t flags = 0) {
    const iovec part = part_of(bytes);
    const ddp_write_work work{.cookie = cookie,
                              .iov = &part,
                              .iov_count = 1,
                              .flags = flags,
                              .remote_to = to.to + offset,
                              .remote_stag = to.stag,
                              .reserved = 0};
    EXPECT_EQ(ddp_post_write(fd, &work, 1), 1) << strerror(errno);
  }
  static int get(int fd, std::string& into, const ddp_region& ours, const ddp_region& from,
                 uint64_t cookie = 2) {
    const ddp_read_work work{.cookie = cookie,
                             .address = into.data(),
                             .length = static_cast<uint32_t>(into.size()),
                             .stag = ours.stag,
                             .remote_to = from.to,
                             .remote_stag = from.stag,
                             .flags = 0};
    return ddp_post_read(fd, &work, 1);
  }

  Ends ends_ = connect_streams();
  int client_ = ends_.client.get(), server_ = ends_.server.get();
};

TEST_F(Stream, IsOne) {
  EXPECT_EQ(status_of(client_).mode, static_cast<uint32_t>(DDP_MODE_STREAM));
  EXPECT_EQ(status_of(server_).mode, static_cast<uint32_t>(DDP_MODE_STREAM));
  std::string memory(8, '.');
  offer(client_, memory);
  const ddp_status status = status_of(client_);
  EXPECT_STRNE(status.progress, "");
  EXPECT_STREQ(status.engine, "user");
}

TEST_F(Stream, WritesLandWithoutAWordInTheStream) {
  std::string memory(64, '.');
  const ddp_region region = offer(server_, memory);
  put(client_, "one-sided", region, 8);
  EXPECT_EQ(next(client_, DDP_WRITTEN, 1).status, 0);
  say(client_, "!");
  EXPECT_EQ(hear(server_, 1), "!");
  EXPECT_EQ(memory.substr(0, 20), "........one-sided...");
  EXPECT_FALSE(has_bytes(server_));
}

TEST_F(Stream, ReadsAndAtomicsAreAnsweredWhileTheOtherSideSleeps) {
  std::string memory(64, 'm'), sink(64, '.');
  const ddp_region theirs = offer(server_, memory), ours = offer(client_, sink);
  ASSERT_EQ(get(client_, sink, ours, theirs), 1) << strerror(errno);
  EXPECT_EQ(next(client_, DDP_READ, 2).status, 0);
  EXPECT_TRUE(sink == memory);
  alignas(8) uint64_t word = 40;
  ddp_region counter{};
  ASSERT_EQ(ddp_reg(server_, &word, sizeof word, DDP_REMOTE_ATOMIC, &counter), 0);
  ddp_atomic_work add{};
  add.cookie = 3;
  add.operation = DDP_FETCH_ADD;
  add.operand = 2;
  add.remote_to = counter.to;
  add.remote_stag = counter.stag;
  ASSERT_EQ(ddp_post_atomic(client_, &add, 1), 1);
  const ddp_completion done = next(client_, DDP_ATOMIC_DONE, 3);
  EXPECT_EQ(done.value, 40u);
  EXPECT_EQ(std::atomic_ref(word).load(), 42u);
}

TEST_F(Stream, AReadPassesBytesThatNobodyReads) {
  std::string memory(300'000, 'm'), sink(300'000, '.');
  const ddp_region theirs = offer(server_, memory), ours = offer(client_, sink);
  const std::string text(700'000, 's');
  std::jthread talking([&] { say(server_, text); });
  ASSERT_TRUE(has_bytes(client_, kPatienceMs));
  for (int i = 0; i < 5; ++i) {
    sink.assign(sink.size(), '.');
    ASSERT_EQ(get(client_, sink, ours, theirs), 1);
    EXPECT_EQ(next(client_, DDP_READ, 2).status, 0);
    EXPECT_TRUE(sink == memory);
    EXPECT_TRUE(has_bytes(client_)) << "unread bytes that no poller sees";
  }
  talking.join();
  int queued = 0;
  EXPECT_EQ(ioctl(client_, FIONREAD, &queued), 0);
  EXPECT_GT(queued, 0);
  EXPECT_TRUE(hear(client_, text.size()) == text);
  EXPECT_FALSE(has_bytes(client_));
}

TEST_F(Stream, BytesWrittenAfterAWriteAreReadAfterIt) {
  std::string memory(200'000, '\0');
  const ddp_region region = offer(server_, memory);
  for (int round = 1; round <= 100; ++round) {
    const std::string bytes(memory.size(), static_cast<char>(round));
    put(client_, bytes, region, 0, 1, DDP_SILENT);
    say(client_, std::string(1, static_cast<char>(round)));
    ASSERT_EQ(hear(server_, 1)[0], static_cast<char>(round));
    ASSERT_TRUE(memory == bytes) << round;
  }
}

TEST_F(Stream, PollersSeeWhatTheThreadHasDrained) {
  std::string memory(8, 'm');
  offer(client_, memory);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = 0}};
  ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, client_, &event), 0);
  for (int i = 0; i < 50; ++i) {
    say(server_, "some bytes");
    epoll_event seen{};
    ASSERT_EQ(epoll_wait(set, &seen, 1, kPatienceMs), 1);
    ASSERT_TRUE(has_bytes(client_));
    // One at a time: what is left keeps the socket readable.
    for (char c : std::string("some bytes")) {
      ASSERT_TRUE(has_bytes(client_)) << c;
      char byte = 0;
      ASSERT_EQ(recv(client_, &byte, 1, MSG_DONTWAIT), 1) << strerror(errno);
      ASSERT_EQ(byte, c);
    }
    EXPECT_FALSE(has_bytes(client_));
    char byte = 0;
    EXPECT_ERRNO(EAGAIN, recv(client_, &byte, 1, MSG_DONTWAIT));
  }
  close(set);
}

TEST_F(Stream, ABlockedReaderIsWokenAndServesTheQueuePair) {
  std::string memory(50'000, 'm'), sink(50'000, '.');
  std::string heard;
  std::jthread reading([&] { heard = hear(server_, 3); });
  const ddp_region theirs = offer(server_, memory), ours = offer(client_, sink);
  for (int i = 0; i < 20; ++i) {
    sink.assign(sink.size(), '.');
    ASSERT_EQ(get(client_, sink, ours, theirs), 1);
    ASSERT_EQ(next(client_, DDP_READ, 2).status, 0);
    EXPECT_TRUE(sink == memory);
  }
  say(client_, "end");
  reading.join();
  EXPECT_EQ(heard, "end");
}

TEST_F(Stream, LookingTakesNothing) {
  std::string memory(8, 'm');
  offer(client_, memory);
  say(server_, "abcdef");
  char seen[7] = {};
  EXPECT_EQ(recv(client_, seen, 6, MSG_PEEK | MSG_WAITALL), 6);
  EXPECT_STREQ(seen, "abcdef");
  EXPECT_EQ(recv(client_, seen, 3, MSG_TRUNC), 3);
  EXPECT_EQ(hear(client_, 3), "def");
}

TEST_F(Stream, BothWaysAtOnceFromManyThreads) {
  constexpr size_t kTotal = 8 << 20;
  std::string memories[2] = {std::string(100'000, 'a'), std::string(100'000, 'b')};
  std::string sinks[2] = {std::string(100'000, '.'), std::string(100'000, '.')};
  const int fds[2] = {client_, server_};
  ddp_region offered[2], ours[2];
  for (int i = 0; i < 2; ++i) {
    offered[i] = offer(fds[i], memories[i]);
    ours[i] = offer(fds[i], sinks[i]);
  }
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      std::string chunk(70'001, '\0');
      for (size_t sent = 0; sent < kTotal;) {
        for (size_t j = 0; j < chunk.size(); ++j)
          chunk[j] = static_cast<char>((sent + j) * 31 >> 3);
        const size_t n = std::min(chunk.size(), kTotal - sent);
        say(fds[i], std::string_view(chunk).substr(0, n));
        sent += n;
      }
    });
    threads.emplace_back([&, i] {
      std::string part(33'333, '\0');
      for (size_t got = 0; got < kTotal;) {
        const ssize_t n = read(fds[i], part.data(), part.size());
        ASSERT_GT(n, 0) << strerror(errno);
        for (ssize_t j = 0; j < n; ++j, ++got)
          ASSERT_EQ(part[static_cast<size_t>(j)], static_cast<char>(got * 31 >> 3)) << got;
      }
    });
    threads.emplace_back([&, i] {
      for (int k = 0; k < 100; ++k) {
        ASSERT_EQ(get(fds[i], sinks[i], ours[i], offered[1 - i]), 1);
        ASSERT_EQ(next(fds[i], DDP_READ, 2).status, 0);
        ASSERT_TRUE(sinks[i] == memories[1 - i]);
      }
    });
  }
}

TEST_F(Stream, WhatAPeerMayNotDoEndsBoth) {
  std::string all(192, '\xa5');
  ddp_region region{};
  ASSERT_EQ(ddp_reg(server_, all.data() + 64, 64, DDP_REMOTE_READ, &region), 0);
  put(client_, "w", region, 0, 1, DDP_SILENT);
  const ddp_completion theirs = next(server_, DDP_ENDED);
  EXPECT_EQ(theirs.status, EPROTO);
  EXPECT_NE(theirs.terminate, 0u);
  const ddp_completion ours = next(client_, DDP_ENDED);
  EXPECT_EQ(ours.status, EREMOTEIO);
  EXPECT_EQ(ours.terminate, theirs.terminate);
  EXPECT_TRUE(std::ranges::all_of(all, [](char c) { return c == '\xa5'; }));
  char byte = 0;
  EXPECT_ERRNO(EPROTO, read(server_, &byte, 1));
  EXPECT_ERRNO(ECONNRESET, read(client_, &byte, 1));
}

TEST_F(Stream, TheEndOfTheStreamIsAnEndOfFile) {
  std::string memory(8, 'm');
  offer(client_, memory);
  offer(server_, memory);
  say(client_, "last");
  ASSERT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(hear(server_, 4), "last");
  char byte = 0;
  EXPECT_EQ(read(server_, &byte, 1), 0);
  EXPECT_EQ(next(server_, DDP_ENDED).status, 0);
  // The other direction goes on.
  say(server_, "more");
  EXPECT_EQ(hear(client_, 4), "more");
}

TEST_F(Stream, SendsAndReceivesAreTheStreamsOwn) {
  std::string room(8, '.');
  const iovec part = part_of(room);
  const ddp_send_work send = send_work(part);
  const ddp_recv_work receive = recv_work(part);
  EXPECT_ERRNO(EOPNOTSUPP, ddp_post_send(client_, &send, 1));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_post_recv(client_, &receive, 1));
}

TEST_F(Stream, AForkedChildReadsAndWrites) {
  std::string memory(8, 'm');
  offer(client_, memory);
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    ddp_region region{};
    if (ddp_reg(client_, &byte, 1, DDP_REMOTE_READ, &region) == 0 || errno != EOPNOTSUPP) _exit(1);
    if (read(client_, &byte, 1) != 1 || byte != 'q') _exit(2);
    _exit(write(client_, "answer", 6) == 6 ? 0 : 3);
  }
  say(server_, "q");
  EXPECT_EQ(hear(server_, 6), "answer");
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  say(server_, "parent");
  EXPECT_EQ(hear(client_, 6), "parent");
}

TEST_F(Stream, CloseIsSeenAlsoWhereAChildHasACopyOfTheLibrary) {
  std::string memory(8, 'm');
  offer(client_, memory);
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(client_);
    close(hold[1]);
    char byte;
    _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
  }
  ends_.client.close();
  char byte = 0;
  ASSERT_TRUE(has_bytes(server_, kPatienceMs));
  EXPECT_EQ(read(server_, &byte, 1), 0);
  close(hold[0]);
  close(hold[1]);
  int status = 0;
  waitpid(child, &status, 0);
}

}  // namespace
}  // namespace ddpsock::message_tests
