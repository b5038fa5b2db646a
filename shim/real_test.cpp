// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/sys.h"

namespace ddpsock::shim {
namespace {

using AnyFunction = void*;

std::vector<AnyFunction> entries(const RealCalls& calls) {
  std::vector<AnyFunction> all(kRealCalls);
  memcpy(all.data(), &calls, sizeof(calls));
  return all;
}

TEST(Real, EveryEntryIsAnotherLibrarys) {
  Dl_info own{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&resolve_real_calls), &own), 0);
  const std::vector<AnyFunction> all = entries(real);
  for (unsigned i = 0; i < kRealCalls; ++i) {
    if (dlsym(RTLD_NEXT, kRealNames[i]) == nullptr) continue;  // of a newer libc
    Dl_info found{};
    ASSERT_NE(dladdr(all[i], &found), 0) << kRealNames[i];
    EXPECT_NE(found.dli_fbase, own.dli_fbase) << kRealNames[i];
  }
}

TEST(Real, EnginesGetTheRealCalls) {
  EXPECT_EQ(base::sys.send, real.send);
  EXPECT_EQ(base::sys.fcntl, real.fcntl);
}

TEST(Real, ResolvingAgainChangesNothing) {
  const std::vector<AnyFunction> before = entries(real);
  resolve_real_calls();
  EXPECT_EQ(entries(real), before);
}

TEST(Real, PselectBeforeTheTableIsFilled) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  fd_set readers;
  FD_ZERO(&readers);
  FD_SET(pipes[0], &readers);
  const timespec nothing{0, 0};
  EXPECT_EQ(boot_pselect(pipes[0] + 1, &readers, nullptr, nullptr, &nothing, nullptr), 0);
  ASSERT_EQ(write(pipes[1], "x", 1), 1);
  FD_SET(pipes[0], &readers);
  EXPECT_EQ(boot_pselect(pipes[0] + 1, &readers, nullptr, nullptr, nullptr, nullptr), 1);
  close(pipes[0]);
  close(pipes[1]);
}

}  // namespace
}  // namespace ddpsock::shim
