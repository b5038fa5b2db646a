// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// rping's protocol (tools/rping/protocol.h) by the calls of ddpsock.h, as client and as server,
// with ddp-rping at the other end: another program over the same engine, which also talks to
// rdma-core's rping. $DDP_RPING names it.
#include <arpa/inet.h>
#include <endian.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>

#include "ends.h"

extern char** environ;

namespace ddpsock::message_tests {
namespace {

constexpr uint32_t kSize = 3000;
constexpr int kPings = 4;

struct [[gnu::packed]] Advert {
  uint64_t to;
  uint32_t stag;
  uint32_t size;
};

std::string encode(const ddp_region& region, uint32_t size) {
  const Advert advert{htobe64(region.to), htobe32(region.stag), htobe32(size)};
  return {reinterpret_cast<const char*>(&advert), sizeof advert};
}
Advert decode(const std::string& bytes) {
  Advert advert;
  memcpy(&advert, bytes.data(), sizeof advert);
  return {be64toh(advert.to), be32toh(advert.stag), be32toh(advert.size)};
}

class Rping : public testing::Test {
 protected:
  Rping() { arm_alarm(); }

  void spawn(std::vector<std::string> options) {
    const char* program = getenv("DDP_RPING");
    ASSERT_NE(program, nullptr);
    options.insert(options.begin(), program);
    std::vector<char*> arguments;
    for (std::string& option : options) arguments.push_back(option.data());
    arguments.push_back(nullptr);
    ASSERT_EQ(posix_spawn(&child_, program, nullptr, nullptr, arguments.data(), environ), 0);
  }
  void expect_success() {
    int status = -1;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0);
  }
  void await_send(int fd) { EXPECT_EQ(next(fd, DDP_SENT).status, 0); }

  pid_t child_ = -1;
};

TEST_F(Rping, AsItsServer) {
  const Listener listener = listen_on_loopback();
  spawn({"-c", "-V", "-a", "127.0.0.1", "-p", std::to_string(ntohs(listener.address.sin_port)),
         "-C", std::to_string(kPings), "-S", std::to_string(kSize)});
  const Fd fd(accept(listener.fd.get(), nullptr, nullptr));
  std::string data(kSize, '.'), message(16, '.');
  ddp_region sink{};
  ASSERT_EQ(ddp_reg(fd.get(), data.data(), data.size(), DDP_LOCAL_WRITE, &sink), 0);
  post_recv(fd.get(), message);
  for (int ping = 0; ping < kPings; ++ping) {
    ASSERT_EQ(next(fd.get(), DDP_RECEIVED).bytes, 16u);
    const Advert source = decode(message);
    ASSERT_EQ(source.size, kSize);
    post_recv(fd.get(), message);
    const ddp_read_work read{.cookie = 1,
                             .address = data.data(),
                             .length = source.size,
                             .stag = sink.stag,
                             .remote_to = source.to,
                             .remote_stag = source.stag,
                             .flags = 0};
    ASSERT_EQ(ddp_post_read(fd.get(), &read, 1), 1);
    ASSERT_EQ(next(fd.get(), DDP_READ, 1).status, 0);
    EXPECT_TRUE(data.starts_with("rdma-ping-" + std::to_string(ping)));
    post_send(fd.get(), std::string(16, '\0'), 0, DDP_INLINE);
    await_send(fd.get());
    ASSERT_EQ(next(fd.get(), DDP_RECEIVED).bytes, 16u);
    const Advert back = decode(message);
    post_recv(fd.get(), message);
    const iovec part = part_of(data);
    const ddp_write_work write{.cookie = 2,
                               .iov = &part,
                               .iov_count = 1,
                               .flags = DDP_SILENT | DDP_MORE,
                               .remote_to = back.to,
                               .remote_stag = back.stag,
                               .reserved = 0};
    ASSERT_EQ(ddp_post_write(fd.get(), &write, 1), 1);
    post_send(fd.get(), std::string(16, '\0'), 0, DDP_INLINE);
    await_send(fd.get());
  }
  EXPECT_EQ(next(fd.get(), DDP_RECEIVED).status, ECANCELED);
  EXPECT_EQ(next(fd.get(), DDP_ENDED).status, 0);
  expect_success();
}

TEST_F(Rping, AsItsClient) {
  Listener probe = listen_on_loopback(true);
  probe.fd.close();
  spawn({"-s", "-a", "127.0.0.1", "-p", std::to_string(ntohs(probe.address.sin_port)), "-C",
         std::to_string(kPings), "-S", std::to_string(kSize)});
  Fd fd;
  std::string message(16, '.');
  for (int tries = 0;; ++tries) {
    fd = make_socket();
    set_mode(fd.get());
    post_recv(fd.get(), message);
    if (connect_to(fd.get(), probe) == 0) break;
    ASSERT_EQ(errno, ECONNREFUSED);
    ASSERT_LT(tries, 500) << "it does not listen";
    usleep(10'000);
  }
  std::string source(kSize, 'x'), sink(kSize, '.');
  ddp_region ours{}, theirs{};
  ASSERT_EQ(ddp_reg(fd.get(), source.data(), kSize, DDP_REMOTE_READ, &ours), 0);
  ASSERT_EQ(ddp_reg(fd.get(), sink.data(), kSize, DDP_REMOTE_WRITE, &theirs), 0);
  for (int ping = 0; ping < kPings; ++ping) {
    source[static_cast<size_t>(ping)] = 'y';
    for (const ddp_region& advertised : {ours, theirs}) {
      post_send(fd.get(), encode(advertised, kSize), 0, DDP_INLINE | DDP_SILENT);
      ASSERT_EQ(next(fd.get(), DDP_RECEIVED).status, 0);
      post_recv(fd.get(), message);
    }
    EXPECT_TRUE(sink == source);
  }
  ASSERT_EQ(shutdown(fd.get(), SHUT_WR), 0);
  expect_success();
}

}  // namespace
}  // namespace ddpsock::message_tests
