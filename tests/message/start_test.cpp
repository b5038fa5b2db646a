// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How connections come about: connect and accept in their forms, upgrades, hostile and silent
// peers.
#include <fcntl.h>
#include <poll.h>

#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

class Start : public testing::Test {
 protected:
  Start() { arm_alarm(); }
};

void make_nonblocking(int fd) {
  ASSERT_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
}

void expect_they_talk(int from, int to) {
  std::string room(16, '.');
  post_recv(to, room, 5);
  post_send(from, "hello", 6);
  EXPECT_EQ(next(to, DDP_RECEIVED, 5).bytes, 5u);
  EXPECT_EQ(next(from, DDP_SENT, 6).status, 0);
}

std::string private_data_of(int fd) {
  std::array<char, 512> bytes{};
  socklen_t size = bytes.size();
  if (getsockopt(fd, SOL_DDP, DDP_PRIVATE_DATA, bytes.data(), &size) != 0) return "none";
  return {bytes.data(), size};
}

TEST_F(Start, NonBlockingConnectIsToldByACompletion) {
  const Listener listener = listen_on_loopback();
  const Fd client = make_socket();
  set_mode(client.get());
  make_nonblocking(client.get());
  const int result = connect_to(client.get(), listener);
  ASSERT_TRUE(result == 0 || errno == EINPROGRESS);
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  ASSERT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  ddp_completion completion{};
  ASSERT_EQ(ddp_wait(client.get(), &completion, 1, kPatienceMs), 1);
  EXPECT_EQ(completion.kind, static_cast<uint32_t>(DDP_ESTABLISHED));
  EXPECT_EQ(completion.fd, client.get());
  expect_they_talk(client.get(), server.get());
  expect_nothing(server.get());  // establish() has told it
}

TEST_F(Start, NonBlockingConnectToNobody) {
  Listener listener = listen_on_loopback();
  listener.fd.close();
  const Fd client = make_socket();
  set_mode(client.get());
  make_nonblocking(client.get());
  if (connect_to(client.get(), listener) != 0 && errno == EINPROGRESS) {
    pollfd entry{.fd = client.get(), .events = POLLOUT, .revents = 0};
    ASSERT_EQ(poll(&entry, 1, kPatienceMs), 1);
    int error = 0;
    socklen_t size = sizeof error;
    ASSERT_EQ(getsockopt(client.get(), SOL_SOCKET, SO_ERROR, &error, &size), 0);
    EXPECT_EQ(error, ECONNREFUSED);
    EXPECT_EQ(next(client.get(), DDP_ENDED).status, ECONNREFUSED);
  } else {
    EXPECT_EQ(errno, ECONNREFUSED);
  }
}

TEST_F(Start, BlockingConnectToNobody) {
  Listener listener = listen_on_loopback();
  listener.fd.close();
  const Fd client = make_socket();
  set_mode(client.get());
  EXPECT_ERRNO(ECONNREFUSED, connect_to(client.get(), listener));
}

TEST_F(Start, ConnectToWhatSpeaksNoMpa) {
  const Listener listener = listen_on_loopback(true);
  std::jthread server([&] {
    const Fd fd(accept(listener.fd.get(), nullptr, nullptr));
    EXPECT_EQ(write(fd.get(), "220 not what you think, friend\r\n", 32), 32);
    char byte;
    while (read(fd.get(), &byte, 1) > 0) continue;
  });
  Fd client = make_socket();
  set_mode(client.get());
  EXPECT_ERRNO(EPROTO, connect_to(client.get(), listener));
  EXPECT_EQ(next(client.get(), DDP_ENDED).status, EPROTO);
  client.close();
}

TEST_F(Start, ConnectToWhatClosesAtOnce) {
  const Listener listener = listen_on_loopback(true);
  // It might be one of revision 1, and is called again.
  std::jthread server([&] {
    for (int i = 0; i < 2; ++i) Fd(accept(listener.fd.get(), nullptr, nullptr));
  });
  const Fd client = make_socket();
  set_mode(client.get());
  EXPECT_ERRNO(ECONNRESET, connect_to(client.get(), listener));
}

