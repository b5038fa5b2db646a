// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For tests: real sockets, and the questions that the wrappers would ask about them.
#ifndef DDPSOCK_SHIM_POLICY_POLICY_TESTING_H_
#define DDPSOCK_SHIM_POLICY_POLICY_TESTING_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "shim/policy/address.h"
#include "shim/policy/policy.h"

namespace ddpsock::shim::testing {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }

  SocketAddress(std::string_view text, uint16_t port) {
    const Address a = parse_address(text).value();
    if (text.find(':') == text.npos) {
      sockaddr_in in{};
      in.sin_family = AF_INET;
      in.sin_port = htons(port);
      std::memcpy(&in.sin_addr, &a.bytes[12], sizeof in.sin_addr);
      std::memcpy(&storage, &in, length = sizeof in);
    } else {
      sockaddr_in6 in{};
      in.sin6_family = AF_INET6;
      in.sin6_port = htons(port);
      std::memcpy(&in.sin6_addr, a.bytes.data(), sizeof in.sin6_addr);
      std::memcpy(&storage, &in, length = sizeof in);
    }
  }
};

inline base::UniqueFd make_socket(std::string_view address) {
  const int family = address.find(':') == address.npos ? AF_INET : AF_INET6;
  return base::UniqueFd(::socket(family, SOCK_STREAM, 0));
}

struct ListenerOptions {
  uint16_t port = 0;
  bool is_registered = true;
  bool is_shared = false;  // SO_REUSEPORT
  Wish wish = Wish::kNone;
};

class Listener {
 public:
  explicit Listener(std::string_view bound, ListenerOptions options = {})
      : bound_(bound), wish_(options.wish), fd_(make_socket(bound)) {
    const int on = 1;
    if (options.is_shared) setsockopt(fd(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    // A port left by a test before is in TIME_WAIT.
    setsockopt(fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const SocketAddress name(bound, options.port);
    EXPECT_EQ(bind(fd(), name.get(), name.length), 0) << strerror(errno);
    if (options.is_registered) register_listener(fd(), options.wish, Opened::kHere);
    EXPECT_EQ(listen(fd(), 16), 0) << strerror(errno);
    if (options.is_registered) note_listening(fd());
  }

  int fd() const { return fd_.get(); }
  uint16_t port() const { return local_address(fd())->port; }
  const std::string& bound() const { return bound_; }
  int accepted() const { return accepted_.get(); }

  Mode accept() {
    accepted_.reset(::accept(fd(), nullptr, nullptr));
    EXPECT_TRUE(accepted_.is_valid());
    return after_accept(fd(), accepted_.get(), wish_).mode;
  }

 private:
  std::string bound_;
  Wish wish_;
  base::UniqueFd fd_, accepted_;
};

class Outgoing {
 public:
  explicit Outgoing(std::string_view to = "127.0.0.1", Wish wish = Wish::kNone)
      : wish_(wish), fd_(make_socket(to)) {}
  explicit Outgoing(Wish wish) : Outgoing("127.0.0.1", wish) {}

  int fd() const { return fd_.get(); }

  Mode ask(uint16_t port, std::string_view to = "127.0.0.1") {
    const SocketAddress name(to, port);
    verdict_ = before_connect(fd(), name.get(), name.length, wish_);
    return verdict_.mode;
  }
  void connect_without_asking(uint16_t port, std::string_view to = "127.0.0.1") {
    const SocketAddress name(to, port);
    EXPECT_EQ(::connect(fd(), name.get(), name.length), 0) << strerror(errno);
  }
  Mode connect(uint16_t port, std::string_view to = "127.0.0.1") {
    const Mode mode = ask(port, to);
    connect_without_asking(port, to);
    return mode;
  }
  Mode connect(const Listener& listener) { return connect(listener.port(), listener.bound()); }
  Mode confirm() { return after_connect(fd(), verdict_).mode; }

 private:
  Wish wish_;
  base::UniqueFd fd_;
  Verdict verdict_;
};

// Runs all tests of the program, started once more with the rules in its environment, as the policy
// reads them at start, and with a registry folder of its own that is removed in the end.
inline int run_with_policy(int argc, char** argv, const char* rules) {
  if (getenv("DDPSOCK_TEST_STARTED") != nullptr) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
  }
  char folder[] = "/tmp/ddpsock-test-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  std::filesystem::permissions(folder,
                               std::filesystem::perms::all | std::filesystem::perms::sticky_bit);
  setenv("DDPSOCK_REGISTRY_DIR", folder, 1);
  setenv("DDPSOCK_RULES", rules, 1);
  setenv("DDPSOCK_TEST_STARTED", "1", 1);
  const pid_t child = fork();
  if (child == 0) {
    execv("/proc/self/exe", argv);
    _exit(127);
  }
  int status = 1;
  waitpid(child, &status, 0);
  std::filesystem::remove_all(folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace ddpsock::shim::testing

#endif  // DDPSOCK_SHIM_POLICY_POLICY_TESTING_H_
