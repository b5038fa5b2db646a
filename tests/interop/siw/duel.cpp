// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/siw/duel.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/fd.h"

namespace ddpsock::interop {
namespace {

constexpr Duration kSideTime = Duration::from_ms(60'000);
// Each duel has a port of its own: Wireshark takes a connection between the same ports for the one
// before.
constexpr uint16_t kFirstPort = 20'000;
constexpr uint16_t kPorts = 2'000;
constexpr uint64_t kKnock = ~uint64_t{0};
constexpr size_t kKnockSize = 8;

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) {
    std::fprintf(stderr,
                 "%s is not set: this runs inside the lab's guest, started by siw_test.py\n", name);
    std::exit(2);
  }
  return value;
}

// The command comes from here and from the guest's own script.
int run(const std::string& command) {
  return std::system(command.c_str());
}

void set_siw(const char* parameter, const char* value) {
  const std::string path = std::string("/sys/module/siw/parameters/") + parameter;
  std::ofstream file(path);
  file << value << std::flush;
  ASSERT_TRUE(file.good()) << path;
}

// Differs at every place of a message and between messages; eight octets a step, because the guest
// is slow.
uint64_t word_of(uint32_t n, size_t at) {
  return (at + 1) * 0x9e3779b97f4a7c15u + n;
}

// A forked side: its process and what it prints.
struct Side {
  pid_t pid = -1;
  base::UniqueFd output;
  std::string printed = {};
  int status = 0;
};

void enter_our_namespace() {
  const std::string path = "/run/netns/" + setting("INTEROP_NETNS");
  const base::UniqueFd ns(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!ns.is_valid() || setns(ns.get(), CLONE_NEWNET) != 0) {
    std::perror(path.c_str());
    _exit(3);
  }
}

const testing::TestResult& results() {
  return *testing::UnitTest::GetInstance()->current_test_info()->result();
}

// A side inherits what has failed before it was made.
bool has_failed_since(int before) {
  for (int i = before; i < results().total_part_count(); ++i) {
    if (results().GetTestPartResult(i).failed()) return true;
  }
  return false;
}

template <typename Play>
Side start_side(const Play& play) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    const int before = results().total_part_count();
    play();
    std::fflush(nullptr);
    _exit(has_failed_since(before) ? 1 : 0);
  }
  close(ends[1]);
  return {.pid = pid, .output = base::UniqueFd(ends[0])};
}

// Reads what the side prints until it has ended, and ends it at the deadline.
void finish_side(Side& side, Time deadline) {
  std::array<char, 4096> chunk;
  for (;;) {
    pollfd entry{.fd = side.output.get(), .events = POLLIN, .revents = 0};
    const auto left = static_cast<int>((deadline - base::now()).ceil_ms());
    if (::poll(&entry, 1, left) == 0) {
      side.printed += "ended by the test: not finished in time\n";
      kill(side.pid, SIGKILL);
      deadline = base::now() + Duration::from_ms(2'000);
      continue;
    }
    const ssize_t n = ::read(side.output.get(), chunk.data(), chunk.size());
    if (n <= 0) break;
    side.printed.append(chunk.data(), static_cast<size_t>(n));
  }
  waitpid(side.pid, &side.status, 0);
}

void judge(const Side& side, const char* name, bool shall_die) {
  if (shall_die) {
    EXPECT_TRUE(WIFSIGNALED(side.status) && WTERMSIG(side.status) == SIGKILL) << name << "\n"
                                                                              << side.printed;
    return;
  }
  EXPECT_TRUE(WIFEXITED(side.status) && WEXITSTATUS(side.status) == 0)
      << name << ", wait status " << side.status << "\n"
      << side.printed;
}

constexpr std::array kProfiles{
    Profile{.name = "Default"},
    Profile{.name = "NoCrc", .ours_wants_crc = false},
    Profile{.name = "Revision1", .revision = 1},
    Profile{.name = "Rtr", .is_peer_to_peer = true},
    Profile{.name = "SiwNeedsCrc", .ours_wants_crc = false, .siw_needs_crc = true},
    Profile{.name = "Gso", .siw_uses_gso = true},
};

std::vector<Case> in_both_directions(std::span<const Profile> profiles) {
  std::vector<Case> cases;
  for (const Profile& p : profiles) {
    cases.push_back({p, Active::kOurs});
    cases.push_back({p, Active::kSiw});
  }
  return cases;
}

}  // namespace

void Aside::put(const void* from, size_t size) {
  ASSERT_EQ(::send(fd_, from, size, MSG_NOSIGNAL), static_cast<ssize_t>(size))
      << "the other side is gone";
}

void Aside::get(void* to, size_t size) {
  pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&entry, 1, static_cast<int>(kPatience.ceil_ms())), 1)
      << "the other side says nothing";
  ASSERT_EQ(::recv(fd_, to, size, 0), static_cast<ssize_t>(size)) << "the other side is gone";
}

bool Aside::has_word() const {
  pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) == 1;
}

Blackhole::Blackhole() {
  EXPECT_EQ(run("tc qdisc add dev " + setting("INTEROP_SIW_DEVICE") + " root netem loss 100%"), 0);
}

