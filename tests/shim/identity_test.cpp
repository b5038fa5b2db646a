// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A number is not an identity: descriptors that are closed, replaced and given out again while
// calls on them sleep, seen and unseen by whoever stands in front of libc.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/kernel_call.h"
#include "passing.h"
#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// How a number is taken from its socket and given to `other`.
struct Taking {
  const char* name;
  void (*take)(int number, int other);
};

void PrintTo(const Taking& taking, std::ostream* out) {
  *out << taking.name;
}

const Taking kTakings[] = {
    {"dup2", [](int number, int other) { ASSERT_EQ(dup2(other, number), number); }},
    {"dup3", [](int number, int other) { ASSERT_EQ(dup3(other, number, O_CLOEXEC), number); }},
    {"close_and_dup",
     [](int number, int other) {
       ASSERT_EQ(close(number), 0);
       ASSERT_EQ(fcntl(other, F_DUPFD, number), number);
     }},
    {"raw_dup2",
     [](int number, int other) { ASSERT_EQ(syscall(SYS_dup2, other, number), number); }},
    {"unseen",
     [](int number, int other) { ASSERT_EQ(base::kernel_call(SYS_dup2, other, number), number); }},
    {"unseen_close",
     [](int number, int other) {
       ASSERT_EQ(base::kernel_call(SYS_close, number), 0);
       ASSERT_EQ(fcntl(other, F_DUPFD, number), number);
     }},
};

// What is closed unseen is looked for where a call has slept that is seen, and only once in a tick
// of the kernel's clock, which this is and more.
void sleep_seen() {
  EXPECT_EQ(poll(nullptr, 0, 20), 0);
}

class Identity : public TcpTest, public testing::WithParamInterface<Taking> {
 protected:
  Identity() { expect_alive(client_, server_); }

  Pair pair_ = connected_pair(), other_ = new_owner();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();

