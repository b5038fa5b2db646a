// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads that share a socket.
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Threads : public TcpTest {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

TEST_F(Threads, OneWaitsInRecvAnotherSends) {
  std::jthread reader([&] { EXPECT_EQ(recv_exactly(client_, 4), "pong"); });
  sleep_ms(30);
  send_all(client_, "ping");
  EXPECT_EQ(recv_exactly(server_, 4), "ping");
  send_all(server_, "pong");
}

TEST_F(Threads, OneWaitsInSendAnotherReceives) {
  const std::string bytes = pattern(16 * 1024 * 1024);
  std::jthread writer([&] { send_all(client_, bytes); });
  sleep_ms(30);
  send_all(server_, "early answer");
  EXPECT_EQ(recv_exactly(client_, 12), "early answer");
  EXPECT_TRUE(is_same(recv_exactly(server_, bytes.size()), bytes));
}

TEST_F(Threads, ShutdownWakesABlockedRecv) {
  for (const int how : {SHUT_RD, SHUT_RDWR}) {
    pair_ = connected_pair();
    std::jthread waker([&] {
      sleep_ms(30);
      EXPECT_EQ(shutdown(pair_.server.get(), how), 0);
    });
    char byte;
    EXPECT_EQ(recv(pair_.server.get(), &byte, 1, 0), 0);
  }
}

TEST_F(Threads, ShutdownWakesABlockedPoll) {
  std::jthread waker([&] {
    sleep_ms(30);
    shutdown(server_, SHUT_RD);
  });
  pollfd one{server_, POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 3000), 1);
}

TEST_F(Threads, ShutdownWakesABlockedSend) {
  fill_until_refused(client_, 1);
  std::jthread waker([&] {
    sleep_ms(30);
    shutdown(client_, SHUT_RDWR);
  });
  const std::string bytes = pattern(1'000'000);
  ssize_t sent = 0;
  while (sent >= 0) sent = send(client_, bytes.data(), bytes.size(), 0);
  EXPECT_EQ(errno, EPIPE);
}

// One sleeps for room, and holds nobody up who does not want to wait.
TEST_F(Threads, ACallThatMustNotWaitBesideABlockedSendIsQuick) {
  for (int round = 0; round < 20; ++round) expect_alive(client_, server_);
  std::jthread writer([&] {
    const std::string bytes = pattern(16 << 20);
    while (send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  sleep_ms(100);
  const auto spent = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
  };
  const auto before = spent();
  // TCP takes a few bytes more.
  for (int round = 0; round < 10; ++round)
    EXPECT_TRUE(send(client_, "x", 1, MSG_DONTWAIT) == 1 || errno == EAGAIN);
  EXPECT_EQ(shutdown(client_, SHUT_RDWR), 0);
  EXPECT_LT(spent() - before, 100) << "ms of a processor";
}

TEST_F(Threads, DissolvingAConnectionWakesABlockedRecv) {
  for (int round = 0; round < 50; ++round) {
    const Pair pair = connected_pair();
    for (int i = 0; i < 4; ++i) expect_alive(pair.client.get(), pair.server.get());
    std::jthread reader([fd = pair.client.get()] {
      char byte;
      EXPECT_LE(recv(fd, &byte, 1, 0), 0);
    });
    sleep_ms(round % 3);
    sockaddr nothing{};
    nothing.sa_family = AF_UNSPEC;
    ASSERT_EQ(connect(pair.client.get(), &nothing, sizeof nothing), 0);
  }
}

TEST_F(Threads, PeersCloseWakesABlockedRecv) {
  std::jthread waker([&] {
    sleep_ms(30);
    pair_.client.close();
  });
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, 0), 0);
}

// Messages carry their writer and number; a write that fits the buffers is not cut by another's.
TEST_F(Threads, SmallWritesOfSeveralThreadsDoNotInterleave) {
  constexpr size_t kSize = 512, kMessages = 2000, kWriters = 3;
  std::vector<std::jthread> writers;
  for (size_t writer = 0; writer < kWriters; ++writer)
    writers.emplace_back([&, writer] {
      const std::string message(kSize, static_cast<char>('a' + writer));
      for (size_t number = 0; number < kMessages; ++number) {
        if (number % 2) {
          EXPECT_EQ(send(client_, message.data(), kSize, 0), ssize_t{kSize});
        } else {
          iovec parts[] = {{const_cast<char*>(message.data()), 100},
                           {const_cast<char*>(message.data()), kSize - 100}};
          EXPECT_EQ(writev(client_, parts, 2), ssize_t{kSize});
        }
      }
    });
  std::map<char, size_t> counts;
  for (size_t number = 0; number < kMessages * kWriters; ++number) {
    const std::string message = recv_exactly(server_, kSize);
    ASSERT_EQ(message.find_first_not_of(message[0]), std::string::npos) << "message " << number;
    ++counts[message[0]];
  }
  for (const auto& [writer, count] : counts) EXPECT_EQ(count, kMessages) << writer;
}

