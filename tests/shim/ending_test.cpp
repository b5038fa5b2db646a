// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How connections end: half-close, close, reset, and what the other side gets.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>

#include "calls.h"
#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Ending : public TcpTest {
 protected:
  void expect_send_fails(int fd, int error) const {
    EXPECT_EQ(send(fd, "x", 1, MSG_NOSIGNAL), -1);
    EXPECT_EQ(errno, error) << strerror(errno);
  }
  void expect_recv_fails(int fd, int error) const {
    char byte;
    EXPECT_EQ(recv(fd, &byte, 1, 0), -1);
    EXPECT_EQ(errno, error) << strerror(errno);
  }
  short poll_for(int fd, short events) const {
    pollfd one{fd, events, 0};
    poll(&one, 1, 3000);
    return one.revents;
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

TEST_F(Ending, HalfCloseLeavesTheOtherWayOpen) {
  send_all(client_, "last words");
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(recv_to_end(server_), "last words");
  expect_end_of_stream(server_);
  const std::string reply = pattern(1'000'000);
  std::jthread replier([&] {
    send_all(server_, reply);
    shutdown(server_, SHUT_WR);
  });
  EXPECT_TRUE(is_same(recv_to_end(client_), reply));
}

TEST_F(Ending, HalfCloseByTheServerFirst) {
  EXPECT_EQ(shutdown(server_, SHUT_WR), 0);
  EXPECT_EQ(recv_to_end(client_), "");
  send_all(client_, "still here");
  EXPECT_EQ(recv_exactly(server_, 10), "still here");
}

TEST_F(Ending, HalfCloseOfAnUnusedConnectionBothWays) {
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  expect_end_of_stream(server_);
  EXPECT_EQ(shutdown(server_, SHUT_WR), 0);
  expect_end_of_stream(client_);
}

TEST_F(Ending, HalfCloseBothWaysWithDataInFlight) {
  const std::string a = pattern(2'000'000, 1), b = pattern(2'000'000, 2);
  std::jthread client_sends([&] {
    send_all(client_, a);
    shutdown(client_, SHUT_WR);
  });
  std::jthread server_sends([&] {
    send_all(server_, b);
    shutdown(server_, SHUT_WR);
  });
  std::jthread server_receives([&] { EXPECT_TRUE(is_same(recv_to_end(server_), a)); });
  EXPECT_TRUE(is_same(recv_to_end(client_), b));
}

TEST_F(Ending, WriteSideShutTwice) {
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  expect_send_fails(client_, EPIPE);
  expect_end_of_stream(server_);
}

TEST_F(Ending, EveryWriterFailsAfterShutdown) {
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  for (const Writer& writer : kWriters) {
    EXPECT_EQ(writer.write(client_, "abc", 3), -1) << writer.name;
    EXPECT_EQ(errno, EPIPE) << writer.name;
  }
}

TEST_F(Ending, ReadSideShutGivesWhatCameAndThenTheEnd) {
  send_all(client_, "abc");
  await_queued(server_, 3);
  EXPECT_EQ(shutdown(server_, SHUT_RD), 0);
  EXPECT_EQ(poll_for(server_, POLLIN | POLLRDHUP), POLLIN | POLLRDHUP);
  EXPECT_EQ(recv_exactly(server_, 3), "abc");
  expect_end_of_stream(server_);
  send_all(server_, "the other way works");
  EXPECT_EQ(recv_exactly(client_, 19), "the other way works");
}

// The kernel says 0 wherever nothing lies there, also in the middle of what the peer sends.
TEST_F(Ending, ReadSideShutIsNoEndOfAPeerThatGoesOn) {
  expect_alive(client_, server_);
  EXPECT_EQ(shutdown(server_, SHUT_RD), 0);
  make_nonblocking(server_);
  const std::string bytes = pattern(500'000);  // TCP itself is slow here: seconds for megabytes
  std::jthread sender([&] { send_all(client_, bytes); });
  std::string got;
  char buffer[10'000];
  while (got.size() < bytes.size()) {
    const ssize_t n = recv(server_, buffer, sizeof buffer, 0);
    ASSERT_GE(n, 0) << strerror(errno) << " after " << got.size();
    got.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_TRUE(is_same(got, bytes));
}

TEST_F(Ending, BothSidesShut) {
  EXPECT_EQ(shutdown(client_, SHUT_RDWR), 0);
  expect_end_of_stream(client_);
  expect_send_fails(client_, EPIPE);
  expect_end_of_stream(server_);
  EXPECT_EQ(shutdown(server_, SHUT_RDWR), 0);
  EXPECT_TRUE(poll_for(server_, 0) & POLLHUP);
  EXPECT_TRUE(poll_for(client_, 0) & POLLHUP);
}

// Not behind an end, and to whoever asks first.
TEST_F(Ending, TheErrorBehindAPartOfASendIsToldOnce) {
  using Tell = std::function<int(int)>;
  const Tell by_option = [](int fd) { return get_option(fd, SOL_SOCKET, SO_ERROR); };
  const Tell by_send = [](int fd) { return send(fd, "a", 1, MSG_NOSIGNAL) < 0 ? errno : 0; };
  const std::string much = pattern(10'000'000);
  for (const Tell& tell : {by_option, by_send}) {
    Pair pair = connected_pair();
    const int fd = pair.client.get();
    expect_alive(fd, pair.server.get());
    pair.server.close();
    const ssize_t part = send(fd, much.data(), much.size(), MSG_NOSIGNAL);
    ASSERT_GT(part, 0);
    ASSERT_LT(part, static_cast<ssize_t>(much.size()));
    EXPECT_EQ(poll_for(fd, 0), POLLERR | POLLHUP);
    expect_end_of_stream(fd);
    EXPECT_EQ(tell(fd), EPIPE);
    EXPECT_EQ(poll_for(fd, 0), POLLHUP);
    expect_end_of_stream(fd);
    EXPECT_EQ(get_option(fd, SOL_SOCKET, SO_ERROR), 0);
  }
}

// SIGPIPE is counted and kills nobody.
class PipeSignals {
 public:
  PipeSignals() {
    count = 0;
    struct sigaction counting = {};
    counting.sa_handler = [](int) { ++count; };
    EXPECT_EQ(sigaction(SIGPIPE, &counting, &before_), 0);
  }
  ~PipeSignals() { sigaction(SIGPIPE, &before_, nullptr); }
  PipeSignals(const PipeSignals&) = delete;
  PipeSignals& operator=(const PipeSignals&) = delete;

  // None came yet; the next send is the first that raises one.
  void expect_of_next_send(int fd) const {
    EXPECT_EQ(count, 0);
    errno = 0;
    EXPECT_EQ(send(fd, "a", 1, 0), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(count, 1);
  }

 private:
  static inline int count;
  struct sigaction before_;
};

// By SIGPIPE too: a program that sends once, and looks at the count, is not killed.
TEST_F(Ending, ASendThatReturnsAPartRaisesNoSignal) {
  const PipeSignals signals;
  expect_alive(client_, server_);
  pair_.server.close();
  const std::string much = pattern(10'000'000);
  const ssize_t part = send(client_, much.data(), much.size(), 0);
  EXPECT_GT(part, 0);
  EXPECT_LT(part, static_cast<ssize_t>(much.size()));
  signals.expect_of_next_send(client_);
}

// The same of one that sleeps for room when its peer closes with bytes unread, behind its own end.
TEST_F(Ending, ASendThatIsBrokenOffRaisesNoSignal) {
  const PipeSignals signals;
  for (int i = 0; i < 3; ++i) expect_alive(client_, server_);
  shutdown(server_, SHUT_WR);
  const std::string much = pattern(30'000'000);
  ssize_t part = 0;
  Sleeper sender([&] { part = send(client_, much.data(), much.size(), 0); });
  pair_.server.close();
  sender.join();
  EXPECT_GT(part, 0);
  EXPECT_LT(part, static_cast<ssize_t>(much.size()));
  signals.expect_of_next_send(client_);
}

TEST_F(Ending, PollersTellOfAResetThatIsToldBehindBytes) {
  expect_alive(client_, server_);
  expect_alive(client_, server_);
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = 0, .data = {}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, client_, &event), 0);
  send_all(client_, "unread");
  send_all(server_, "abc");
  await_queued(server_, 6);
  pair_.server.close();
  char bytes[4];
  EXPECT_EQ(recv(client_, bytes, sizeof bytes, MSG_WAITALL), 3);
  EXPECT_EQ(poll_for(client_, 0), POLLERR | POLLHUP);
  EXPECT_EQ(epoll_wait(set.get(), &event, 1, 3000), 1);
  // On the wire the kernel alone knows the members.
  const bool is_told = column() != Column::kDdp && column() != Column::kOtherUser;
  EXPECT_EQ(event.events, uint32_t{EPOLLHUP} | (is_told ? EPOLLERR : 0u));
  expect_recv_fails(client_, ECONNRESET);
  EXPECT_EQ(poll_for(client_, 0), POLLHUP);
}

TEST_F(Ending, BadShutdowns) {
  expect_alive(client_, server_);  // in memory there is something to end only then
  expect_alive(client_, server_);
  EXPECT_EQ(shutdown(client_, 7), -1);
  EXPECT_EQ(errno, EINVAL);
  const Fd unconnected = make_client_socket();
  EXPECT_EQ(shutdown(unconnected.get(), SHUT_WR), -1);
  EXPECT_EQ(errno, ENOTCONN);
  expect_alive(client_, server_);
}

TEST_F(Ending, ShutdownAfterThePeerClosed) {
  pair_.client.close();
  expect_end_of_stream(server_);
  EXPECT_EQ(shutdown(server_, SHUT_WR), 0);
}

TEST_F(Ending, ShutdownOfAnUnusedConnectionAfterThePeerClosed) {
  pair_.server.close();
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0) << strerror(errno);
  expect_end_of_stream(client_);
  EXPECT_EQ(get_option(client_, SOL_SOCKET, SO_ERROR), 0);
}

TEST_F(Ending, CloseOfAnUnusedConnectionAfterThePeersHalfClose) {
  EXPECT_EQ(shutdown(server_, SHUT_WR), 0);
  pair_.client.close();
  EXPECT_EQ(poll_for(server_, POLLIN) & POLLERR, 0);
  expect_end_of_stream(server_);
  expect_send_fails(server_, EPIPE);
}

TEST_F(Ending, AnErrorIsTheFirstThingThatRecvmmsgTells) {
  pair_.server.close();
  send_all(client_, "in vain");
  EXPECT_NE(poll_for(client_, 0) & POLLHUP, 0);
  char byte;
  iovec part{&byte, 1};
  mmsghdr message{};
  message.msg_hdr.msg_iov = &part;
  message.msg_hdr.msg_iovlen = 1;
  EXPECT_EQ(recvmmsg(client_, &message, 1, 0, nullptr), -1);
  EXPECT_EQ(errno, EPIPE) << strerror(errno);
  EXPECT_EQ(recvmmsg(client_, &message, 1, 0, nullptr), 1);
  EXPECT_EQ(message.msg_len, 0U);
}

// It is no end for who reads on.
TEST_F(Ending, AnErrorBehindMessagesOfARecvmmsgIsToldNext) {
  expect_alive(client_, server_);
  expect_alive(client_, server_);
  send_all(client_, "unread");
  await_queued(server_, 6);
  std::atomic<pid_t> reader_id = 0;
  std::jthread reader([&] {
    char bytes[2];
    iovec parts[2] = {{&bytes[0], 1}, {&bytes[1], 1}};
    mmsghdr messages[2] = {};
    for (int i = 0; i < 2; ++i) {
      messages[i].msg_hdr.msg_iov = &parts[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    reader_id = gettid();
    EXPECT_EQ(recvmmsg(client_, messages, 2, 0, nullptr), 1) << strerror(errno);
  });
  while (reader_id == 0) sched_yield();
  await_asleep(reader_id);
  send_all(server_, "a");
  pair_.server.close();
  reader.join();
  expect_recv_fails(client_, ECONNRESET);
  expect_end_of_stream(client_);
}

TEST_F(Ending, AnEmptyWritevSaysNothingOfTheEnd) {
  pair_.server.close();
  send_all(client_, "in vain");
  EXPECT_NE(poll_for(client_, 0) & POLLHUP, 0);
  iovec none{nullptr, 0};
  EXPECT_EQ(writev(client_, &none, 1), 0) << strerror(errno);
  EXPECT_EQ(pwritev2(client_, &none, 1, -1, 0), 0) << strerror(errno);
}

TEST_F(Ending, CloseDeliversEverythingThenTheEnd) {
  const std::string bytes = pattern(100'000);
  std::jthread closer([&] {
    send_all(client_, bytes);
    pair_.client.close();
  });
  EXPECT_TRUE(is_same(recv_to_end(server_), bytes));
  expect_end_of_stream(server_);
}

TEST_F(Ending, ConnectAndCloseIsAnEmptyStream) {
  pair_.client.close();
  expect_end_of_stream(server_);
  EXPECT_EQ(get_option(server_, SOL_SOCKET, SO_ERROR), 0);
}

TEST_F(Ending, AcceptAndCloseIsAnEmptyStream) {
  pair_.server.close();
  expect_end_of_stream(client_);
}

TEST_F(Ending, ClientMayBeGoneBeforeAccept) {
  const Listener listener = listen_loopback();
  {
    const Fd silent = dial(listener.address);
  }
  {
    const Fd talking = dial(listener.address);
    send_all(talking.get(), "hello and goodbye");
  }
  const Fd first = accept_one(listener.fd.get());
  expect_end_of_stream(first.get());
  const Fd second = accept_one(listener.fd.get());
  EXPECT_EQ(recv_to_end(second.get()), "hello and goodbye");
}

TEST_F(Ending, CloseWithUnreadBytesResetsThePeer) {
  send_all(client_, pattern(1000));
  await_queued(server_, 1000);
  pair_.server.close();
  expect_recv_fails(client_, ECONNRESET);
  expect_end_of_stream(client_);
  expect_send_fails(client_, EPIPE);
}

TEST_F(Ending, CloseAfterAPartialReadResetsThePeer) {
  send_all(client_, pattern(1000));
  await_queued(server_, 1000);
  EXPECT_TRUE(is_same(recv_exactly(server_, 999), pattern(999)));
  pair_.server.close();
  expect_recv_fails(client_, ECONNRESET);
}

TEST_F(Ending, CloseAfterReadingAllIsClean) {
  send_all(client_, pattern(1000));
  EXPECT_TRUE(is_same(recv_exactly(server_, 1000), pattern(1000)));
  pair_.server.close();
  expect_end_of_stream(client_);
}

TEST_F(Ending, BytesBeforeAResetAreStillDelivered) {
  send_all(client_, "unread");
  await_queued(server_, 6);
  send_all(server_, "the answer");
  await_queued(client_, 10);
  pair_.server.close();
  // Beside one-sided operations the kernel closes when the library's thread has let go.
  EXPECT_TRUE(poll_for(client_, column() == Column::kOneSided ? 0 : POLLIN) & POLLHUP);
  EXPECT_EQ(recv_exactly(client_, 10), "the answer");
  expect_recv_fails(client_, ECONNRESET);
}

TEST_F(Ending, LingerOfZeroResets) {
  const linger now{1, 0};
  ASSERT_EQ(setsockopt(server_, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
  pair_.server.close();
  expect_recv_fails(client_, ECONNRESET);
}

TEST_F(Ending, CountingWhatIsQueuedTakesNoError) {
  send_all(server_, "unread");
  await_queued(client_, 6);
  pair_.client.close();
  EXPECT_NE(poll_for(server_, 0) & POLLERR, 0);
  EXPECT_EQ(queued_bytes(server_), 0);
  expect_recv_fails(server_, ECONNRESET);
}

TEST_F(Ending, ResetIsReportedOnceBySoError) {
  send_all(client_, "unread");
  await_queued(server_, 6);
  pair_.server.close();
  EXPECT_TRUE(poll_for(client_, POLLIN) & POLLERR);
  EXPECT_EQ(get_option(client_, SOL_SOCKET, SO_ERROR), ECONNRESET);
  EXPECT_EQ(get_option(client_, SOL_SOCKET, SO_ERROR), 0);
}

TEST_F(Ending, WriteToAClosedPeerEndsInEpipe) {
  pair_.server.close();
  EXPECT_TRUE(poll_for(client_, POLLRDHUP) & POLLRDHUP);
  EXPECT_EQ(send(client_, "x", 1, 0), 1);
  EXPECT_TRUE(poll_for(client_, 0) & POLLHUP);
  expect_send_fails(client_, EPIPE);
}

// As an HTTP/1.0 server does that reads its request and no further.
TEST_F(Ending, RequestThenHalfCloseAgainstAServerThatStopsReading) {
  const std::string request = "GET / HTTP/1.0\r\n\r\n";
  for (const bool is_byte_by_byte : {false, true}) {
    for (const size_t size : {5u, 100'000u, 3'000'000u}) {
      pair_ = connected_pair();
      const std::string page = pattern(size);
      send_all(pair_.client.get(), request);
      EXPECT_EQ(shutdown(pair_.client.get(), SHUT_WR), 0);
      std::jthread server([&] {
        const size_t step = is_byte_by_byte ? 1 : request.size();
        for (size_t at = 0; at < request.size(); at += step)
          EXPECT_TRUE(is_same(recv_exactly(pair_.server.get(), step), request.substr(at, step)));
        send_all(pair_.server.get(), page);
        pair_.server.close();
      });
      EXPECT_TRUE(is_same(recv_to_end(pair_.client.get()), page));
      expect_end_of_stream(pair_.client.get());
    }
  }
}

TEST_F(Ending, DaytimeServer) {
  for (int time = 0; time < 20; ++time) {
    pair_ = connected_pair();
    send_all(pair_.server.get(), "noon");
    pair_.server.close();
    EXPECT_EQ(recv_to_end(pair_.client.get()), "noon");
  }
}

// As inetd's chargen: what the client never says is nothing left unread.
TEST_F(Ending, ServerThatOnlyWritesToAClientThatOnlyReads) {
  for (const bool is_half_closed : {false, true}) {
    for (const size_t size : {5u, 3'000'000u}) {
      pair_ = connected_pair();
      const std::string bytes = pattern(size);
      if (is_half_closed) shutdown(pair_.client.get(), SHUT_WR);
      std::jthread server([&] {
        send_all(pair_.server.get(), bytes);
        pair_.server.close();
      });
      EXPECT_TRUE(is_same(recv_to_end(pair_.client.get()), bytes)) << is_half_closed << " " << size;
      expect_end_of_stream(pair_.client.get());
    }
  }
}

// Python's sendall does this with no bytes.
TEST_F(Ending, AnEmptySendIsNothingLeftUnread) {
  EXPECT_EQ(send(client_, "", 0, 0), 0);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  send_all(server_, "noon");
  pair_.server.close();
  EXPECT_EQ(recv_to_end(client_), "noon");
}

TEST_F(Ending, AResetThatASendHasToldIsNotToldBehindWhatItCut) {
  const size_t filled = fill_until_refused(server_, 3, 64 * 1024);
  pair_.server.close();
  send_all(client_, "in vain");
  EXPECT_NE(poll_for(client_, 0) & POLLHUP, 0);
  expect_send_fails(client_, ECONNRESET);
  EXPECT_LT(recv_to_end(client_).size(), filled);
  expect_end_of_stream(client_);
}

TEST_F(Ending, OfAPeerThatDoesNotRead) {
  const size_t filled = fill_until_refused(client_, 3);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_TRUE(is_same(recv_to_end(server_), pattern(filled, 3)));
  pair_.server.close();
  expect_end_of_stream(client_);
}

}  // namespace
}  // namespace ddpsock::shim_tests
