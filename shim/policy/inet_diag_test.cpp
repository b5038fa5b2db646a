// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/inet_diag.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "base/unfinished.h"
#include "shim/policy/kept_diag_socket.h"
#include "shim/policy/policy_testing.h"

namespace ddpsock::shim {
namespace {

using testing::Listener;
using testing::Outgoing;

constexpr testing::ListenerOptions kUnregistered{.is_registered = false};

TEST(InetDiag, FindsBothEndsByTheirAddresses) {
  Listener listener("::", kUnregistered);
  Outgoing client;
  client.connect_without_asking(listener.port());
  const Address local = local_address(client.fd()).value(),
                remote = peer_address(client.fd()).value();
  InetDiag diag;
  EXPECT_EQ(diag.netns(), netns_cookie(client.fd()));
  const auto near = diag.find_connection(local, remote);
  ASSERT_TRUE(near.has_value());
  EXPECT_EQ(near->cookie, socket_cookie(client.fd()));
  EXPECT_EQ(near->uid, geteuid());
  EXPECT_TRUE(near->has_inode);

  const auto waiting = diag.find_connection(remote, local);
  ASSERT_TRUE(waiting.has_value());
  EXPECT_FALSE(waiting->has_inode) << "nobody has accepted it";
  base::UniqueFd accepted(accept(listener.fd(), nullptr, nullptr));
  const auto far = diag.find_connection(remote, local);
  ASSERT_TRUE(far.has_value());
  EXPECT_TRUE(far->has_inode);
  EXPECT_EQ(far->cookie, waiting->cookie);
  EXPECT_EQ(far->cookie, socket_cookie(accepted.get()));
}

TEST(InetDiag, ListenerIsNoConnection) {
  Listener listener("127.0.0.1", kUnregistered);
  InetDiag diag;
  const Address bound = local_address(listener.fd()).value();
  const auto found = diag.find_listener(bound);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cookie, socket_cookie(listener.fd()));
  EXPECT_EQ(diag.find_connection(bound, Address{bound.bytes, 1}).error(), Errno{ENOENT});
  EXPECT_EQ(diag.find_listener(Address{bound.bytes, 1}).error(), Errno{ENOENT});
}

TEST(InetDiag, VisitsEveryListenerOfThePort) {
  Listener first("127.0.0.1", {.is_registered = false, .is_shared = true});
  const uint16_t port = first.port();
  Listener second("127.0.0.1", {.port = port, .is_registered = false, .is_shared = true});
  Listener third("::", {.port = port, .is_registered = false, .is_shared = true});
  std::set<uint64_t> seen;
  InetDiag diag;
  const auto note = [](void* to, const KernelSocket& s) {
    static_cast<std::set<uint64_t>*>(to)->insert(s.cookie);
    EXPECT_TRUE(s.is_listener);
    EXPECT_FALSE(s.is_v6_only);
  };
  ASSERT_TRUE(diag.visit_listeners(local_address(first.fd()).value(), note, &seen));
  EXPECT_EQ(seen, (std::set<uint64_t>{socket_cookie(first.fd()), socket_cookie(second.fd()),
                                      socket_cookie(third.fd())}));
}

TEST(InetDiag, ManyListenersNeedManyReads) {
  constexpr int kMany = 200;
  std::vector<std::unique_ptr<Listener>> group;
  uint16_t port = 0;
  for (int i = 0; i < kMany; ++i) {
    group.push_back(std::make_unique<Listener>(
        "127.0.0.1",
        testing::ListenerOptions{.port = port, .is_registered = false, .is_shared = true}));
    port = group[0]->port();
  }
  int count = 0;
  InetDiag diag;
  const auto add = [](void* to, const KernelSocket&) { ++*static_cast<int*>(to); };
  ASSERT_TRUE(diag.visit_listeners(local_address(group[0]->fd()).value(), add, &count));
  EXPECT_EQ(count, kMany);
}

TEST(InetDiag, SaysWhenItCannotAsk) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  InetDiag diag;
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(diag.open_error(), EMFILE);
  EXPECT_EQ(diag.netns(), 0u);
  EXPECT_EQ(diag.find_listener(Address{}).error(), Errno{EMFILE});
}

