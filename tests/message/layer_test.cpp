// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ddpsock.hpp: the C++ layer, as a program of C++20 without exceptions uses it.
#include <sys/mman.h>

#include <type_traits>

#include "ddpsock/ddpsock.hpp"
#include "ends.h"

namespace ddpsock::message_tests {
namespace {

using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<::ddp::Registration>);
static_assert(!std::is_copy_constructible_v<::ddp::CompletionQueue>);
static_assert(std::is_nothrow_move_assignable_v<::ddp::Registration>);

constexpr unsigned kAllRights =
    DDP_LOCAL_WRITE | DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC;

class Layer : public testing::Test {
 protected:
  Layer() { arm_alarm(); }

  // The next completion of `fd`, which must come.
  static ddp_completion take(int fd) {
    std::array<ddp_completion, 1> room{};
    std::error_code error;
    for (;;) {
      const auto taken = ::ddp::wait(fd, room, 10s, error);
      EXPECT_FALSE(error) << error.message();
      EXPECT_EQ(taken.size(), 1u);
      if (taken.empty() || taken[0].kind != DDP_ESTABLISHED) return room[0];
    }
  }
  static std::array<std::byte, 8> image_of(uint64_t value) {
    std::array<std::byte, 8> bytes{};
    memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }

  Ends ends_ = connect_ends();
  const int client_ = ends_.client.get();
  const int server_ = ends_.server.get();
  std::error_code error_;
};

TEST_F(Layer, SendsAndReceives) {
  std::array<std::byte, 16> room{};
  const auto number = image_of(0x1234);
  const std::array rooms{::ddp::room_of(room)};
  const std::array parts{::ddp::bytes_of(number)};
  ASSERT_FALSE(::ddp::post(server_, ::ddp::receive_into(1, rooms)));
  const std::array works{::ddp::send_of(2, parts), ::ddp::send_of(3, parts, 0x8000'0000u)};
  EXPECT_EQ(::ddp::post(client_, std::span<const ddp_send_work>(works), error_), 1u);
  EXPECT_EQ(error_, std::errc::invalid_argument) << "of the second";
  const ddp_completion received = take(server_);
  EXPECT_EQ(received.kind, uint32_t{DDP_RECEIVED});
  EXPECT_EQ(received.cookie, 1u);
  EXPECT_EQ(received.bytes, number.size());
  EXPECT_FALSE(::ddp::error_of(received));
  EXPECT_TRUE(std::equal(number.begin(), number.end(), room.begin()));
  EXPECT_EQ(take(client_).cookie, 2u);
}

TEST_F(Layer, ReachesRegisteredMemory) {
  alignas(8) std::array<std::byte, 32> theirs{}, ours{};
  const ::ddp::Registration there(server_, theirs, kAllRights, error_);
  ASSERT_TRUE(there) << error_.message();
  const ::ddp::Registration here(client_, ours, DDP_LOCAL_WRITE, error_);
  ASSERT_TRUE(here) << error_.message();
  const ::ddp::Remote at{.stag = there.stag(), .to = there.region().to + 8};
  const auto number = image_of(40);
  const std::array parts{::ddp::bytes_of(number)};
  ASSERT_FALSE(::ddp::post(client_, ::ddp::write_of(1, parts, at)));
  EXPECT_EQ(take(client_).kind, uint32_t{DDP_WRITTEN});
  ASSERT_FALSE(::ddp::post(client_, ::ddp::atomic_on(2, DDP_FETCH_ADD, at, 2)));
  EXPECT_EQ(take(client_).value, 40u);
  ASSERT_FALSE(::ddp::post(client_, ::ddp::atomic_on(3, DDP_COMPARE_SWAP, at, 7, 42)));
  EXPECT_EQ(take(client_).value, 42u);
  const auto sink = std::span(ours).subspan(16, 8);
  ASSERT_FALSE(::ddp::post(client_, ::ddp::read_into(4, sink, here.stag(), at)));
  EXPECT_EQ(take(client_).kind, uint32_t{DDP_READ});
  const auto expected = image_of(7);
  EXPECT_TRUE(std::equal(sink.begin(), sink.end(), expected.begin()));
}

TEST_F(Layer, RegistrationEndsWithItsObject) {
  std::array<std::byte, 8> memory{};
  uint32_t stag = 0;
  {
    ::ddp::Registration first(server_, memory, DDP_REMOTE_READ, error_);
    ASSERT_TRUE(first);
    stag = first.stag();
    ::ddp::Registration second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_FALSE(first.end()) << "holding nothing is success";
    EXPECT_EQ(second.stag(), stag);
    ::ddp::Registration third(server_, memory, DDP_REMOTE_READ, error_);
    const uint32_t replaced = third.stag();
    third = std::move(second);
    EXPECT_EQ(third.stag(), stag);
    EXPECT_ERRNO(EINVAL, ddp_dereg(server_, replaced));
  }
  EXPECT_ERRNO(EINVAL, ddp_dereg(server_, stag));
}

TEST_F(Layer, AllocationsAreFreedOrTakenBack) {
  uint32_t stag = 0;
  std::span<std::byte> taken;
  {
    ::ddp::Allocation first(server_, 100, kAllRights, error_);
    ASSERT_TRUE(first) << error_.message();
    EXPECT_EQ(first.memory().size(), 100u);
    stag = first.stag();
    first.memory()[99] = std::byte{9};
    ::ddp::Allocation second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_TRUE(first.take_back(error_).empty());
    EXPECT_EQ(error_, std::errc::bad_file_descriptor);
    ::ddp::Allocation third(server_, 10, kAllRights, error_);
    taken = third.take_back(error_);
    EXPECT_FALSE(error_) << error_.message();
    EXPECT_EQ(second.memory()[99], std::byte{9});
  }
  EXPECT_ERRNO(EINVAL, ddp_free(server_, stag));
  ASSERT_EQ(taken.size(), 10u);
  taken[9] = std::byte{1};
  EXPECT_EQ(munmap(taken.data(), taken.size()), 0);
}

TEST_F(Layer, ReleasedRegistrationsStay) {
  std::array<std::byte, 8> memory{};
  ::ddp::Registration registration(server_, memory, DDP_REMOTE_READ, error_);
  const uint32_t stag = registration.stag();
  registration.release();
  EXPECT_FALSE(registration);
  EXPECT_EQ(ddp_dereg(server_, stag), 0);
}

TEST_F(Layer, ErrorsAreValues) {
  const ::ddp::Registration none(server_, {}, DDP_REMOTE_READ, error_);
  EXPECT_FALSE(none);
  EXPECT_EQ(error_, std::errc::invalid_argument);
  EXPECT_EQ(none.stag(), 0u);
  std::array<ddp_completion, 1> room{};
  EXPECT_TRUE(::ddp::poll(server_, room, error_).empty());
  EXPECT_FALSE(error_) << "cleared by success";
  EXPECT_TRUE(::ddp::wait(server_, room, 1ms, error_).empty());
  EXPECT_FALSE(error_);
  EXPECT_TRUE(::ddp::poll(-1, room, error_).empty());
  EXPECT_EQ(error_, std::errc::bad_file_descriptor);
  EXPECT_EQ(::ddp::establish(-1), std::errc::bad_file_descriptor);
  EXPECT_EQ(::ddp::use_messages(-1), std::errc::bad_file_descriptor);
  EXPECT_EQ(::ddp::status(client_, error_).mode, uint32_t{DDP_MODE_MESSAGE});
  EXPECT_FALSE(error_);
}

TEST_F(Layer, QueuesAreShared) {
  ::ddp::CompletionQueue queue(16, error_);
  ASSERT_TRUE(queue) << error_.message();
  const Ends ends = connect_ends({.server_cq = queue.fd()});
  const int fd = queue.fd();
  std::string room(8, '.');
  post_recv(ends.server.get(), room, 9);
  post_send(ends.client.get(), "", 1);
  const ::ddp::CompletionQueue moved = std::move(queue);
  EXPECT_FALSE(queue);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(take(moved.fd()).cookie, 9u);
  const Fd socket = make_socket();
  ASSERT_FALSE(::ddp::use_messages(socket.get()));
  EXPECT_FALSE(moved.serve(socket.get()));
  EXPECT_EQ(moved.fd(), fd);
  const ::ddp::CompletionQueue refused(0, error_);
  EXPECT_FALSE(refused);
  EXPECT_EQ(error_, std::errc::invalid_argument);
}

TEST_F(Layer, ReceivesAreShared) {
  const ::ddp::CompletionQueue queue(16, error_);
  ::ddp::SharedReceiveQueue made(queue, 4, error_);
  ASSERT_TRUE(made) << error_.message();
  const ::ddp::SharedReceiveQueue receives = std::move(made);
  EXPECT_FALSE(made);  // NOLINT(bugprone-use-after-move)
  const Fd socket = make_socket();
  ASSERT_FALSE(::ddp::use_messages(socket.get()));
  EXPECT_FALSE(receives.serve(socket.get()));
  EXPECT_FALSE(receives.set_limit(1));
  const Ends ends = connect_ends({.server_srq = receives.fd()});
  std::array<std::byte, 8> memory{};
  const iovec room = ::ddp::room_of(memory);
  ASSERT_FALSE(::ddp::post(receives.fd(), ::ddp::receive_into(9, {&room, 1})));
  post_send(ends.client.get(), "", 1);
  EXPECT_EQ(take(queue.fd()).cookie, 9u);
  const ::ddp::SharedReceiveQueue refused(queue, 0, error_);
  EXPECT_FALSE(refused);
  EXPECT_EQ(error_, std::errc::invalid_argument);
}

TEST_F(Layer, QueueIsClosedWithItsObject) {
  int fd = -1;
  {
    const ::ddp::CompletionQueue queue(16, error_);
    fd = queue.fd();
  }
  EXPECT_ERRNO(EBADF, ddp_poll(fd, nullptr, 0));
}

}  // namespace
}  // namespace ddpsock::message_tests