// Together they take every byte once. Not always whole records, whatever MSG_WAITALL says: the
// kernel lets the other reader in while one waits for the rest of its own.
TEST_F(Threads, TwoReadersTakeEverythingOnce) {
  constexpr size_t kSize = 64;
  using Histogram = std::array<size_t, 256>;
  const auto count = [](std::string_view bytes, Histogram& to) {
    for (const char c : bytes) ++to[static_cast<unsigned char>(c)];
  };
  std::array<Histogram, 2> taken{};
  const auto read = [&](Histogram& to) {
    std::array<char, kSize> room;
    for (;;) {
      const ssize_t got = recv(server_, room.data(), room.size(), MSG_WAITALL);
      ASSERT_GE(got, 0) << strerror(errno);
      if (got == 0) return;
      count({room.data(), static_cast<size_t>(got)}, to);
    }
  };
  const std::string all = pattern(20'000 * kSize);
  {
    std::jthread first(read, std::ref(taken[0])), second(read, std::ref(taken[1]));
    send_all(client_, all);
    EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  }
  Histogram sent{};
  count(all, sent);
  for (size_t value = 0; value < sent.size(); ++value)
    EXPECT_EQ(taken[0][value] + taken[1][value], sent[value]) << value;
}

TEST_F(Threads, TwoBlockedReadersAreBothWokenByTheEnd) {
  auto reader = [&] {
    char byte;
    EXPECT_EQ(recv(server_, &byte, 1, 0), 0);
  };
  std::jthread first(reader), second(reader);
  sleep_ms(30);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
}

TEST_F(Threads, EachOfManyAcceptsItsOwn) {
  constexpr int kThreads = 4, kEach = 25;
  const Listener listener = listen_loopback();
  std::vector<std::jthread> servers, clients;
  for (int thread = 0; thread < kThreads; ++thread) {
    servers.emplace_back([&] {
      for (int number = 0; number < kEach; ++number) {
        const Fd fd = accept_one(listener.fd.get());
        send_all(fd.get(), recv_exactly(fd.get(), 100));
      }
    });
    clients.emplace_back([&, thread] {
      for (int number = 0; number < kEach; ++number) {
        const std::string bytes = pattern(100, static_cast<uint32_t>(thread * 1000 + number));
        const Fd fd = dial(listener.address);
        send_all(fd.get(), bytes);
        EXPECT_TRUE(is_same(recv_exactly(fd.get(), 100), bytes));
      }
    });
  }
}

// Numbers are closed and given out again while other threads use theirs.
TEST_F(Threads, ChurnOfDescriptorNumbers) {
  std::vector<std::jthread> threads;
  for (uint32_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([thread] {
      for (uint32_t round = 0; round < 100; ++round) {
        const Pair pair = connected_pair();
        const std::string bytes = pattern(1000, thread * 1000 + round);
        send_all(pair.client.get(), bytes);
        EXPECT_TRUE(is_same(recv_exactly(pair.server.get(), 1000), bytes));
        expect_alive(pair.client.get(), pair.server.get());
      }
    });
}

// A thread that waits in recv keeps its connection though the number is given to another socket
// meanwhile, as OpenJDK closes.
TEST_F(Threads, Dup2OverASocketInRecv) {
  const Pair other = connected_pair();
  shutdown(other.client.get(), SHUT_RDWR);
  std::jthread reader([&] {
    char byte;
    EXPECT_EQ(recv(client_, &byte, 1, 0), 1) << "woken by the old connection's byte";
  });
  sleep_ms(30);
  ASSERT_EQ(dup2(other.client.get(), client_), client_);
  send_all(server_, "x");
  reader.join();
  char byte;
  EXPECT_EQ(recv(client_, &byte, 1, 0), 0) << "the number is the other connection now";
}

}  // namespace
}  // namespace ddpsock::shim_tests
