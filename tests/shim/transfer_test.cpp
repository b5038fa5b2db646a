// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Much data, in every shape, compared byte for byte.
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "calls.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// A hash that depends on every byte and its place (FNV-1a), fed in pieces of any size.
class Checksum {
 public:
  void add(const char* bytes, size_t count) {
    for (size_t at = 0; at < count; ++at)
      state_ = (state_ ^ static_cast<unsigned char>(bytes[at])) * 1099511628211u;
  }
  bool operator==(const Checksum&) const = default;

 private:
  uint64_t state_ = 14695981039346656037u;
};

// Buffers as asked for from the beginning (0: the kernel's). In one that shrinks TCP drops what it
// had announced room for, and sends it again after a time that doubles, for seconds.
Pair connected_pair_with(int buffer) {
  if (buffer == 0) return connected_pair();
  const Listener listener = listen_loopback();
  Pair pair{make_client_socket(), Fd()};
  for (const int fd : {pair.client.get(), listener.fd.get()}) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, buffer);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, buffer);
  }
  EXPECT_EQ(connect_to(pair.client.get(), listener.address), 0) << strerror(errno);
  pair.server = accept_one(listener.fd.get());
  return pair;
}

class Transfer : public TcpTest {
 protected:
  explicit Transfer(int buffer = 0) : pair_(connected_pair_with(buffer)) {}

  const Pair pair_;
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
};

TEST_F(Transfer, SixtyFourMegabytes) {
  constexpr size_t kTotal = 64 * 1024 * 1024;
  const std::string block = pattern(1024 * 1024 + 13);
  Checksum sent, received;
  std::jthread sender([&] {
    for (size_t at = 0, piece = 0; at < kTotal; at += piece) {
      piece = std::min(block.size(), kTotal - at);
      send_all(client_, std::string_view(block).substr(0, piece));
      sent.add(block.data(), piece);
    }
    shutdown(client_, SHUT_WR);
  });
  std::string buffer(256 * 1024, '\0');
  size_t total = 0;
  ssize_t got = 0;
  while ((got = recv(server_, buffer.data(), buffer.size(), 0)) > 0) {
    received.add(buffer.data(), size_t(got));
    total += size_t(got);
  }
  EXPECT_EQ(got, 0) << strerror(errno);
  sender.join();
  EXPECT_EQ(total, kTotal);
  EXPECT_EQ(sent, received);
}

struct Shape {
  const char* name;
  uint32_t seed;
  size_t largest_write, largest_read;
  int buffer;  // SO_SNDBUF and SO_RCVBUF; 0: the kernel's
  bool is_nonblocking;
  size_t total;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.name;
}

class TransferShapes : public Transfer, public testing::WithParamInterface<Shape> {
 protected:
  TransferShapes() : Transfer(GetParam().buffer) {
    for (const int fd : {client_, server_}) {
      set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
      if (GetParam().is_nonblocking) make_nonblocking(fd);
    }
  }

  // As long as the whole test may take: TCP asks after a small window that has closed only now and
  // then, more seldom each time.
  static bool waits_for(int fd, short events) {
    pollfd one{fd, events, 0};
    return errno == EAGAIN && poll(&one, 1, -1) == 1;
  }

  void write_randomly(int fd, const std::string& bytes, uint32_t seed) const {
    std::mt19937 random(seed);
    for (size_t at = 0; at < bytes.size();) {
      const Writer& writer = kWriters[random() % kWriters.size()];
      const size_t piece =
          std::min(bytes.size() - at, random_size(random, 1, GetParam().largest_write));
      const ssize_t sent = writer.write(fd, bytes.data() + at, piece);
      ASSERT_TRUE(sent >= 0 || waits_for(fd, POLLOUT)) << strerror(errno);
      if (sent > 0) at += size_t(sent);
    }
  }

