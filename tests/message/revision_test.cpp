// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Scripted peers that know revision 1 of MPA and no other: they are called again, on the same
// socket.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <functional>
#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

constexpr size_t kFrame = 20;  // without private data: RFC 5044 section 7.1.1
constexpr size_t kRevisionAt = 17, kLengthAt = 18;

class Revision : public testing::Test {
 protected:
  Revision() : listener(listen_on_loopback(true)) { arm_alarm(); }

  // Everything a peer of revision 1 does: what `first` does with a Request of revision 2 on the
  // first connection, and then one that stands, on which a message is taken and its bytes kept.
  void serve(const std::function<void(int)>& first) {
    Fd fd(accept(listener.fd.get(), nullptr, nullptr));
    first_peer = peer_port(fd.get());
    std::string request = read_request(fd.get());
    EXPECT_EQ(request[kRevisionAt], 2);
    first(fd.get());
    fd.close();
    fd = Fd(accept(listener.fd.get(), nullptr, nullptr));
    second_peer = peer_port(fd.get());
    request = read_request(fd.get());
    EXPECT_EQ(request.substr(0, 16), "MPA ID Req Frame");
    EXPECT_EQ(request[kRevisionAt], 1);
    private_data = request.substr(kFrame);
    send_reply(fd.get());
    // One FPDU: length, the header of a Send, the payload, padding, CRC.
    std::string fpdu(2 + 18 + 5 + 3 + 4, '.');
    EXPECT_EQ(recv(fd.get(), fpdu.data(), fpdu.size(), MSG_WAITALL),
              static_cast<ssize_t>(fpdu.size()));
    message = fpdu.substr(20, 5);
    char byte;
    while (recv(fd.get(), &byte, 1, 0) > 0) continue;
  }
  static std::string read_request(int fd) {
    std::string frame(kFrame, '.');
    EXPECT_EQ(recv(fd, frame.data(), kFrame, MSG_WAITALL), static_cast<ssize_t>(kFrame));
    const auto octet = [&](size_t at) { return static_cast<unsigned char>(frame[at]); };
    std::string data(octet(kLengthAt) * 256u + octet(kLengthAt + 1), '.');
    if (data.empty()) return frame;  // recv() would wait for a byte all the same
    EXPECT_EQ(recv(fd, data.data(), data.size(), MSG_WAITALL), static_cast<ssize_t>(data.size()));
    return frame + data;
  }
  static void send_reply(int fd) {
    const std::string reply("MPA ID Rep Frame\x40\x01\0\0", kFrame);
    EXPECT_EQ(send(fd, reply.data(), reply.size(), MSG_NOSIGNAL), static_cast<ssize_t>(kFrame));
  }
  static void reset(int fd) {
    const linger abrupt{.l_onoff = 1, .l_linger = 0};
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &abrupt, sizeof abrupt), 0);
  }
  static uint16_t peer_port(int fd) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    EXPECT_EQ(getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return address.sin_port;
  }
  // What is left to do on a connection that stands.
  void expect_it_works(Fd& client, std::jthread& server) {
    const ddp_status status = status_of(client.get());
    EXPECT_EQ(status.mpa_revision, 1u);
    EXPECT_STREQ(status.engine, "user");
    EXPECT_EQ(status.ird, 16u) << "by our own word";
    EXPECT_EQ(status.ord, 16u);
    post_send(client.get(), "hello", 1);
    EXPECT_EQ(next(client.get(), DDP_SENT, 1).status, 0);
    client.close();
    server.join();
    EXPECT_EQ(message, "hello");
    EXPECT_NE(first_peer, second_peer) << "a connection of its own";
  }

  const Listener listener;
  uint16_t first_peer = 0, second_peer = 0;
  std::string private_data, message;
};

