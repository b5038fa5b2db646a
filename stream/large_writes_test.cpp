// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A write that takes several calls of the kernel's is one on TCP all the same: no short segment in
// the middle, for whose acknowledgement the next one would wait (Nagle).
#include <errno.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/socket_option.h"
#include "base/sys.h"
#include "stream/stream_testing.h"

namespace ddpsock::engine {
namespace {

bool has(int fd, int option) {
  return base::socket_option(fd, IPPROTO_TCP, option) == 1;
}

std::atomic<bool> has_waited{false};

// Of the sender, by its own thread: was it corked, in each call that handed FPDUs to the kernel,
// and in each that waited?
struct Seen {
  int fd = -1;
  std::vector<bool> sending, waiting;
} seen;

void note_sending(int fd) {
  if (fd == seen.fd) seen.sending.push_back(has(fd, TCP_CORK));
}

class LargeWrites : public testing::Test {
 protected:
  explicit LargeWrites(uint32_t max_payload = 0)
      : a(tcp.client, {.role = Role::kInitiator,
                       .peer = Peer::kProved,
                       .wants_crc = true,
                       .max_payload = max_payload}) {
    set(TCP_NODELAY, 0);
    EXPECT_EQ(a.send(pattern(1)).count, 1);
    EXPECT_EQ(b.recv(1), pattern(1));
    seen = {.fd = a.fd, .sending = {}, .waiting = {}};
    base::sys.send = [](int fd, const void* from, size_t n, int flags) {
      note_sending(fd);
      return ::send(fd, from, n, flags);
    };
    base::sys.sendmsg = [](int fd, const msghdr* m, int flags) {
      note_sending(fd);
      return ::sendmsg(fd, m, flags);
    };
    base::sys.poll = [](pollfd* fds, nfds_t count, int ms) {
      const bool is_sender = count == 0 || fds->fd == seen.fd;
      if (is_sender && ms != 0) {
        seen.waiting.push_back(has(seen.fd, TCP_CORK));
        has_waited = true;
      }
      return ::poll(fds, count, ms);
    };
  }
  ~LargeWrites() override { base::sys = real_; }

  void set(int option, int value) const {
    ASSERT_TRUE(base::set_socket_option(a.fd, IPPROTO_TCP, option, value));
  }
  // To a reader that takes it, from the sender's first wait on if it is so.
  void write(size_t size, int flags = 0, bool is_read_late = false) {
    const Buffer all = pattern(size);
    has_waited = !is_read_late;
    std::thread reader([&] {
      while (!has_waited) usleep(1000);
      EXPECT_TRUE(b.recv(size, MSG_WAITALL) == all);
    });
    EXPECT_EQ(a.send(all, flags).count, static_cast<ssize_t>(size));
    has_waited = true;  // also where it failed
    reader.join();
  }
  // To nobody.
  ssize_t write_part(size_t size) { return a.send(pattern(size), MSG_DONTWAIT).count; }
  static void expect_several(bool are_corked) {
    EXPECT_GT(seen.sending.size(), 2u);
    EXPECT_EQ(seen.sending, std::vector<bool>(seen.sending.size(), are_corked));
  }

  const base::SysCalls real_ = base::sys;
  TcpPair tcp{};
  End a;
  End b{tcp.server, Role::kResponder};
};

constexpr size_t kLargestOne = 256 * 1024, kSeveral = 900'001, kHuge = 64 << 20;

TEST_F(LargeWrites, OneCallIsNotHeldBack) {
  for (const size_t size : {size_t{4000}, kLargestOne}) {
    seen.sending.clear();
    write(size);
    EXPECT_EQ(seen.sending, std::vector<bool>{false}) << size;
  }
}

TEST_F(LargeWrites, SeveralAreHeldBackUntilTheLast) {
  write(kSeveral);
  expect_several(true);
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

class SmallSegments : public LargeWrites {
 protected:
  SmallSegments() : LargeWrites(1024) {}
};

TEST_F(SmallSegments, SeveralAreHeldBackUntilTheLast) {
  write(200'000);
  expect_several(true);
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

TEST_F(LargeWrites, WithoutNagleNothingIs) {
  set(TCP_NODELAY, 1);
  write(kSeveral);
  expect_several(false);
  EXPECT_TRUE(has(a.fd, TCP_NODELAY));
}

// To take a cork away pushes what more is to follow.
TEST_F(LargeWrites, WhatMoreIsToFollowIsNotPushed) {
  write(kSeveral, MSG_MORE);
  expect_several(false);
}

TEST_F(LargeWrites, TheProgramsCorkStays) {
  set(TCP_CORK, 1);
  write(kSeveral);
  expect_several(true);
  EXPECT_TRUE(has(a.fd, TCP_CORK));
  set(TCP_CORK, 0);
}

TEST_F(LargeWrites, APartIsNotHeldBack) {
  EXPECT_GT(write_part(kHuge), 0);
  expect_several(true);
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

TEST_F(LargeWrites, NobodySleepsOnWhatIsHeldBack) {
  write(kHuge, 0, true);
  EXPECT_TRUE(seen.sending.front());
  EXPECT_FALSE(seen.waiting.empty());
  EXPECT_EQ(seen.waiting, std::vector<bool>(seen.waiting.size(), false));
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

// Memory pressure: the kernel calls the socket writable, and refuses the second part and the third.
TEST_F(LargeWrites, NorAfterARefusal) {
  static int calls;
  calls = 0;
  base::sys.sendmsg = [](int fd, const msghdr* m, int flags) -> ssize_t {
    note_sending(fd);
    if (++calls != 2 && calls != 3) return ::sendmsg(fd, m, flags);
    errno = EAGAIN;
    return -1;
  };
  write(kSeveral);
  EXPECT_GT(calls, 3);
  EXPECT_TRUE(seen.sending.front());
  EXPECT_EQ(seen.waiting, std::vector<bool>{false});
  calls = 0;
  EXPECT_GT(write_part(kSeveral), 0);
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

// Between two parts the kernel is asked for room, which is a place to be cancelled at.
TEST_F(LargeWrites, ACancelledThreadHoldsNothingBack) {
  static bool was_corked;
  was_corked = false;
  base::sys.poll = [](pollfd* fds, nfds_t count, int ms) {
    if (count == 1 && fds->fd == seen.fd && has(fds->fd, TCP_CORK)) {
      was_corked = true;
      pthread_cancel(pthread_self());
      pthread_testcancel();
    }
    return ::poll(fds, count, ms);
  };
  pthread_t thread;
  const auto send_all = [](void* end) -> void* {
    static_cast<End*>(end)->send(pattern(kHuge));
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, send_all, &a), 0);
  void* result = nullptr;
  pthread_join(thread, &result);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(was_corked);
  EXPECT_FALSE(has(a.fd, TCP_CORK));
}

}  // namespace
}  // namespace ddpsock::engine
