// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Start-up over a real socket: what is sent, and what stays in the kernel.
#include "connect/handshake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <thread>

#include "base/fd.h"

namespace ddpsock::connecting {
namespace {

using mpa::StartupState;

class HandshakeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours_.reset(fds[0]);
    peer_.reset(fds[1]);
  }
  Handshake initiate() { return {ours_.get(), Call{}}; }
  Handshake respond() { return {ours_.get(), mpa::Responder({}, Time{})}; }
  void peer_says(const std::string& octets) {
    ASSERT_EQ(send(peer_.get(), octets.data(), octets.size(), 0),
              static_cast<ssize_t>(octets.size()));
  }
  std::string peer_hears() {
    std::array<char, 600> buffer;
    const ssize_t n = recv(peer_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    return n > 0 ? std::string(buffer.data(), static_cast<size_t>(n)) : "";
  }
  int unread() {
    int n = 0;
    EXPECT_EQ(ioctl(ours_.get(), FIONREAD, &n), 0);
    return n;
  }

  // Revision 1, CRC, no private data.
  const std::string request_ = std::string("MPA ID Req Frame") + std::string("\x40\x01\0\0", 4);
  // Revision 2, CRC, enhanced: IRD 4, ORD 4.
  const std::string reply_ =
      std::string("MPA ID Rep Frame") + std::string("\x50\x02\0\4\0\4\0\4", 8);
  base::UniqueFd ours_;
  base::UniqueFd peer_;
};

TEST_F(HandshakeTest, InitiatorSendsTheRequestInOnePieceAndAgrees) {
  Handshake h = initiate();
  engine::Need need = h.advance(Time{});
  EXPECT_TRUE(need.wants_readable);
  EXPECT_FALSE(need.wants_writable);
  EXPECT_LT(need.deadline, kNever);
  EXPECT_EQ(peer_hears().substr(0, 16), "MPA ID Req Frame");
  peer_says(reply_);
  h.advance(Time{});
  ASSERT_EQ(h.state(), StartupState::kAgreed);
  EXPECT_EQ(h.agreement().ird, 4);
  EXPECT_EQ(unread(), 0);
}

TEST_F(HandshakeTest, FramesMayComeByteByByte) {
  Handshake h = initiate();
  for (const char octet : reply_) {
    h.advance(Time{});
    ASSERT_NE(h.state(), StartupState::kAgreed);
    peer_says({octet});
  }
  h.advance(Time{});
  EXPECT_EQ(h.state(), StartupState::kAgreed);
}

TEST_F(HandshakeTest, ResponderLeavesFpdusInTheKernelUntilItHasReplied) {
  Handshake h(ours_.get(), mpa::Responder({.may_pipeline = true}, Time{}));
  peer_says(request_ + "first FPDU");
  h.advance(Time{});
  ASSERT_EQ(h.state(), StartupState::kDeciding);
  EXPECT_EQ(unread(), 10);
  ASSERT_TRUE(h.responder()->accept({}, Time{}));
  h.advance(Time{});
  EXPECT_EQ(h.state(), StartupState::kAgreed);
  EXPECT_EQ(peer_hears().substr(0, 16), "MPA ID Rep Frame");
  EXPECT_EQ(unread(), 10);
}

TEST_F(HandshakeTest, APeerThatIsNotMpaKeepsItsBytes) {
  Handshake h = respond();
  peer_says("GET / HTTP/1.1\r\n\r\n");
  h.advance(Time{});
  ASSERT_EQ(h.state(), StartupState::kFailed);
  EXPECT_EQ(h.failure().error, mpa::StartupError::kNotMpa);
  EXPECT_EQ(unread(), 18);
}

TEST_F(HandshakeTest, RejectionIsSentAndReported) {
  Handshake h = respond();
  peer_says(request_);
  h.advance(Time{});
  ASSERT_EQ(h.state(), StartupState::kDeciding);
  ASSERT_TRUE(h.responder()->reject({}, Time{}));
  h.advance(Time{});
  ASSERT_EQ(h.state(), StartupState::kFailed);
  EXPECT_EQ(h.failure().error, mpa::StartupError::kRejected);
  EXPECT_EQ(static_cast<uint8_t>(peer_hears()[16]) & MPA_FLAG_REJECT, MPA_FLAG_REJECT);
}

TEST_F(HandshakeTest, SilentCloseAndSilence) {
  Handshake closed = respond();
  peer_.reset();
  closed.advance(Time{});
  ASSERT_EQ(closed.state(), StartupState::kFailed);
  EXPECT_EQ(closed.failure().error, mpa::StartupError::kClosed);

  SetUp();
  Handshake silent = respond();
  const engine::Need need = silent.advance(Time{});
  silent.advance(need.deadline);
  ASSERT_EQ(silent.state(), StartupState::kFailed);
  EXPECT_EQ(silent.failure().error, mpa::StartupError::kTimedOut);
}

// Over TCP, where a socket can call again.
class CallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = {};
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size_), 0);
    ASSERT_EQ(listen(listener_.get(), 2), 0);
    ASSERT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size_), 0);
    ours_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  void call() { ASSERT_EQ(connect(ours_.get(), reinterpret_cast<sockaddr*>(&address_), size_), 0); }
  // The revision of the Request that comes next, to which `answer` is all that is said.
  int serve(const std::string& answer) {
    peer_.reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<uint8_t, 600> request{};
    EXPECT_GE(recv(peer_.get(), request.data(), request.size(), 0), 20);
    EXPECT_EQ(send(peer_.get(), answer.data(), answer.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(answer.size()));
    if (answer.empty()) peer_.reset();
    return request[17];
  }

  const std::string old_reply_ = std::string("MPA ID Rep Frame") + std::string("\x40\x01\0\0", 4);
  sockaddr_in address_{};
  socklen_t size_ = sizeof address_;
  base::UniqueFd listener_;
  base::UniqueFd ours_;
  base::UniqueFd peer_;
};