TEST_F(Revision, APeerThatClosesIsCalledAgain) {
  std::jthread server([&] { serve([](int) {}); });
  Fd client = make_socket();
  set_mode(client.get());
  const char ours[] = "who calls";
  ASSERT_EQ(set_option(client.get(), DDP_PRIVATE_DATA, ours), 0);
  const int size = 70'000, on = 1;
  ASSERT_EQ(setsockopt(client.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
  ASSERT_EQ(setsockopt(client.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on), 0);
  const Fd twin(dup(client.get()));
  EXPECT_EQ(connect_to(client.get(), listener), 0) << strerror(errno);
  // Its flags and options are what they were, by every name.
  EXPECT_EQ(fcntl(client.get(), F_GETFL) & O_NONBLOCK, 0);
  int value = 0;
  socklen_t length = sizeof value;
  ASSERT_EQ(getsockopt(twin.get(), SOL_SOCKET, SO_SNDBUF, &value, &length), 0);
  EXPECT_EQ(value, 2 * size);
  ASSERT_EQ(getsockopt(twin.get(), SOL_SOCKET, SO_KEEPALIVE, &value, &length), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(status_of(twin.get()).mpa_revision, 1u);
  post_send(twin.get(), "hello", 1);
  EXPECT_EQ(next(client.get(), DDP_SENT, 1).status, 0);
  ASSERT_EQ(shutdown(client.get(), SHUT_WR), 0);
  EXPECT_EQ(next(client.get(), DDP_ENDED).status, 0);
  server.join();
  EXPECT_EQ(message, "hello");
  EXPECT_EQ(private_data, std::string_view(ours, sizeof ours));
}

TEST_F(Revision, NothingIsToldAsAgreedBeforeItIs) {
  Fd client = make_socket();
  set_mode(client.get());
  ASSERT_EQ(fcntl(client.get(), F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(connect_to(client.get(), listener), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  const ddp_status status = status_of(client.get());
  EXPECT_EQ(status.is_starting, 1u);
  EXPECT_EQ(status.mpa_revision, 0u);
  EXPECT_EQ(status.has_crc, 0u);
}

TEST_F(Revision, APeerThatResetsIsCalledAgain) {
  std::jthread server([&] { serve(reset); });
  Fd client = make_socket();
  set_mode(client.get());
  EXPECT_EQ(connect_to(client.get(), listener), 0) << strerror(errno);
  expect_it_works(client, server);
}

TEST_F(Revision, APeerThatAnswersBelowIsCalledAgain) {
  std::jthread server([&] { serve(send_reply); });
  Fd client = make_socket();
  set_mode(client.get());
  EXPECT_EQ(connect_to(client.get(), listener), 0) << strerror(errno);
  expect_it_works(client, server);
}

TEST_F(Revision, ANonBlockingConnectGoesOnByItself) {
  std::jthread server([&] { serve([](int) {}); });
  Fd client = make_socket();
  set_mode(client.get());
  ASSERT_EQ(fcntl(client.get(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_ERRNO(EINPROGRESS, connect_to(client.get(), listener));
  // The event fd of before the first call is that of after the second.
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, ddp_event_fd(client.get()), &event), 0);
  ddp_completion told{};
  while (ddp_poll(client.get(), &told, 1) == 0)
    ASSERT_EQ(epoll_wait(set.get(), &event, 1, kPatienceMs), 1);
  EXPECT_EQ(told.kind, static_cast<uint32_t>(DDP_ESTABLISHED)) << ddp_strerror(&told);
  EXPECT_NE(fcntl(client.get(), F_GETFL) & O_NONBLOCK, 0);
  int error = -1;
  socklen_t size = sizeof error;
  EXPECT_EQ(getsockopt(client.get(), SOL_SOCKET, SO_ERROR, &error, &size), 0);
  EXPECT_EQ(error, 0);
  expect_it_works(client, server);
}

TEST_F(Revision, TheCallerDrivesItToo) {
  std::jthread server([&] { serve([](int) {}); });
  Fd client = make_socket();
  set_mode(client.get());
  ASSERT_EQ(set_option(client.get(), DDP_PROGRESS, DDP_PROGRESS_CALLER), 0);
  EXPECT_EQ(connect_to(client.get(), listener), 0) << strerror(errno);
  expect_it_works(client, server);
}

TEST_F(Revision, ABoundPortStays) {
  std::jthread server([&] { serve([](int) {}); });
  Fd client = make_socket();
  set_mode(client.get());
  // A port that is free, and stays so: both may have it.
  const Fd keeper = make_socket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  for (const int fd : {keeper.get(), client.get()}) {
    const int on = 1;
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  }
  EXPECT_EQ(connect_to(client.get(), listener), 0) << strerror(errno);
  post_send(client.get(), "hello", 1);
  EXPECT_EQ(next(client.get(), DDP_SENT, 1).status, 0);
  client.close();
  server.join();
  EXPECT_EQ(first_peer, address.sin_port);
  EXPECT_EQ(second_peer, address.sin_port);
}

TEST_F(Revision, TwoCallsAndNoMore) {
  std::jthread server([&] {
    for (int i = 0; i < 2; ++i) {
      const Fd fd(accept(listener.fd.get(), nullptr, nullptr));
      read_request(fd.get());
    }
  });
  const Fd client = make_socket();
  set_mode(client.get());
  EXPECT_ERRNO(ECONNRESET, connect_to(client.get(), listener));
  server.join();
  EXPECT_EQ(next(client.get(), DDP_ENDED).status, ECONNRESET);
  pollfd entry{.fd = listener.fd.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&entry, 1, 50), 0);
}

// Nobody listens any more when it is called again.
TEST_F(Revision, ASecondCallThatFailsSaysSo) {
  Listener going = listen_on_loopback(true);
  std::jthread server([&] {
    const Fd fd(accept(going.fd.get(), nullptr, nullptr));
    going.fd.close();
    read_request(fd.get());
  });
  const Fd client = make_socket();
  set_mode(client.get());
  EXPECT_ERRNO(ECONNREFUSED, connect_to(client.get(), going));
  EXPECT_EQ(next(client.get(), DDP_ENDED).status, ECONNREFUSED);
}

// The bytes before an upgrade cannot be said again.
TEST_F(Revision, AnUpgradedConnectionIsNotCalledAgain) {
  Fd client = make_socket();
  ASSERT_EQ(connect_to(client.get(), listener), 0);
  Fd server(accept(listener.fd.get(), nullptr, nullptr));
  set_mode(client.get());
  std::jthread closing([&] {
    read_request(server.get());
    server.close();
  });
  EXPECT_ERRNO(ECONNRESET, ddp_establish(client.get(), kPatienceMs));
}

}  // namespace
}  // namespace ddpsock::message_tests
