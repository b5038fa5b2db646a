// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/inet_diag.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <memory>
#include <set>
#include <vector>

#include "shim/policy_testing.h"

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

TEST(Cookies, AreZeroForWhatIsNoSocket) {
  EXPECT_EQ(socket_cookie(-1), 0u);
  EXPECT_EQ(netns_cookie(-1), 0u);
}

}  // namespace
}  // namespace ddpsock::shim

int main(int argc, char** argv) {
  return ddpsock::shim::testing::run_with_policy(argc, argv, "ddp1;d,prefer,-");
}