Blackhole::~Blackhole() {
  EXPECT_EQ(run("tc qdisc del dev " + setting("INTEROP_SIW_DEVICE") + " root"), 0);
}

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.profile.name << (c.active == Active::kOurs ? "OursConnects" : "SiwConnects");
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return testing::PrintToString(info.param);
}

std::vector<Case> all_cases() {
  return in_both_directions(kProfiles);
}

std::vector<Case> main_cases() {
  return in_both_directions(std::span(kProfiles).first(2));
}

std::vector<Case> cases_of(const char* profile) {
  std::vector<Case> cases = all_cases();
  std::erase_if(cases,
                [profile](const Case& c) { return std::strcmp(c.profile.name, profile) != 0; });
  return cases;
}

void SiwTest::SetUp() {
  set_siw("mpa_version", profile().revision == 1 ? "1" : "2");
  set_siw("peer_to_peer", profile().is_peer_to_peer ? "Y" : "N");
  set_siw("mpa_crc_required", profile().siw_needs_crc ? "Y" : "N");
  set_siw("mpa_crc_strict", profile().siw_needs_crc ? "Y" : "N");
  set_siw("try_gso", profile().siw_uses_gso ? "Y" : "N");
}

void SiwTest::duel(const Part& active, const Part& passive, Death will_die) {
  int aside[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, aside), 0);
  const std::string address =
      setting(is_ours_active() ? "INTEROP_SIW_ADDRESS" : "INTEROP_OUR_ADDRESS");
  static uint16_t duels = 0;
  const auto port = static_cast<uint16_t>(kFirstPort + duels++ % kPorts);
  const auto play = [&](bool is_active) {
    const bool is_ours = is_active == is_ours_active();
    close(aside[is_active ? 1 : 0]);
    Aside other(aside[is_active ? 0 : 1]);
    if (is_ours) enter_our_namespace();
    const auto peer =
        is_ours ? make_ours(profile(), address, port) : make_siw(profile(), address, port);
    if (!is_active) peer->listen();
    // Nobody calls before somebody listens.
    other.meet();
    (is_active ? active : passive)(*peer, other);
  };
  const Time deadline = base::now() + kSideTime;
  Side callee = start_side([&] { play(false); });
  Side caller = start_side([&] { play(true); });
  close(aside[0]);
  close(aside[1]);
  finish_side(caller, deadline);
  finish_side(callee, deadline);
  judge(caller, is_ours_active() ? "ours, active" : "siw, active", will_die == Death::kActive);
  judge(callee, is_ours_active() ? "siw, passive" : "ours, passive", will_die == Death::kPassive);
}

Outcome connect(Peer& peer, Aside& other, const Hello& mine) {
  const Outcome o = peer.connect(mine);
  other.hear<char>();
  return o;
}

Outcome accept(Peer& peer, Aside& other, const Hello& mine) {
  return peer.accept(mine, [&other] { other.tell('.'); });
}

Outcome call(Peer& peer, Aside& other, const Hello& mine) {
  const Outcome o = connect(peer, other, mine);
  EXPECT_EQ(o.kind, Outcome::Kind::kConnected) << o.text;
  if (o.kind != Outcome::Kind::kConnected) return o;
  peer.send(kKnock, peer.expose(kKnockSize, Access::kLocal).memory, {});
  expect_done(peer, Event::Kind::kSent, kKnock);
  return o;
}

Outcome answer(Peer& peer, Aside& other, const Hello& mine) {
  const Outcome request = peer.wait_for_request();
  EXPECT_EQ(request.kind, Outcome::Kind::kRequested) << request.text;
  if (request.kind != Outcome::Kind::kRequested) return request;
  peer.post_receive(kKnock, peer.expose(kKnockSize, Access::kLocal).memory);
  Outcome o = accept(peer, other, mine);
  EXPECT_EQ(o.kind, Outcome::Kind::kConnected) << o.text;
  o.private_data = request.private_data;
  expect_done(peer, Event::Kind::kReceived, kKnock);
  return o;
}

void expect_done(Peer& peer, Event::Kind kind, uint64_t id) {
  const Event e = peer.next();
  EXPECT_EQ(e.kind, kind);
  EXPECT_EQ(e.id, id);
  EXPECT_TRUE(e.is_ok);
}

int drain_to_the_end(Peer& peer) {
  int successes = 0;
  for (;;) {
    const Event e = peer.next();
    EXPECT_NE(e.kind, Event::Kind::kTimedOut) << "the end did not come";
    if (e.kind == Event::Kind::kEnded || e.kind == Event::Kind::kTimedOut) return successes;
    successes += e.is_ok;
  }
}

void fill(MutBytes memory, uint32_t n) {
  for (size_t i = 0; i < memory.size(); i += sizeof(uint64_t)) {
    const uint64_t word = word_of(n, i);
    std::memcpy(memory.data() + i, &word, std::min(sizeof word, memory.size() - i));
  }
}

bool is_filled(Bytes memory, uint32_t n) {
  for (size_t i = 0; i < memory.size(); i += sizeof(uint64_t)) {
    const uint64_t word = word_of(n, i);
    if (std::memcmp(memory.data() + i, &word, std::min(sizeof word, memory.size() - i)) != 0)
      return false;
  }
  return true;
}

}  // namespace ddpsock::interop
