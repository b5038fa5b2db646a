// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Both ends of real connections, and the verdict each comes to. Runs with these rules:
//   127.0.0.2 require; 127.0.0.3 off for clients, and port 18999 there for servers; else prefer.
#include "shim/policy/policy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>

#include <cstring>
#include <optional>
#include <thread>

#include "shim/policy/discovery.h"
#include "shim/policy/inet_diag.h"
#include "shim/policy/policy_testing.h"
#include "shim/policy/registry.h"

namespace ddpsock::shim {
namespace {

using testing::Listener;
using testing::Outgoing;

TEST(Policy, OneThreadConnectsAndAccepts) {
  Listener listener("127.0.0.1");
  Outgoing client;
  EXPECT_EQ(client.connect(listener), Mode::kProved);
  EXPECT_EQ(client.confirm(), Mode::kProved);
  EXPECT_EQ(listener.accept(), Mode::kProved);
}

TEST(Policy, AcceptMayComeBeforeTheClientConfirms) {
  Listener listener("127.0.0.1");
  Outgoing client;
  EXPECT_EQ(client.connect(listener), Mode::kProved);
  EXPECT_EQ(listener.accept(), Mode::kProved);
  EXPECT_EQ(client.confirm(), Mode::kProved);
}

TEST(Policy, WildcardDualStackAndMappedAddressesMeet) {
  for (const char* bound : {"0.0.0.0", "::", "127.0.0.1", "::ffff:127.0.0.1"}) {
    for (const char* to : {"127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0"}) {
      SCOPED_TRACE(std::string(bound) + " <- " + to);
      Listener listener(bound);
      Outgoing client(to);
      EXPECT_EQ(client.connect(listener.port(), to), Mode::kProved);
      EXPECT_EQ(client.confirm(), Mode::kProved);
      EXPECT_EQ(listener.accept(), Mode::kProved);
    }
  }
  Listener six("::1");
  Outgoing client("::1");
  EXPECT_EQ(client.connect(six.port(), "::1"), Mode::kProved);
  EXPECT_EQ(client.confirm(), Mode::kProved);
  EXPECT_EQ(six.accept(), Mode::kProved);
}

TEST(Policy, UnregisteredListenerGetsPlainClients) {
  Listener listener("127.0.0.1", {.is_registered = false});
  Outgoing client;
  EXPECT_EQ(client.connect(listener), Mode::kPlain);
  // Inherited from a program without the library, say: its clients cannot know it.
  EXPECT_EQ(listener.accept(), Mode::kUndecided);
}

TEST(Policy, SilentSameHostClientIsPlain) {
  Listener listener("127.0.0.1");
  Outgoing client;
  client.connect_without_asking(listener.port());
  EXPECT_EQ(listener.accept(), Mode::kPlain);
}

TEST(Policy, ClientThatClosedAlreadyIsToldByItsBytes) {
  Listener listener("127.0.0.1");
  {
    Outgoing().connect_without_asking(listener.port());
  }
  EXPECT_EQ(listener.accept(), Mode::kUndecided);
}

// Also one to a listener that its process has not met before.
TEST(Policy, ClientThatClosedAlreadyIsHeard) {
  Listener listener("127.0.0.1");
  {
    Outgoing client;
    EXPECT_EQ(client.connect(listener), Mode::kProved);
    EXPECT_EQ(client.confirm(), Mode::kProved);
  }
  EXPECT_EQ(listener.accept(), Mode::kProved);
}

TEST(Policy, HalfClosedClientIsStillProved) {
  Listener listener("127.0.0.1");
  Outgoing client;
  EXPECT_EQ(client.connect(listener), Mode::kProved);
  EXPECT_EQ(client.confirm(), Mode::kProved);
  ASSERT_EQ(shutdown(client.fd(), SHUT_WR), 0);
  EXPECT_EQ(listener.accept(), Mode::kProved);
}

TEST(Policy, RequireIsDdpWithoutProof) {
  Listener unregistered("127.0.0.2", {.is_registered = false});
  Outgoing client;
  EXPECT_EQ(client.connect(unregistered), Mode::kRequired);
  // It published all the same, so the accepting side need not guess, and sends the Reply at once.
  EXPECT_EQ(unregistered.accept(), Mode::kRequired);

  Listener registered("127.0.0.2");
  Outgoing silent;
  silent.connect_without_asking(registered.port(), "127.0.0.2");
  EXPECT_EQ(registered.accept(), Mode::kRequired);
  Outgoing asking;
  EXPECT_EQ(asking.connect(registered), Mode::kProved);
  EXPECT_EQ(asking.confirm(), Mode::kProved);
  EXPECT_EQ(registered.accept(), Mode::kProved);
}

TEST(Policy, RequireTowardsNobodyIsRequired) {
  Outgoing client;
  EXPECT_EQ(client.ask(1, "127.0.0.2"), Mode::kRequired);
  EXPECT_EQ(client.ask(1, "127.0.0.1"), Mode::kPlain);
}

TEST(Policy, OffIsPlainAndUnregistered) {
  Listener listener("127.0.0.3");
  Outgoing client;
  EXPECT_EQ(client.connect(listener), Mode::kPlain);
  EXPECT_EQ(listener.accept(), Mode::kPlain);

  Listener unwilling("127.0.0.3", {.port = 18999});
  Outgoing wishing(Wish::kStream);
  EXPECT_EQ(wishing.connect(unwilling), Mode::kRequired) << "it was registered";
  EXPECT_EQ(unwilling.accept(), Mode::kPlain);
}

TEST(Policy, WishGoesBeforeRules) {
  Listener listener("127.0.0.3", {.wish = Wish::kStream});
  Outgoing client(Wish::kStream);
  EXPECT_EQ(client.connect(listener), Mode::kProved);
  EXPECT_EQ(client.confirm(), Mode::kProved);
  EXPECT_EQ(listener.accept(), Mode::kProved);

  Listener preferred("127.0.0.1");
  Outgoing unwilling(Wish::kOff);
  EXPECT_EQ(unwilling.connect(preferred), Mode::kPlain);
  EXPECT_EQ(preferred.accept(), Mode::kPlain);
}

TEST(Policy, ForgottenListenerObeysThoseWhoAskedBefore) {
  Listener listener("127.0.0.1");
  Outgoing before, after;
  EXPECT_EQ(before.connect(listener), Mode::kProved);
  EXPECT_EQ(before.confirm(), Mode::kProved);
  forget_listener(listener.fd());
  EXPECT_EQ(after.connect(listener), Mode::kPlain);
  EXPECT_EQ(listener.accept(), Mode::kProved);
}

TEST(Policy, ListenerForgottenWhileAClientConnects) {
  Listener listener("127.0.0.1");
  Outgoing accepted, waiting;
  EXPECT_EQ(accepted.connect(listener), Mode::kProved);
  EXPECT_EQ(listener.accept(), Mode::kProved);
  EXPECT_EQ(waiting.connect(listener), Mode::kProved);
  forget_listener(listener.fd());
  EXPECT_EQ(accepted.confirm(), Mode::kProved);
  EXPECT_EQ(waiting.confirm(), Mode::kPlain);
  EXPECT_EQ(listener.accept(), Mode::kPlain);
}

TEST(Policy, RequiredClientGoesInUnprovedWhereTheListenerIsForgotten) {
  Listener listener("127.0.0.2");
  Outgoing client;
  EXPECT_EQ(client.connect(listener), Mode::kProved);
  forget_listener(listener.fd());
  EXPECT_EQ(client.confirm(), Mode::kRequired);
  EXPECT_EQ(listener.accept(), Mode::kRequired);
}

TEST(Policy, EscapedListenerTakesNoNewClients) {
  Listener listener("127.0.0.1");
  ASSERT_TRUE(note_escaped_listener(listener.fd(), Escape::kGone));
  EXPECT_EQ(Outgoing().ask(listener.port()), Mode::kPlain);
  // Nor if somebody registers it once more, or another copy comes back.
  register_listener(listener.fd(), Wish::kNone, Opened::kHere);
  register_listener(listener.fd(), Wish::kNone, Opened::kElsewhere);
  note_returned_listener(listener.fd(), Escape::kInFlight);
  EXPECT_EQ(Outgoing().ask(listener.port()), Mode::kPlain);
  note_returned_listener(listener.fd(), Escape::kGone);
  EXPECT_EQ(Outgoing().ask(listener.port()), Mode::kProved);
}

TEST(Policy, SilenceProvesNothingToWhoFoundTheListener) {
  Listener listener("127.0.0.1", {.is_registered = false});
  register_listener(listener.fd(), Wish::kNone, Opened::kElsewhere);
  Outgoing silent, asking;
  silent.connect_without_asking(listener.port());
  EXPECT_EQ(listener.accept(), Mode::kUndecided);
  EXPECT_EQ(asking.connect(listener), Mode::kProved);
  EXPECT_EQ(listener.accept(), Mode::kProved);
}

// More than the registry has room for, faster than any entry ages.
TEST(Policy, ListenersThatAreGoneTakeNoRoom) {
  for (int i = 0; i < 6'000; ++i) {
    const Listener listener("127.0.0.1");
    ASSERT_TRUE(is_listener_registered(listener.fd())) << i;
  }
  Listener last("127.0.0.1");
  EXPECT_EQ(Outgoing().ask(last.port()), Mode::kProved);
}

TEST(Policy, ClientsThatHaveGivenUpTakeNoRoom) {
  const Listener listener("127.0.0.1");
  for (int i = 0; i < 6'000; ++i) {
    Outgoing client;
    ASSERT_EQ(client.ask(listener.port()), Mode::kProved) << i;
    give_up_connecting(client.fd());
  }
}

TEST(Policy, UnboundSocketIsRegisteredLater) {
  const base::UniqueFd fd = testing::make_socket("127.0.0.1");
  EXPECT_FALSE(register_listener(fd.get(), Wish::kNone, Opened::kHere));
  ASSERT_EQ(listen(fd.get(), 1), 0);
  EXPECT_TRUE(register_listener(fd.get(), Wish::kNone, Opened::kHere));
  EXPECT_TRUE(is_listener_registered(fd.get()));
}

TEST(Policy, OneUnregisteredMemberMakesAGroupPlain) {
  Listener first("127.0.0.1", {.is_shared = true});
  {
    Listener second("127.0.0.1", {.port = first.port(), .is_shared = true});
    for (int i = 0; i < 8; ++i) {
      Outgoing client;
      EXPECT_EQ(client.ask(first.port()), Mode::kProved);
    }
    Listener third("127.0.0.1", {.port = first.port(), .is_registered = false, .is_shared = true});
    for (int i = 0; i < 8; ++i) {
      Outgoing client;
      EXPECT_EQ(client.ask(first.port()), Mode::kPlain);
    }
  }
  Outgoing client;
  EXPECT_EQ(client.connect(first), Mode::kProved);
  EXPECT_EQ(client.confirm(), Mode::kProved);
  EXPECT_EQ(first.accept(), Mode::kProved);
}

TEST(Policy, ListenerOnTheAddressGoesBeforeTheWildcard) {
  Listener wildcard("0.0.0.0", {.is_registered = false, .is_shared = true});
  Listener exact("127.0.0.1", {.port = wildcard.port(), .is_shared = true});
  Outgoing client, other;
  EXPECT_EQ(client.ask(exact.port()), Mode::kProved);
  EXPECT_EQ(other.ask(exact.port(), "127.0.0.4"), Mode::kPlain);
}

TEST(Policy, FailedAttemptLeavesNothingBehind) {
  Listener plain("127.0.0.1", {.is_registered = false});
  Outgoing client;
  {
    Listener gone("127.0.0.1");
    EXPECT_EQ(client.ask(gone.port()), Mode::kProved);
  }
  EXPECT_EQ(client.connect(plain), Mode::kPlain);
  EXPECT_EQ(plain.accept(), Mode::kUndecided) << "found the first attempt's publication";
}

TEST(Policy, PortTakenOverIsNoticed) {
  Outgoing client;
  uint16_t port;
  {
    Listener listener("127.0.0.1");
    port = listener.port();
    EXPECT_EQ(client.ask(port), Mode::kProved);
  }
  Listener thief("127.0.0.1", {.port = port, .is_registered = false});
  client.connect_without_asking(port);
  EXPECT_EQ(client.confirm(), Mode::kPlain);
  EXPECT_EQ(thief.accept(), Mode::kUndecided);
}

// Who listens somewhere is known from the last connection there, and made sure of after the next.
class MetLately : public ::testing::Test {
 protected:
  std::optional<Listener> listener_{std::in_place, "127.0.0.1"};
  const uint16_t port_ = listener_->port();
  Outgoing client_;
  void SetUp() override { meet(); }
  void meet() {
    Outgoing first;
    EXPECT_EQ(first.connect(*listener_), Mode::kProved);
    EXPECT_EQ(first.confirm(), Mode::kProved);
    EXPECT_EQ(listener_->accept(), Mode::kProved);
  }
  Listener take_over(bool is_registered) {
    listener_.reset();
    return Listener("127.0.0.1", {.port = port_, .is_registered = is_registered});
  }
};

TEST_F(MetLately, AnswersForTheNextConnection) {
  EXPECT_EQ(client_.connect(port_), Mode::kProved);
  EXPECT_EQ(client_.confirm(), Mode::kProved);
  EXPECT_EQ(listener_->accept(), Mode::kProved);
}

TEST_F(MetLately, AcceptMayComeFirst) {
  EXPECT_EQ(client_.connect(port_), Mode::kProved);
  EXPECT_EQ(listener_->accept(), Mode::kProved);
  EXPECT_EQ(client_.confirm(), Mode::kProved);
}

SocketKey key_of(int fd) {
  return {.netns = netns_cookie(fd), .cookie = socket_cookie(fd)};
}

RegistryTable my_registry() {
  return own_registry(geteuid()).value();
}

constexpr uint64_t kOtherEnd = uint64_t{1} << 62;  // as discovery.cpp has it

SocketKey other_end_of(int accepted) {
  return {.netns = netns_cookie(accepted), .cookie = socket_cookie(accepted) | kOtherEnd};
}

// Then there is no socket any more that could be asked about.
TEST_F(MetLately, AClientIsHeardThoughItHasClosed) {
  {
    Outgoing client;
    EXPECT_EQ(client.connect(port_), Mode::kProved);
    EXPECT_EQ(client.confirm(), Mode::kProved);
  }
  EXPECT_EQ(listener_->accept(), Mode::kProved);
}

TEST_F(MetLately, WhatIsSaidIsUsedUp) {
  for (const bool is_accept_first : {true, false}) {
    Outgoing client;
    EXPECT_EQ(client.connect(port_), Mode::kProved);
    Mode accepted = is_accept_first ? listener_->accept() : Mode::kPlain;
    EXPECT_EQ(client.confirm(), Mode::kProved);
    if (!is_accept_first) accepted = listener_->accept();
    EXPECT_EQ(accepted, Mode::kProved);
    EXPECT_FALSE(my_registry().find(other_end_of(listener_->accepted()))) << is_accept_first;
    EXPECT_FALSE(my_registry().find(key_of(client.fd()))) << is_accept_first;
  }
}

// Who has accepted the first connection is slow: its client has connected again by then.
TEST_F(MetLately, AWordOfAnEarlierConnectionDoesNotUseUpTheNext) {
  EXPECT_EQ(client_.connect(port_), Mode::kProved);
  EXPECT_EQ(client_.confirm(), Mode::kProved);
  const base::UniqueFd first(::accept(listener_->fd(), nullptr, nullptr));
  Inquiry of_first;
  of_first.ends = ends_of(first.get());
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  ASSERT_EQ(::connect(client_.fd(), &nowhere, sizeof nowhere), 0);
  EXPECT_EQ(client_.connect(port_), Mode::kProved);
  EXPECT_NE(find_client(first.get(), of_first), Client::kPublished);
  EXPECT_EQ(client_.confirm(), Mode::kProved);
  EXPECT_EQ(listener_->accept(), Mode::kProved);
}

TEST_F(MetLately, AWordThatRepeatsNoneIsNotBelieved) {
  client_.connect_without_asking(port_);
  const auto here = local_address(client_.fd()).value(), there = peer_address(client_.fd()).value();
  const auto peer = InetDiag().find_connection(there, here);
  ASSERT_TRUE(peer.has_value());
  Entry entry;
  entry.kind = Kind::kConnection;
  entry.key = {.netns = netns_cookie(client_.fd()), .cookie = peer->cookie | kOtherEnd};
  const uint64_t cookie = socket_cookie(client_.fd());
  std::memcpy(entry.local.bytes.data(), &cookie, sizeof cookie);
  const auto never = [](void*, const Entry&) { return false; };
  ASSERT_TRUE(my_registry().publish(entry, never, nullptr));
  EXPECT_EQ(listener_->accept(), Mode::kPlain);
  EXPECT_FALSE(my_registry().find(entry.key));
}

// The new one has accepted by then, and nothing of the connection says who its listener was.
TEST_F(MetLately, WhoHasTakenThePortOverAndAcceptedIsNoticed) {
  Listener thief = take_over(false);
  client_.connect(port_);
  const base::UniqueFd accepted(::accept(thief.fd(), nullptr, nullptr));
  ASSERT_TRUE(accepted.is_valid());
  EXPECT_EQ(client_.confirm(), Mode::kPlain);
}

TEST_F(MetLately, WhoHasTakenThePortOverAndIsGoneAgainIsNoticed) {
  base::UniqueFd accepted;
  {
    Listener thief = take_over(false);
    client_.connect(port_);
    accepted.reset(::accept(thief.fd(), nullptr, nullptr));
  }
  ASSERT_TRUE(accepted.is_valid());
  EXPECT_EQ(client_.confirm(), Mode::kPlain);
}

TEST_F(MetLately, ASuccessorAgreesWithItsClients) {
  for (const bool is_accept_first : {true, false}) {
    meet();
    Listener successor = take_over(true);
    Outgoing client;
    const Mode asked = client.connect(port_);
    Mode accepted = is_accept_first ? successor.accept() : Mode::kPlain;
    const Mode confirmed = asked == Mode::kProved ? client.confirm() : asked;
    if (!is_accept_first) accepted = successor.accept();
    EXPECT_EQ(accepted, confirmed) << is_accept_first;
    listener_.emplace(std::move(successor));
  }
}

TEST_F(MetLately, OneThatHasEscapedTakesNoMore) {
  ASSERT_TRUE(note_escaped_listener(listener_->fd(), Escape::kGone));
  EXPECT_EQ(client_.connect(port_), Mode::kPlain);
  EXPECT_EQ(listener_->accept(), Mode::kPlain);
}

TEST_F(MetLately, OneThatEscapesMeanwhileAndHasNotAcceptedIsPlain) {
  EXPECT_EQ(client_.connect(port_), Mode::kProved);
  ASSERT_TRUE(note_escaped_listener(listener_->fd(), Escape::kGone));
  EXPECT_EQ(client_.confirm(), Mode::kPlain);
  EXPECT_EQ(listener_->accept(), Mode::kPlain);
}

// What after_accept does while the client makes up its mind.
class DoubtTest : public ::testing::Test {
 protected:
  Listener listener_{"127.0.0.1"};
  Outgoing client_;
  void SetUp() override {
    ASSERT_EQ(client_.connect(listener_), Mode::kProved);
    ASSERT_TRUE(my_registry().set_doubtful(key_of(client_.fd()), true));
  }
};

TEST_F(DoubtTest, AcceptDecidesForBoth) {
  EXPECT_EQ(listener_.accept(), Mode::kProved);
  EXPECT_FALSE(my_registry().set_doubtful(key_of(client_.fd()), false));
  EXPECT_FALSE(my_registry().withdraw(key_of(client_.fd())));
}

TEST_F(DoubtTest, AcceptObeysAClientThatHasDecided) {
  ASSERT_TRUE(my_registry().withdraw(key_of(client_.fd())));
  EXPECT_EQ(listener_.accept(), Mode::kPlain);
}

// Entries of sockets that do not exist, in the way of the client's own.
void crowd_out(const SocketKey& key, Entry entry) {
  const auto never = [](void*, const Entry&) { return false; };
  entry.kind = Kind::kConnection;
  uint64_t cookie = uint64_t{1} << 40;
  for (size_t filled = 0; filled < kProbes; ++cookie) {
    entry.key.cookie = cookie;
    if (first_slot(entry.key) != first_slot(key)) continue;
    if (!my_registry().publish(entry, never, nullptr)) return;
    ++filled;
  }
}

uint32_t seconds_ago(uint32_t seconds) {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint32_t>(now.tv_sec) - seconds;
}

// What a process that does not exist began a minute ago, in the pid namespace of that name.
Entry unfinished_entry(uint32_t pid_namespace) {
  Entry entry;
  entry.pid = 0x7fff'fff0;  // beyond the kernel's largest
  entry.made_at = seconds_ago(60);
  std::memcpy(entry.remote.bytes.data(), &pid_namespace, sizeof pid_namespace);
  return entry;
}
uint32_t own_pid_namespace() {
  struct stat st{};
  EXPECT_EQ(stat("/proc/self/ns/pid", &st), 0);
  return static_cast<uint32_t>(st.st_ino);
}

// Starts with a file of its own, in which nothing of other tests is in the way.
class FullRegistry : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = getenv("DDPSOCK_REGISTRY_DIR");
    unlink((folder + "/ddpsock-" + std::to_string(geteuid())).c_str());
  }
};

