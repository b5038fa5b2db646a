// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Message mode between two processes of one host in shared memory: who gets there, who does not,
// and what is left when the other process dies.
#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

constexpr size_t kLength = 100'000;
constexpr int kMessages = 40;

std::string message_of(int i) {
  return std::string(kLength, static_cast<char>('a' + i % 26));
}

TEST(Memory, BothEndsSayThatTheyAreInIt) {
  arm_alarm();
  const Ends ends = connect_ends();
  for (const int fd : {ends.client.get(), ends.server.get()}) {
    const ddp_status status = status_of(fd);
    EXPECT_STREQ(status.engine, "shm");
    EXPECT_STREQ(status.memory, "shared memory");
    EXPECT_EQ(status.is_proved, 1u);
    char engine[16] = {};
    socklen_t size = sizeof engine;
    EXPECT_EQ(getsockopt(fd, SOL_DDP, DDP_ENGINE, engine, &size), 0);
    EXPECT_STREQ(engine, "shm");
  }
}

TEST(Memory, MarkersAreForTheWire) {
  const Ends ends = connect_ends({.markers = 1});
  EXPECT_STREQ(status_of(ends.client.get()).engine, "user");
  EXPECT_STREQ(status_of(ends.server.get()).engine, "user");
}

TEST(Memory, AnUpgradedConnectionIsOverTcp) {
  const Listener listener = listen_on_loopback(true);
  const Fd client = make_socket();
  std::jthread connecting([&] { EXPECT_EQ(connect_to(client.get(), listener), 0); });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  connecting.join();
  set_mode(server.get());
  set_mode(client.get());
  std::jthread establishing([&] { EXPECT_EQ(ddp_establish(client.get(), kPatienceMs), 0); });
  EXPECT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  establishing.join();
  EXPECT_STREQ(status_of(client.get()).engine, "user");
  EXPECT_STREQ(status_of(server.get()).engine, "user");
}

// They would take each other's memory for their own kind.
TEST(Memory, AStreamAndAMessageListenerDoNotMeetThere) {
  const Listener listener = listen_on_loopback();
  const Fd client = make_socket();
  set_mode(client.get(), DDP_MODE_STREAM);
  std::jthread connecting([&] { (void)connect_to(client.get(), listener); });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  EXPECT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  connecting.join();
  EXPECT_STREQ(status_of(server.get()).engine, "user");
  const ddp_status status = status_of(client.get());
  EXPECT_STREQ(status.engine, "user");
  EXPECT_EQ(status.is_proved, 0u);
}

TEST(Memory, AMessageClientAndAStreamListenerDoNotMeetThere) {
  Listener listener = listen_on_loopback(true);
  set_mode(listener.fd.get(), DDP_MODE_STREAM);
  const Fd client = make_socket();
  set_mode(client.get());
  std::jthread connecting([&] { EXPECT_ERRNO(EPROTO, connect_to(client.get(), listener)); });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  char byte;
  (void)recv(server.get(), &byte, 1, 0);
  connecting.join();
  EXPECT_STREQ(status_of(client.get()).memory,
               "no listener on this host is known to be in message mode");
  EXPECT_EQ(status_of(server.get()).is_proved, 0u);
}

// Everything that was sent before is there, then the end; whatever the moment.
TEST(Memory, WhatAKilledProcessHasSentIsDelivered) {
  for (int last : {0, 1, 3, kMessages}) {
    SCOPED_TRACE(last);
    Listener listener = listen_on_loopback();
    const pid_t child = fork();
    if (child == 0) {
      const Fd client = make_socket();
      set_mode(client.get());
      if (connect_to(client.get(), listener) != 0) _exit(1);
      for (int i = 0; i < last; ++i) {
        const std::string message = message_of(i);
        post_send(client.get(), message);
        next(client.get(), DDP_SENT);
      }
      raise(SIGKILL);
    }
    const Fd server(accept(listener.fd.get(), nullptr, nullptr));
    std::vector<std::string> rooms(kMessages, std::string(kLength, '\0'));
    for (std::string& room : rooms) post_recv(server.get(), room);
    // It may have ended by now.
    ASSERT_TRUE(ddp_establish(server.get(), kPatienceMs) == 0 || errno == EPIPE) << strerror(errno);
    int received = 0;
    ddp_completion completion = next(server.get());
    for (; completion.kind == DDP_RECEIVED && completion.status == 0;
         completion = next(server.get())) {
      EXPECT_EQ(completion.bytes, kLength);
      EXPECT_EQ(rooms[static_cast<size_t>(received)], message_of(received));
      ++received;
    }
    EXPECT_EQ(received, last);
    while (completion.kind == DDP_RECEIVED) completion = next(server.get());
    EXPECT_EQ(completion.kind, static_cast<uint32_t>(DDP_ENDED));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
  }
}

// One that is killed while it should read does not hold us for ever.
TEST(Memory, AKilledReaderIsNoticed) {
  Listener listener = listen_on_loopback();
  const pid_t child = fork();
  if (child == 0) {
    const Fd client = make_socket();
    set_mode(client.get());
    if (connect_to(client.get(), listener) != 0) _exit(1);
    raise(SIGSTOP);
    _exit(0);
  }
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  ASSERT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  const std::string message(1 << 20, 'x');
  post_send(server.get(), message, 1);
  post_send(server.get(), message, 2);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  for (const uint64_t cookie : {1u, 2u}) {
    const ddp_completion completion = next(server.get(), DDP_SENT, cookie);
    EXPECT_EQ(completion.status, ECANCELED);
  }
  EXPECT_EQ(next(server.get(), DDP_ENDED).status, ECONNRESET);
}

}  // namespace
}  // namespace ddpsock::message_tests
