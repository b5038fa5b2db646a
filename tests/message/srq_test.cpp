// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared receive queues: many connections, receives for what comes, and who gets them back.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

class SharedReceives : public testing::Test {
 protected:
  SharedReceives() : cq(ddp_open_cq(256)), srq(ddp_open_srq(cq.get(), 64)), rooms(64) {
    arm_alarm();
    for (std::string& room : rooms) room.assign(64, '.');
  }
  Ends connect() { return connect_ends({.server_srq = srq.get()}); }
  // Cookies from `first` on, each the index of its room.
  void post(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) post_recv(srq.get(), rooms[i], i);
  }
  ddp_completion received() {
    const ddp_completion c = next(cq.get());
    EXPECT_EQ(c.kind, static_cast<uint32_t>(DDP_RECEIVED)) << ddp_strerror(&c);
    return c;
  }
  static void expect_nothing_yet(int fd) {
    ddp_completion completion{};
    EXPECT_EQ(ddp_wait(fd, &completion, 1, 30), 0) << strerror(errno);
  }
  bool is_low() const {
    pollfd fd{.fd = srq.get(), .events = POLLIN, .revents = 0};
    return ::poll(&fd, 1, 0) == 1;
  }

  Fd cq, srq;
  std::vector<std::string> rooms;
};

TEST_F(SharedReceives, WhicheverConnectionHasAMessageTakesTheOldest) {
  const Ends first = connect(), second = connect();
  post(0, 4);
  const std::array<const Ends*, 4> order{&second, &first, &first, &second};
  for (uint64_t i = 0; i < order.size(); ++i) {
    post_send(order[i]->client.get(), "message " + std::to_string(i), 1, DDP_SILENT | DDP_INLINE);
    const ddp_completion c = received();
    EXPECT_EQ(c.cookie, i);
    EXPECT_EQ(c.fd, order[i]->server.get());
    EXPECT_EQ(c.status, 0);
    EXPECT_EQ(rooms[i].substr(0, c.bytes), "message " + std::to_string(i));
  }
  post_send(second.server.get(), "", 9);
  EXPECT_EQ(next(cq.get(), DDP_SENT, 9).fd, second.server.get()) << "sends share the queue as well";
}

// Few receives for many connections that all talk at once.
TEST_F(SharedReceives, ServeMoreConnectionsThanTheyAre) {
  constexpr size_t kConnections = 100;
  constexpr uint32_t kRounds = 10;
  std::vector<Ends> ends;
  for (size_t i = 0; i < kConnections; ++i) ends.push_back(connect());
  std::map<int, uint32_t> count;
  post(0, 8);
  std::jthread sending([&] {
    for (uint32_t round = 0; round < kRounds; ++round) {
      // No more at once than receives are there.
      for (size_t i = 0; i < kConnections; ++i) {
        std::string answer(8, '.');
        post_recv(ends[i].client.get(), answer, 1);
        post_send(ends[i].client.get(), "to " + std::to_string(i), 2, DDP_SILENT | DDP_INLINE);
        EXPECT_EQ(next(ends[i].client.get(), DDP_RECEIVED, 1).status, 0);
        EXPECT_EQ(answer.substr(0, 2), "ok");
      }
    }
  });
  for (size_t left = kConnections * kRounds; left > 0; --left) {
    const ddp_completion c = received();
    ASSERT_EQ(c.status, 0) << ddp_strerror(&c);
    ++count[c.fd];
    post(c.cookie, 1);
    post_send(c.fd, "ok", 3, DDP_SILENT | DDP_INLINE);
  }
  sending.join();
  for (const Ends& e : ends) EXPECT_EQ(count[e.server.get()], kRounds);
}

TEST_F(SharedReceives, AMessageThatFindsNoneEndsItsConnectionAlone) {
  const Ends good = connect(), bad = connect();
  post(0, 1);
  post_send(good.client.get(), "takes the only one", 1, DDP_SILENT | DDP_INLINE);
  EXPECT_EQ(received().status, 0);
  post_send(bad.client.get(), "finds none", 2, DDP_SILENT | DDP_INLINE);
  const ddp_completion ended = next(cq.get(), DDP_ENDED);
  EXPECT_EQ(ended.fd, bad.server.get());
  EXPECT_EQ(ended.status, EPROTO);
  // DDP, untagged buffer, no buffer for the MSN: RFC 5041 section 7.2.
  EXPECT_EQ(ended.terminate, 1u << 24 | 1u << 16 | 2u << 8 | 2u);
  const ddp_completion told = next(bad.client.get(), DDP_ENDED);
  EXPECT_EQ(told.status, EREMOTEIO);
  EXPECT_EQ(told.terminate, ended.terminate);
  post(1, 1);
  post_send(good.client.get(), "goes on", 3, DDP_SILENT | DDP_INLINE);
  EXPECT_EQ(received().cookie, 1u);
}