TEST_F(FullRegistry, EntriesOfClosedConnectionsMakeRoom) {
  Listener listener("127.0.0.1");
  Outgoing client;
  Entry entry;
  entry.key.netns = netns_cookie(client.fd());
  entry.local = Address{{10, 1, 2, 3}, 1};
  entry.remote = Address{{10, 1, 2, 3}, 2};
  crowd_out(key_of(client.fd()), entry);
  EXPECT_EQ(client.connect(listener), Mode::kProved);
  EXPECT_EQ(client.confirm(), Mode::kProved);
  EXPECT_EQ(listener.accept(), Mode::kProved);
}

TEST_F(FullRegistry, UnfinishedEntriesGoWithTheirProcess) {
  Listener listener("127.0.0.1");
  Outgoing client;
  Entry entry = unfinished_entry(own_pid_namespace());
  entry.key.netns = netns_cookie(client.fd());
  crowd_out(key_of(client.fd()), entry);
  EXPECT_EQ(client.ask(listener.port()), Mode::kProved);
}

// Its numbers say nothing here: the process may live.
TEST_F(FullRegistry, UnfinishedEntriesOfAnotherPidNamespaceStay) {
  Listener listener("127.0.0.1");
  Outgoing client;
  Entry entry = unfinished_entry(own_pid_namespace() + 1);
  entry.key.netns = netns_cookie(client.fd());
  crowd_out(key_of(client.fd()), entry);
  EXPECT_EQ(client.ask(listener.port()), Mode::kPlain);
}

