// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Random sequences of what programs do with an epoll set, compared with a model that knows from the
// test's own writes and reads what must and what may be reported. A failure names its seed;
// DDPSOCK_SEEDS=1000 runs more of them.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr size_t kStreams = 3, kMembers = 5;  // the others are pipes
constexpr int kSteps = 300;

class Model {
 public:
  explicit Model(uint32_t seed) : random_(seed) {
    for (size_t i = 0; i < kMembers; ++i) open(i);
  }

  void step() {
    const size_t i = random_() % kMembers;
    switch (random_() % 8) {
      case 0:
      case 1:
        return write_some(i);
      case 2:
        return read_some(i);
      case 3:
        return change(i);
      case 4:
        if (random_() % 8 == 0) return open(i);
        return check_poll();
      default:
        return check_wait();
    }
  }

 private:
  struct Member {
    Fd in, out;
    int unread = 0;
    bool is_watched = false;
    uint32_t events = 0;
    uint64_t data = 0;
    bool is_armed = false;   // where it is once only
    bool must_tell = false;  // an edge that has not been reported
    bool may_tell = false;
  };

  static bool is_edge(const Member& m) { return (m.events & EPOLLET) != 0; }
  static bool is_once(const Member& m) { return (m.events & EPOLLONESHOT) != 0; }

  // Closes what was there, without a word to the set.
  void open(size_t i) {
    Member& m = members_[i];
    m = Member{};
    if (i < kStreams) {
      Pair pair = connected_pair();
      set_option(pair.client.get(), IPPROTO_TCP, TCP_NODELAY, 1);
      set_option(pair.server.get(), IPPROTO_TCP, TCP_NODELAY, 1);
      expect_alive(pair.client.get(), pair.server.get());
      expect_alive(pair.server.get(), pair.client.get());
      m.in = std::move(pair.server);
      m.out = std::move(pair.client);
    } else {
      int ends[2] = {-1, -1};
      ASSERT_EQ(pipe(ends), 0);
      m.in = Fd(ends[0]);
      m.out = Fd(ends[1]);
    }
    make_nonblocking(m.in.get());
  }

  void write_some(size_t i) {
    Member& m = members_[i];
    const size_t count = 1 + random_() % 50;
    const std::string bytes = pattern(count);
    ASSERT_EQ(write(m.out.get(), bytes.data(), count), ssize_t(count));
    // Where bytes lie unread a further edge may come.
    if (m.unread == 0) m.must_tell = true;
    m.may_tell = true;
    m.unread += int(count);
    await_queued(m.in.get(), m.unread);
  }

  void read_some(size_t i) {
    Member& m = members_[i];
    char buffer[64];
    const ssize_t n = read(m.in.get(), buffer, 1 + random_() % sizeof buffer);
    if (m.unread == 0) {
      ASSERT_TRUE(n == -1 && errno == EAGAIN) << n;
      return;
    }
    ASSERT_GT(n, 0);
    m.unread -= int(n);
    if (m.unread == 0) m.must_tell = false;
  }

  void change(size_t i) {
    constexpr std::array<uint32_t, 6> kEvents = {
        EPOLLIN, EPOLLIN, EPOLLIN | EPOLLRDHUP, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, 0};
    Member& m = members_[i];
    const std::array<int, 3> operations = {EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
    const int operation = operations[random_() % operations.size()];
    epoll_event event{};
    event.events = kEvents[random_() % kEvents.size()];
    event.data.u64 = i * 1000 + random_() % 3;
    const int expected =
        operation == EPOLL_CTL_ADD ? (m.is_watched ? EEXIST : 0) : (m.is_watched ? 0 : ENOENT);
    const int result = epoll_ctl(set_.get(), operation, m.in.get(), &event);
    ASSERT_EQ(result == 0 ? 0 : errno, expected) << operation;
    if (result != 0) return;
    m.is_watched = operation != EPOLL_CTL_DEL;
    m.events = event.events;
    m.data = event.data.u64;
    m.is_armed = true;
    m.must_tell = m.may_tell = m.unread > 0;
  }

  bool must_report(const Member& m) const {
    if (!m.is_watched || (m.events & EPOLLIN) == 0 || m.unread == 0) return false;
    return is_edge(m) ? m.must_tell : !is_once(m) || m.is_armed;
  }
  bool may_report(const Member& m) const {
    if (!m.is_watched || (m.events & EPOLLIN) == 0) return false;
    if (is_edge(m)) return m.may_tell;  // an old edge may show what has been read since
    return m.unread > 0 && (!is_once(m) || m.is_armed);
  }

  void check_wait() {
    std::array<epoll_event, 8> events{};
    const int room = random_() % 3 == 0 ? 1 + int(random_() % 2) : int(events.size());
    const int count = epoll_wait(set_.get(), events.data(), room, 0);
    ASSERT_GE(count, 0) << strerror(errno);
    int due = 0;
    for (size_t i = 0; i < kMembers; ++i) due += must_report(members_[i]) ? 1 : 0;
    EXPECT_GE(count, std::min(due, room));
    for (size_t i = 0; i < kMembers; ++i) {
      Member& m = members_[i];
      bool is_reported = false;
      for (int at = 0; at < count; ++at) {
        if (events[size_t(at)].data.u64 / 1000 != i) continue;
        EXPECT_FALSE(is_reported) << "twice";
        is_reported = true;
        const uint64_t data = events[size_t(at)].data.u64;
        EXPECT_EQ(data, m.data);
        EXPECT_EQ(events[size_t(at)].events, uint32_t{EPOLLIN}) << "member " << i;
      }
      if (count < room) {
        EXPECT_TRUE(is_reported || !must_report(m))
            << "member " << i << " missing, events " << m.events;
      }
      EXPECT_TRUE(!is_reported || may_report(m))
          << "member " << i << " for nothing, events " << m.events << ", unread " << m.unread;
      if (is_reported) m.must_tell = m.may_tell = m.is_armed = false;
    }
  }

  void check_poll() const {
    std::array<pollfd, kMembers> all;
    for (size_t i = 0; i < kMembers; ++i) all[i] = {members_[i].in.get(), POLLIN, 0};
    ASSERT_GE(poll(all.data(), all.size(), 0), 0);
    for (size_t i = 0; i < kMembers; ++i)
      EXPECT_EQ(all[i].revents, members_[i].unread > 0 ? POLLIN : 0) << "member " << i;
  }

  std::mt19937 random_;
  Fd set_{epoll_create1(EPOLL_CLOEXEC)};
  std::array<Member, kMembers> members_;
};

class PollerModel : public TcpTest {};

TEST_F(PollerModel, ReportsWhatWasWrittenAndNotRead) {
  const char* more = getenv("DDPSOCK_SEEDS");
  const uint32_t seeds = more != nullptr ? uint32_t(atoi(more)) : 20;
  if (more != nullptr) start_deadline(10 + seeds);
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    Model model(seed);
    for (int step = 0; step < kSteps; ++step) {
      model.step();
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
