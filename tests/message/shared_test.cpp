// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Many connections on one completion queue, and many threads on one connection.
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

class Shared : public testing::Test {
 protected:
  Shared() { arm_alarm(); }
};

// Server ends on one queue, so that one thread serves them all: each message is answered.
void serve_many(int connections, bool by_events) {
  const Fd cq(ddp_open_cq(4096));
  ASSERT_GE(cq.get(), 0);
  const Listener listener = listen_on_loopback();
  ASSERT_EQ(set_option(listener.fd.get(), DDP_CQ, cq.get()), 0);
  std::vector<Fd> clients(static_cast<size_t>(connections)), servers;
  std::map<int, std::string> rooms;
  std::jthread connecting([&] {
    for (Fd& client : clients) {
      client = make_socket();
      set_mode(client.get());
      EXPECT_EQ(connect_to(client.get(), listener), 0);
    }
  });
  for (int i = 0; i < connections; ++i) {
    servers.emplace_back(accept(listener.fd.get(), nullptr, nullptr));
    const int fd = servers.back().get();
    rooms[fd].resize(16);
    post_recv(fd, rooms[fd], 1);
    EXPECT_TRUE(ddp_establish(fd, 0) == 0 || errno == EAGAIN);
  }
  connecting.join();
  constexpr int kRounds = 20;
  std::jthread asking([&] {
    std::string answer(32, '.');
    for (int round = 0; round < kRounds; ++round) {
      for (const Fd& client : clients) {
        post_recv(client.get(), answer, 1);
        post_send(client.get(), std::to_string(client.get()), 2, DDP_SILENT | DDP_INLINE);
        EXPECT_EQ(next(client.get(), DDP_RECEIVED, 1).status, 0);
        EXPECT_EQ(answer.substr(0, 3), "to ");
      }
    }
  });
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.fd = cq.get()}};
  if (by_events) {
    ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, ddp_event_fd(cq.get()), &event), 0);
  }
  std::array<ddp_completion, 8> got;
  for (int left = connections * kRounds; left > 0;) {
    int n = 0;
    if (by_events) {
      ASSERT_EQ(epoll_wait(set.get(), &event, 1, kPatienceMs), 1);
      n = ddp_poll(cq.get(), got.data(), got.size());
    } else {
      n = ddp_wait(cq.get(), got.data(), got.size(), kPatienceMs);
      ASSERT_GT(n, 0) << strerror(errno);
    }
    for (int i = 0; i < n; ++i) {
      if (got[i].kind == DDP_ESTABLISHED) continue;
      ASSERT_EQ(got[i].kind, static_cast<uint32_t>(DDP_RECEIVED));
      ASSERT_EQ(got[i].status, 0) << ddp_strerror(&got[i]);
      const int fd = got[i].fd;
      ASSERT_TRUE(rooms.contains(fd));
      post_send(fd, "to " + rooms[fd], 3, DDP_SILENT | DDP_INLINE);
      post_recv(fd, rooms[fd], 1);
      --left;
    }
  }
  asking.join();
  // Each end is told, once.
  std::set<int> ended;
  clients.clear();
  while (ended.size() < servers.size()) {
    const ddp_completion last = next(cq.get());
    if (last.kind == DDP_RECEIVED) {
      EXPECT_EQ(last.status, ECANCELED);
    } else {
      EXPECT_EQ(last.kind, static_cast<uint32_t>(DDP_ENDED));
      EXPECT_TRUE(ended.insert(last.fd).second);
    }
  }
  expect_nothing(cq.get());
}

TEST_F(Shared, OneQueueServesAFew) {
  serve_many(5, false);
}
TEST_F(Shared, OneQueueServesMany) {
  serve_many(60, false);
}
TEST_F(Shared, OneQueueServesManyByItsEventFd) {
  serve_many(60, true);
}

TEST_F(Shared, MemoryOfAQueueIsForAllItsConnections) {
  const Fd cq(ddp_open_cq(256)), other_cq(ddp_open_cq(256));
  const Ends first = connect_ends({.server_cq = cq.get()});
  const Ends second = connect_ends({.server_cq = cq.get()});
  const Ends stranger = connect_ends({.server_cq = other_cq.get()});
  std::array<std::atomic<char>, 64> memory{};
  ddp_region region{};
  ASSERT_EQ(ddp_reg(cq.get(), &memory, sizeof memory, DDP_REMOTE_WRITE, &region), 0);
  const auto write = [&](int fd, uint64_t at) {
    const iovec part = part_of("w");
    const ddp_write_work work{.cookie = 1,
                              .iov = &part,
                              .iov_count = 1,
                              .flags = 0,
                              .remote_to = region.to + at,
                              .remote_stag = region.stag,
                              .reserved = 0};
    ASSERT_EQ(ddp_post_write(fd, &work, 1), 1);
    EXPECT_EQ(next(fd, DDP_WRITTEN, 1).status, 0);
  };
  write(first.client.get(), 0);
  write(second.client.get(), 1);
  while (memory[0] != 'w' || memory[1] != 'w') usleep(100);
  write(stranger.client.get(), 2);
  EXPECT_EQ(next(stranger.client.get(), DDP_ENDED).status, EREMOTEIO);
  EXPECT_EQ(memory[2], '\0');
  EXPECT_EQ(ddp_dereg(cq.get(), region.stag), 0);
}

