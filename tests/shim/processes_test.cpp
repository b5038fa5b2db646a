// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sockets across fork, and across the death of a process.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Processes : public TcpTest {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

TEST_F(Processes, ChildServesParentAsks) {
  Child child([&] {
    pair_.client.close();
    EXPECT_TRUE(is_same(recv_exactly(server_, 50'000), pattern(50'000)));
    send_all(server_, pattern(60'000, 2));
  });
  pair_.server.close();
  send_all(client_, pattern(50'000));
  EXPECT_TRUE(is_same(recv_to_end(client_), pattern(60'000, 2)));
  child.expect_success();
}

TEST_F(Processes, AfterTrafficInTheParent) {
  expect_alive(client_, server_);
  send_all(client_, pattern(30'000));
  EXPECT_TRUE(is_same(recv_exactly(server_, 10'001), pattern(10'001)));
  Child child([&] {
    EXPECT_TRUE(is_same(recv_exactly(server_, 19'999), pattern(30'000).substr(10'001)));
    send_all(server_, "done");
  });
  EXPECT_EQ(recv_exactly(client_, 4), "done");
  child.expect_success();
  expect_alive(client_, server_);
}

TEST_F(Processes, ParentReadsChildWritesOnOneSocket) {
  Child child([&] { send_all(client_, pattern(2'000'000)); });
  std::jthread peer([&] {
    EXPECT_TRUE(is_same(recv_exactly(server_, 2'000'000), pattern(2'000'000)));
    send_all(server_, pattern(100'000, 2));
  });
  EXPECT_TRUE(is_same(recv_exactly(client_, 100'000), pattern(100'000, 2)));
  child.expect_success();
}

TEST_F(Processes, BothWriteWholeMessages) {
  constexpr size_t kSize = 512, kMessages = 1000;
  auto write_all = [&](char letter) {
    for (size_t number = 0; number < kMessages; ++number)
      send_all(client_, std::string(kSize, letter));
  };
  std::jthread peer([&] {
    size_t of_parent = 0;
    for (size_t number = 0; number < 2 * kMessages; ++number) {
      const std::string message = recv_exactly(server_, kSize);
      ASSERT_EQ(message.find_first_not_of(message[0]), std::string::npos) << number;
      of_parent += message[0] == 'p';
    }
    EXPECT_EQ(of_parent, kMessages);
  });
  Child child([&] { write_all('c'); });
  write_all('p');
  child.expect_success();
}

TEST_F(Processes, BothReadInTurn) {
  int turn[2], back[2];
  ASSERT_EQ(pipe(turn), 0);
  ASSERT_EQ(pipe(back), 0);
  const std::string bytes = pattern(40'000);
  send_all(client_, bytes);
  char token = 't';
  Child child([&] {
    for (size_t at = 1'000; at < bytes.size(); at += 2'000) {
      EXPECT_EQ(read(turn[0], &token, 1), 1);
      EXPECT_TRUE(is_same(recv_exactly(server_, 1'000), bytes.substr(at, 1'000)));
      EXPECT_EQ(write(back[1], &token, 1), 1);
    }
  });
  for (size_t at = 0; at < bytes.size(); at += 2'000) {
    EXPECT_TRUE(is_same(recv_exactly(server_, 1'000), bytes.substr(at, 1'000)));
    EXPECT_EQ(write(turn[1], &token, 1), 1);
    EXPECT_EQ(read(back[0], &token, 1), 1);
  }
  child.expect_success();
  for (const int fd : {turn[0], turn[1], back[0], back[1]}) close(fd);
}

TEST_F(Processes, ConnectionEndsWithItsLastHolder) {
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  Child child([&] {
    close(hold[1]);
    char byte;
    EXPECT_EQ(read(hold[0], &byte, 1), 0);
  });
  pair_.client.close();
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN) << "the child holds it";
  close(hold[1]);
  child.expect_success();
  expect_end_of_stream(server_);
  close(hold[0]);
}

TEST_F(Processes, AChildThatOnlyExitsChangesNothing) {
  send_all(client_, "in flight");
  for (int time = 0; time < 3; ++time) {
    Child child([] {});
    child.expect_success();
  }
  EXPECT_EQ(recv_exactly(server_, 9), "in flight");
  expect_alive(client_, server_);
}

TEST_F(Processes, AChildThatClosesChangesNothing) {
  send_all(client_, "in flight");
  await_queued(server_, 9);
  Child child([&] {
    pair_.client.close();
    pair_.server.close();
  });
  child.expect_success();
  EXPECT_EQ(recv_exactly(server_, 9), "in flight");
  expect_alive(client_, server_);
}

TEST_F(Processes, ForkingServer) {
  const Listener listener = listen_loopback();
  for (uint32_t number = 0; number < 10; ++number) {
    const Fd client = dial(listener.address);
    send_all(client.get(), pattern(5'000, number));
    Fd server = accept_one(listener.fd.get());
    Child child([&] { send_all(server.get(), recv_exactly(server.get(), 5'000)); });
    server.close();
    EXPECT_TRUE(is_same(recv_to_end(client.get()), pattern(5'000, number)));
    child.expect_success();
  }
}

TEST_F(Processes, PreforkedServersShareAListener) {
  constexpr uint32_t kEach = 10;
  const Listener listener = listen_loopback();
  auto serve = [&] {
    for (uint32_t number = 0; number < kEach; ++number) {
      const Fd server = accept_one(listener.fd.get());
      send_all(server.get(), recv_exactly(server.get(), 1'000));
    }
  };
  Child first(serve), second(serve);
  for (uint32_t number = 0; number < 2 * kEach; ++number) {
    const Fd client = dial(listener.address);
    send_all(client.get(), pattern(1'000, number));
    EXPECT_TRUE(is_same(recv_to_end(client.get()), pattern(1'000, number)));
  }
  first.expect_success();
  second.expect_success();
}

TEST_F(Processes, ClientInAnotherProcess) {
  const Listener listener = listen_loopback();
  Child child([&] {
    const Fd client = dial(listener.address);
    send_all(client.get(), pattern(300'000));
    EXPECT_TRUE(is_same(recv_to_end(client.get()), pattern(300'000, 2)));
  });
  Fd server = accept_one(listener.fd.get());
  EXPECT_TRUE(is_same(recv_exactly(server.get(), 300'000), pattern(300'000)));
  send_all(server.get(), pattern(300'000, 2));
  server.close();
  child.expect_success();
}

TEST_F(Processes, AWriterKilledAfterSendLosesNothing) {
  for (const size_t size : {1u, 1'000u, 60'000u, 200'000u}) {
    pair_ = connected_pair();
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    Child writer([&] {
      size_t sent = 0;
      const std::string bytes = pattern(size);
      make_nonblocking(pair_.client.get());
      const ssize_t count = send(pair_.client.get(), bytes.data(), size, 0);
      if (count > 0) sent = size_t(count);
      EXPECT_EQ(write(told[1], &sent, sizeof sent), ssize_t{sizeof sent});
      pause();
    });
    pair_.client.close();
    size_t sent = 0;
    ASSERT_EQ(read(told[0], &sent, sizeof sent), ssize_t{sizeof sent});
    writer.kill_now();
    EXPECT_GT(sent, 0u);
    EXPECT_TRUE(is_same(recv_to_end(pair_.server.get()), pattern(sent))) << size;
    close(told[0]);
    close(told[1]);
  }
}

TEST_F(Processes, AWriterKilledInTheMiddleLeavesAPrefix) {
  for (uint32_t time = 0; time < 5; ++time) {
    pair_ = connected_pair();
    Child writer([&] {
      for (;;) send_all(pair_.client.get(), pattern(100'000));
    });
    pair_.client.close();
    std::string got = recv_exactly(pair_.server.get(), 300'000 + time * 7'777);
    writer.kill_now();
    got += recv_to_end(pair_.server.get());
    for (size_t at = 0; at < got.size(); at += 100'000)
      ASSERT_TRUE(
          is_same(got.substr(at, 100'000), pattern(std::min<size_t>(100'000, got.size() - at))));
    expect_end_of_stream(pair_.server.get());
  }
}

TEST_F(Processes, AReaderKilledResetsTheWriter) {
  Child reader([&] {
    pair_.client.close();
    recv_exactly(server_, 1);
    pause();
  });
  pair_.server.close();
  fill_until_refused(client_, 1);
  reader.kill_now();
  pollfd one{client_, POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 3000), 1);
  EXPECT_TRUE(one.revents & POLLHUP);
  char byte;
  EXPECT_EQ(recv(client_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// One of two that share a socket dies while it uses it; the other goes on.
TEST_F(Processes, AReaderKilledWhileItWaitsLeavesTheSocketUsable) {
  for (int time = 0; time < 5; ++time) {
    Child reader([&] {
      char byte;
      for (;;) recv(server_, &byte, 1, 0);
    });
    sleep_ms(5);
    reader.kill_now();
    expect_alive(client_, server_);
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