// What is asked through by now, by number.
std::vector<int> diag_sockets() {
  std::vector<int> found;
  for (int fd = 0; fd < 4096; ++fd) {
    int protocol = 0, domain = 0;
    socklen_t size = sizeof protocol;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_NETLINK &&
        getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
        protocol == NETLINK_SOCK_DIAG)
      found.push_back(fd);
  }
  return found;
}

ino_t inode_of(int fd) {
  struct stat st{};
  return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

// Runs `use` in a forked child. Its exit status.
template <typename F>
int in_a_child(F use) {
  const pid_t child = fork();
  if (child == 0) _exit(use() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

class KeptSocket : public ::testing::Test {
 protected:
  bool can_ask() const {
    InetDiag diag(netns_);
    const auto found = diag.find_listener(local_address(listener_.fd()).value());
    return diag.netns() == netns_ && found && found->cookie == socket_cookie(listener_.fd());
  }

  Listener listener_{"127.0.0.1", kUnregistered};
  uint64_t netns_ = netns_cookie(listener_.fd());
};

TEST_F(KeptSocket, IsOneAndOutOfTheWay) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(can_ask());
  const auto kept = diag_sockets();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_GT(kept[0], 700);
  EXPECT_NE(fcntl(kept[0], F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(KeptSocket, TellsAnEndAndItsListenerAtOnce) {
  Outgoing client;
  const Address server = local_address(listener_.fd()).value();
  client.connect_without_asking(server.port);
  const Address there = local_address(client.fd()).value();
  Address nobody = there;
  nobody.port = 1;
  for (int i = 0; i < 2; ++i) {
    InetDiag diag(netns_);
    const auto [end, listener] = diag.find_end_and_listener(server, there);
    ASSERT_TRUE(end && listener);
    EXPECT_FALSE(end->has_inode);
    EXPECT_EQ(listener->cookie, socket_cookie(listener_.fd()));
    const auto [none, same] = diag.find_end_and_listener(server, nobody);
    EXPECT_EQ(none.error(), Errno{ENOENT});
    EXPECT_TRUE(same && same->cookie == listener->cookie);
  }
  EXPECT_EQ(diag_sockets().size(), 1u) << "an answer was left in it";
}

TEST_F(KeptSocket, IsInOneUsersHandsAtATime) {
  InetDiag outer(netns_);
  EXPECT_TRUE(can_ask());
  EXPECT_TRUE(outer.find_listener(local_address(listener_.fd()).value()));
}

TEST_F(KeptSocket, IsNotAskedByAForkedChild) {
  ASSERT_TRUE(can_ask());
  const int kept = diag_sockets().at(0);
  const ino_t inode = inode_of(kept);
  EXPECT_EQ(in_a_child([&] {
              const bool is_asked = can_ask();
              const auto of_child = diag_sockets();
              return is_asked && of_child.size() == 1 && inode_of(of_child[0]) != inode;
            }),
            0);
  EXPECT_TRUE(can_ask());
}

// As closefrom() does it, past the library.
TEST_F(KeptSocket, IsKnownWhereAnotherHasItsNumber) {
  EXPECT_EQ(in_a_child([this] {
              if (!can_ask()) return false;
              const int kept = diag_sockets().at(0);
              int pair[2];
              EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
              base::UniqueFd other(pair[1]);
              EXPECT_EQ(dup2(pair[0], kept), kept);
              close(pair[0]);
              EXPECT_TRUE(can_ask());
              char byte;
              EXPECT_EQ(recv(other.get(), &byte, 1, MSG_DONTWAIT), -1) << "was written to";
              EXPECT_EQ(errno, EAGAIN) << "was closed";
              close(kept);
              EXPECT_TRUE(can_ask());
              return !HasFailure();
            }),
            0);
}

TEST_F(KeptSocket, AsksItsNamespaceAlone) {
  ASSERT_TRUE(can_ask());
  bool may_leave = true, is_asked = false;
  std::thread([&] {
    may_leave = unshare(CLONE_NEWNET) == 0;
    if (!may_leave) return;
    Listener there("127.0.0.1", kUnregistered);
    const uint64_t netns = netns_cookie(there.fd());
    InetDiag diag(netns);
    is_asked = netns != netns_ && diag.netns() == netns &&
               !diag.find_listener(local_address(listener_.fd()).value());
  }).join();
  if (!may_leave) GTEST_SKIP() << "no network namespace for this user";
  EXPECT_TRUE(is_asked);
  EXPECT_TRUE(can_ask());
}

TEST_F(KeptSocket, IsForbiddenWithAParentsOfThatNumber) {
  ASSERT_TRUE(can_ask());
  EXPECT_EQ(in_a_child([] {
              forbid_diag_socket();
              return diag_sockets().empty();
            }),
            0);
  EXPECT_EQ(diag_sockets().size(), 1u);
}

TEST_F(KeptSocket, IsForbiddenToDescendantsToo) {
  EXPECT_EQ(in_a_child([this] {
              const bool could_ask = can_ask();
              forbid_diag_socket();
              const int status = in_a_child([this] { return can_ask() && diag_sockets().empty(); });
              return could_ask && status == 0 && can_ask() && diag_sockets().empty();
            }),
            0);
}

TEST_F(KeptSocket, IsForbiddenWhileItIsAsked) {
  EXPECT_EQ(in_a_child([this] {
              for (int i = 0; i < 2; ++i) {  // a new one, a kept one
                InetDiag diag(netns_);
                if (i == 1) forbid_diag_socket();
                if (!diag.find_listener(local_address(listener_.fd()).value())) return false;
              }
              return diag_sockets().empty();
            }),
            0);
}

TEST_F(KeptSocket, IsClosedByAJumpOutOfItsUse) {
  const auto jump = [this](bool has_asked) {
    alignas(InetDiag) std::byte place[sizeof(InetDiag)];
    auto* const diag = new (place) InetDiag(netns_);
    const bool is_found =
        !has_asked || diag->find_listener(local_address(listener_.fd()).value()).has_value();
    EXPECT_TRUE(is_found);
    base::Unfinished::innermost_of_thread()->leave();
  };
  for (const bool has_asked : {false, true}) {
    InetDiag outer(netns_);
    jump(has_asked);
  }
  const size_t kept = diag_sockets().size();
  EXPECT_LE(kept, 1u);
  jump(false);
  EXPECT_EQ(diag_sockets().size(), 0u);
  EXPECT_TRUE(can_ask());
  EXPECT_EQ(diag_sockets().size(), 1u);
}

// What close_range() does is not all that there is.
TEST_F(KeptSocket, IsNotMultipliedByThreadsWithDescriptorsOfTheirOwn) {
  EXPECT_EQ(in_a_child([this] {
              bool could_ask = can_ask();
              std::barrier turn(2);
              std::thread other([&] {
                could_ask = could_ask && unshare(CLONE_FILES) == 0;
                for (const int fd : diag_sockets()) close(fd);
                for (int i = 0; i < 20; ++i) {
                  turn.arrive_and_wait();
                  if (i % 2 == 0) could_ask = could_ask && can_ask();
                }
              });
              for (int i = 0; i < 20; ++i) {
                turn.arrive_and_wait();
                if (i % 2 == 1) could_ask = could_ask && can_ask();
              }
              other.join();
              return could_ask && can_ask() && diag_sockets().size() <= 2;
            }),
            0);
}

TEST_F(KeptSocket, IsKeptAgainInAChildOfAProcessThatLostOne) {
  EXPECT_EQ(in_a_child([this] {
              if (!can_ask()) return false;
              for (const int fd : diag_sockets()) close(fd);
              if (!can_ask()) return false;
              return in_a_child([this] { return can_ask() && diag_sockets().size() == 1; }) == 0;
            }),
            0);
}

TEST_F(KeptSocket, IsNotKeptWhereDescriptorsAreFew) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  for (const int fd : diag_sockets()) close(fd);
  const rlimit few{256, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_TRUE(can_ask());
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(diag_sockets().size(), 0u);
}

TEST(Cookies, AreZeroForWhatIsNoSocket) {
  EXPECT_EQ(socket_cookie(-1), 0u);
  EXPECT_EQ(netns_cookie(-1), 0u);
}

}  // namespace
}  // namespace ddpsock::shim

int main(int argc, char** argv) {
  return ddpsock::shim::testing::run_with_policy(argc, argv, "ddp1;d,prefer,-");
}