// A peer that knows revision 1 only closes on what it does not know. The program's blocking socket
// stays blocking.
TEST_F(CallTest, FallsBackToRevision1OnTheSameSocket) {
  call();
  std::thread server([&] {
    EXPECT_EQ(serve(""), 2);
    EXPECT_EQ(serve(old_reply_), 1);
  });
  Memory memory{.memory = std::move(*engine::shm::MessageMemory::make({}))};
  Handshake h(ours_.get(), {.startup = {.is_peer_to_peer = true}, .may_fall_back = true}, &memory);
  EXPECT_EQ(h.run(), StartupState::kAgreed);
  server.join();
  EXPECT_FALSE(memory.memory);
  EXPECT_STREQ(memory.why, "the peer speaks revision 1 of MPA");
  EXPECT_TRUE(h.has_fallen_back());
  EXPECT_EQ(h.agreement().revision, 1);
  EXPECT_EQ(h.agreement().rtr, mpa::Rtr::kNone);
  EXPECT_EQ(fcntl(ours_.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(CallTest, FallsBackOnceAndOnlyWhenToldTo) {
  for (const bool may_fall_back : {true, false}) {
    SetUp();
    call();
    std::thread server([&] {
      EXPECT_EQ(serve(""), 2);
      if (may_fall_back) {
        EXPECT_EQ(serve(""), 1);
      }
    });
    Handshake h(ours_.get(), {.may_fall_back = may_fall_back});
    EXPECT_EQ(h.run(), StartupState::kFailed);
    server.join();
    EXPECT_EQ(h.failure().error, mpa::StartupError::kClosed);
    EXPECT_EQ(h.tcp_error(), 0);
  }
}

TEST_F(CallTest, SaysThatTcpDidNotConnect) {
  listener_.reset();
  ASSERT_EQ(fcntl(ours_.get(), F_SETFL, O_NONBLOCK), 0);
  connect(ours_.get(), reinterpret_cast<sockaddr*>(&address_), size_);
  Handshake h(ours_.get(), {.is_connecting = true});
  EXPECT_EQ(h.run(), StartupState::kFailed);
  EXPECT_EQ(h.tcp_error(), ECONNREFUSED);
}

// One that was connected, and was reset since, fails as start-up does.
TEST_F(CallTest, DoesNotSayThatOfAConnectionThatWasReset) {
  ASSERT_EQ(connect(ours_.get(), reinterpret_cast<sockaddr*>(&address_), size_), 0);
  const base::UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger reset{1, 0};
  setsockopt(peer.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  const_cast<base::UniqueFd&>(peer).reset();
  Handshake h(ours_.get(), Call{});
  EXPECT_EQ(h.run(), StartupState::kFailed);
  EXPECT_EQ(h.tcp_error(), 0);
}

// A listener that takes no more calls does not answer them either.
TEST_F(CallTest, GivesUpWhereTcpIsNotConnectedInTime) {
  ASSERT_EQ(listen(listener_.get(), 0), 0);
  std::array<base::UniqueFd, 3> others;
  for (base::UniqueFd& other : others) {
    other.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    connect(other.get(), reinterpret_cast<sockaddr*>(&address_), size_);
  }
  ASSERT_EQ(fcntl(ours_.get(), F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(connect(ours_.get(), reinterpret_cast<sockaddr*>(&address_), size_), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  Handshake h(ours_.get(), {.tcp_timeout = Duration::from_ms(20)});
  EXPECT_LT(h.advance(base::now()).deadline, kNever);
  EXPECT_EQ(h.run(), StartupState::kFailed);
  EXPECT_EQ(h.tcp_error(), ETIMEDOUT);
}

}  // namespace
}  // namespace ddpsock::connecting