TEST_F(Shared, AClosedQueueLivesOnForItsConnections) {
  Fd cq(ddp_open_cq(256));
  const Ends ends = connect_ends({.client_cq = cq.get(), .server_cq = cq.get()});
  char byte;
  EXPECT_ERRNO(EOPNOTSUPP, read(cq.get(), &byte, 1));
  EXPECT_ERRNO(EOPNOTSUPP, ddp_establish(cq.get(), 0));
  const int number = cq.get();
  cq.close();
  ddp_completion completion;
  EXPECT_ERRNO(EBADF, ddp_poll(number, &completion, 1));
  std::string room(8, '.');
  post_recv(ends.server.get(), room, 1);
  post_send(ends.client.get(), "x", 2, DDP_SILENT);
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 1).bytes, 1u);
}

TEST_F(Shared, AFullQueueRefusesPosts) {
  const Fd cq(ddp_open_cq(3));
  const Ends ends = connect_ends({.client_cq = cq.get()});
  std::string room(8, '.');
  for (int i = 0; i < 3; ++i) post_recv(ends.client.get(), room, 1);
  const iovec part = part_of("x");
  const ddp_send_work work = send_work(part);
  EXPECT_ERRNO(EAGAIN, ddp_post_send(ends.client.get(), &work, 1));
}

TEST_F(Shared, CompletionsOfAClosedConnectionNeverCome) {
  const Fd cq(ddp_open_cq(256));
  Ends ends = connect_ends({.client_cq = cq.get()});
  std::string room(8, '.');
  post_recv(ends.client.get(), room, 1);
  ends.client.close();
  expect_nothing(cq.get());
}

// Each of several threads sends through the same connection, others take what comes: all of it
// comes, once.
TEST_F(Shared, ThreadsOnOneConnection) {
  constexpr int kThreads = 3;
  constexpr uint32_t kMessages = 2000;
  constexpr uint32_t kRooms = 256;
  const Ends ends = connect_ends({.client = {256, 64, 4, 4}, .server = {64, 512, 4, 4}});
  std::vector<std::array<uint32_t, 2>> rooms(kRooms);
  const auto post_room = [&](uint64_t i) {
    const iovec part{rooms[i].data(), sizeof rooms[i]};
    const ddp_recv_work work = recv_work(part, i);
    EXPECT_EQ(ddp_post_recv(ends.server.get(), &work, 1), 1);
  };
  for (uint64_t i = 0; i < kRooms; ++i) post_room(i);
  std::atomic<uint32_t> received{0}, completed{0};
  std::array<std::vector<uint32_t>, kThreads> seen;
  std::mutex seen_mutex;
  {
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint32_t i = 0; i < kMessages;) {
          // No more than there are rooms for.
          if (t + i * kThreads >= received + kRooms / 2) {
            std::this_thread::yield();
            continue;
          }
          const std::array<uint32_t, 2> message{t, i};
          const iovec part{const_cast<uint32_t*>(message.data()), sizeof message};
          const ddp_send_work work = send_work(part, i, DDP_INLINE);
          if (ddp_post_send(ends.client.get(), &work, 1) == 1) {
            ++i;
          } else {
            ASSERT_EQ(errno, EAGAIN);
          }
          ddp_completion done;
          if (ddp_poll(ends.client.get(), &done, 1) == 1) {
            ASSERT_EQ(done.status, 0);
            ++completed;
          }
        }
      });
    }
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        while (received < kThreads * kMessages) {
          ddp_completion got;
          if (ddp_wait(ends.server.get(), &got, 1, 20) != 1) continue;
          ASSERT_EQ(got.kind, static_cast<uint32_t>(DDP_RECEIVED)) << ddp_strerror(&got);
          {
            const std::lock_guard lock(seen_mutex);
            seen[rooms[got.cookie][0]].push_back(rooms[got.cookie][1]);
          }
          post_room(got.cookie);
          ++received;
        }
      });
    }
  }
  ddp_completion done;
  while (completed < kThreads * kMessages && ddp_wait(ends.client.get(), &done, 1, 1000) == 1)
    ++completed;
  EXPECT_EQ(completed, kThreads * kMessages);
  for (std::vector<uint32_t>& of_thread : seen) {
    std::ranges::sort(of_thread);
    ASSERT_EQ(of_thread.size(), kMessages);
    for (uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(of_thread[i], i);
  }
}

TEST_F(Shared, ClosingWhileOthersPostAndPoll) {
  for (int round = 0; round < 40; ++round) {
    Ends ends = connect_ends();
    const int fd = ends.client.get();
    std::atomic<bool> is_over{false};
    const auto work = [&](auto call) {
      return std::jthread([&is_over, call] {
        while (!is_over) call();
      });
    };
    const auto posting = work([fd] {
      const iovec part = part_of("x");
      const ddp_write_work write{.cookie = 0,
                                 .iov = &part,
                                 .iov_count = 0,
                                 .flags = DDP_SILENT,
                                 .remote_to = 0,
                                 .remote_stag = 0,
                                 .reserved = 0};
      (void)ddp_post_write(fd, &write, 1);
    });
    const auto polling = work([fd] {
      ddp_completion completion;
      (void)ddp_poll(fd, &completion, 1);
    });
    const auto waiting = work([fd] {
      ddp_completion completion;
      (void)ddp_wait(fd, &completion, 1, 10);
    });
    usleep(static_cast<useconds_t>(round * 50));
    if (round % 2 == 0) {
      ends.client.close();
    } else {
      ends.server.close();
      usleep(200);
      ends.client.close();
    }
    is_over = true;
  }
}

}  // namespace
}  // namespace ddpsock::message_tests
