// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reads of memory that its owner has registered, and does nothing for: in shared memory the reader
// gets it by itself, where the kernel lets it.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

constexpr size_t kSize = 1 << 20;
constexpr uint64_t kBeyond = 5'000;

uint8_t byte_at(uint64_t i) {
  return static_cast<uint8_t>(i * 7 + i / 251);
}

// A process that owns memory, and does what it is told by letters, one at a time.
class Owner {
 public:
  struct Memory {
    ddp_region plain, unreadable;
  };
  using Play = std::function<void(int fd, uint8_t* bytes, const Memory&, char what)>;

  Owner(int progress, const Play& play, bool is_dumpable = true) {
    arm_alarm();
    const Listener listener = listen_on_loopback();
    EXPECT_EQ(set_option(listener.fd.get(), DDP_PROGRESS, DDP_PROGRESS_CALLER), 0);
    EXPECT_EQ(pipe2(orders_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(answers_, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) be(listener, progress, play, is_dumpable);
    fd = Fd(accept(listener.fd.get(), nullptr, nullptr));
    std::string room(sizeof memory, '\0');
    post_recv(fd.get(), room);
    EXPECT_EQ(ddp_establish(fd.get(), kPatienceMs), 0) << strerror(errno);
    EXPECT_EQ(next(fd.get(), DDP_RECEIVED).bytes, sizeof memory);
    std::memcpy(&memory, room.data(), sizeof memory);
    sink.resize(kSize + kBeyond);
    EXPECT_EQ(ddp_reg(fd.get(), sink.data(), sink.size(), DDP_LOCAL_WRITE, &here_), 0);
    // What comes first goes the usual way.
    read(8);
    next(fd.get(), DDP_READ, 8);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (pid_ > 0) kill();
    for (const int end : {orders_[0], orders_[1], answers_[0], answers_[1]}) close(end);
  }

  void tell(char what) {
    char answer = 0;
    EXPECT_EQ(::write(orders_[1], &what, 1), 1);
    EXPECT_EQ(::read(answers_[0], &answer, 1), 1);
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    EXPECT_GT(waitpid(std::exchange(pid_, -1), nullptr, 0), 0);
  }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  }
  void go_on() const { ::kill(pid_, SIGCONT); }

  // The cookie is the length.
  void read(uint32_t length, uint64_t offset = 0, uint32_t stag = 0, uint32_t sink_stag = 0) {
    const ddp_read_work work{.cookie = length,
                             .address = sink.data(),
                             .length = length,
                             .stag = sink_stag != 0 ? sink_stag : here_.stag,
                             .remote_to = memory.plain.to + offset,
                             .remote_stag = stag != 0 ? stag : memory.plain.stag,
                             .flags = 0};
    ASSERT_EQ(ddp_post_read(fd.get(), &work, 1), 1) << strerror(errno);
  }
  // Whether it is done, by this time.
  bool has_read(uint32_t length) const {
    ddp_completion done{};
    if (ddp_poll(fd.get(), &done, 1) != 1) return false;
    EXPECT_EQ(done.kind, uint32_t{DDP_READ}) << ddp_strerror(&done);
    EXPECT_EQ(done.cookie, length);
    EXPECT_EQ(done.status, 0);
    return true;
  }
  void expect_bytes(uint32_t length, uint64_t offset = 0) const {
    for (uint32_t i = 0; i < length; ++i)
      ASSERT_EQ(static_cast<uint8_t>(sink[i]), byte_at(offset + i)) << i;
  }
  void expect_refused() const {
    ddp_completion done = next(fd.get());
    while (done.kind == DDP_READ) done = next(fd.get());
    EXPECT_EQ(done.kind, uint32_t{DDP_ENDED});
    EXPECT_EQ(done.status, EREMOTEIO);
  }

  Fd fd;
  Memory memory{};
  std::string sink;

 private:
  [[noreturn]] void be(const Listener& listener, int progress, const Play& play, bool is_dumpable) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(orders_[1]);
    close(answers_[0]);
    if (!is_dumpable) prctl(PR_SET_DUMPABLE, 0);
    const Fd own = make_socket();
    set_mode(own.get());
    set_option(own.get(), DDP_PROGRESS, progress);
    if (connect_to(own.get(), listener) != 0) _exit(1);
    std::string bytes(kSize, '\0');
    for (size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<char>(byte_at(i));
    Memory told{};
    if (ddp_reg(own.get(), bytes.data(), kSize, DDP_REMOTE_READ, &told.plain) != 0 ||
        ddp_reg(own.get(), bytes.data(), kSize, DDP_REMOTE_WRITE, &told.unreadable) != 0)
      _exit(2);
    post_send(own.get(), {reinterpret_cast<const char*>(&told), sizeof told}, 0, DDP_SILENT);
    // The first Read is served by a call.
    ddp_completion none;
    for (int i = 0; progress == DDP_PROGRESS_CALLER && i < 50; ++i)
      ddp_wait(own.get(), &none, 1, 1);
    for (char what; ::read(orders_[0], &what, 1) == 1;) {
      play(own.get(), reinterpret_cast<uint8_t*>(bytes.data()), told, what);
      if (::write(answers_[1], &what, 1) != 1) break;
    }
    _exit(0);
  }

  pid_t pid_ = -1;
  int orders_[2]{}, answers_[2]{};
  ddp_region here_{};
};

const Owner::Play kNothing = [](int, uint8_t*, const Owner::Memory&, char) {};
const Owner::Play kDeregister = [](int fd, uint8_t*, const Owner::Memory& memory, char) {
  if (ddp_dereg(fd, memory.plain.stag) != 0) _exit(3);
};

void serve(int fd) {
  ddp_completion none;
  ddp_wait(fd, &none, 1, 1);
}
const Owner::Play kServe = [](int fd, uint8_t*, const Owner::Memory&, char) { serve(fd); };

class Asleep : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Progress, Asleep,
                         testing::Values(DDP_PROGRESS_THREAD, DDP_PROGRESS_CALLER),
                         [](const auto& which) {
                           return which.param == DDP_PROGRESS_THREAD ? "Thread" : "Caller";
                         });

