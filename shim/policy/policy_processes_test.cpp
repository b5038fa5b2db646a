// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The verdicts of both ends in different processes, users and network namespaces.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <functional>
#include <vector>

#include "shim/policy/inet_diag.h"
#include "shim/policy/policy_testing.h"
#include "shim/policy/registry.h"

namespace ddpsock::shim {
namespace {

using testing::Listener;
using testing::Outgoing;

constexpr uid_t kStranger = 12345;
constexpr const char* kAcceptAndTell = "--accept-and-tell";
constexpr const char* kVouch = "--vouch-as-a-stranger";

// Runs `child` in a process of its own and returns what it returned.
int in_child(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int to_int(Mode mode) {
  return static_cast<int>(mode);
}

// A process that runs until it is let go, so that its sockets live that long.
class Child {
 public:
  // `body` says whether it went well so far.
  explicit Child(const std::function<bool()>& body) {
    EXPECT_EQ(pipe2(ready_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(release_, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    const char is_well = body() ? 1 : 0;
    char byte;
    close(release_[1]);
    _exit(write(ready_[1], &is_well, 1) == 1 && read(release_[0], &byte, 1) == 0 ? 0 : 1);
  }
  ~Child() {
    for (const int fd : {ready_[0], ready_[1], release_[0], release_[1]}) close(fd);
    waitpid(pid_, nullptr, 0);
  }
  bool is_well() {
    char byte = 0;
    return read(ready_[0], &byte, 1) == 1 && byte == 1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int ready_[2], release_[2];
};

bool become_stranger() {
  return setresgid(kStranger, kStranger, kStranger) == 0 &&
         setresuid(kStranger, kStranger, kStranger) == 0;
}

class ProcessTest : public ::testing::Test {};

// Tests with other users and network namespaces.
class RootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
  }
};

TEST_F(ProcessTest, ForkedChildAccepts) {
  Listener listener("127.0.0.1");
  Outgoing client;
  ASSERT_EQ(client.connect(listener), Mode::kProved);
  ASSERT_EQ(client.confirm(), Mode::kProved);
  EXPECT_EQ(in_child([&] { return to_int(listener.accept()); }), to_int(Mode::kProved));
}

TEST_F(ProcessTest, ForkedChildClosingItsCopyForgetsNothing) {
  Listener listener("127.0.0.1");
  in_child([&] {
    close(listener.fd());
    return 0;
  });
  Outgoing client;
  EXPECT_EQ(client.ask(listener.port()), Mode::kProved);
}

TEST_F(ProcessTest, ListenerOutlivesItsRegistrant) {
  base::UniqueFd socket = testing::make_socket("127.0.0.1");
  ASSERT_EQ(listen(socket.get(), 4), 0);
  const uint16_t port = local_address(socket.get())->port;
  // The daemon's way: the process that listens is not the one that serves.
  in_child([&] {
    register_listener(socket.get(), Wish::kNone, Opened::kHere);
    return 0;
  });
  Outgoing client;
  ASSERT_EQ(client.connect(port), Mode::kProved);
  ASSERT_EQ(client.confirm(), Mode::kProved);
  base::UniqueFd accepted(accept(socket.get(), nullptr, nullptr));
  EXPECT_EQ(after_accept(socket.get(), accepted.get(), Wish::kNone).mode, Mode::kProved);
}

TEST_F(ProcessTest, ExecutedProgramAcceptsOnAnInheritedListener) {
  Listener listener("127.0.0.1");
  Outgoing client;
  ASSERT_EQ(client.connect(listener), Mode::kProved);
  ASSERT_EQ(client.confirm(), Mode::kProved);
  const std::string fd = std::to_string(listener.fd());
  EXPECT_EQ(in_child([&] {
              execl("/proc/self/exe", "policy", kAcceptAndTell, fd.c_str(), nullptr);
              return 99;
            }),
            to_int(Mode::kProved));
}

TEST_F(ProcessTest, NonBlockingClientOfAServerThatSpeaksFirst) {
  Listener listener("127.0.0.1");
  for (int i = 0; i < 20; ++i) {
    Outgoing client;
    ASSERT_EQ(fcntl(client.fd(), F_SETFL, O_NONBLOCK), 0);
    ASSERT_EQ(client.ask(listener.port()), Mode::kProved);
    const testing::SocketAddress name("127.0.0.1", listener.port());
    const int result = connect(client.fd(), name.get(), name.length);
    ASSERT_TRUE(result == 0 || errno == EINPROGRESS);
    // The server has its verdict, and may write, before the client even looks.
    EXPECT_EQ(listener.accept(), Mode::kProved);
    pollfd waiting{client.fd(), POLLOUT, 0};
    ASSERT_EQ(poll(&waiting, 1, 5000), 1);
    EXPECT_EQ(client.confirm(), Mode::kProved);
  }
}

TEST_F(RootTest, ClientOfAnotherUserIsProved) {
  Listener listener("127.0.0.1");
  Child client([&] {
    static Outgoing out;
    return become_stranger() && (out = Outgoing(), out.connect(listener) == Mode::kProved) &&
           out.confirm() == Mode::kProved;
  });
  ASSERT_TRUE(client.is_well());
  EXPECT_EQ(listener.accept(), Mode::kProved);
}

// It could doubt for ever.
TEST_F(RootTest, AcceptWaitsForNoStrangersDoubt) {
  Listener listener("127.0.0.1");
  Child client([&] {
    static Outgoing out;
    if (!become_stranger()) return false;
    out = Outgoing();
    const SocketKey key{.netns = netns_cookie(out.fd()), .cookie = socket_cookie(out.fd())};
    return out.connect(listener) == Mode::kProved &&
           own_registry(kStranger).value().set_doubtful(key, true);
  });
  ASSERT_TRUE(client.is_well());
  rusage before{}, after{};
  ASSERT_EQ(getrusage(RUSAGE_THREAD, &before), 0);
  EXPECT_EQ(listener.accept(), Mode::kUndecided);
  ASSERT_EQ(getrusage(RUSAGE_THREAD, &after), 0);
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 5) << "it slept";
}

TEST_F(RootTest, SilentClientOfAnotherUserIsPlain) {
  Listener listener("127.0.0.1");
  Child client([&] {
    static Outgoing out;
    if (!become_stranger()) return false;
    out.connect_without_asking(listener.port());
    return true;
  });
  ASSERT_TRUE(client.is_well());
  EXPECT_EQ(listener.accept(), Mode::kPlain);
}

TEST_F(RootTest, ServerOfAnotherUserIsProved) {
  auto* port = static_cast<uint16_t*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Child server([&] {
    if (!become_stranger()) return false;
    static Listener listener("127.0.0.1");
    *port = listener.port();
    return true;
  });
  ASSERT_TRUE(server.is_well());
  Outgoing client;
  EXPECT_EQ(client.connect(*port), Mode::kProved);
  EXPECT_EQ(client.confirm(), Mode::kProved);
  munmap(port, 4096);
}

TEST_F(RootTest, ListenerKeepsItsUserWhenTheServerChangesIts) {
  Listener listener("127.0.0.1");
  Outgoing client;
  ASSERT_EQ(client.connect(listener), Mode::kProved);
  ASSERT_EQ(client.confirm(), Mode::kProved);
  EXPECT_EQ(in_child([&] { return become_stranger() ? to_int(listener.accept()) : -1; }),
            to_int(Mode::kProved));
}

TEST_F(RootTest, StrangerCannotVouchForOurListener) {
  Listener listener("127.0.0.1", {.is_registered = false});
  // Not even one to whom we gave it; only a process that already wrote for us when it was us could.
  const std::string fd = std::to_string(listener.fd());
  EXPECT_EQ(in_child([&] {
              execl("/proc/self/exe", "policy", kVouch, fd.c_str(), nullptr);
              return 99;
            }),
            0);
  Outgoing client;
  EXPECT_EQ(client.ask(listener.port()), Mode::kPlain);
}

TEST_F(RootTest, AnotherNamespaceIsAnotherHost) {
  Listener listener("127.0.0.1");
  EXPECT_EQ(in_child([&] {
              Outgoing ours;
              if (unshare(CLONE_NEWNET) != 0) return -1;
              // The socket is of the old namespace, the thread is not: nobody can be asked.
              if (ours.ask(listener.port()) != Mode::kPlain) return -2;
              Outgoing theirs;
              return to_int(theirs.ask(listener.port()));
            }),
            to_int(Mode::kPlain));
}

int run(const std::string& command) {
  return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str());
}

TEST_F(RootTest, OtherHostBehindAPortThatWeServeToo) {
  // In a namespace of its own, not to touch this machine's.
  EXPECT_EQ(in_child([] {
              if (unshare(CLONE_NEWNET) != 0) return 1;
              Child peer([] {
                if (unshare(CLONE_NEWNET) != 0) return false;
                static base::UniqueFd listener = testing::make_socket("0.0.0.0");
                const testing::SocketAddress name("0.0.0.0", 7777);
                return bind(listener.get(), name.get(), name.length) == 0 &&
                       listen(listener.get(), 4) == 0;
              });
              if (!peer.is_well()) return 2;
              const std::string pid = std::to_string(peer.pid());
              if (run("ip link set lo up && ip link add v0 type veth peer name v1 netns " + pid +
                      " && ip addr add 10.99.0.1/24 dev v0 && ip link set v0 up && nsenter -t " +
                      pid + " -n sh -c 'ip addr add 10.99.0.2/24 dev v1 && ip link set v1 up'"))
                return 3;
              Listener ours("0.0.0.0", {.port = 7777});
              Outgoing there, required(Wish::kStream);
              // It looks as if our own listener were meant, until the connection is there.
              if (there.connect(7777, "10.99.0.2") != Mode::kProved) return 4;
              if (there.confirm() != Mode::kPlain) return 5;
              if (required.connect(7777, "10.99.0.2") != Mode::kProved) return 6;
              if (required.confirm() != Mode::kRequired) return 7;
              Outgoing here;
              if (here.connect(7777, "10.99.0.1") != Mode::kProved) return 8;
              if (here.confirm() != Mode::kProved) return 9;
              return ours.accept() == Mode::kProved ? 0 : 10;
            }),
            0);
}

// Clients and acceptors race; each pair must agree. The verdicts travel on the connection itself.
TEST_F(ProcessTest, EndsAgreeUnderLoad) {
  constexpr int kClients = 3, kConnections = 150;
  Listener listener("127.0.0.1");
  std::vector<pid_t> clients;
  for (int c = 0; c < kClients; ++c) {
    const pid_t pid = fork();
    if (pid == 0) {
      int disagreements = 0;
      for (int i = 0; i < kConnections; ++i) {
        Outgoing out;
        out.connect(listener);
        const auto verdict = static_cast<char>(out.confirm());
        char theirs = 0;
        if (write(out.fd(), &verdict, 1) != 1 || read(out.fd(), &theirs, 1) != 1 ||
            theirs != verdict || verdict != static_cast<char>(Mode::kProved))
          ++disagreements;
      }
      _exit(disagreements == 0 ? 0 : 1);
    }
    clients.push_back(pid);
  }
  for (int i = 0; i < kClients * kConnections; ++i) {
    base::UniqueFd accepted(accept(listener.fd(), nullptr, nullptr));
    const auto verdict =
        static_cast<char>(after_accept(listener.fd(), accepted.get(), Wish::kNone).mode);
    char theirs;
    EXPECT_EQ(write(accepted.get(), &verdict, 1), 1);
    EXPECT_EQ(read(accepted.get(), &theirs, 1), 1);
    EXPECT_EQ(verdict, theirs);
  }
  for (const pid_t pid : clients) {
    int status = 1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

int vouch_as_a_stranger(int listener) {
  if (!become_stranger()) return 1;
  register_listener(listener, Wish::kNone, Opened::kHere);
  return 0;
}

int accept_and_tell(int listener) {
  const int fd = accept(listener, nullptr, nullptr);
  return to_int(after_accept(listener, fd, Wish::kNone).mode);
}

}  // namespace
}  // namespace ddpsock::shim

int main(int argc, char** argv) {
  using namespace ddpsock::shim;
  if (argc == 3 && std::string_view(argv[1]) == kAcceptAndTell)
    return accept_and_tell(std::atoi(argv[2]));
  if (argc == 3 && std::string_view(argv[1]) == kVouch)
    return vouch_as_a_stranger(std::atoi(argv[2]));
  return ddpsock::shim::testing::run_with_policy(argc, argv, "ddp1;d,prefer,-");
}