  static bool is_seen() { return strncmp(GetParam().name, "unseen", 6) != 0; }
  // As the kernel's: a call goes on with the socket that it slept on. With one-sided operations,
  // and where nobody saw the number go, it ends where it woke.
  static bool does_go_on() { return is_seen() && column() != Column::kOneSided; }
  // What is given a number unseen is not known either: plain, then.
  static Pair new_owner() {
    if (is_seen()) return connected_pair();
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Pair pair;
    pair.client = Fd(ends[0]);
    pair.server = Fd(ends[1]);
    return pair;
  }
  // Nothing more comes for the server, who does not read.
  void await_full() const {
    int before = -1, now = queued_bytes(server_);
    for (; before != now; now = queued_bytes(server_)) {
      before = now;
      sleep_ms(50);
    }
  }
  static constexpr int kNumbers = 20'000;
  static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }
  void take(int number, int other) { GetParam().take(number, other); }
  // Of the old connection; it may have been closed with bytes unread.
  void expect_other_is_whole() {
    send_all(other_.server.get(), "for the new owner");
    EXPECT_EQ(recv_exactly(client_, 17), "for the new owner");
    send_all(client_, "from the new owner");
    EXPECT_EQ(recv_exactly(other_.server.get(), 18), "from the new owner");
    char byte;
    EXPECT_EQ(recv(other_.server.get(), &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(recv(client_, &byte, 1, MSG_DONTWAIT), -1);
  }
};

TEST_P(Identity, TakenFromARecv) {
  std::atomic<ssize_t> got{-2};
  char bytes[64] = {};
  Sleeper reader([&] { got = recv(client_, bytes, sizeof bytes, 0); });
  take(client_, other_.client.get());
  send_all(server_, "old");
  reader.join();
  // Beside one-sided operations a call sleeps without taking what comes.
  if (column() != Column::kOneSided) {
    EXPECT_EQ(got, 3);
    EXPECT_STREQ(bytes, "old");
  }
  expect_other_is_whole();
}

// What is there does not fill the call, which would go on with the rest, and sleeps once more.
TEST_P(Identity, TakenFromARecvOfMore) {
  std::atomic<ssize_t> got{-2};
  std::string bytes(200'000, '\0');
  Sleeper reader([&] { got = recv(client_, bytes.data(), bytes.size(), MSG_WAITALL); });
  take(client_, other_.client.get());
  send_all(other_.server.get(), "for the new owner");
  const std::string old(bytes.size(), 'o');
  std::thread writer([&] {
    for (const size_t end : {old.size() / 2, old.size()}) {
      size_t sent = end - old.size() / 2;
      for (ssize_t n; sent < end; sent += static_cast<size_t>(n))
        if ((n = send(server_, old.data() + sent, end - sent, MSG_NOSIGNAL)) < 0) break;
      sleep_ms(20);
    }
  });
  reader.join();
  writer.join();
  if (does_go_on()) {
    EXPECT_EQ(got, static_cast<ssize_t>(bytes.size()));
  }
  EXPECT_NE(got, 0);
  for (ssize_t i = 0; i < got; ++i) ASSERT_EQ(bytes[static_cast<size_t>(i)], 'o') << i;
  EXPECT_EQ(recv_exactly(client_, 17), "for the new owner");
  expect_other_is_whole();
}

TEST_P(Identity, TakenFromARecvOfMessages) {
  std::atomic<int> got{-2};
  char bytes[2][4] = {};
  iovec parts[] = {{bytes[0], 3}, {bytes[1], 3}};
  mmsghdr messages[2] = {};
  for (int i = 0; i < 2; ++i) {
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  Sleeper reader([&] { got = recvmmsg(client_, messages, 2, 0, nullptr); });
  take(client_, other_.client.get());
  send_all(server_, "oldone");
  reader.join();
  if (does_go_on()) {
    EXPECT_EQ(got, 2);
    EXPECT_STREQ(bytes[1], "one");
  }
  expect_other_is_whole();
}

// The sleeping call has it alone, and no child of the program.
TEST_P(Identity, TakenFromARecvOfAParent) {
  if (!does_go_on()) GTEST_SKIP() << "the call ends with the number";
  char bytes[3];
  Sleeper reader([&] { recv(client_, bytes, sizeof bytes, 0); });
  take(client_, other_.client.get());
  Child child([] { pause(); });
  send_all(server_, "old");
  reader.join();
  expect_end_of_stream(server_);
}

// What the call goes on with meanwhile is no number of the program's, which may close it all the
// same and get it for something else.
TEST_P(Identity, TakenFromARecvAndThenFromTheNumberBehind) {
  std::vector<bool> was_open(kNumbers);
  for (int fd = 0; fd < kNumbers; ++fd) was_open[static_cast<size_t>(fd)] = is_open(fd);
  Fd kept(dup(other_.client.get()));
  was_open[static_cast<size_t>(kept.get())] = true;
  char bytes[3];
  Sleeper reader([&] { recv(client_, bytes, sizeof bytes, 0); });
  take(client_, other_.client.get());
  int behind = 0;
  while (behind < kNumbers && (was_open[static_cast<size_t>(behind)] || !is_open(behind))) ++behind;
  if (behind < kNumbers) {
    EXPECT_TRUE(does_go_on() || column() == Column::kOneSided);
    ASSERT_EQ(base::kernel_call(SYS_dup2, kept.get(), behind), behind);
  }
  Child child([=] { EXPECT_TRUE(behind == kNumbers || is_open(behind)); });
  child.expect_success();
  send_all(server_, "old");
  reader.join();
  if (behind < kNumbers) {
    EXPECT_TRUE(is_open(behind));
    base::kernel_call(SYS_close, behind);
  }
  expect_other_is_whole();
}

TEST_P(Identity, TakenFromAPeek) {
  std::atomic<ssize_t> got{-2};
  char bytes[64] = {};
  Sleeper reader([&] { got = recv(client_, bytes, sizeof bytes, MSG_PEEK); });
  take(client_, other_.client.get());
  send_all(server_, "old");
  reader.join();
  EXPECT_NE(got, -2);
  expect_other_is_whole();
}

TEST_P(Identity, TakenFromAPeekThatHasAPart) {
  if (!is_seen() && is_in_ddp_mode())
    GTEST_SKIP() << "beside other threads it sleeps by the clock, and nothing keeps the connection "
                    "from its end";
  send_all(server_, "half");
  std::atomic<ssize_t> got{-2};
  char bytes[8] = {};
  Sleeper reader([&] { got = recv(client_, bytes, sizeof bytes, MSG_PEEK | MSG_WAITALL); });
  take(client_, other_.client.get());
  // Where the call ends as it wakes, the connection may be over by now, and reset: "half" is
  // unread.
  if (does_go_on()) {
    send_all(server_, "more");
  } else {
    send(server_, "more", 4, MSG_NOSIGNAL);
  }
  reader.join();
  EXPECT_GE(got, 4);
  EXPECT_EQ(std::string_view(bytes, 4), "half");
  expect_other_is_whole();
}

TEST_P(Identity, TakenFromASend) {
  if (column() == Column::kOneSided && !is_seen())
    GTEST_SKIP() << "one-sided operations have a descriptor of their own, so that no end comes";
  const std::string bytes = pattern(8'000'000);
  std::atomic<ssize_t> sent{-2};
  Sleeper writer([&] { sent = send(client_, bytes.data(), bytes.size(), 0); });
  // What is taken unseen from a call that is awake is not missed before it sleeps: in memory it
  // sleeps for a millisecond at a time until no more fits.
  if (!is_seen()) await_full();
  take(client_, other_.client.get());
  // All that was sent before the sleeper noticed, and then the end.
  std::string got(1 << 16, '\0');
  size_t count = 0;
  for (ssize_t n; (n = recv(server_, got.data(), got.size(), 0)) > 0;
       count += static_cast<size_t>(n))
    ASSERT_TRUE(is_same({got.data(), static_cast<size_t>(n)},
                        std::string_view(bytes).substr(count, static_cast<size_t>(n))));
  writer.join();
  if (does_go_on()) {
    EXPECT_EQ(sent, static_cast<ssize_t>(bytes.size()));
  }
  if (sent > 0) {
    EXPECT_EQ(static_cast<size_t>(sent), count);
  }
  expect_other_is_whole();
}

TEST_P(Identity, TakenFromAPoll) {
  std::atomic<int> polled{-2};
  Sleeper poller([&] {
    pollfd one{client_, POLLIN, 0};
    polled = poll(&one, 1, -1);
  });
  take(client_, other_.client.get());
  // The old socket wakes it, and then the number's new owner is looked at.
  send_all(other_.server.get(), "n");
  send_all(server_, "old");
  poller.join();
  EXPECT_EQ(polled, 1);
  EXPECT_EQ(recv_exactly(client_, 1), "n");
  expect_other_is_whole();
}

TEST_P(Identity, TakenWhileIdle) {
  send_all(server_, "unread");
  sleep_seen();
  take(client_, other_.client.get());
  expect_other_is_whole();
}

TEST_P(Identity, APipesNumber) {
  send_all(server_, "unread");
  sleep_seen();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd out(ends[0]), in(ends[1]);
  take(client_, out.get());
  ASSERT_EQ(write(in.get(), "pipe", 4), 4);
  char bytes[8] = {};
  EXPECT_EQ(read(client_, bytes, sizeof bytes), 4);
  EXPECT_STREQ(bytes, "pipe");
  int queued = -1;
  EXPECT_EQ(ioctl(client_, FIONREAD, &queued), 0);
  EXPECT_EQ(queued, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, Identity, testing::ValuesIn(kTakings),
                         [](const auto& one) { return one.param.name; });

class Unseen : public TcpTest {};
class FirstRecv : public TcpTest {};

// The answer to a start-up frame is the old connection's.
TEST_F(FirstRecv, ItsNumberIsTaken) {
  Pair pair = connected_pair();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd near(ends[0]), far(ends[1]);
  char bytes[100];
  Sleeper reader([&] { recv(pair.server.get(), bytes, sizeof bytes, 0); });
  ASSERT_EQ(dup2(near.get(), pair.server.get()), pair.server.get());
  EXPECT_EQ(shutdown(pair.client.get(), SHUT_WR), 0);
  reader.join();
  EXPECT_EQ(recv(far.get(), bytes, sizeof bytes, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// The kernel restarts a send by its number.
class Restarted : public TcpTest {};

int closed_by_handler = -1;

TEST_F(Restarted, ASendWhoseNumberTheHandlerHasClosed) {
  if (column() == Column::kOneSided) GTEST_SKIP() << "the peer's thread makes room by itself";
  Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  const std::string much = pattern(1 << 20);
  for (size_t size = much.size(); size > 0; size /= 2)
    while (send(pair.client.get(), much.data(), size, MSG_DONTWAIT) > 0) {
    }
  struct sigaction close_it{}, before{};
  close_it.sa_handler = [](int) { close(closed_by_handler); };
  close_it.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &close_it, &before), 0);
  closed_by_handler = pair.client.release();
  std::atomic<int> error{0};
  Sleeper writer([&] {
    if (send(closed_by_handler, "x", 1, 0) < 0) error = errno;
  });
  writer.interrupt(SIGUSR1);
  writer.join();
  EXPECT_EQ(error, EBADF);
  sigaction(SIGUSR1, &before, nullptr);
}

// A plain connection made unseen on the number of a stream that was closed unseen.
TEST_F(Unseen, PlainConnectionOnTheNumberOfAStream) {
  for (int round = 0; round < 5; ++round) {
    Pair pair = connected_pair();
    int plain[2];
    ASSERT_EQ(base::kernel_call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, plain), 0);
    const Fd far(plain[1]);
    send_all(pair.server.get(), "of the stream");
    send_all(pair.client.get(), "and back");
    EXPECT_EQ(recv_exactly(pair.server.get(), 8), "and back");
    sleep_seen();
    const int number = pair.client.get();
    ASSERT_EQ(base::kernel_call(SYS_dup2, plain[0], number), number);
    close(plain[0]);
    ASSERT_EQ(write(far.get(), "24 bytes that are plain.", 24), 24);
    EXPECT_EQ(recv_exactly(number, 24), "24 bytes that are plain.");
    send_all(number, "and so is the answer");
    char bytes[64] = {};
    EXPECT_EQ(read(far.get(), bytes, sizeof bytes), 20);
    EXPECT_STREQ(bytes, "and so is the answer");
  }
}

// A close of the new owner's must not settle the old one's affairs on it.
TEST_F(Unseen, CloseOfTheNewOwner) {
  Pair pair = connected_pair();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Pair other;
  other.client = Fd(ends[0]);
  other.server = Fd(ends[1]);
  send_all(pair.server.get(), "one");
  EXPECT_EQ(recv_exactly(pair.client.get(), 3), "one");
  send_all(other.server.get(), "two");
  const int number = pair.client.release();
  ASSERT_EQ(base::kernel_call(SYS_dup2, other.client.get(), number), number);
  EXPECT_EQ(close(number), 0);
  EXPECT_EQ(recv_exactly(other.client.get(), 3), "two");
  expect_alive(other.client.get(), other.server.get());
}

// Descriptors that come through a UNIX socket take numbers, too.
TEST_F(Unseen, NumberGivenByScmRights) {
  Pair pair = connected_pair();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd out(ends[0]), in(ends[1]);
  const UnixPair channel;
  send_all(pair.server.get(), "unread");
  ASSERT_EQ(pass(channel.near.get(), {out.get()}), 1);
  const int number = pair.client.release();
  std::vector<Fd> lower;
  for (;;) {
    Fd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (next.get() > number) break;
    lower.push_back(std::move(next));
  }
  ASSERT_EQ(base::kernel_call(SYS_close, number), 0);
  const std::vector<Fd> given = receive_passed(channel.far.get());
  ASSERT_EQ(given.size(), 1u);
  const Fd& copy = given[0];
  ASSERT_EQ(copy.get(), number);
  ASSERT_EQ(write(in.get(), "pipe", 4), 4);
  char bytes[8] = {};
  EXPECT_EQ(read(copy.get(), bytes, sizeof bytes), 4);
  EXPECT_STREQ(bytes, "pipe");
}

}  // namespace
}  // namespace ddpsock::shim_tests
