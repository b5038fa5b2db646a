// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Connections without the preloaded library, so that sanitizers see all of it: threads that post,
// poll, wait, register and close at the same time, and the Domain's thread among them. What each
// call does is tested in tests/message/.
#include "message/connection.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/sys.h"
#include "engine/memory/message_memory.h"
#include "engine/queue/soft_engine.h"

namespace ddpsock::message {
namespace {

// Calls of this thread that fail as the kernel's might, each once.
thread_local bool is_send_refused = false;
thread_local std::function<void()> instead_of_epoll_ctl;

// In place before there is a thread.
const bool are_calls_replaced = [] {
  static const auto real_send = base::sys.send;
  static const auto real_epoll_ctl = base::sys.epoll_ctl;
  base::sys.send = [](int fd, const void* from, size_t size, int flags) {
    if (!std::exchange(is_send_refused, false)) return real_send(fd, from, size, flags);
    errno = EAGAIN;
    return ssize_t{-1};
  };
  base::sys.epoll_ctl = [](int set, int operation, int fd, epoll_event* event) {
    const auto instead = std::exchange(instead_of_epoll_ctl, nullptr);
    if (!instead) return real_epoll_ctl(set, operation, fd, event);
    instead();
    return 0;
  };
  return true;
}();

constexpr int kPatienceMs = 20'000;

struct TcpPair {
  base::UniqueFd client, server;
};

TcpPair make_tcp_pair() {
  const base::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), generic, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &size), 0);
  TcpPair pair{base::UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
  EXPECT_EQ(connect(pair.client.get(), generic, size), 0);
  pair.server.reset(accept(listener.get(), nullptr, nullptr));
  return pair;
}

// As the shim owns one.
class Owned {
 public:
  explicit Owned(const Settings& settings, Queue* queue = nullptr)
      : handle_(*Connection::make(settings)) {
    if (queue != nullptr) {
      EXPECT_TRUE(handle_->wishes().set_queue(*queue));
    }
  }
  ~Owned() {
    handle_->close();
    handle_->destroy();
  }
  Connection* operator->() const { return handle_; }
  Connection& get() const { return *handle_; }

 private:
  Connection* handle_;
};

// As the shim offers and joins it.
std::pair<Connection::Memory, Connection::Memory> make_memory() {
  using engine::shm::MessageMemory;
  auto offered = *MessageMemory::make({});
  auto joined = *MessageMemory::join(static_cast<uint32_t>(getpid()),
                                     static_cast<uint32_t>(offered->descriptor()), {});
  return {Connection::Memory{std::move(offered), ""}, Connection::Memory{std::move(joined), ""}};
}

// Whether the caller drives them, and whether they lie in shared memory.
struct Kind {
  bool is_caller_driven, is_in_memory;
};

class Connections : public testing::TestWithParam<Kind> {
 protected:
  Connections() { alarm(120); }

  void start(const Owned& client, const Owned& server) {
    std::pair<Connection::Memory, Connection::Memory> memory;
    if (GetParam().is_in_memory) memory = make_memory();
    ASSERT_TRUE(client->begin(tcp_.client.get(), Role::kInitiator, true, std::move(memory.first)));
    ASSERT_TRUE(server->begin(tcp_.server.get(), Role::kResponder, true, std::move(memory.second)));
    std::jthread starting([&] { EXPECT_TRUE(client->establish(kPatienceMs)); });
    ASSERT_TRUE(server->establish(kPatienceMs));
  }
  Settings settings() const {
    Settings wanted{.is_caller_driven = GetParam().is_caller_driven};
    wanted.depths.receive = 512;
    return wanted;
  }
  TcpPair tcp_ = make_tcp_pair();
};

ddp_recv_work receive_into(const iovec& part, uint64_t cookie) {
  return {.cookie = cookie, .iov = &part, .iov_count = 1, .reserved = 0};
}