// Neither accept nor the calls on other connections wait for a peer that says nothing.
TEST_F(Start, SilentAndHostilePeersHoldNobodyUp) {
  const Listener listener = listen_on_loopback();
  std::vector<Fd> silent, accepted;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(make_socket());
    ASSERT_EQ(connect_to(silent.back().get(), listener), 0);
    if (i % 2 == 1) {
      ASSERT_EQ(write(silent.back().get(), "GET / HTTP/1.1\r\n\r\n", 18), 18);
    }
    accepted.emplace_back(accept(listener.fd.get(), nullptr, nullptr));
    ASSERT_GE(accepted.back().get(), 0);
  }
  Fd client = make_socket();
  set_mode(client.get());
  std::jthread connecting([&] { EXPECT_EQ(connect_to(client.get(), listener), 0); });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  ASSERT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  connecting.join();
  expect_they_talk(client.get(), server.get());
  EXPECT_ERRNO(EAGAIN, ddp_establish(accepted[0].get(), 50));
  EXPECT_ERRNO(EPROTO, ddp_establish(accepted[1].get(), kPatienceMs));
  EXPECT_EQ(next(accepted[3].get(), DDP_ENDED).status, EPROTO);
}

TEST_F(Start, ReceivesPostedOneByOneAreThereForTheFirstMessages) {
  const Listener listener = listen_on_loopback();
  Fd client = make_socket();
  set_mode(client.get());
  std::jthread connecting([&] {
    EXPECT_EQ(connect_to(client.get(), listener), 0);
    for (int i = 0; i < 50; ++i) post_send(client.get(), "early", 0, DDP_SILENT);
  });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  std::string room(8, '.');
  for (uint64_t i = 0; i < 50; ++i) {
    post_recv(server.get(), room, i);
    usleep(100);
  }
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(next(server.get(), DDP_RECEIVED, i).status, 0);
}

TEST_F(Start, PrivateDataTravelsBothWays) {
  const Listener listener = listen_on_loopback();
  const Fd client = make_socket();
  set_mode(client.get());
  ASSERT_EQ(setsockopt(client.get(), SOL_DDP, DDP_PRIVATE_DATA, "request", 7), 0);
  EXPECT_EQ(private_data_of(client.get()), "none");
  std::jthread connecting([&] { EXPECT_EQ(connect_to(client.get(), listener), 0); });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  while (private_data_of(server.get()) == "none") usleep(1000);
  EXPECT_EQ(private_data_of(server.get()), "request");
  const std::string reply = "reply to " + private_data_of(server.get());
  ASSERT_EQ(setsockopt(server.get(), SOL_DDP, DDP_PRIVATE_DATA, reply.data(), reply.size()), 0);
  ASSERT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  EXPECT_ERRNO(EBUSY, setsockopt(server.get(), SOL_DDP, DDP_PRIVATE_DATA, "late", 4));
  connecting.join();
  EXPECT_EQ(private_data_of(client.get()), "reply to request");
  EXPECT_EQ(private_data_of(server.get()), "request");
}

TEST_F(Start, MarkersAndNoCrcAsAgreed) {
  const Ends ends = connect_ends({.markers = 1});
  EXPECT_EQ(status_of(ends.server.get()).has_markers, 2u);
  EXPECT_EQ(status_of(ends.client.get()).has_markers, 1u);
  std::string from(100'000, 'm'), room(from.size(), '.');
  post_recv(ends.server.get(), room, 1);
  post_send(ends.client.get(), from, 2);
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 1).bytes, from.size());
  EXPECT_TRUE(room == from);
  const Listener listener = listen_on_loopback();
  const int off = 0;
  ASSERT_EQ(set_option(listener.fd.get(), DDP_CRC, off), 0);
  const Fd client = make_socket();
  set_mode(client.get());
  ASSERT_EQ(set_option(client.get(), DDP_CRC, off), 0);
  std::jthread connecting([&] { EXPECT_EQ(connect_to(client.get(), listener), 0); });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  ASSERT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  connecting.join();
  EXPECT_EQ(status_of(client.get()).has_crc, 0u);
  expect_they_talk(client.get(), server.get());
}