TEST_P(Asleep, AStoppedOwnersMemoryIsRead) {
  Owner owner(GetParam(), kNothing);
  owner.stop();
  for (const uint32_t length : {1u, 8u, 4096u, 4097u, 65'536u, uint32_t{kSize}}) {
    owner.read(length);
    ASSERT_TRUE(owner.has_read(length)) << length;
    owner.expect_bytes(length);
  }
  owner.read(100, kSize - 100);
  ASSERT_TRUE(owner.has_read(100));
  owner.expect_bytes(100, kSize - 100);
}

TEST_P(Asleep, BoundsAreKept) {
  Owner owner(GetParam(), kNothing);
  owner.stop();
  owner.read(101, kSize - 100);
  EXPECT_FALSE(owner.has_read(101));
  owner.go_on();
  if (GetParam() == DDP_PROGRESS_THREAD) owner.expect_refused();
}

TEST_P(Asleep, SoAreRights) {
  Owner owner(GetParam(), kNothing);
  owner.stop();
  owner.read(8, 0, owner.memory.unreadable.stag);
  EXPECT_FALSE(owner.has_read(8));
  owner.go_on();
  if (GetParam() == DDP_PROGRESS_THREAD) owner.expect_refused();
}

TEST_P(Asleep, WhatIsDeregisteredIsNotRead) {
  Owner owner(GetParam(), kDeregister);
  owner.read(8);
  ASSERT_TRUE(owner.has_read(8));
  owner.tell('d');
  owner.stop();
  owner.read(8);
  EXPECT_FALSE(owner.has_read(8));
  owner.go_on();
  if (GetParam() == DDP_PROGRESS_THREAD) owner.expect_refused();
}

TEST_P(Asleep, ASinkThatIsNotOursToFillIsRefused) {
  Owner owner(GetParam(), kNothing);
  ddp_region unwritable{};
  ASSERT_EQ(ddp_reg(owner.fd.get(), owner.sink.data(), 8, DDP_REMOTE_READ, &unwritable), 0);
  owner.stop();
  std::memset(owner.sink.data(), 'x', 8);
  const ddp_read_work work{.cookie = 8,
                           .address = owner.sink.data(),
                           .length = 8,
                           .stag = unwritable.stag,
                           .remote_to = owner.memory.plain.to,
                           .remote_stag = owner.memory.plain.stag,
                           .flags = 0};
  ddp_completion done{};
  if (ddp_post_read(owner.fd.get(), &work, 1) == 1) {
    EXPECT_TRUE(ddp_poll(owner.fd.get(), &done, 1) == 0 || done.status != 0);
  }
  EXPECT_EQ(owner.sink.substr(0, 8), "xxxxxxxx");
}

// A Write that the owner has not placed lies before the Read.
TEST_P(Asleep, AReadDoesNotOvertakeAWrite) {
  Owner owner(GetParam(), kServe);
  for (int round = 0; round < 300; ++round) {
    const std::string bytes(8, static_cast<char>(round));
    const iovec part = part_of(bytes);
    const ddp_write_work work{.cookie = 0,
                              .iov = &part,
                              .iov_count = 1,
                              .flags = DDP_SILENT,
                              .remote_to = owner.memory.unreadable.to,
                              .remote_stag = owner.memory.unreadable.stag,
                              .reserved = 0};
    ASSERT_EQ(ddp_post_write(owner.fd.get(), &work, 1), 1);
    owner.read(8);
    while (!owner.has_read(8))
      if (GetParam() == DDP_PROGRESS_CALLER) owner.tell('s');
    ASSERT_EQ(owner.sink.substr(0, 8), bytes) << round;
  }
}

// What the owner had sent before it wrote what is read is here before the Read is done.
TEST_P(Asleep, NorWhatItsOwnerSent) {
  constexpr char kServed = 'S';
  const Owner::Play send_and_write = [](int fd, uint8_t* bytes, const Owner::Memory&, char what) {
    if (what == kServed) return serve(fd);
    post_send(fd, {&what, 1});
    next(fd, DDP_SENT);
    bytes[0] = static_cast<uint8_t>(what);
  };
  Owner owner(GetParam(), send_and_write);
  std::string room(1, '\0');
  for (char round = 1; round < kServed; ++round) {
    post_recv(owner.fd.get(), room);
    owner.tell(round);
    owner.read(1);
    ddp_completion done{};
    bool has_come = false;
    for (int look = 0; done.kind != DDP_READ && look < 1000; ++look) {
      if (GetParam() == DDP_PROGRESS_CALLER) owner.tell(kServed);
      if (ddp_wait(owner.fd.get(), &done, 1, 10) == 1) has_come |= done.kind == DDP_RECEIVED;
    }
    ASSERT_EQ(done.kind, uint32_t{DDP_READ});
    ASSERT_EQ(owner.sink[0], round);
    ASSERT_TRUE(has_come);
    ASSERT_EQ(room[0], round);
  }
}

// Its memory goes with it.
TEST_P(Asleep, OfAKilledOwnerNothingIsRead) {
  Owner owner(GetParam(), kNothing);
  owner.read(8);
  ASSERT_TRUE(owner.has_read(8));
  owner.kill();
  std::memset(owner.sink.data(), 'x', 8);
  owner.read(8);
  ddp_completion done = next(owner.fd.get());
  for (; done.kind == DDP_READ; done = next(owner.fd.get())) EXPECT_EQ(done.status, ECANCELED);
  EXPECT_EQ(done.kind, uint32_t{DDP_ENDED});
  EXPECT_EQ(owner.sink.substr(0, 8), "xxxxxxxx");
}

void ask_the_owner() {
  Owner owner(DDP_PROGRESS_THREAD, kNothing, false);
  owner.read(4096);
  EXPECT_EQ(next(owner.fd.get(), DDP_READ, 4096).status, 0);
  owner.expect_bytes(4096);
  owner.stop();
  owner.read(8);
  EXPECT_FALSE(owner.has_read(8));
  owner.go_on();
  EXPECT_EQ(next(owner.fd.get(), DDP_READ, 8).status, 0);
}

// Of a process that may not be looked into, as Yama has it for all but children: its owner answers.
TEST(AsleepRefused, TheOwnerIsAskedInstead) {
  constexpr uid_t kNobody = 65534;
  constexpr int kNotAllowed = 77;
  const pid_t child = fork();
  if (child == 0) {
    // Root may look into everybody.
    if (geteuid() == 0 &&
        (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0))
      _exit(kNotAllowed);
    prctl(PR_SET_DUMPABLE, 1);
    ask_the_owner();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed)
    GTEST_SKIP() << "no other user can be had";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ddpsock::message_tests