ddp_send_work send_from(const iovec& part, uint64_t cookie, uint32_t flags) {
  return {.cookie = cookie,
          .iov = &part,
          .iov_count = 1,
          .flags = flags,
          .immediate = 0,
          .invalidate = 0,
          .reserved = 0};
}

TEST_P(Connections, ManyThreadsSendAndReceive) {
  constexpr uint32_t kSenders = 3, kMessages = 500, kRooms = 256;
  const Owned client(settings()), server(settings());
  start(client, server);
  std::vector<uint64_t> rooms(kRooms);
  const auto post_room = [&](uint64_t i) {
    const iovec part{&rooms[i], sizeof rooms[i]};
    const ddp_recv_work work = receive_into(part, i);
    EXPECT_EQ(server->post(std::span(&work, 1)).count, 1u);
  };
  for (uint64_t i = 0; i < kRooms; ++i) post_room(i);
  std::atomic<uint32_t> received{0}, completed{0};
  std::atomic<uint64_t> sum{0};
  {
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < kSenders; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < kMessages;) {
          ddp_completion done;
          if (client->poll({&done, 1}).value_or(0) == 1 && done.kind == DDP_SENT) ++completed;
          if (t + i * kSenders >= received + kRooms / 2) {
            std::this_thread::yield();
            continue;
          }
          const iovec part{&i, sizeof i};
          const ddp_send_work work = send_from(part, i, DDP_INLINE);
          if (client->post(std::span(&work, 1)).count == 1) ++i;
        }
      });
    }
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        while (received < kSenders * kMessages) {
          ddp_completion got;
          if (server->wait({&got, 1}, 20).value_or(0) != 1 || got.kind != DDP_RECEIVED) continue;
          ASSERT_EQ(got.status, 0);
          sum += rooms[got.cookie];
          post_room(got.cookie);
          ++received;
        }
      });
    }
  }
  ddp_completion done;
  while (completed < kSenders * kMessages && client->wait({&done, 1}, 1000).value_or(0) == 1)
    ++completed;
  EXPECT_EQ(completed, kSenders * kMessages);
  EXPECT_EQ(sum, uint64_t{kSenders} * kMessages * (kMessages - 1) / 2);
}

// A post that finds another thread sending leaves its work to that one; nobody looks afterwards.
TEST_P(Connections, PostsThatMeetAreAllSent) {
  constexpr uint32_t kRounds = 2000;
  const Owned client(settings()), server(settings());
  start(client, server);
  uint64_t room = 0;
  const iovec part{&room, sizeof room};
  const ddp_recv_work receive = receive_into(part, 0);
  std::atomic<uint32_t> round{0};
  std::atomic<bool> is_over{false};
  const auto post_each_round = [&] {
    const ddp_send_work work{.cookie = 0,
                             .iov = nullptr,
                             .iov_count = 0,
                             .flags = DDP_SILENT,
                             .immediate = 0,
                             .invalidate = 0,
                             .reserved = 0};
    for (uint32_t done = 0; !is_over;) {
      if (round.load() == done) continue;
      ++done;
      EXPECT_EQ(client->post(std::span(&work, 1)).count, 1u);
    }
  };
  std::jthread first(post_each_round), second(post_each_round);
  for (uint32_t i = 0; i < kRounds && !HasFailure(); ++i) {
    ASSERT_EQ(server->post(std::span(&receive, 1)).count, 1u);
    ASSERT_EQ(server->post(std::span(&receive, 1)).count, 1u);
    ++round;
    ddp_completion got;
    for (int n = 0; n < 2; ++n) EXPECT_EQ(server->wait({&got, 1}, 5000).value_or(0), 1u);
  }
  is_over = true;
}

