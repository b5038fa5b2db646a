// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory of the library's own, which a peer in shared memory reaches by itself.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

constexpr unsigned kAllRights =
    DDP_LOCAL_WRITE | DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC;

struct Region {
  ddp_region is{};
  uint8_t* bytes() const { return reinterpret_cast<uint8_t*>(is.to); }
};

Region allocate(int fd, size_t length, unsigned rights = kAllRights) {
  Region made;
  EXPECT_EQ(ddp_alloc(fd, length, rights, &made.is), 0) << strerror(errno);
  EXPECT_EQ(made.is.length, length);
  EXPECT_EQ(made.is.rights, rights);
  return made;
}

bool is_mapped(const void* at) {
  unsigned char is_resident;
  const auto page = reinterpret_cast<uintptr_t>(at) / 4096 * 4096;
  return mincore(reinterpret_cast<void*>(page), 4096, &is_resident) == 0;
}

int post_write(int fd, const Region& to, std::string_view bytes, uint64_t offset = 0,
               uint64_t cookie = 1, uint32_t flags = 0) {
  const iovec part = part_of(bytes);
  const ddp_write_work work{.cookie = cookie,
                            .iov = &part,
                            .iov_count = 1,
                            .flags = flags,
                            .remote_to = to.is.to + offset,
                            .remote_stag = to.is.stag,
                            .reserved = 0};
  return ddp_post_write(fd, &work, 1);
}

int post_read(int fd, const Region& into, const Region& from, uint32_t length, uint64_t offset = 0,
              uint32_t flags = 0) {
  const ddp_read_work work{.cookie = 2,
                           .address = into.bytes(),
                           .length = length,
                           .stag = into.is.stag,
                           .remote_to = from.is.to + offset,
                           .remote_stag = from.is.stag,
                           .flags = flags};
  return ddp_post_read(fd, &work, 1);
}

int post_add(int fd, const Region& to, uint64_t operand, uint64_t offset = 0) {
  const ddp_atomic_work work{.cookie = 3,
                             .operation = DDP_FETCH_ADD,
                             .flags = 0,
                             .operand = operand,
                             .compare = 0,
                             .remote_to = to.is.to + offset,
                             .remote_stag = to.is.stag,
                             .reserved = 0};
  return ddp_post_atomic(fd, &work, 1);
}

// With whichever thread, or none, to serve them.
class Alloc : public testing::TestWithParam<int> {
 protected:
  Alloc() {
    arm_alarm();
    settle();  // what comes first goes the usual way
  }
  // What the client has sent is in place.
  void settle() {
    std::string room(4, '\0');
    post_recv(server_, room);
    post_send(client_, "here", 0, DDP_SILENT);
    next(server_, DDP_RECEIVED);
  }
  void expect_refused(const char* how) {
    for (;;) {
      ddp_completion done{};
      ddp_poll(server_, &done, 1);
      if (ddp_wait(client_, &done, 1, 1) != 1) continue;
      if (done.kind != DDP_ENDED) continue;
      EXPECT_EQ(done.status, EREMOTEIO);
      EXPECT_NE(std::string(ddp_strerror(&done)).find(how), std::string::npos)
          << ddp_strerror(&done);
      return;
    }
  }
  // The completion of `fd`'s request, while the other end serves it.
  ddp_completion done(int fd, ddp_kind kind) {
    const int other = fd == client_ ? server_ : client_;
    for (;;) {
      ddp_completion completion{};
      const int n = ddp_wait(fd, &completion, 1, 1);
      if (n == 1 && completion.kind != DDP_ESTABLISHED) {
        EXPECT_EQ(completion.kind, static_cast<uint32_t>(kind)) << ddp_strerror(&completion);
        EXPECT_EQ(completion.status, 0) << ddp_strerror(&completion);
        return completion;
      }
      ddp_completion none;
      EXPECT_EQ(ddp_poll(other, &none, 1), 0);
    }
  }

