// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The flags of send and recv, and TCP_CORK.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Flags : public TcpTest {
 protected:
  std::string receive(size_t room, int flags) {
    std::string buffer(room, kUntouched);
    const ssize_t got = recv(server_, buffer.data(), room, flags);
    EXPECT_GE(got, 0) << strerror(errno);
    buffer.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return buffer;
  }
  void expect_nothing(int flags) {
    char byte;
    EXPECT_EQ(recv(server_, &byte, 1, flags), -1);
    EXPECT_EQ(errno, EAGAIN);
  }

  static constexpr char kUntouched = static_cast<char>(0xa5);
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

using Peek = Flags;

TEST_F(Peek, TakesNothing) {
  send_all(client_, "abcdef");
  await_queued(server_, 6);
  for (int time = 0; time < 3; ++time) EXPECT_EQ(receive(3, MSG_PEEK), "abc");
  EXPECT_EQ(queued_bytes(server_), 6);
  EXPECT_EQ(receive(6, 0), "abcdef");
}

TEST_F(Peek, OfMoreThanIsQueuedIsShort) {
  send_all(client_, "abc");
  await_queued(server_, 3);
  EXPECT_EQ(receive(5000, MSG_PEEK), "abc");
}

TEST_F(Peek, SeesAcrossSeveralWrites) {
  const std::string bytes = pattern(30'000);
  for (size_t at = 0; at < bytes.size(); at += 3000) send_all(client_, bytes.substr(at, 3000));
  await_queued(server_, 30'000);
  EXPECT_TRUE(is_same(receive(40'000, MSG_PEEK), bytes));
  EXPECT_TRUE(is_same(receive(29'999, MSG_PEEK), bytes.substr(0, 29'999)));
  EXPECT_TRUE(is_same(receive(40'000, 0), bytes));
}

TEST_F(Peek, SeesMuch) {
  set_option(client_, SOL_SOCKET, SO_SNDBUF, 4 * 1024 * 1024);
  set_option(server_, SOL_SOCKET, SO_RCVBUF, 4 * 1024 * 1024);
  const std::string bytes = pattern(500'000);
  std::jthread sender([&] { send_all(client_, bytes); });
  EXPECT_TRUE(is_same(receive(bytes.size(), MSG_PEEK | MSG_WAITALL), bytes));
  EXPECT_TRUE(is_same(receive(bytes.size(), MSG_PEEK), bytes));
  EXPECT_TRUE(is_same(receive(bytes.size(), 0), bytes));
}

// Of small FPDUs less than that lies in the kernel's buffer, and nobody makes room.
TEST_F(Peek, ForMoreThanFitsEnds) {
  set_option(client_, IPPROTO_TCP, TCP_NODELAY, 1);
  constexpr size_t kPieces = 4000;
  const std::string bytes = pattern(10 * kPieces);
  std::jthread sender([&] {
    for (size_t i = 0; i < kPieces; ++i) send_all(client_, bytes.substr(10 * i, 10));
  });
  const std::string seen = receive(bytes.size(), MSG_PEEK | MSG_WAITALL);
  EXPECT_GT(seen.size(), 10'000u);
  EXPECT_TRUE(is_same(seen, bytes.substr(0, seen.size())));
  EXPECT_TRUE(is_same(receive(bytes.size(), MSG_WAITALL), bytes));
}

TEST_F(Peek, BetweenSmallReads) {
  const std::string bytes = pattern(5000);
  send_all(client_, bytes);
  await_queued(server_, 5000);
  for (size_t at = 0; at < 5000; at += 50) {
    EXPECT_TRUE(is_same(receive(120, MSG_PEEK), bytes.substr(at, 120)));
    EXPECT_TRUE(is_same(receive(50, 0), bytes.substr(at, 50)));
  }
}

TEST_F(Peek, SeesWhatCameAfterTheFirstPeek) {
  send_all(client_, "ab");
  await_queued(server_, 2);
  EXPECT_EQ(receive(10, MSG_PEEK), "ab");
  send_all(client_, "cd");
  await_queued(server_, 4);
  EXPECT_EQ(receive(10, MSG_PEEK), "abcd");
  EXPECT_EQ(receive(10, 0), "abcd");
}

TEST_F(Peek, WaitsForTheFirstByte) {
  std::jthread sender([&] {
    sleep_ms(30);
    send_all(client_, "a");
  });
  EXPECT_EQ(receive(10, MSG_PEEK), "a");
  EXPECT_EQ(receive(10, 0), "a");
}

TEST_F(Peek, OfAnIdleSocketIsRefused) {
  expect_nothing(MSG_PEEK | MSG_DONTWAIT);
}

TEST_F(Peek, AtTheEndGivesZeroAgainAndAgain) {
  pair_.client.close();
  for (int time = 0; time < 3; ++time) EXPECT_EQ(receive(10, MSG_PEEK), "");
  expect_end_of_stream(server_);
}

TEST_F(Peek, WaitallWaitsForAllOfIt) {
  std::jthread sender([&] {
    send_all(client_, "hello");
    sleep_ms(30);
    send_all(client_, "world");
  });
  EXPECT_EQ(receive(10, MSG_PEEK | MSG_WAITALL), "helloworld");
  EXPECT_EQ(receive(10, 0), "helloworld");
}

// A look that waits for more keeps nobody from taking what is there.
TEST_F(Peek, WaitallLetsOthersTake) {
  for (const int how : {int{MSG_DONTWAIT}, 0}) {
    send_all(client_, "hello");
    await_queued(server_, 5);
    std::string seen;
    Sleeper looker([&] { seen = receive(10, MSG_PEEK | MSG_WAITALL); });
    EXPECT_EQ(receive(3, how), "hel");
    EXPECT_EQ(receive(10, how), "lo");
    looker.await_calm();
    expect_nothing(MSG_DONTWAIT);
    send_all(client_, "0123456789");
    looker.join();
    EXPECT_EQ(seen.size(), 10u);
    EXPECT_EQ(receive(10, MSG_WAITALL), "0123456789");
  }
}

// Nor does one that goes on where the connection has returned to plain TCP.
TEST_F(Peek, WaitallOfPlainBytesLetsOthersTake) {
  std::string seen;
  Sleeper looker([&] { seen = receive(10, MSG_PEEK | MSG_WAITALL); });
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd from(ends[0]), to(ends[1]);
  ASSERT_EQ(write(to.get(), "hello", 5), 5);
  if (splice(from.get(), nullptr, client_, nullptr, 5, 0) < 0 && errno == EINVAL) {
    send_all(client_, "hello");  // cannot return
  }
  pollfd asked{server_, POLLIN, 0};
  EXPECT_EQ(poll(&asked, 1, 10'000), 1);
  looker.await_calm();
  EXPECT_EQ(receive(5, MSG_DONTWAIT), "hello");
  send_all(client_, "0123456789");
  looker.join();
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(receive(10, MSG_WAITALL), "0123456789");
}

TEST_F(Peek, WaitallEndsWithAPart) {
  set_timeout(server_, SO_RCVTIMEO, 50);
  send_all(client_, "hello");
  await_queued(server_, 5);
  EXPECT_EQ(receive(10, MSG_PEEK | MSG_WAITALL), "hello");
  set_timeout(server_, SO_RCVTIMEO, 0);
  std::string seen;
  Sleeper looker([&] { seen = receive(10, MSG_PEEK | MSG_WAITALL); });
  pair_.client.close();
  looker.join();
  EXPECT_EQ(seen, "hello");
  EXPECT_EQ(receive(10, 0), "hello");
  EXPECT_EQ(receive(10, MSG_PEEK | MSG_WAITALL), "");
}

using DontWait = Flags;

TEST_F(DontWait, RefusesToReceiveNothing) {
  expect_nothing(MSG_DONTWAIT);
  EXPECT_FALSE(is_nonblocking(server_));
  send_all(client_, "abc");
  await_queued(server_, 3);
  EXPECT_EQ(receive(10, MSG_DONTWAIT), "abc");
  expect_nothing(MSG_DONTWAIT);
}

TEST_F(DontWait, RefusesToSendToAFullPeer) {
  const size_t filled = fill_until_refused(client_, 7);
  EXPECT_GT(filled, 4096u);
  EXPECT_FALSE(is_nonblocking(client_));
  EXPECT_TRUE(is_same(recv_exactly(server_, filled), pattern(filled, 7)));
  expect_alive(client_, server_);
}

TEST_F(DontWait, SendsAPrefixOfWhatDoesNotFit) {
  const std::string bytes = pattern(64 * 1024 * 1024);
  const ssize_t sent = send(client_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  ASSERT_GT(sent, 0);
  ASSERT_LT(sent, ssize_t(bytes.size()));
  EXPECT_TRUE(is_same(recv_exactly(server_, size_t(sent)), bytes.substr(0, size_t(sent))));
  expect_nothing(MSG_DONTWAIT);
}

using WaitAll = Flags;

TEST_F(WaitAll, CollectsSeveralWrites) {
  const std::string bytes = pattern(50'000);
  std::jthread sender([&] {
    for (size_t at = 0; at < bytes.size(); at += 5000) {
      send_all(client_, bytes.substr(at, 5000));
      sleep_ms(2);
    }
  });
  EXPECT_TRUE(is_same(receive(50'000, MSG_WAITALL), bytes));
}

TEST_F(WaitAll, CollectsMoreThanAnyBuffer) {
  const std::string bytes = pattern(16 * 1024 * 1024 + 3);
  std::jthread sender([&] { send_all(client_, bytes); });
  EXPECT_TRUE(is_same(receive(bytes.size(), MSG_WAITALL), bytes));
}

TEST_F(WaitAll, LeavesWhatIsBeyond) {
  send_all(client_, "abcdefgh");
  EXPECT_EQ(receive(5, MSG_WAITALL), "abcde");
  EXPECT_EQ(receive(3, MSG_WAITALL), "fgh");
}

TEST_F(WaitAll, EndHalfWayGivesTheHalf) {
  send_all(client_, "abc");
  pair_.client.close();
  EXPECT_EQ(receive(10, MSG_WAITALL), "abc");
  EXPECT_EQ(receive(10, MSG_WAITALL), "");
}

TEST_F(WaitAll, TimeoutHalfWayGivesTheHalf) {
  set_timeout(server_, SO_RCVTIMEO, 100);
  send_all(client_, "abc");
  await_queued(server_, 3);
  EXPECT_EQ(receive(10, MSG_WAITALL), "abc");
  expect_nothing(MSG_WAITALL);
}

TEST_F(WaitAll, DontWaitGivesWhatIsThere) {
  send_all(client_, "abc");
  await_queued(server_, 3);
  EXPECT_EQ(receive(10, MSG_WAITALL | MSG_DONTWAIT), "abc");
  expect_nothing(MSG_WAITALL | MSG_DONTWAIT);
}

using Trunc = Flags;

TEST_F(Trunc, ThrowsBytesAway) {
  const std::string bytes = pattern(5000);
  send_all(client_, bytes);
  await_queued(server_, 5000);
  EXPECT_EQ(receive(1234, MSG_TRUNC), std::string(1234, kUntouched));
  EXPECT_TRUE(is_same(receive(3000, 0), bytes.substr(1234, 3000)));
  EXPECT_EQ(recv(server_, nullptr, 5000, MSG_TRUNC), 766);
  expect_nothing(MSG_TRUNC | MSG_DONTWAIT);
}

TEST_F(Trunc, WithPeekCountsAndTakesNothing) {
  send_all(client_, "abcdef");
  await_queued(server_, 6);
  EXPECT_EQ(recv(server_, nullptr, 100, MSG_PEEK | MSG_TRUNC), 6);
  EXPECT_EQ(recv(server_, nullptr, 4, MSG_PEEK | MSG_TRUNC), 4);
  EXPECT_EQ(receive(10, 0), "abcdef");
}

using More = Flags;

TEST_F(More, IsCompletedByTheNextSend) {
  EXPECT_EQ(send(client_, "abc", 3, MSG_MORE), 3);
  EXPECT_EQ(send(client_, "def", 3, 0), 3);
  EXPECT_EQ(recv_exactly(server_, 6), "abcdef");
}

TEST_F(More, ArrivesEvenIfNothingFollows) {
  EXPECT_EQ(send(client_, "abc", 3, MSG_MORE), 3);
  EXPECT_EQ(recv_exactly(server_, 3), "abc");
}

TEST_F(More, ArrivesBeforeTheEnd) {
  EXPECT_EQ(send(client_, "abc", 3, MSG_MORE), 3);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(recv_to_end(server_), "abc");
}

TEST_F(More, ManyPiecesArriveInOrder) {
  const std::string bytes = pattern(300'000);
  std::jthread sender([&] {
    for (size_t at = 0; at < bytes.size(); at += 1000)
      EXPECT_EQ(send(client_, bytes.data() + at, 1000, at % 7000 == 6000 ? 0 : MSG_MORE), 1000);
  });
  EXPECT_TRUE(is_same(recv_exactly(server_, bytes.size()), bytes));
}

TEST_F(More, CorkHoldsAndReleases) {
  set_option(client_, IPPROTO_TCP, TCP_CORK, 1);
  EXPECT_EQ(get_option(client_, IPPROTO_TCP, TCP_CORK), 1);
  send_all(client_, "abc");
  send_all(client_, "def");
  set_option(client_, IPPROTO_TCP, TCP_CORK, 0);
  EXPECT_EQ(recv_exactly(server_, 6), "abcdef");
  expect_alive(client_, server_);
}

TEST_F(More, CorkedBytesArriveBeforeTheEnd) {
  set_option(client_, IPPROTO_TCP, TCP_CORK, 1);
  send_all(client_, "abc");
  pair_.client.close();
  EXPECT_EQ(recv_to_end(server_), "abc");
}

TEST_F(Flags, HarmlessOnesAreAccepted) {
  EXPECT_EQ(send(client_, "ab", 2, MSG_EOR), 2);
  EXPECT_EQ(send(client_, "cd", 2, MSG_DONTROUTE), 2);
  EXPECT_EQ(send(client_, "ef", 2, MSG_CONFIRM), 2);
  await_queued(server_, 6);
  EXPECT_EQ(receive(10, MSG_CMSG_CLOEXEC), "abcdef");
}

TEST_F(Flags, ErrorQueueIsEmpty) {
  send_all(client_, "a");
  await_queued(server_, 1);
  expect_nothing(MSG_ERRQUEUE);
  EXPECT_EQ(receive(1, 0), "a");
}

// Also where what lies before the urgent byte was read ahead.
TEST_F(Flags, APlainReadEndsBeforeTheUrgentByte) {
  if (column() == Column::kOneSided)
    GTEST_SKIP() << "connections with one-sided operations do not leave";
  ASSERT_EQ(send(client_, "abc", 3, MSG_OOB), 3);
  send_all(client_, "defg");
  EXPECT_EQ(receive(100, MSG_PEEK | MSG_WAITALL), "ab");
  EXPECT_EQ(receive(100, 0), "ab");
  EXPECT_EQ(receive(100, 0), "defg");
}

TEST_F(Flags, OutOfBandOfNothingIsInvalid) {
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, MSG_OOB), -1);
  EXPECT_EQ(errno, EINVAL);
  expect_alive(client_, server_);
}

TEST_F(Flags, OutOfBandOfNothingWaitsForNobody) {
  expect_alive(client_, server_);
  std::atomic<pid_t> reader_id{0};
  std::jthread reader([&] {
    reader_id = gettid();
    EXPECT_EQ(recv_exactly(server_, 1), "x");
  });
  while (reader_id == 0) sched_yield();
  await_asleep(reader_id);
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, MSG_OOB), -1);
  EXPECT_EQ(errno, EINVAL);
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_EQ(after.ru_nvcsw, before.ru_nvcsw) << "it slept";
  send_all(client_, "x");
}

}  // namespace
}  // namespace ddpsock::shim_tests