TEST_P(Connections, OneSidedWhileRegionsComeAndGo) {
  const Owned client(settings()), server(settings());
  start(client, server);
  alignas(8) std::atomic<uint64_t> counter{0};
  const auto region = server->register_memory(
      MutBytes(reinterpret_cast<uint8_t*>(&counter), sizeof counter), DDP_REMOTE_ATOMIC);
  ASSERT_TRUE(region);
  std::atomic<bool> is_over{false};
  std::jthread registering([&] {
    std::string memory(64, '.');
    while (!is_over) {
      const auto other = server->register_memory(
          {reinterpret_cast<uint8_t*>(memory.data()), memory.size()}, DDP_REMOTE_READ);
      ASSERT_TRUE(other);
      ASSERT_TRUE(server->deregister(other->stag));
    }
  });
  // Without the Domain's thread this side has to make calls.
  std::jthread polling([&] {
    ddp_completion completion;
    while (!is_over && GetParam().is_caller_driven) (void)server->poll({&completion, 1});
  });
  for (uint64_t i = 0; i < 300; ++i) {
    ddp_atomic_work work{};
    work.operand = 1;
    work.remote_to = region->to;
    work.remote_stag = region->stag;
    ASSERT_EQ(client->post(std::span<const ddp_atomic_work>(&work, 1)).count, 1u);
    ddp_completion done{};
    ASSERT_EQ(client->wait({&done, 1}, kPatienceMs).value_or(0), 1u);
    ASSERT_EQ(done.value, i);
  }
  is_over = true;
}

TEST_P(Connections, CloseWhileOthersWork) {
  for (int round = 0; round < 20; ++round) {
    tcp_ = make_tcp_pair();
    const Owned client(settings()), server(settings());
    start(client, server);
    std::atomic<bool> is_over{false};
    std::jthread posting([&] {
      while (!is_over) {
        const ddp_write_work work{};
        (void)client->post(std::span(&work, 1));
      }
    });
    std::jthread polling([&] {
      ddp_completion completion;
      while (!is_over) (void)client->poll({&completion, 1});
    });
    std::jthread waiting([&] {
      ddp_completion completion;
      while (!is_over) (void)client->wait({&completion, 1}, 10);
    });
    std::this_thread::yield();
    if (round % 2 == 0) (void)server->shut(true);
    client->close();
    is_over = true;
  }
}

// Whoever has the engine, and be it stopped there: the library's thread sends what was posted.
TEST_P(Connections, APostWaitsForNobody) {
  if (GetParam().is_caller_driven)
    GTEST_SKIP() << "the caller moves the bytes, and may have to wait";
  const Owned client(settings()), server(settings());
  start(client, server);
  uint64_t bytes = 7, room = 0;
  const iovec from{&bytes, sizeof bytes}, to{&room, sizeof room};
  const ddp_send_work send = send_from(from, 1, DDP_INLINE);
  const ddp_recv_work receive = receive_into(to, 2);
  {
    auto& engine = static_cast<engine::SoftEngine&>((*Domain::get())->engine());
    const std::lock_guard held(engine.mutex());
    EXPECT_EQ(server->post(std::span(&receive, 1)).count, 1u);
    EXPECT_EQ(client->post(std::span(&send, 1)).count, 1u);
  }
  ddp_completion got;
  ASSERT_EQ(server->wait({&got, 1}, kPatienceMs).value_or(0), 1u);
  EXPECT_EQ(got.cookie, 2u);
  EXPECT_EQ(room, 7u);
}