TEST_F(SharedReceives, AConnectionThatEndsLeavesThemToOthers) {
  Ends leaving = connect();
  const Ends staying = connect();
  post(0, 2);
  leaving.client.close();
  const ddp_completion ended = next(cq.get(), DDP_ENDED);
  EXPECT_EQ(ended.fd, leaving.server.get());
  EXPECT_EQ(ended.status, 0);
  leaving.server.close();
  for (uint64_t i = 0; i < 2; ++i) {
    post_send(staying.client.get(), "x", 1, DDP_SILENT | DDP_INLINE);
    const ddp_completion c = received();
    EXPECT_EQ(c.cookie, i);
    EXPECT_EQ(c.status, 0);
  }
  expect_nothing(cq.get());
}

// A peer that dies inside its message costs the one receive that it took.
TEST_F(SharedReceives, AMessageCutComesBackOnce) {
  Ends ends = connect();
  const Ends other = connect();
  post(0, 2);
  const std::string large(65, 'x');
  post_send(ends.client.get(), large, 1);  // too long for its room
  const ddp_completion cut = received();
  EXPECT_EQ(cut.cookie, 0u);
  EXPECT_EQ(cut.status, ECANCELED);
  EXPECT_EQ(cut.fd, ends.server.get());
  EXPECT_EQ(next(cq.get(), DDP_ENDED).fd, ends.server.get());
  post_send(other.client.get(), "x", 1, DDP_SILENT | DDP_INLINE);
  EXPECT_EQ(received().cookie, 1u);
  expect_nothing(cq.get());
}

// Not lost, although nothing of that connection is told any more.
TEST_F(SharedReceives, AClosedConnectionsReceivesComeBack) {
  Ends ends = connect();
  post(0, 3);
  for (int i = 0; i < 2; ++i) {
    post_send(ends.client.get(), "unread", static_cast<uint64_t>(i));
    EXPECT_EQ(next(ends.client.get(), DDP_SENT, static_cast<uint64_t>(i)).status, 0);
  }
  // Both are there when the answer to what was asked after them is.
  std::array<std::byte, 8> memory{}, sink{};
  ddp_region theirs{}, ours{};
  ASSERT_EQ(ddp_reg(ends.server.get(), memory.data(), 8, DDP_REMOTE_READ, &theirs), 0);
  ASSERT_EQ(ddp_reg(ends.client.get(), sink.data(), 8, DDP_LOCAL_WRITE, &ours), 0);
  const ddp_read_work read{.cookie = 5,
                           .address = sink.data(),
                           .length = 8,
                           .stag = ours.stag,
                           .remote_to = theirs.to,
                           .remote_stag = theirs.stag,
                           .flags = 0};
  ASSERT_EQ(ddp_post_read(ends.client.get(), &read, 1), 1);
  EXPECT_EQ(next(ends.client.get(), DDP_READ, 5).status, 0);
  ends.server.close();
  for (uint64_t i = 0; i < 2; ++i) {
    const ddp_completion c = received();
    EXPECT_EQ(c.cookie, i);
    EXPECT_EQ(c.fd, -1);
    EXPECT_EQ(c.status, ECANCELED);
    EXPECT_EQ(c.terminate, 0u);
  }
  expect_nothing(cq.get());
}

TEST_F(SharedReceives, ItsDescriptorTellsWhenFewAreLeft) {
  const Ends ends = connect();
  const auto take = [&] {
    post_send(ends.client.get(), "x", 1, DDP_SILENT | DDP_INLINE);
    EXPECT_EQ(received().status, 0);
  };
  const auto set_limit = [&](int level) { return set_option(srq.get(), DDP_SRQ_LIMIT, level); };
  post(0, 3);
  EXPECT_FALSE(is_low()) << "nobody asked";
  ASSERT_EQ(set_limit(3), 0);
  EXPECT_FALSE(is_low()) << "three are not fewer than three";
  take();
  EXPECT_TRUE(is_low());
  post(0, 3);
  EXPECT_TRUE(is_low()) << "until it is set again";
  ASSERT_EQ(set_limit(2), 0);
  EXPECT_FALSE(is_low());
  ASSERT_EQ(set_limit(100), 0);
  EXPECT_TRUE(is_low()) << "fewer already";
  ASSERT_EQ(set_limit(0), 0);
  for (int i = 0; i < 5; ++i) take();
  EXPECT_FALSE(is_low());
}