TEST_F(FullRegistry, WhatCannotBeCheckedStaysAndTheVerdictIsPlain) {
  Listener listener("127.0.0.1");
  Outgoing client;
  Entry entry;
  // Another namespace, where nobody can be asked from here.
  entry.key.netns = netns_cookie(client.fd()) + 1'000'000;
  entry.local = Address{{10, 1, 2, 3}, 1};
  entry.made_at = seconds_ago(30);
  crowd_out(key_of(client.fd()), entry);
  EXPECT_EQ(client.ask(listener.port()), Mode::kPlain);
  client.connect_without_asking(listener.port());
  EXPECT_EQ(listener.accept(), Mode::kPlain);
}

// Its connections are asked about when they are accepted, and not for good.
TEST_F(FullRegistry, OldConnectionsOfAnotherNetworkNamespaceMakeRoom) {
  Listener listener("127.0.0.1");
  Outgoing client;
  Entry entry;
  entry.key.netns = netns_cookie(client.fd()) + 1'000'000;
  entry.local = Address{{10, 1, 2, 3}, 1};
  entry.made_at = seconds_ago(900);
  crowd_out(key_of(client.fd()), entry);
  EXPECT_EQ(client.ask(listener.port()), Mode::kProved);
}

TEST(Policy, NotIpIsPlain) {
  sockaddr unix_address{.sa_family = AF_UNIX, .sa_data = ""};
  EXPECT_EQ(before_connect(-1, &unix_address, sizeof unix_address, Wish::kNone).mode, Mode::kPlain);
  EXPECT_EQ(after_accept(-1, -1, Wish::kNone).mode, Mode::kPlain);
  register_listener(-1, Wish::kStream, Opened::kHere);
  forget_listener(-1);
}

}  // namespace
}  // namespace ddpsock::shim

int main(int argc, char** argv) {
  return ddpsock::shim::testing::run_with_policy(
      argc, argv,
      "ddp1;r1,*,*,127.0.0.2,*,require,-;r2,*,c,127.0.0.3,*,off,-;r3,*,s,127.0.0.3,18999,off,-;d,"
      "prefer,-");
}
