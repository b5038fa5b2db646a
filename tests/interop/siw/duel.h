// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Plays one scenario: two processes, one with our end in a network namespace of its own, one with
// siw's in the initial namespace (the only one whose devices siw serves). Each side's failed
// expectations fail the test, and so does a side that does not end in time.
#ifndef DDPSOCK_TESTS_INTEROP_SIW_DUEL_H_
#define DDPSOCK_TESTS_INTEROP_SIW_DUEL_H_

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <type_traits>

#include "tests/interop/siw/peer.h"

namespace ddpsock::interop {

// The other side's process, for what a test must know and the connection shall not carry.
class Aside {
 public:
  explicit Aside(int fd) : fd_(fd) {}
  template <typename T>
  void tell(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(&value, sizeof value);
  }
  // Fails the test after kPatience.
  template <typename T>
  T hear() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    get(&value, sizeof value);
    return value;
  }
  // Whether hear() would not wait. True also if the other side is gone.
  bool has_word() const;
  // Both sides have come this far.
  void meet() {
    tell('.');
    hear<char>();
  }

 private:
  void put(const void* from, size_t size);
  void get(void* to, size_t size);
  int fd_;
};

enum class Active : uint8_t { kOurs, kSiw };

// What one side does; a passive side has listened already.
using Part = std::function<void(Peer&, Aside&)>;

struct Case {
  Profile profile;
  Active active;
};
std::ostream& operator<<(std::ostream& out, const Case& c);

class SiwTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override;
  // `will_die`: the side that ends itself by a signal, as part of the scenario.
  enum class Death : uint8_t { kNone, kActive, kPassive };
  void duel(const Part& active, const Part& passive, Death will_die = Death::kNone);

  const Profile& profile() const { return GetParam().profile; }
  bool is_ours_active() const { return GetParam().active == Active::kOurs; }
};

// connect() and accept(), in a way that siw can follow: it overlooks what comes between its Reply
// and the moment when its socket is the queue pair's (siw_accept() of Linux 6.1), so the active
// side holds its first FPDU back until then. Without this, a scenario would tell nothing now and
// then.
Outcome connect(Peer& peer, Aside& other, const Hello& mine = {});
Outcome accept(Peer& peer, Aside& other, const Hello& mine = {});

// connect(), and a first message, which is what lets a responder send (RFC 5044 section 7.1.2).
Outcome call(Peer& peer, Aside& other, const Hello& mine = {});
// Its counterpart. Receives are posted after it.
Outcome answer(Peer& peer, Aside& other, const Hello& mine = {});

// The next completion; fails the test unless it is a success of that kind and id.
void expect_done(Peer& peer, Event::Kind kind, uint64_t id);
// Fetches completions to the end of the connection; how many of them were successes. Fails the test
// if the end does not come.
int drain_to_the_end(Peer& peer);

// While it exists nothing that siw sends leaves its host.
class Blackhole {
 public:
  Blackhole();
  ~Blackhole();
  Blackhole(const Blackhole&) = delete;
  Blackhole& operator=(const Blackhole&) = delete;
};

// What message number `n` says.
void fill(MutBytes memory, uint32_t n);
bool is_filled(Bytes memory, uint32_t n);

// Every profile in both directions.
std::vector<Case> all_cases();
// Those of the profiles that differ in what carries the data.
std::vector<Case> main_cases();
std::vector<Case> cases_of(const char* profile);
std::string name_of(const testing::TestParamInfo<Case>& info);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_SIW_DUEL_H_
