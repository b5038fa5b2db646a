// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A connected byte stream with one-sided operations, as a program has it.
#ifndef DDPSOCK_TESTS_MESSAGE_STREAMS_H_
#define DDPSOCK_TESTS_MESSAGE_STREAMS_H_

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "ends.h"

namespace ddpsock::message_tests {

inline constexpr unsigned kAllRights =
    DDP_LOCAL_WRITE | DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC;

inline Ends connect_streams() {
  Listener listener = listen_on_loopback(true);
  Ends ends{.client = make_socket(), .server = {}};
  EXPECT_EQ(connect_to(ends.client.get(), listener), 0) << strerror(errno);
  ends.server = Fd(accept(listener.fd.get(), nullptr, nullptr));
  EXPECT_GE(ends.server.get(), 0);
  return ends;
}

inline bool has_bytes(int fd, int timeout_ms = 0) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN) != 0;
}

class StreamTest : public testing::Test {
 protected:
  StreamTest() {
    arm_alarm();
    signal(SIGPIPE, SIG_IGN);
    // A round trip, so that each side knows the other.
    say(client_, "hello");
    EXPECT_EQ(hear(server_, 5), "hello");
    say(server_, "yes");
    EXPECT_EQ(hear(client_, 3), "yes");
  }

  static void say(int fd, std::string_view text) {
    ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()))
        << strerror(errno);
  }
  static std::string hear(int fd, size_t size) {
    std::string text(size, '\0');
    const ssize_t n = recv(fd, text.data(), size, MSG_WAITALL);
    EXPECT_EQ(n, static_cast<ssize_t>(size)) << strerror(errno);
    text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return text;
  }
  static ddp_region offer(int fd, std::string& memory, unsigned rights = kAllRights) {
    ddp_region region{};
    EXPECT_EQ(ddp_reg(fd, memory.data(), memory.size(), rights, &region), 0) << strerror(errno);
    return region;
  }
  static void put(int fd, std::string_view bytes, const ddp_region& to, uint64_t offset = 0,
                  uint64_t cookie = 1, uint32_t flags = 0) {
    const iovec part = part_of(bytes);
    const ddp_write_work work{.cookie = cookie,
                              .iov = &part,
                              .iov_count = 1,
                              .flags = flags,
                              .remote_to = to.to + offset,
                              .remote_stag = to.stag,
                              .reserved = 0};
    EXPECT_EQ(ddp_post_write(fd, &work, 1), 1) << strerror(errno);
  }
  static int get(int fd, std::string& into, const ddp_region& ours, const ddp_region& from,
                 uint64_t cookie = 2) {
    const ddp_read_work work{.cookie = cookie,
                             .address = into.data(),
                             .length = static_cast<uint32_t>(into.size()),
                             .stag = ours.stag,
                             .remote_to = from.to,
                             .remote_stag = from.stag,
                             .flags = 0};
    return ddp_post_read(fd, &work, 1);
  }

  Ends ends_ = connect_streams();
  int client_ = ends_.client.get(), server_ = ends_.server.get();
};

}  // namespace ddpsock::message_tests

#endif  // DDPSOCK_TESTS_MESSAGE_STREAMS_H_
