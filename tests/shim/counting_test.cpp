// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FIONREAD against a model: what it says is what was sent and not yet received, however it is
// asked.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <random>
#include <string>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Counting : public TcpTest {
 protected:
  void SetUp() override {
    expect_alive(client_, server_);
    make_nonblocking(server_);
    set_option(client_, IPPROTO_TCP, TCP_NODELAY, 1);
  }
  void send(size_t count) {
    send_all(client_, pattern(count, seed_++));
    sent_ += count;
  }
  void expect_queued() { await_queued(server_, static_cast<int>(sent_ - received_)); }
  void receive(size_t count) {
    received_ += recv_exactly(server_, std::min(count, sent_ - received_)).size();
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get(), server_ = pair_.server.get();
  size_t sent_ = 0, received_ = 0;
  uint32_t seed_ = 1;
};

// As many bytes in the kernel as before, and others: as FPDUs one of 40 is as long as those of 10
// and 2.
TEST_F(Counting, SameAmountOfOtherBytes) {
  for (int round = 0; round < 20; ++round) {
    send(40);
    expect_queued();
    receive(40);
    send(10);
    send(2);
    expect_queued();
    receive(12);
    expect_queued();
  }
}

TEST_F(Counting, WhatAPeekLeaves) {
  send(1000);
  expect_queued();
  char bytes[100];
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(recv(server_, bytes, sizeof bytes, MSG_PEEK), 100);
    expect_queued();
  }
  receive(999);
  expect_queued();
  send(1);
  expect_queued();
}

TEST_F(Counting, MoreThanOneLookHolds) {
  set_option(server_, SOL_SOCKET, SO_RCVBUF, 1 << 20);
  for (const size_t count : {100'000u, 60'000u, 1u}) {
    send(count);
    expect_queued();
  }
  receive(130'000);
  expect_queued();
  receive(30'001);
  expect_queued();
}

// Of much, an answer may leave out what came during the last reads; the next one does not, and who
// waits for an edge gets one.
TEST_F(Counting, MuchThatKeepsComing) {
  constexpr size_t kPiece = 8192;
  set_option(server_, SOL_SOCKET, SO_RCVBUF, 4 << 20);
  send(512 << 10);
  expect_queued();
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, server_, &event), 0);
  for (int round = 0; round < 100; ++round) {
    const size_t lay_there = sent_ - received_;
    receive(kPiece);
    send(kPiece);
    while (epoll_wait(set.get(), &event, 1, 50) == 0) {
    }
    int told = 0;
    ASSERT_EQ(ioctl(server_, FIONREAD, &told), 0);
    ASSERT_LE(size_t(told), lay_there);
    ASSERT_GE(size_t(told), lay_there / 4);
    if (size_t(told) < lay_there) {
      ASSERT_EQ(epoll_wait(set.get(), &event, 1, 1000), 1) << told;
    }
    expect_queued();
  }
}

TEST_F(Counting, Model) {
  std::mt19937 random(7);
  for (int step = 0; step < 600; ++step) {
    const size_t count = random_size(random, 1, step % 50 == 0 ? 30'000 : 300);
    switch (random() % 4) {
      case 0:
      case 1:
        if (sent_ - received_ < 20'000) send(count);
        break;
      case 2:
        receive(count);
        break;
      default:
        expect_queued();
        expect_queued();
    }
  }
  expect_queued();
}

}  // namespace
}  // namespace ddpsock::shim_tests