// A poll looks only at so many connections of a queue, but sends what any of them has held back;
// also one that has found completions.
TEST_P(Connections, APollSendsWhatIsHeldBackOnManyConnections) {
  constexpr size_t kConnections = 20;
  Queue* queue = *Queue::make(256);
  {
    std::vector<TcpPair> tcp(kConnections);
    std::vector<std::unique_ptr<Owned>> clients, servers;
    for (size_t i = 0; i < kConnections; ++i) {
      tcp_ = make_tcp_pair();
      clients.push_back(std::make_unique<Owned>(settings()));
      servers.push_back(std::make_unique<Owned>(settings(), queue));
      start(*clients[i], *servers[i]);
      tcp[i] = std::move(tcp_);
    }
    ddp_completion got;
    while (queue->poll({&got, 1}).value_or(0) != 0) {
    }
    uint64_t bytes = 1, room = 0;
    const iovec from{&bytes, sizeof bytes}, to{&room, sizeof room};
    for (const bool is_waiting : {false, true}) {
      for (size_t i = 0; i < kConnections; ++i) {
        const ddp_recv_work receive = receive_into(to, i);
        ASSERT_EQ((*clients[i])->post(std::span(&receive, 1)).count, 1u);
        const ddp_send_work send = send_from(from, i, DDP_INLINE | DDP_MORE);
        ASSERT_EQ((*servers[i])->post(std::span(&send, 1)).count, 1u);
      }
      const auto found = is_waiting ? queue->wait({&got, 1}, 0) : queue->poll({&got, 1});
      ASSERT_TRUE(found);
      if (is_waiting) {
        EXPECT_EQ(*found, 1u) << "of the first round's sends";
      }
      for (size_t i = 0; i < kConnections; ++i) {
        ASSERT_EQ((*clients[i])->wait({&got, 1}, kPatienceMs).value_or(0), 1u) << i;
        EXPECT_EQ(got.kind, DDP_RECEIVED);
      }
    }
  }
  queue->close();
  queue->destroy();
}

TEST_P(Connections, AQueueIsSharedAndWaitedForByMany) {
  constexpr size_t kConnections = 4;
  constexpr uint32_t kRounds = 100;
  Queue* queue = *Queue::make(1024);
  {
    std::vector<TcpPair> tcp(kConnections);
    std::vector<std::unique_ptr<Owned>> clients, servers;
    std::array<std::atomic<uint32_t>, kConnections> received{};
    std::array<uint64_t, kConnections> rooms{};
    for (size_t i = 0; i < kConnections; ++i) {
      tcp_ = make_tcp_pair();
      clients.push_back(std::make_unique<Owned>(settings()));
      servers.push_back(std::make_unique<Owned>(settings(), queue));
      start(*clients[i], *servers[i]);
      tcp[i] = std::move(tcp_);
    }
    const auto post_room = [&](size_t i) {
      const iovec part{&rooms[i], sizeof rooms[i]};
      const ddp_recv_work work = receive_into(part, i);
      EXPECT_EQ((*servers[i])->post(std::span(&work, 1)).count, 1u);
    };
    for (size_t i = 0; i < kConnections; ++i) post_room(i);
    std::atomic<uint32_t> total{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        while (total < kConnections * kRounds) {
          ddp_completion got;
          if (queue->wait({&got, 1}, 20).value_or(0) != 1 || got.kind != DDP_RECEIVED) continue;
          ++total;
          post_room(got.cookie);
          ++received[got.cookie];
        }
      });
    }
    for (uint32_t round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < kConnections; ++i) {
        while (received[i] < round) std::this_thread::yield();
        const uint64_t bytes = round;
        const iovec part{const_cast<uint64_t*>(&bytes), sizeof bytes};
        const ddp_send_work work = send_from(part, 0, DDP_INLINE | DDP_SILENT);
        ASSERT_EQ((*clients[i])->post(std::span(&work, 1)).count, 1u);
      }
    }
  }
  queue->close();
  queue->destroy();
}

// Another thread's close() comes before a call that has begun.
TEST(Connection, ACallOnWhatWasClosedBeforeItBeganIsRefused) {
  Queue* queue = *Queue::make(16);
  {
    const Owned with_queue(Settings{}, queue), without(Settings{});
    for (Connection* c : {&with_queue.get(), &without.get()}) {
      c->close();
      EXPECT_EQ(c->establish(0).error(), Errno{EBADF});
    }
  }
  queue->close();
  queue->destroy();
}