// Who refills need not be who takes completions.
TEST_F(SharedReceives, AThreadRefillsThem) {
  constexpr uint32_t kMessages = 3000;
  const Ends ends = connect();
  std::atomic<uint32_t> taken{0}, posted{0};
  const auto refill = [&] {
    const iovec part = part_of(rooms[0]);
    const ddp_recv_work work = recv_work(part, 7);
    while (posted - taken < 64 && ddp_post_recv(srq.get(), &work, 1) == 1) ++posted;
    const int level = 48;
    ASSERT_EQ(set_option(srq.get(), DDP_SRQ_LIMIT, level), 0);
  };
  refill();
  std::jthread refilling([&] {
    pollfd fd{.fd = srq.get(), .events = POLLIN, .revents = 0};
    while (posted < kMessages + 32) {
      ASSERT_EQ(::poll(&fd, 1, kPatienceMs), 1);
      refill();
    }
  });
  std::jthread sending([&] {
    for (uint32_t i = 0; i < kMessages; ++i) {
      while (i >= posted || i >= taken + 16) std::this_thread::yield();
      post_send(ends.client.get(), "x", 1, DDP_SILENT | DDP_INLINE);
    }
  });
  while (taken < kMessages) {
    ASSERT_EQ(received().status, 0);
    ++taken;
  }
  sending.join();
}

TEST_F(SharedReceives, ClosingGivesBackWhatNobodyTook) {
  Ends ends = connect();
  auto room = std::make_unique<std::string>(64, '.');
  post_recv(srq.get(), *room, 1);
  const int number = srq.get();
  const Fd twin(dup(number));
  srq.close();
  post_send(ends.client.get(), "by another name", 2, DDP_SILENT | DDP_INLINE);
  EXPECT_EQ(received().cookie, 1u);
  post_recv(twin.get(), *room, 3);
  const iovec part = part_of(*room);
  const ddp_recv_work work = recv_work(part);
  EXPECT_ERRNO(EBADF, ddp_post_recv(number, &work, 1));
  {
    Fd last(dup(twin.get()));
    dup2(cq.get(), twin.get());  // closes one name
  }
  room.reset();
  expect_nothing(cq.get());
  post_send(ends.client.get(), "finds none", 4, DDP_SILENT | DDP_INLINE);
  EXPECT_EQ(next(cq.get(), DDP_ENDED).status, EPROTO);
}

TEST_F(SharedReceives, OutliveTheirCompletionQueuesDescriptor) {
  const Ends ends = connect();
  cq.close();
  post(0, 1);
  expect_nothing_yet(ends.server.get());
  post_send(ends.client.get(), "x", 1, DDP_SILENT | DDP_INLINE);
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 0).bytes, 1u);
}

