// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Making connections: blocking, non-blocking, refused, pending; accept and its flags; who speaks
// first.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "ddpsock/ddpsock.h"
#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Connect : public TcpTest {
 protected:
  // A port at which nobody listens, while `holder` keeps it.
  static sockaddr_in refusing_address(Fd& holder) {
    holder = make_client_socket();
    sockaddr_in address = client_address();
    socklen_t length = sizeof address;
    auto* where = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(holder.get(), where, length), 0);
    EXPECT_EQ(getsockname(holder.get(), where, &length), 0);
    return address;
  }
  static short poll_for(int fd, short events, int milliseconds = 3000) {
    pollfd one{fd, events, 0};
    poll(&one, 1, milliseconds);
    return one.revents;
  }
  void expect_connect(int fd, const sockaddr_in& address, int error) const {
    EXPECT_EQ(connect_to(fd, address), error == 0 ? 0 : -1);
    EXPECT_TRUE(error == 0 || errno == error) << strerror(errno);
  }
  // Fills the listener's queue, so that the next connection stays pending.
  std::vector<Fd> fill_backlog() const {
    std::vector<Fd> clients;
    for (bool is_pending = false; !is_pending && clients.size() < 20;) {
      clients.push_back(make_client_socket(SOCK_NONBLOCK));
      connect_to(clients.back().get(), listener_.address);
      is_pending = poll_for(clients.back().get(), POLLOUT, 50) == 0;
    }
    return clients;
  }

  Listener listener_ = listen_loopback();
};

TEST_F(Connect, NonblockingAsMostProgramsDo) {
  const Fd client = make_client_socket(SOCK_NONBLOCK);
  expect_connect(client.get(), listener_.address, EINPROGRESS);
  EXPECT_EQ(poll_for(client.get(), POLLOUT), POLLOUT);
  EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), 0);
  const Fd server = accept_one(listener_.fd.get());
  EXPECT_EQ(fcntl(client.get(), F_SETFL, 0), 0);
  expect_alive(client.get(), server.get());
}

// hiredis asks connect itself whether it is done.
TEST_F(Connect, NonblockingCalledAgain) {
  const Fd client = make_client_socket(SOCK_NONBLOCK);
  expect_connect(client.get(), listener_.address, EINPROGRESS);
  EXPECT_EQ(poll_for(client.get(), POLLOUT), POLLOUT);
  expect_connect(client.get(), listener_.address, 0);
  expect_connect(client.get(), listener_.address, EISCONN);
  const Fd server = accept_one(listener_.fd.get());
  EXPECT_EQ(fcntl(client.get(), F_SETFL, 0), 0);
  expect_alive(client.get(), server.get());
}

TEST_F(Connect, BlockingCalledAgainIsConnected) {
  const Fd client = dial(listener_.address);
  expect_connect(client.get(), listener_.address, EISCONN);
  const Fd server = accept_one(listener_.fd.get());
  expect_connect(server.get(), listener_.address, EISCONN);
  expect_alive(client.get(), server.get());
}