  Ends ends_ = connect_ends({.progress = GetParam()});
  int client_ = ends_.client.get(), server_ = ends_.server.get();
};
INSTANTIATE_TEST_SUITE_P(Progress, Alloc, testing::Values(DDP_PROGRESS_THREAD, DDP_PROGRESS_CALLER),
                         [](const auto& which) {
                           return which.param == DDP_PROGRESS_THREAD ? "Thread" : "Caller";
                         });

TEST_P(Alloc, WritesReadsAndAtomics) {
  const Region theirs = allocate(server_, 10'000), ours = allocate(client_, 10'000);
  EXPECT_EQ(theirs.bytes()[9'999], 0);
  for (int time = 0; time < 3; ++time) {
    ASSERT_EQ(post_write(client_, theirs, "12345678 written", 8), 1);
    EXPECT_EQ(done(client_, DDP_WRITTEN).bytes, 16u);
    ASSERT_EQ(post_add(client_, theirs, 5, 16), 1);
    const uint64_t before = done(client_, DDP_ATOMIC_DONE).value;
    EXPECT_EQ(memcmp(&before, " written", 8), 0);
    ASSERT_EQ(post_read(client_, ours, theirs, 24), 1);
    EXPECT_EQ(done(client_, DDP_READ).bytes, 24u);
    EXPECT_EQ(memcmp(ours.bytes() + 8, "12345678%written", 16), 0);
    EXPECT_EQ(memcmp(ours.bytes(), theirs.bytes(), 24), 0);
  }
  EXPECT_EQ(ddp_free(server_, theirs.is.stag), 0);
  EXPECT_FALSE(is_mapped(theirs.bytes()));
}

// All sizes, across what is done in one call and what is not.
TEST_P(Alloc, OfAnySize) {
  constexpr size_t kMost = 9'000'000;
  const Region theirs = allocate(server_, kMost), ours = allocate(client_, kMost);
  std::string bytes(kMost, '\0');
  for (size_t i = 0; i < kMost; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  for (const size_t size : {size_t{1}, size_t{8}, size_t{4096}, size_t{1} << 20, kMost}) {
    ASSERT_EQ(post_write(client_, theirs, std::string_view(bytes).substr(0, size)), 1);
    done(client_, DDP_WRITTEN);
    memset(ours.bytes(), 0, size);
    ASSERT_EQ(post_read(client_, ours, theirs, static_cast<uint32_t>(size)), 1);
    done(client_, DDP_READ);
    EXPECT_EQ(memcmp(ours.bytes(), bytes.data(), size), 0) << size;
  }
}

// Nobody serves the owner: only by the initiator can it be done.
TEST_P(Alloc, NeedsNobodyAtTheOwner) {
  if (GetParam() != DDP_PROGRESS_CALLER || std::string_view(expected_engine()) != "shm")
    GTEST_SKIP() << "somebody serves it, or must";
  const Region theirs = allocate(server_, 100), ours = allocate(client_, 100);
  ASSERT_EQ(post_write(client_, theirs, "by itself", 0, 1, DDP_SILENT), 1);
  EXPECT_EQ(memcmp(theirs.bytes(), "by itself", 9), 0);
  ASSERT_EQ(post_read(client_, ours, theirs, 9), 1);
  EXPECT_EQ(memcmp(ours.bytes(), "by itself", 9), 0);
  ddp_completion completions[2];
  ASSERT_EQ(ddp_poll(client_, completions, 2), 1);
  EXPECT_EQ(completions[0].kind, uint32_t{DDP_READ});
  ASSERT_EQ(post_add(client_, theirs, 1, 16), 1);
  EXPECT_EQ(theirs.bytes()[16], 1);
}

// What is behind a message that the owner has not taken waits for that.
TEST_P(Alloc, StaysBehindWhatWasSentBefore) {
  if (GetParam() != DDP_PROGRESS_CALLER) GTEST_SKIP() << "somebody takes it";
  const Region theirs = allocate(server_, 100);
  post_send(client_, "no receive for it", 7, DDP_SILENT);
  ASSERT_EQ(post_write(client_, theirs, "never placed", 0, 1, DDP_SILENT), 1);
  EXPECT_EQ(theirs.bytes()[0], 0);
  expect_refused("no buffer");
  EXPECT_EQ(theirs.bytes()[0], 0);
}

// The owner has taken it, and failed for it, and the initiator does not know yet.
TEST_P(Alloc, NothingIsPlacedOnceTheStreamHasFailed) {
  if (GetParam() != DDP_PROGRESS_CALLER) GTEST_SKIP() << "it is known at once";
  const Region theirs = allocate(server_, 100);
  post_send(client_, "no receive for it", 7, DDP_SILENT);
  ddp_completion done;
  for (int look = 0; look < 3; ++look) EXPECT_EQ(ddp_poll(server_, &done, 1), 0);
  ASSERT_EQ(post_write(client_, theirs, "never placed", 0, 1, DDP_SILENT), 1);
  EXPECT_EQ(theirs.bytes()[0], 0);
}

TEST_P(Alloc, RightsAreKept) {
  const Region theirs = allocate(server_, 100, DDP_REMOTE_READ), ours = allocate(client_, 100);
  theirs.bytes()[0] = 'r';
  ASSERT_EQ(post_read(client_, ours, theirs, 1), 1);
  done(client_, DDP_READ);
  EXPECT_EQ(ours.bytes()[0], 'r');
  ASSERT_EQ(post_write(client_, theirs, "w"), 1);
  expect_refused("STag");
  EXPECT_EQ(theirs.bytes()[0], 'r');
}

TEST_P(Alloc, BoundsAreKept) {
  const Region theirs = allocate(server_, 100);
  ASSERT_EQ(post_write(client_, theirs, "x", 99), 1);
  done(client_, DDP_WRITTEN);
  ASSERT_EQ(post_write(client_, theirs, "xy", 99), 1);
  expect_refused("ounds");
  EXPECT_EQ(theirs.bytes()[100], 0);
}

TEST_P(Alloc, AnAtomicOnOddBytesEndsTheConnection) {
  const Region theirs = allocate(server_, 100);
  ASSERT_EQ(post_add(client_, theirs, 1, 4), 1);
  expect_refused("catastrophic");
  EXPECT_EQ(theirs.bytes()[4], 0);
}

TEST_P(Alloc, WhatIsFreedIsRefused) {
  Region theirs = allocate(server_, 100);
  const Region ours = allocate(client_, 100);
  for (int time = 0; time < 20; ++time) {
    ASSERT_EQ(post_write(client_, theirs, "before"), 1);
    done(client_, DDP_WRITTEN);
    settle();
    ASSERT_EQ(ddp_free(server_, theirs.is.stag), 0);
    EXPECT_FALSE(is_mapped(theirs.bytes()));
    const Region next_one = allocate(server_, 5'000);
    EXPECT_NE(next_one.is.stag, theirs.is.stag);
    theirs = next_one;
  }
  EXPECT_ERRNO(EINVAL, ddp_free(server_, ours.is.stag));
  ASSERT_EQ(ddp_free(server_, theirs.is.stag), 0);
  ASSERT_EQ(post_read(client_, ours, theirs, 1), 1);
  expect_refused("STag");
}

TEST_P(Alloc, InvalidatedByThePeerItIsRefused) {
  const Region theirs = allocate(server_, 100);
  ASSERT_EQ(post_write(client_, theirs, "x"), 1);
  done(client_, DDP_WRITTEN);
  std::string room(1, '\0');
  post_recv(server_, room);
  const iovec part = part_of("i");
  ddp_send_work send = send_work(part, 5, DDP_INVALIDATE | DDP_SILENT);
  send.invalidate = theirs.is.stag;
  ASSERT_EQ(ddp_post_send(client_, &send, 1), 1);
  ASSERT_EQ(next(server_, DDP_RECEIVED).stag, theirs.is.stag);
  ASSERT_EQ(post_write(client_, theirs, "y"), 1);
  expect_refused("STag");
  EXPECT_EQ(theirs.bytes()[0], 'x');
}

TEST_P(Alloc, TakenBackItIsTheProgramsAlone) {
  const Region theirs = allocate(server_, 5'000);
  ASSERT_EQ(post_write(client_, theirs, "kept", 4'500), 1);
  done(client_, DDP_WRITTEN);
  settle();
  ASSERT_EQ(ddp_take_back(server_, theirs.is.stag), 0) << strerror(errno);
  EXPECT_EQ(memcmp(theirs.bytes() + 4'500, "kept", 4), 0);
  theirs.bytes()[0] = 1;
  EXPECT_ERRNO(EINVAL, ddp_take_back(server_, theirs.is.stag));
  EXPECT_ERRNO(EINVAL, ddp_free(server_, theirs.is.stag));
  // A child has it now.
  const pid_t child = fork();
  if (child == 0) _exit(theirs.bytes()[0] == 1 ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(post_write(client_, theirs, "lost", 4'500), 1);
  expect_refused("STag");
  ends_.server.close();
  EXPECT_EQ(memcmp(theirs.bytes() + 4'500, "kept", 4), 0);
  EXPECT_EQ(munmap(theirs.bytes(), 5'000), 0);
}

TEST_P(Alloc, ClosingFreesIt) {
  const Region theirs = allocate(server_, 100);
  ASSERT_EQ(post_write(client_, theirs, "x"), 1);
  done(client_, DDP_WRITTEN);
  ends_.server.close();
  EXPECT_FALSE(is_mapped(theirs.bytes()));
}

TEST_P(Alloc, AChildHasNoneOfIt) {
  const Region theirs = allocate(server_, 100), ours = allocate(client_, 100);
  ASSERT_EQ(post_read(client_, ours, theirs, 8), 1);
  done(client_, DDP_READ);
  const pid_t child = fork();
  if (child == 0) _exit(is_mapped(theirs.bytes()) ? 1 : is_mapped(ours.bytes()) ? 2 : 0);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_P(Alloc, IsNotMemoryOfTheProgram) {
  std::string own(100, '\0');
  ddp_region registered{};
  ASSERT_EQ(ddp_reg(server_, own.data(), own.size(), kAllRights, &registered), 0);
  const Region made = allocate(server_, 100);
  EXPECT_ERRNO(EINVAL, ddp_free(server_, registered.stag));
  EXPECT_ERRNO(EINVAL, ddp_take_back(server_, registered.stag));
  EXPECT_ERRNO(EINVAL, ddp_dereg(server_, made.is.stag));
  EXPECT_EQ(ddp_dereg(server_, registered.stag), 0);
  EXPECT_EQ(ddp_free(server_, made.is.stag), 0);
}

TEST_P(Alloc, WhatCannotBeIsRefused) {
  ddp_region made{};
  EXPECT_ERRNO(EINVAL, ddp_alloc(server_, 0, kAllRights, &made));
  EXPECT_ERRNO(EINVAL, ddp_alloc(server_, 100, 0, &made));
  EXPECT_ERRNO(EINVAL, ddp_alloc(server_, 100, 1u << 9, &made));
  EXPECT_ERRNO(EINVAL, ddp_alloc(server_, ~size_t{0}, kAllRights, &made));
  EXPECT_ERRNO(ENOMEM, ddp_alloc(server_, size_t{1} << 44, kAllRights, &made));
  EXPECT_ERRNO(EFAULT, ddp_alloc(server_, 100, kAllRights, nullptr));
  EXPECT_ERRNO(EBADF, ddp_alloc(-1, 100, kAllRights, &made));
  EXPECT_ERRNO(EBADF, ddp_free(-1, 1));
  EXPECT_ERRNO(EBADF, ddp_take_back(-1, 1));
  const Fd plain = make_socket();
  EXPECT_ERRNO(EOPNOTSUPP, ddp_alloc(plain.get(), 100, kAllRights, &made));
}

// Who always finds completions of its own hears of the rest, too.
TEST_P(Alloc, BesideReadsWithoutEndMessagesCome) {
  const Region theirs = allocate(server_, 100), ours = allocate(client_, 100);
  std::string room(10, '\0');
  post_recv(client_, room, 9);
  post_send(server_, "stop", 0, DDP_SILENT);
  for (int round = 0;; ++round) {
    ASSERT_LT(round, 1'000'000) << "it never comes";
    ASSERT_EQ(post_read(client_, ours, theirs, 8), 1);
    ddp_completion completion{};
    while (ddp_poll(client_, &completion, 1) == 0) {
      ddp_completion none;
      EXPECT_EQ(ddp_poll(server_, &none, 1), 0);
    }
    if (completion.kind == DDP_RECEIVED) break;
  }
}

[[noreturn]] void own_a_region(const Listener& listener) {
  alarm(30);
  const Fd fd = make_socket();
  set_mode(fd.get());
  if (connect_to(fd.get(), listener) != 0) _exit(1);
  const Region region = allocate(fd.get(), 100);
  post_send(fd.get(), {reinterpret_cast<const char*>(&region.is), sizeof region.is});
  for (ddp_completion done;;) ddp_poll(fd.get(), &done, 1);
}

// There is nobody to end its regions.
TEST_P(Alloc, BesideReadsWithoutEndTheEndOfAKilledOwnerIsSeen) {
  const Listener listener = listen_on_loopback();
  EXPECT_EQ(set_option(listener.fd.get(), DDP_PROGRESS, GetParam()), 0);
  const pid_t owner = fork();
  if (owner == 0) own_a_region(listener);
  const Fd fd(accept(listener.fd.get(), nullptr, nullptr));
  Region there;
  std::string room(sizeof there.is, '\0');
  post_recv(fd.get(), room);
  EXPECT_EQ(next(fd.get(), DDP_RECEIVED).bytes, room.size());
  memcpy(&there.is, room.data(), room.size());
  const Region ours = allocate(fd.get(), 100);
  bool is_there = true;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; is_there; ++round) {
    if (round == 1'000) kill(owner, SIGKILL);
    if (post_read(fd.get(), ours, there, 8) != 1) break;
    ddp_completion completion{};
    while (ddp_poll(fd.get(), &completion, 1) == 0) {
    }
    is_there = completion.kind == DDP_READ && completion.status == 0;
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
}

TEST_P(Alloc, OnceItsOwnerHasEndedItIsNotReached) {
  const Region theirs = allocate(server_, 100);
  ASSERT_EQ(post_write(client_, theirs, "x"), 1);
  done(client_, DDP_WRITTEN);
  settle();
  ASSERT_EQ(shutdown(server_, SHUT_RDWR), 0);
  while (next(server_).kind != DDP_ENDED) {
  }
  post_write(client_, theirs, "y", 0, 1, DDP_SILENT);
  EXPECT_EQ(theirs.bytes()[0], 'x');
}

TEST_P(Alloc, TakesNoMessage) {
  std::string room(4, '\0');
  post_recv(server_, room);
  post_send(client_, "one", 0, DDP_SILENT);
  EXPECT_EQ(next(server_, DDP_RECEIVED).bytes, 3u);
  if (GetParam() == DDP_PROGRESS_CALLER) post_send(client_, "two", 0, DDP_SILENT);
  allocate(server_, 100);
  post_recv(server_, room);
  if (GetParam() == DDP_PROGRESS_THREAD) post_send(client_, "two", 0, DDP_SILENT);
  EXPECT_EQ(next(server_, DDP_RECEIVED).bytes, 3u);
  EXPECT_EQ(room.substr(0, 3), "two");
}

// What the owner sent before it wrote what is read.
TEST_P(Alloc, AReadDoesNotOvertakeWhatItsOwnerSent) {
  const Region theirs = allocate(server_, 100), ours = allocate(client_, 100);
  ASSERT_EQ(post_read(client_, ours, theirs, 8), 1);
  done(client_, DDP_READ);
  for (uint8_t i = 1; i < 100; ++i) {
    std::string there(1, static_cast<char>(i));
    ASSERT_EQ(post_write(server_, ours, there, 50), 1);
    done(server_, DDP_WRITTEN);
    theirs.bytes()[0] = i;
    ASSERT_EQ(i % 2 == 0 ? post_read(client_, ours, theirs, 8) : post_add(client_, theirs, 0, 0),
              1);
    done(client_, i % 2 == 0 ? DDP_READ : DDP_ATOMIC_DONE);
    EXPECT_EQ(ours.bytes()[50], i);
  }
}

TEST_P(Alloc, ASilentReadDoesNotEither) {
  const Region theirs = allocate(server_, 100), ours = allocate(client_, 100);
  ASSERT_EQ(post_read(client_, ours, theirs, 8), 1);
  done(client_, DDP_READ);
  std::string room(4, '\0');
  for (uint8_t i = 1; i < 50; ++i) {
    std::string there(1, static_cast<char>(i));
    ASSERT_EQ(post_write(server_, ours, there, 50), 1);
    done(server_, DDP_WRITTEN);
    theirs.bytes()[0] = i;
    post_recv(server_, room);
    ASSERT_EQ(post_read(client_, ours, theirs, 8, 0, DDP_SILENT), 1);
    post_send(client_, "sent", 4);
    bool is_sent = false, has_come = false;
    while (!is_sent || !has_come) {
      ddp_completion one;
      if (ddp_poll(client_, &one, 1) == 1) {
        is_sent = true;
        EXPECT_EQ(ours.bytes()[0], i);
        EXPECT_EQ(ours.bytes()[50], i);
      }
      has_come |= ddp_poll(server_, &one, 1) == 1;
    }
  }
}

TEST_P(Alloc, NorMuchThatItsOwnerSent) {
  constexpr size_t kEach = 1 << 20, kCount = 8;
  const Region theirs = allocate(server_, 100);
  std::string all(kEach * kCount, '\0');
  ddp_region there{};
  ASSERT_EQ(ddp_reg(client_, all.data(), all.size(), DDP_REMOTE_WRITE, &there), 0);
  const std::string bytes(kEach, 'b');
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(post_write(server_, {there}, bytes, i * kEach, 1, DDP_SILENT), 1);
  theirs.bytes()[0] = 1;
  ASSERT_EQ(post_add(client_, theirs, 0), 1);
  const uint64_t found = done(client_, DDP_ATOMIC_DONE).value;
  // In shared memory all of it was sent before.
  if (found == 1 && std::string_view(expected_engine()) == "shm") {
    EXPECT_EQ(all.find_first_not_of('b'), std::string::npos);
  }
}

TEST_P(Alloc, BehindAMessageThatFailsNothingIsDone) {
  if (GetParam() != DDP_PROGRESS_CALLER) GTEST_SKIP() << "it is known at once";
  const Region theirs = allocate(server_, 100);
  ASSERT_EQ(post_add(client_, theirs, 1), 1);
  done(client_, DDP_ATOMIC_DONE);
  post_send(server_, "no receive for it", 7, DDP_SILENT);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(post_add(client_, theirs, 1), 1);
  for (;;) {
    ddp_completion one{}, none;
    ddp_poll(server_, &none, 1);
    if (ddp_wait(client_, &one, 1, 1) != 1) continue;
    if (one.kind == DDP_ENDED) break;
    EXPECT_EQ(one.status, ECANCELED);
  }
}

// More of them than are mapped at a time.
TEST_P(Alloc, ManyRegions) {
  std::vector<Region> all;
  for (int i = 0; i < 200; ++i) all.push_back(allocate(server_, 100));
  for (int round = 0; round < 2; ++round) {
    for (const Region& one : all) {
      ASSERT_EQ(post_add(client_, one, one.is.stag), 1);
      EXPECT_EQ(done(client_, DDP_ATOMIC_DONE).value, uint64_t{one.is.stag} * round);
    }
  }
  for (const Region& one : all) EXPECT_EQ(ddp_free(server_, one.is.stag), 0);
}

// Of a completion queue: for the peers of its connections alone.
TEST(AllocShared, IsForThePeersOfTheQueue) {
  arm_alarm();
  const Fd cq(ddp_open_cq(256));
  const Ends first = connect_ends({.server_cq = cq.get()});
  const Ends second = connect_ends({.server_cq = cq.get()});
  const Ends stranger = connect_ends();
  const Region shared = allocate(cq.get(), 100);
  for (int time = 0; time < 3; ++time) {
    for (const Ends* ends : {&first, &second}) {
      ASSERT_EQ(post_add(ends->client.get(), shared, 1), 1);
      next(ends->client.get(), DDP_ATOMIC_DONE, 3);
    }
  }
  EXPECT_EQ(shared.bytes()[0], 6);
  ASSERT_EQ(post_add(stranger.client.get(), shared, 1), 1);
  EXPECT_EQ(next(stranger.client.get()).status, ECANCELED);
  EXPECT_EQ(shared.bytes()[0], 6);
  ASSERT_EQ(ddp_free(cq.get(), shared.is.stag), 0);
  ASSERT_EQ(post_add(first.client.get(), shared, 1), 1);
  EXPECT_EQ(next(first.client.get()).status, ECANCELED);
}

// A slot of it may be somebody else's by now.
TEST(AllocShared, OnceItsConnectionIsClosedAPeerDoesNotReachIt) {
  arm_alarm();
  const Fd cq(ddp_open_cq(256));
  Ends first = connect_ends({.server_cq = cq.get()});
  const Region shared = allocate(cq.get(), 100);
  for (int time = 0; time < 3; ++time) {
    ASSERT_EQ(post_add(first.client.get(), shared, 1), 1);
    next(first.client.get(), DDP_ATOMIC_DONE, 3);
  }
  first.server.close();
  post_write(first.client.get(), shared, "late", 0, 1, DDP_SILENT);
  EXPECT_EQ(shared.bytes()[0], 3);
  EXPECT_EQ(ddp_free(cq.get(), shared.is.stag), 0);
}

// Of another connection of the same two processes.
TEST(AllocShared, OfOneConnectionIsNotForAnother) {
  arm_alarm();
  const Ends first = connect_ends(), second = connect_ends();
  const Region of_first = allocate(first.server.get(), 100);
  for (int time = 0; time < 3; ++time) {
    ASSERT_EQ(post_add(first.client.get(), of_first, 1), 1);
    next(first.client.get(), DDP_ATOMIC_DONE, 3);
  }
  ASSERT_EQ(post_add(second.client.get(), of_first, 1), 1);
  EXPECT_EQ(next(second.client.get()).status, ECANCELED);
  EXPECT_EQ(of_first.bytes()[0], 3);
}

// A lock of the program's that its own handlers hold over a fork.
pthread_mutex_t program_lock = PTHREAD_MUTEX_INITIALIZER;
void lock_program() {
  pthread_mutex_lock(&program_lock);
}
void unlock_program() {
  pthread_mutex_unlock(&program_lock);
}

TEST(AllocShared, AForkWaitsForNobodyWhoAllocates) {
  arm_alarm();
  ASSERT_EQ(pthread_atfork(lock_program, unlock_program, unlock_program), 0);
  const Ends ends = connect_ends();
  std::atomic<bool> is_over{false};
  std::thread allocating([&] {
    while (!is_over) {
      lock_program();
      const Region made = allocate(ends.server.get(), 1);
      EXPECT_EQ(ddp_free(ends.server.get(), made.is.stag), 0);
      unlock_program();
    }
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
  }
  is_over = true;
  allocating.join();
}

// Added by all at the same time, by their own threads and the owner's.
TEST(AllocShared, AtomicsAreAtomic) {
  arm_alarm();
  constexpr int kTimes = 2'000;
  const Fd cq(ddp_open_cq(256));
  const Ends first = connect_ends({.server_cq = cq.get()});
  const Ends second = connect_ends({.server_cq = cq.get()});
  const Region shared = allocate(cq.get(), 8);
  const auto add = [&](int fd) {
    for (int i = 0; i < kTimes; ++i) {
      EXPECT_EQ(post_add(fd, shared, 1), 1);
      next(fd, DDP_ATOMIC_DONE, 3);
    }
  };
  std::thread one(add, first.client.get()), other(add, second.client.get());
  for (int i = 0; i < kTimes; ++i)
    __atomic_fetch_add(reinterpret_cast<uint64_t*>(shared.bytes()), 1, __ATOMIC_RELAXED);
  one.join();
  other.join();
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(shared.bytes()), uint64_t{3 * kTimes});
}

}  // namespace
}  // namespace ddpsock::message_tests