TEST_F(SharedReceives, AClosedDescriptorEndsTheWaitsThatCameByIt) {
  Ends ends = connect();
  const auto begin_wait = [](int fd) {
    return std::async(std::launch::async, [fd] {
      ddp_completion completion{};
      return ddp_wait(fd, &completion, 1, kPatienceMs) < 0 ? errno : 0;
    });
  };
  auto by_queue = begin_wait(cq.get()), by_connection = begin_wait(ends.server.get());
  EXPECT_EQ(by_connection.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  cq.close();
  EXPECT_EQ(by_queue.get(), EBADF);
  EXPECT_EQ(by_connection.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  ends.server.close();
  EXPECT_EQ(by_connection.get(), EBADF);
}

TEST_F(SharedReceives, RefuseWhatDoesNotFit) {
  EXPECT_ERRNO(EINVAL, ddp_open_srq(cq.get(), 0));
  EXPECT_ERRNO(EINVAL, ddp_open_srq(cq.get(), 65537));
  EXPECT_ERRNO(EINVAL, ddp_open_srq(srq.get(), 1));
  EXPECT_ERRNO(EBADF, ddp_open_srq(-1, 1));
  const Fd plain = make_socket();
  EXPECT_ERRNO(EOPNOTSUPP, ddp_open_srq(plain.get(), 1));

  ddp_completion completion;
  ddp_region region;
  char byte;
  EXPECT_ERRNO(EOPNOTSUPP, ddp_poll(srq.get(), &completion, 1));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_wait(srq.get(), &completion, 1, 0));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_event_fd(srq.get()));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_establish(srq.get(), 0));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_reg(srq.get(), &byte, 1, DDP_REMOTE_READ, &region));
  EXPECT_ERRNO(EOPNOTSUPP, read(srq.get(), &byte, 1));
  EXPECT_ERRNO(EOPNOTSUPP, set_option(srq.get(), DDP_SPIN_US, 1));
  EXPECT_ERRNO(EOPNOTSUPP, set_option(srq.get(), DDP_SRQ, srq.get()));
  EXPECT_ERRNO(EOPNOTSUPP, set_option(cq.get(), DDP_SRQ_LIMIT, 1));
  EXPECT_ERRNO(EINVAL, set_option(srq.get(), DDP_SRQ_LIMIT, -1));
  EXPECT_ERRNO(EFAULT, ddp_post_recv(srq.get(), nullptr, 1));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_post_send(srq.get(), nullptr, 0));

  const Fd other_cq(ddp_open_cq(8)), other(ddp_open_srq(other_cq.get(), 2));
  const Fd socket = make_socket();
  EXPECT_ERRNO(EOPNOTSUPP, set_option(socket.get(), DDP_SRQ, srq.get()));
  set_mode(socket.get());
  EXPECT_ERRNO(EINVAL, set_option(socket.get(), DDP_SRQ, cq.get()));
  EXPECT_ERRNO(EINVAL, set_option(socket.get(), DDP_SRQ, -1));
  EXPECT_ERRNO(EOPNOTSUPP, set_option(socket.get(), DDP_SRQ_LIMIT, 1));
  EXPECT_EQ(set_option(socket.get(), DDP_SRQ, srq.get()), 0);
  EXPECT_EQ(set_option(socket.get(), DDP_SRQ, other.get()), 0);
  EXPECT_ERRNO(EINVAL, set_option(socket.get(), DDP_CQ, cq.get()));
  EXPECT_EQ(set_option(socket.get(), DDP_CQ, other_cq.get()), 0);
  const ddp_recv_work none{};
  EXPECT_ERRNO(EINVAL, ddp_post_recv(socket.get(), &none, 1));
  EXPECT_ERRNO(EBUSY, set_option(socket.get(), DDP_SRQ, srq.get()));

  const std::array<ddp_recv_work, 3> three{};
  errno = 0;
  EXPECT_EQ(ddp_post_recv(other.get(), three.data(), 3), 2);
  EXPECT_EQ(errno, EAGAIN);
  const std::array<iovec, 9> parts{};
  std::array<iovec, 9> full;
  full.fill(part_of(rooms[0]));
  const ddp_recv_work empty{.cookie = 0, .iov = parts.data(), .iov_count = 9, .reserved = 0};
  const ddp_recv_work many{.cookie = 0, .iov = full.data(), .iov_count = 9, .reserved = 0};
  const ddp_recv_work wrong{.cookie = 0, .iov = nullptr, .iov_count = 0, .reserved = 1};
  EXPECT_EQ(ddp_post_recv(srq.get(), &empty, 1), 1) << "empty ones do not count";
  EXPECT_ERRNO(E2BIG, ddp_post_recv(srq.get(), &many, 1));
  EXPECT_ERRNO(EINVAL, ddp_post_recv(srq.get(), &wrong, 1));
}

TEST_F(SharedReceives, AFullCompletionQueueRefusesThem) {
  const Fd small(ddp_open_cq(2)), shared(ddp_open_srq(small.get(), 8));
  const std::array<ddp_recv_work, 3> three{};
  errno = 0;
  EXPECT_EQ(ddp_post_recv(shared.get(), three.data(), 3), 2);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(SharedReceives, StayWithTheirProcess) {
  post(0, 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ddp_recv_work none{};
    const bool is_refused = ddp_post_recv(srq.get(), &none, 1) == -1 && errno == EOPNOTSUPP;
    close(srq.get());
    _exit(is_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const Ends ends = connect();
  post_send(ends.client.get(), "x", 1, DDP_SILENT | DDP_INLINE);
  EXPECT_EQ(received().cookie, 0u) << "the parent's receives are as they were";
}

}  // namespace
}  // namespace ddpsock::message_tests