// The same, for certain: the second post comes between the first one's last look for work and its
// letting go of the connection, and nothing that happens on the socket makes up for it.
TEST(Connection, APostIsSentByWhomItFindsLeaving) {
  const char* progress = getenv("DDPSOCK_PROGRESS");
  if (progress == nullptr || progress != std::string_view("epoll")) {
    GTEST_SKIP()
        << "the place to come in between is the thread's epoll_ctl: DDPSOCK_PROGRESS=epoll";
  }
  ASSERT_TRUE(are_calls_replaced);
  alarm(60);
  const TcpPair tcp = make_tcp_pair();
  const Owned client(Settings{}), server(Settings{});
  ASSERT_TRUE(client->begin(tcp.client.get(), Role::kInitiator, true, {}));
  ASSERT_TRUE(server->begin(tcp.server.get(), Role::kResponder, true, {}));
  std::jthread starting([&] { EXPECT_TRUE(client->establish(kPatienceMs)); });
  ASSERT_TRUE(server->establish(kPatienceMs));
  starting.join();
  const auto post = [&] {
    const ddp_send_work work{.cookie = 0,
                             .iov = nullptr,
                             .iov_count = 0,
                             .flags = DDP_SILENT,
                             .immediate = 0,
                             .invalidate = 0,
                             .reserved = 0};
    EXPECT_EQ(server->post(std::span(&work, 1)).count, 1u);
  };
  const auto allow_one = [&] {
    const ddp_recv_work receive{};
    ASSERT_EQ(client->post(std::span(&receive, 1)).count, 1u);
  };
  const auto expect_one = [&] {
    ddp_completion got{};
    ASSERT_EQ(client->wait({&got, 1}, 2'000).value_or(0), 1u);
    ASSERT_EQ(got.kind, uint32_t{DDP_RECEIVED});
  };
  // An initiator that has heard something sends no nudge, and the thread has nothing to come back
  // for once it has looked at what start-up left. While it does, a post is its to send.
  allow_one();
  post();
  expect_one();
  bool is_between = false;
  allow_one();
  for (int n = 0; n < 1'000 && !is_between; ++n) {
    while (server->progress().watch().deadline() != kNever) std::this_thread::yield();
    instead_of_epoll_ctl = [&] {
      is_between = true;
      std::jthread other(post);
    };
    is_send_refused = true;
    allow_one();
    post();
    expect_one();
  }
  is_send_refused = false;
  instead_of_epoll_ctl = nullptr;
  ASSERT_TRUE(is_between);
  expect_one();
}

// A call that was running when the connection went away finds it established, or ended.
TEST(Connection, NothingIsToldOfOneThatHasLeftItsQueue) {
  Queue* queue = *Queue::make(16);
  {
    const TcpPair tcp = make_tcp_pair();
    const Owned early(Settings{}, queue), late(Settings{}, queue), stays(Settings{}, queue);
    for (const Owned* c : {&early, &late, &stays})
      ASSERT_EQ((*c)->post(std::span<const ddp_recv_work>()).why, 0);  // opens it
    queue->tell(stays->progress(), DDP_ESTABLISHED);
    queue->tell(early->progress(),
                DDP_ESTABLISHED);  // before it in the list of those with something to tell
    queue->remove(early->progress());
    queue->remove(late->progress());
    queue->tell(late->progress(), DDP_ESTABLISHED);
    queue->tell(late->progress(), DDP_ENDED);
    queue->tell(stays->progress(), DDP_ENDED);
    std::array<ddp_completion, 4> told{};
    ASSERT_EQ(queue->poll(told).value_or(0), 2u);
    EXPECT_EQ(told[0].kind, uint32_t{DDP_ESTABLISHED});
    EXPECT_EQ(told[1].kind, uint32_t{DDP_ENDED});
    queue->tell(early->progress(), DDP_ENDED);
    EXPECT_EQ(queue->poll(told).value_or(9), 0u);
  }
  queue->close();
  queue->destroy();
}

INSTANTIATE_TEST_SUITE_P(Driven, Connections,
                         testing::Values(Kind{false, false}, Kind{true, false}, Kind{false, true},
                                         Kind{true, true}),
                         [](const auto& kind) {
                           return std::string(kind.param.is_caller_driven ? "ByTheCaller"
                                                                          : "ByTheThread") +
                                  (kind.param.is_in_memory ? "InMemory" : "OverTcp");
                         });

}  // namespace
}  // namespace ddpsock::message