TEST_F(Connect, PendingIsAlready) {
  listener_ = listen_loopback(0);
  const std::vector<Fd> clients = fill_backlog();
  expect_connect(clients.back().get(), listener_.address, EALREADY);
  EXPECT_EQ(send(clients.back().get(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  char byte;
  EXPECT_EQ(recv(clients.back().get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Connect, PendingBlockingOneTimesOut) {
  listener_ = listen_loopback(0);
  const std::vector<Fd> clients = fill_backlog();
  const Fd late = make_client_socket();
  set_timeout(late.get(), SO_SNDTIMEO, 50);
  expect_connect(late.get(), listener_.address, EINPROGRESS);
}

TEST_F(Connect, ShutdownGivesAPendingOneUp) {
  listener_ = listen_loopback(0);
  std::vector<Fd> clients = fill_backlog();
  clients.push_back(make_client_socket());
  set_timeout(clients.back().get(), SO_SNDTIMEO, 50);
  expect_connect(clients.back().get(), listener_.address, EINPROGRESS);
  const Listener elsewhere = listen_loopback();
  for (size_t i = clients.size() - 2; i < clients.size(); ++i) {
    const int client = clients[i].get();
    EXPECT_EQ(shutdown(client, 7), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(shutdown(client, SHUT_WR), 0) << strerror(errno);
    EXPECT_EQ(get_option(client, SOL_SOCKET, SO_ERROR), ECONNRESET);
    EXPECT_EQ(send(client, "x", 1, 0), -1);
    EXPECT_EQ(errno, EPIPE) << strerror(errno);
    connect_to(client, elsewhere.address);
    EXPECT_EQ(poll_for(client, POLLOUT), POLLOUT);
    EXPECT_EQ(get_option(client, SOL_SOCKET, SO_ERROR), 0);
    const Fd server = accept_one(elsewhere.fd.get());
    EXPECT_EQ(fcntl(client, F_SETFL, 0), 0);
    expect_alive(client, server.get());
  }
}

// Blocking calls wait for TCP here, and only so long.
TEST_F(Connect, CallsOnAPendingOneEndWithTheirTimeouts) {
  listener_ = listen_loopback(0);
  const std::vector<Fd> clients = fill_backlog();
  const int client = clients.back().get();
  ASSERT_EQ(fcntl(client, F_SETFL, 0), 0);
  set_timeout(client, SO_RCVTIMEO, 50);
  char byte;
  EXPECT_EQ(recv(client, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(read(client, &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  set_timeout(client, SO_RCVTIMEO, 0);
  set_timeout(client, SO_SNDTIMEO, 50);
  EXPECT_EQ(send(client, "x", 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Connect, NothingIsQueuedOfAPendingOne) {
  listener_ = listen_loopback(0);
  const std::vector<Fd> clients = fill_backlog();
  int bytes = -1;
  EXPECT_EQ(ioctl(clients.back().get(), FIONREAD, &bytes), 0) << strerror(errno);
  EXPECT_EQ(bytes, 0);
}

std::atomic<int> caught;

// A signal ends a call on a pending one where it would end the kernel's own.
TEST_F(Connect, ASignalEndsACallOnAPendingOneOrDoesNot) {
  listener_ = listen_loopback(0);
  const std::vector<Fd> full = fill_backlog();
  for (const bool is_sending : {false, true})
    for (const bool restarts : {false, true})
      for (const bool has_timeout : {false, true}) {
        struct sigaction action{};
        action.sa_handler = [](int) { ++caught; };
        action.sa_flags = restarts ? SA_RESTART : 0;
        sigaction(SIGUSR1, &action, nullptr);
        caught = 0;
        const Fd client = make_client_socket(SOCK_NONBLOCK);
        expect_connect(client.get(), listener_.address, EINPROGRESS);
        ASSERT_EQ(fcntl(client.get(), F_SETFL, 0), 0);
        if (has_timeout) {
          set_timeout(client.get(), SO_RCVTIMEO, 15'000);
          set_timeout(client.get(), SO_SNDTIMEO, 15'000);
        }
        int error = 0;
        Sleeper caller([&] {
          char byte = 0;
          const ssize_t n = is_sending ? send(client.get(), &byte, 1, MSG_NOSIGNAL)
                                       : recv(client.get(), &byte, 1, 0);
          error = n < 0 ? errno : 0;
        });
        caller.interrupt(SIGUSR1);
        while (caught == 0) sched_yield();
        const bool goes_on = restarts && !has_timeout;
        if (goes_on) {
          caller.await_calm();
          EXPECT_EQ(shutdown(client.get(), SHUT_RDWR), 0);
        }
        caller.join();
        EXPECT_EQ(error, goes_on ? ECONNRESET : EINTR)
            << is_sending << restarts << has_timeout << ' ' << strerror(error);
      }
  signal(SIGUSR1, SIG_DFL);
}

// One thread waits for a connection, another gives it up: the reader is told what TCP tells.
TEST_F(Connect, AReaderOfAPendingOneIsToldThatItIsGivenUp) {
  listener_ = listen_loopback(0);
  const std::vector<Fd> clients = fill_backlog();
  for (int time = 0; time < 40; ++time) {
    const Fd client = make_client_socket(SOCK_NONBLOCK);
    expect_connect(client.get(), listener_.address, EINPROGRESS);
    ASSERT_EQ(fcntl(client.get(), F_SETFL, 0), 0);
    int error = 0;
    {
      const Sleeper reader([&] {
        char byte;
        error = recv(client.get(), &byte, 1, 0) < 0 ? errno : 0;
      });
      EXPECT_EQ(shutdown(client.get(), SHUT_RDWR), 0);
    }
    EXPECT_EQ(error, ECONNRESET) << strerror(error);
  }
}

// What the program has asked for it finds again, whatever becomes of the attempt.
TEST_F(Connect, TheLowWaterMarkOutlivesAnAttempt) {
  Fd holder;
  const sockaddr_in nowhere = refusing_address(holder);
  const Fd client = make_client_socket(SOCK_NONBLOCK);
  set_option(client.get(), SOL_SOCKET, SO_RCVLOWAT, 10);
  connect_to(client.get(), nowhere);
  poll_for(client.get(), POLLOUT);
  get_option(client.get(), SOL_SOCKET, SO_ERROR);
  EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_RCVLOWAT), 10);
  const Fd other = make_client_socket();
  set_option(other.get(), SOL_SOCKET, SO_RCVLOWAT, 10);
  expect_connect(other.get(), listener_.address, 0);
  sockaddr any{};
  any.sa_family = AF_UNSPEC;
  EXPECT_EQ(connect(other.get(), &any, sizeof any), 0);
  EXPECT_EQ(get_option(other.get(), SOL_SOCKET, SO_RCVLOWAT), 10);
}

TEST_F(Connect, RefusedBlocking) {
  Fd holder;
  const sockaddr_in nowhere = refusing_address(holder);
  const Fd client = make_client_socket();
  expect_connect(client.get(), nowhere, ECONNREFUSED);
  EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), 0);
  expect_connect(client.get(), listener_.address, 0);
  const Fd server = accept_one(listener_.fd.get());
  expect_alive(client.get(), server.get());
}

TEST_F(Connect, RefusedNonblocking) {
  Fd holder;
  const sockaddr_in nowhere = refusing_address(holder);
  const Fd client = make_client_socket(SOCK_NONBLOCK);
  expect_connect(client.get(), nowhere, EINPROGRESS);
  EXPECT_TRUE(poll_for(client.get(), POLLOUT) & POLLERR);
  EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), ECONNREFUSED);
  EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), 0);
}

TEST_F(Connect, RefusedNonblockingToldByConnect) {
  Fd holder;
  const sockaddr_in nowhere = refusing_address(holder);
  const Fd client = make_client_socket(SOCK_NONBLOCK);
  expect_connect(client.get(), nowhere, EINPROGRESS);
  EXPECT_TRUE(poll_for(client.get(), POLLOUT) & POLLERR);
  expect_connect(client.get(), nowhere, ECONNREFUSED);
}

TEST_F(Connect, BadArguments) {
  const Fd client = make_client_socket();
  sockaddr_in address = listener_.address;
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), 3), -1);
  EXPECT_EQ(errno, EINVAL);
  address.sin_family = AF_INET6;
  expect_connect(client.get(), address, EAFNOSUPPORT);
  expect_connect(listener_.fd.get(), listener_.address, EISCONN);
  expect_connect(-1, listener_.address, EBADF);
}

TEST_F(Connect, DisconnectAndConnectElsewhere) {
  const Fd client = dial(listener_.address);
  Fd server = accept_one(listener_.fd.get());
  expect_alive(client.get(), server.get());
  sockaddr nothing{};
  nothing.sa_family = AF_UNSPEC;
  ASSERT_EQ(connect(client.get(), &nothing, sizeof nothing), 0);
  EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), ECONNRESET);
  EXPECT_EQ(recv(server.get(), &nothing, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  const Listener other = listen_loopback();
  expect_connect(client.get(), other.address, 0);
  server = accept_one(other.fd.get());
  expect_alive(client.get(), server.get());
}

// Whom the server accepts first is gone, and must not stand for who came later by the same socket.
TEST_F(Connect, DisconnectBeforeItWasAccepted) {
  const Fd first = dial(listener_.address);
  const Fd client = dial(listener_.address);
  sockaddr nothing{};
  nothing.sa_family = AF_UNSPEC;
  ASSERT_EQ(connect(client.get(), &nothing, sizeof nothing), 0);
  expect_connect(client.get(), listener_.address, 0);
  const Fd first_server = accept_one(listener_.fd.get());
  const Fd gone(accept(listener_.fd.get(), nullptr, nullptr));
  EXPECT_GE(gone.get(), 0);
  const Fd server = accept_one(listener_.fd.get());
  expect_alive(client.get(), server.get());
  expect_alive(first.get(), first_server.get());
}

// connect() says that it is done, and the first bytes carry the SYN: nothing can be agreed on
// before.
TEST_F(Connect, TheFirstBytesMayComeWithTheSyn) {
  if (is_ddp_mode_required()) GTEST_SKIP() << "the server refuses a plain client";
  const int on = 1;
  Fd client = make_client_socket();
  set_option(client.get(), IPPROTO_TCP, TCP_FASTOPEN_CONNECT, on);
  set_option(client.get(), IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, on);
  expect_connect(client.get(), listener_.address, 0);
  sockaddr_in peer;
  socklen_t length = sizeof peer;
  EXPECT_EQ(getpeername(client.get(), reinterpret_cast<sockaddr*>(&peer), &length), -1);
  ddp_status status{};
  length = sizeof status;
  const bool is_asked = getsockopt(client.get(), SOL_DDP, DDP_STATUS, &status, &length) == 0;
  EXPECT_FALSE(is_asked && status.mode == DDP_MODE_STREAM);
  send_all(client.get(), "first");
  Fd server = accept_one(listener_.fd.get());
  EXPECT_EQ(recv_exactly(server.get(), 5), "first");
  expect_alive(client.get(), server.get());
  client.close();
  expect_end_of_stream(server.get());
}

TEST_F(Connect, FromABoundSocket) {
  Fd client;
  const sockaddr_in mine = refusing_address(client);
  expect_connect(client.get(), listener_.address, 0);
  sockaddr_in theirs{};
  socklen_t length = sizeof theirs;
  const Fd server(accept(listener_.fd.get(), reinterpret_cast<sockaddr*>(&theirs), &length));
  EXPECT_EQ(length, sizeof theirs);
  EXPECT_EQ(theirs.sin_port, mine.sin_port);
  EXPECT_EQ(theirs.sin_addr.s_addr, mine.sin_addr.s_addr);
  expect_alive(client.get(), server.get());
}

TEST_F(Connect, ClientSpeaksFirst) {
  const Fd client = dial(listener_.address);
  send_all(client.get(), "early");
  const Fd server = accept_one(listener_.fd.get());
  EXPECT_EQ(recv_exactly(server.get(), 5), "early");
  expect_alive(client.get(), server.get());
}

TEST_F(Connect, ServerSpeaksFirst) {
  const Fd client = dial(listener_.address);
  const Fd server = accept_one(listener_.fd.get());
  send_all(server.get(), "welcome");
  EXPECT_EQ(recv_exactly(client.get(), 7), "welcome");
  expect_alive(client.get(), server.get());
}

TEST_F(Connect, ServerSpeaksFirstToANonblockingClient) {
  const Fd client = make_client_socket(SOCK_NONBLOCK);
  expect_connect(client.get(), listener_.address, EINPROGRESS);
  const Fd server = accept_one(listener_.fd.get());
  send_all(server.get(), "welcome");
  EXPECT_EQ(poll_for(client.get(), POLLIN), POLLIN);
  char bytes[10];
  EXPECT_EQ(read(client.get(), bytes, sizeof bytes), 7);
}

TEST_F(Connect, BothSpeakAtOnce) {
  for (int time = 0; time < 50; ++time) {
    const std::string a = pattern(20'000, 1), b = pattern(20'000, 2);
    const Fd client = dial(listener_.address);
    std::jthread server([&] {
      const Fd fd = accept_one(listener_.fd.get());
      send_all(fd.get(), b);
      EXPECT_TRUE(is_same(recv_exactly(fd.get(), a.size()), a));
    });
    send_all(client.get(), a);
    EXPECT_TRUE(is_same(recv_exactly(client.get(), b.size()), b));
  }
}

TEST_F(Connect, OneThreadConnectsWritesAndAccepts) {
  const Fd client = dial(listener_.address);
  const std::string request = pattern(30'000);
  send_all(client.get(), request);
  EXPECT_EQ(shutdown(client.get(), SHUT_WR), 0);
  const Fd server = accept_one(listener_.fd.get());
  EXPECT_TRUE(is_same(recv_to_end(server.get()), request));
  send_all(server.get(), request);
  EXPECT_TRUE(is_same(recv_exactly(client.get(), request.size()), request));
}

TEST_F(Connect, ManyPendingAreAcceptedInOrder) {
  std::vector<Fd> clients;
  for (int number = 0; number < 30; ++number) {
    clients.push_back(dial(listener_.address));
    send_all(clients.back().get(), std::string(1, static_cast<char>(number)));
  }
  for (int number = 0; number < 30; ++number) {
    const Fd server = accept_one(listener_.fd.get());
    EXPECT_EQ(recv_exactly(server.get(), 1), std::string(1, static_cast<char>(number)));
    expect_alive(server.get(), clients[size_t(number)].get());
  }
}

TEST_F(Connect, ManyShortConnections) {
  for (uint32_t number = 0; number < 300; ++number) {
    const Fd client = dial(listener_.address);
    const Fd server = accept_one(listener_.fd.get());
    send_all(client.get(), pattern(100, number));
    EXPECT_TRUE(is_same(recv_exactly(server.get(), 100), pattern(100, number)));
  }
}

TEST_F(Connect, ManyConnectionsAtOnce) {
  std::vector<Pair> pairs;
  for (int number = 0; number < 200; ++number) pairs.push_back(connected_pair());
  std::mt19937 random(4);
  for (int round = 0; round < 1000; ++round) {
    const Pair& pair = pairs[random() % pairs.size()];
    expect_alive(pair.client.get(), pair.server.get());
  }
}

TEST_F(Connect, AcceptFlags) {
  for (const int flags : {0, int{SOCK_NONBLOCK}, int{SOCK_CLOEXEC}, SOCK_NONBLOCK | SOCK_CLOEXEC}) {
    const Fd client = dial(listener_.address);
    const Fd server(accept4(listener_.fd.get(), nullptr, nullptr, flags));
    EXPECT_EQ(fcntl(server.get(), F_GETFL), O_RDWR | (flags & SOCK_NONBLOCK ? O_NONBLOCK : 0));
    EXPECT_EQ(fcntl(server.get(), F_GETFD), flags & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
  }
  EXPECT_EQ(accept4(listener_.fd.get(), nullptr, nullptr, 1 << 20), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Connect, AcceptDoesNotInheritNonblocking) {
  make_nonblocking(listener_.fd.get());
  EXPECT_EQ(accept(listener_.fd.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  const Fd client = dial(listener_.address);
  const Fd server(accept(listener_.fd.get(), nullptr, nullptr));
  EXPECT_FALSE(is_nonblocking(server.get()));
}

TEST_F(Connect, AcceptOfOtherThings) {
  const Fd client = dial(listener_.address);
  EXPECT_EQ(accept(client.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  const Fd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(accept(file.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, ENOTSOCK);
}

TEST_F(Connect, ListenerShutWakesAccept) {
  std::jthread closer([&] {
    sleep_ms(30);
    shutdown(listener_.fd.get(), SHUT_RD);
  });
  EXPECT_EQ(accept(listener_.fd.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Connect, ListenerClosedResetsWhoWaits) {
  const Fd client = dial(listener_.address);
  listener_.fd.close();
  char byte;
  EXPECT_EQ(recv(client.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(Connect, PortIsReusedAtOnce) {
  sockaddr_in address = own_address();
  auto* where = reinterpret_cast<sockaddr*>(&address);
  for (int time = 0; time < 5; ++time) {
    const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_option(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    socklen_t length = sizeof address;
    ASSERT_EQ(bind(listener.get(), where, length), 0) << strerror(errno);
    ASSERT_EQ(listen(listener.get(), 8), 0);
    ASSERT_EQ(getsockname(listener.get(), where, &length), 0);
    const Fd client = dial(address);
    const Fd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    expect_alive(client.get(), server.get());
  }
}

class ConnectFamilies : public TcpTest {
 protected:
  // A listener of IPv6's any address, for both families.
  ConnectFamilies() {
    const auto* where = reinterpret_cast<const sockaddr*>(&address_);
    socklen_t length = sizeof address_;
    address_.sin6_family = AF_INET6;
    set_option(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    EXPECT_EQ(bind(listener_.get(), where, length), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &length), 0);
  }
  void expect_connection(int domain, const void* address, socklen_t length) {
    const Fd client(socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(client.get(), static_cast<const sockaddr*>(address), length), 0)
        << strerror(errno);
    const Fd server(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    expect_alive(client.get(), server.get());
  }

  Fd listener_{socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in6 address_{};
};

TEST_F(ConnectFamilies, Version6) {
  address_.sin6_addr = in6addr_loopback;
  expect_connection(AF_INET6, &address_, sizeof address_);
}

TEST_F(ConnectFamilies, Version4MappedClient) {
  inet_pton(AF_INET6, "::ffff:127.0.0.1", &address_.sin6_addr);
  expect_connection(AF_INET6, &address_, sizeof address_);
}

TEST_F(ConnectFamilies, Version4ClientOfAVersion6Server) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = address_.sin6_port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  expect_connection(AF_INET, &address, sizeof address);
}

TEST_F(ConnectFamilies, AnyAddressMeansThisHost) {
  expect_connection(AF_INET6, &address_, sizeof address_);
}

TEST_F(ConnectFamilies, OtherSocketsAreLeftAlone) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd a(ends[0]), b(ends[1]);
  expect_alive(a.get(), b.get());
  const Fd datagrams(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in self{};
  socklen_t length = sizeof self;
  self.sin_family = AF_INET;
  self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* where = reinterpret_cast<sockaddr*>(&self);
  ASSERT_EQ(bind(datagrams.get(), where, length), 0);
  ASSERT_EQ(getsockname(datagrams.get(), where, &length), 0);
  ASSERT_EQ(connect(datagrams.get(), where, length), 0);
  EXPECT_EQ(send(datagrams.get(), "ping", 4, 0), 4);
  char bytes[10];
  EXPECT_EQ(recv(datagrams.get(), bytes, 2, MSG_TRUNC), 4);
}

TEST_F(Connect, ToAnAddressThatIsNotTheProgramsMemoryIsTheKernelsToRefuse) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* end = static_cast<std::byte*>(pages) + page;
  ASSERT_EQ(mprotect(end, page, PROT_NONE), 0);
  Fd client = make_client_socket();
  const auto connect_at = [&](const void* where, socklen_t length) {
    return connect(client.get(), static_cast<const sockaddr*>(where), length);
  };
  const auto expect_fault = [&](const void* where, socklen_t length) {
    EXPECT_EQ(connect_at(where, length), -1);
    EXPECT_EQ(errno, EFAULT);
  };
  // The last byte of one that can be read is in front of the page that cannot.
  std::byte* last = end - sizeof listener_.address;
  std::memcpy(last, &listener_.address, sizeof listener_.address);
  expect_fault(nullptr, sizeof listener_.address);
  expect_fault(end, sizeof listener_.address);
  expect_fault(reinterpret_cast<void*>(-1), sizeof listener_.address);
  expect_fault(last + 1, sizeof listener_.address);
  ASSERT_EQ(connect_at(last, sizeof listener_.address), 0);
  const Fd server = accept_one(listener_.fd.get());
  expect_alive(client.get(), server.get());
  expect_fault(end, sizeof listener_.address);
  // Two bytes are all that is needed to dissolve it.
  constexpr sa_family_t kNowhere = AF_UNSPEC;
  std::memcpy(end - sizeof kNowhere, &kNowhere, sizeof kNowhere);
  EXPECT_EQ(connect_at(end - sizeof kNowhere, sizeof kNowhere), 0);
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  EXPECT_EQ(getpeername(client.get(), reinterpret_cast<sockaddr*>(&peer), &length), -1);
  EXPECT_EQ(errno, ENOTCONN);
  munmap(pages, 2 * page);
}

}  // namespace
}  // namespace ddpsock::shim_tests