TEST_F(Start, UpgradesAConnectedSocket) {
  const Listener listener = listen_on_loopback(true);
  const Fd client = make_socket();
  ASSERT_EQ(connect_to(client.get(), listener), 0);
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  char answer[3] = {};
  ASSERT_EQ(write(client.get(), "up?", 3), 3);
  ASSERT_EQ(read(server.get(), answer, 3), 3);
  set_mode(client.get());
  set_mode(server.get(), DDP_MODE_MESSAGE, DDP_ROLE_RESPONDER);
  std::jthread starting([&] { EXPECT_EQ(ddp_establish(client.get(), kPatienceMs), 0); });
  ASSERT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  starting.join();
  expect_they_talk(client.get(), server.get());
  const int mode = DDP_MODE_OFF;
  EXPECT_ERRNO(EISCONN, set_option(client.get(), DDP_MODE, mode));
}

TEST_F(Start, AnUpgradeThatThePeerDoesNotJoinCanBeTakenBack) {
  const Listener listener = listen_on_loopback(true);
  const Fd client = make_socket();
  ASSERT_EQ(connect_to(client.get(), listener), 0);
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  ASSERT_EQ(write(client.get(), "plain text that is no MPA Request", 33), 33);
  set_mode(server.get());
  EXPECT_ERRNO(EPROTO, ddp_establish(server.get(), kPatienceMs));
  char bytes[34] = {};
  EXPECT_ERRNO(EOPNOTSUPP, read(server.get(), bytes, 33));
  set_mode(server.get(), DDP_MODE_OFF);
  EXPECT_EQ(read(server.get(), bytes, 33), 33);
  EXPECT_STREQ(bytes, "plain text that is no MPA Request");
}

TEST_F(Start, AWishCanBeTakenBackBeforeTheConnection) {
  const Listener listener = listen_on_loopback(true);
  const Fd client = make_socket();
  set_mode(client.get());
  int mode = 0;
  socklen_t size = sizeof mode;
  ASSERT_EQ(getsockopt(client.get(), SOL_DDP, DDP_MODE, &mode, &size), 0);
  EXPECT_EQ(mode, DDP_MODE_MESSAGE);
  set_mode(client.get(), DDP_MODE_OFF);
  ASSERT_EQ(connect_to(client.get(), listener), 0);
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  ASSERT_EQ(write(client.get(), "plain", 5), 5);
  char bytes[6] = {};
  EXPECT_EQ(read(server.get(), bytes, 5), 5);
}

// Whoever watches the socket for us must not keep it open.
TEST_F(Start, ClosingBeforeTheStartEndsThePeer) {
  const Listener listener = listen_on_loopback();
  for (int i = 0; i < 20; ++i) {
    const Fd client = make_socket();
    ASSERT_EQ(connect_to(client.get(), listener), 0);
    Fd server(accept(listener.fd.get(), nullptr, nullptr));
    EXPECT_EQ(status_of(server.get()).is_starting, 1u);
    server.close();
    pollfd entry{.fd = client.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&entry, 1, kPatienceMs), 1);
    char byte = 0;
    EXPECT_EQ(recv(client.get(), &byte, 1, 0), 0);
  }
}

TEST_F(Start, ConnectionsComeAndGo) {
  std::vector<Ends> some(8);
  for (size_t i = 0; i < 300; ++i) {
    Ends& ends = some[(i * 5) % some.size()];
    ends = connect_ends();
    expect_they_talk(ends.client.get(), ends.server.get());
  }
}

TEST_F(Start, DuplicatesAreOneConnection) {
  Ends ends = connect_ends();
  Fd copy(dup(ends.client.get()));
  std::string room(8, '.');
  post_recv(ends.server.get(), room, 1);
  post_send(copy.get(), "by dup", 2);
  const ddp_completion sent = next(ends.client.get(), DDP_SENT, 2);
  EXPECT_EQ(sent.fd, ends.client.get());
  ends.client.close();
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 1).bytes, 6u);
  expect_they_talk(copy.get(), ends.server.get());
  copy.close();
  EXPECT_EQ(next(ends.server.get()).kind, DDP_ENDED);
}

}  // namespace
}  // namespace ddpsock::message_tests