  void read_randomly(int fd, const std::string& bytes, uint32_t seed) const {
    std::mt19937 random(seed);
    std::string buffer(GetParam().largest_read, '\0');
    for (size_t at = 0; at < bytes.size();) {
      const Reader& reader = kReaders[random() % kReaders.size()];
      const size_t room = random_size(random, 1, buffer.size());
      if (random() % 8 == 0) {
        const ssize_t seen = recv(fd, buffer.data(), room, MSG_PEEK | MSG_DONTWAIT);
        ASSERT_TRUE(seen <= 0 || bytes.compare(at, size_t(seen), buffer, 0, size_t(seen)) == 0);
      }
      const ssize_t got = reader.read(fd, buffer.data(), room);
      ASSERT_TRUE(got >= 0 || waits_for(fd, POLLIN)) << strerror(errno);
      if (got < 0) continue;
      ASSERT_GT(got, 0);
      ASSERT_EQ(bytes.compare(at, size_t(got), buffer, 0, size_t(got)), 0) << "at " << at;
      at += size_t(got);
    }
  }
};

TEST_P(TransferShapes, BothWaysAtOnce) {
  const auto& [name, seed, largest_write, largest_read, buffer, is_nonblocking, total] = GetParam();
  const std::string a = pattern(total, seed), b = pattern(total, seed + 1);
  std::jthread writes_a([&] { write_randomly(client_, a, seed + 2); });
  std::jthread writes_b([&] { write_randomly(server_, b, seed + 3); });
  std::jthread reads_a([&] { read_randomly(server_, a, seed + 4); });
  read_randomly(client_, b, seed + 5);
}

constexpr size_t kMegabyte = 1024 * 1024;
INSTANTIATE_TEST_SUITE_P(
    All, TransferShapes,
    testing::Values(
        Shape{"small_to_small", 100, 100, 100, 0, false, kMegabyte / 2},
        Shape{"small_to_large", 200, 100, 100'000, 0, false, kMegabyte / 2},
        Shape{"large_to_small", 300, 300'000, 100, 0, false, kMegabyte / 2},
        Shape{"large_to_large", 400, 300'000, 300'000, 0, false, 8 * kMegabyte},
        Shape{"odd_sizes", 500, 70'001, 61'441, 0, false, 4 * kMegabyte},
        Shape{"nonblocking", 600, 50'000, 50'000, 0, true, 4 * kMegabyte},
        Shape{"nonblocking_small_buffers", 700, 20'000, 20'000, 16'384, true, kMegabyte / 4},
        Shape{"blocking_small_buffers", 800, 20'000, 20'000, 16'384, false, kMegabyte / 4},
        Shape{"tiny_reads_small_buffers", 900, 20'000, 50, 16'384, true, kMegabyte / 8}),
    call_name<Shape>);

// One thread drives both ends, as an event loop does; nothing may wait.
TEST_F(Transfer, BothEndsInOneThread) {
  make_nonblocking(client_);
  make_nonblocking(server_);
  const std::string bytes = pattern(8 * kMegabyte);
  std::mt19937 random(77);
  std::string buffer(200'000, '\0');
  size_t sent = 0, received = 0;
  for (int idle = 0; received < bytes.size() && idle < 1000; ++idle) {
    const size_t piece = std::min(bytes.size() - sent, random_size(random, 1, 200'000));
    const ssize_t out = piece > 0 ? send(client_, bytes.data() + sent, piece, 0) : 0;
    const ssize_t in = recv(server_, buffer.data(), random_size(random, 1, 200'000), 0);
    if (out > 0) sent += size_t(out);
    if (in <= 0) {
      pollfd one{server_, POLLIN, 0};
      poll(&one, 1, 100);
      continue;
    }
    ASSERT_EQ(bytes.compare(received, size_t(in), buffer, 0, size_t(in)), 0);
    received += size_t(in);
    idle = 0;
  }
  EXPECT_EQ(received, bytes.size());
}

TEST_F(Transfer, PingPong) {
  std::jthread server([&] {
    for (uint32_t round = 0; round < 3000; ++round) {
      const std::string bytes = recv_exactly(server_, 1 + round % 700);
      send_all(server_, bytes);
    }
  });
  for (uint32_t round = 0; round < 3000; ++round) {
    const std::string bytes = pattern(1 + round % 700, round);
    send_all(client_, bytes);
    ASSERT_TRUE(is_same(recv_exactly(client_, bytes.size()), bytes));
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
