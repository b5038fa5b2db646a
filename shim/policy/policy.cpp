// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/policy.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "shim/policy/confinement.h"
#include "shim/policy/discovery.h"
#include "shim/policy/kept_diag_socket.h"
#include "shim/policy/rings.h"
#include "shim/policy/rules.h"

namespace ddpsock::shim {
namespace {

constexpr const char kOff[] = "the rules or the program say plain TCP";
constexpr const char kKernelOption[] = "the program set an option that only the kernel serves";
constexpr const char kFiltered[] = "a filter of system calls forbids those of DDPMODE";
constexpr const char kNotIp[] = "not an IP address";
constexpr const char kProvedListener[] = "the listener on this host is in DDPMODE";
// Handed back to after_connect, which knows a required connection by it.
constexpr const char kProvedAndRequired[] = "required, and the listener on this host is in DDPMODE";
constexpr const char kRequiredUnproved[] = "required; the peer is not proved";
constexpr const char kNobodyThere[] = "no listener on this host: the peer cannot prove itself";
constexpr const char kNotRegistered[] = "the listener on this host is not in DDPMODE";
constexpr const char kCannotAsk[] = "the kernel's socket table cannot be asked";
constexpr const char kNoRegistry[] = "this user has no registry";
constexpr const char kFull[] = "this user's registry is full";
constexpr const char kNotHere[] = "the other end is not on this host after all";
constexpr const char kProvedClient[] = "the client on this host is in DDPMODE";
constexpr const char kAwaitingClient[] = "the client on this host requires DDPMODE";
constexpr const char kPlainClient[] = "the client on this host is not in DDPMODE";
constexpr const char kSniff[] = "the client is not proved: its first bytes decide";

// Was there a filter of system calls before the program? What it does to ours is found out when the
// first connection or listener may become ours. kHurts: that one, or one that the program has set.
enum class Filter : uint8_t { kNone, kUntried, kBorne, kHurts };

struct Policy {
  RuleSet rules;
  std::atomic<bool> is_active = false;
  std::atomic<Filter> filter = Filter::kNone;
};
constinit Policy policy;

// Nothing else may be used so early: this may run before the constructors of libc's users.
void complain(const TextError& error) {
  static constexpr char kHead[] = "ddpsock: DDPSOCK_RULES is malformed, the library stays off: ";
  std::array<char, 256> line{};
  std::strcpy(line.data(), kHead);
  std::strncat(line.data(), "expected ", line.size() - std::strlen(line.data()) - 1);
  std::strncat(line.data(), error.expected, line.size() - std::strlen(line.data()) - 2);
  std::strcat(line.data(), "\n");
  base::kernel_call(SYS_write, STDERR_FILENO, line.data(), std::strlen(line.data()));
}

void load_policy() {
  const char* text = secure_getenv("DDPSOCK_RULES");
  if (text == nullptr) return;
  static char binary[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", binary, sizeof binary);
  const auto* started_as = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  const Program program{started_as != nullptr ? started_as : "",
                        {binary, n > 0 ? static_cast<size_t>(n) : 0}};
  if (const auto parsed = parse_rules(text, program, policy.rules); !parsed) {
    complain(parsed.error());
    return;
  }
  const char* crc = secure_getenv("DDPSOCK_CRC");
  policy.rules.set_default_crc(crc == nullptr || std::string_view(crc) != "0");
  policy.is_active = policy.rules.can_choose();
  if (policy.is_active && is_under_filter()) policy.filter = Filter::kUntried;
}

// Once, in the first thread that asks; the library's own start is early enough to be that.
const Policy& the_policy() {
  enum : int { kUnread, kReading, kRead };
  static constinit std::atomic<int> state{kUnread};
  if (state.load(std::memory_order_acquire) == kRead) [[likely]]
    return policy;
  int unread = kUnread;
  if (state.compare_exchange_strong(unread, kReading)) {
    load_policy();
    state.store(kRead, std::memory_order_release);
  }
  while (state.load(std::memory_order_acquire) != kRead) {
  }
  return policy;
}

__attribute__((constructor)) void read_policy_at_start() {
  // Before a program can change what it was started with.
  if (the_policy().is_active) may_use_sockets_by_rings();
}

// A program that says which sockets are to be streams knows what it does with them.
bool is_by_rings(Wish wish) {
  if (wish != Wish::kNone || !is_policy_active()) return false;
  look_for_ring_code();
  return may_use_sockets_by_rings();
}

bool is_filtered() {
  if (may_filter_hurt()) may_choose();
  return policy.filter.load(std::memory_order_relaxed) == Filter::kHurts;
}

Decision decide(Role role, const Address& server, Wish wish) {
  if (wish == Wish::kStream) return {Action::kRequire, true, 0};
  if (wish == Wish::kOff || !the_policy().is_active) return {Action::kOff, true, 0};
  return the_policy().rules.decide(role, server);
}

Verdict plain(const char* reason) {
  return {.mode = Mode::kPlain, .wants_crc = true, .reason = reason};
}

// Where nothing can be in DDPMODE.
Verdict plain_although(const Decision& d, const char* reason) {
  Verdict verdict = plain(reason);
  verdict.is_required = d.action == Action::kRequire;
  return verdict;
}

const char* reason_of(Listening listening) {
  switch (listening) {
    case Listening::kRegistered:
      return kProvedListener;
    case Listening::kUnregistered:
      return kNotRegistered;
    case Listening::kNone:
      return kNobodyThere;
    case Listening::kUnknown:
      return kCannotAsk;
  }
  return "";
}

// A connection that a rule requires is DDP towards everybody. If somebody on this host takes it, a
// publication saves the accepting side from guessing.
Verdict require(int fd, const Inquiry& inquiry, const Address& server, Listening listening,
                bool wants_crc) {
  // Who is about to listen here may be in DDPMODE.
  const bool is_here = listening == Listening::kRegistered ||
                       listening == Listening::kUnregistered || server.is_loopback();
  const bool is_proved = listening == Listening::kRegistered;
  const bool is_published =
      is_here && publish_client(inquiry, server, wants_crc, !is_proved) == Publication::kDone;
  if (!is_here) forget_client(fd);
  if (is_published && is_proved)
    return {Mode::kProved, wants_crc, kProvedAndRequired, true, inquiry};
  return {Mode::kRequired, wants_crc, kRequiredUnproved, true};
}

Verdict prefer(int fd, const Inquiry& inquiry, const Address& server, Listening listening,
               bool wants_crc) {
  if (listening == Listening::kRegistered) {
    const Publication published = publish_client(inquiry, server, wants_crc, false);
    if (published == Publication::kDone)
      return {Mode::kProved, wants_crc, kProvedListener, false, inquiry};
    return plain(published == Publication::kFull ? kFull : kNoRegistry);
  }
  forget_client(fd);
  return plain(reason_of(listening));
}

Verdict judge_unproved(int listener, Client client, const Decision& d) {
  if (d.action == Action::kRequire) return {Mode::kRequired, d.wants_crc, kRequiredUnproved, true};
  // "Said nothing" counts only where it would have said something: where the listener is known.
  if (client == Client::kUnpublished && is_silence_proof(listener)) return plain(kPlainClient);
  return {Mode::kUndecided, d.wants_crc, kSniff};
}

// So that nobody else's connections cost a question: asked of the kernel only where somebody has
// asked for them.
constinit std::atomic<bool> is_kernel_asked{false};

bool has_kernel_option_here(int fd) {
  return is_kernel_asked.load(std::memory_order_relaxed) && has_kernel_option(fd);
}

}  // namespace

bool is_policy_active() {
  return the_policy().is_active.load(std::memory_order_relaxed);
}

bool may_choose() {
  if (!is_policy_active()) return false;
  if (policy.filter.load(std::memory_order_relaxed) != Filter::kUntried) [[likely]]
    return true;
  const base::KeepErrno keep;
  if (survives_our_calls())
    policy.filter = Filter::kBorne;
  else
    give_way_to_filter();
  return is_policy_active();
}

bool may_filter_hurt() {
  const Filter filter = the_policy().filter.load(std::memory_order_relaxed);
  return filter == Filter::kUntried || filter == Filter::kHurts;
}

void choose_nothing() {
  the_policy();
  policy.is_active = false;
}

void give_way_to_filter() {
  if (may_choose_nothing()) choose_nothing();
  policy.filter = Filter::kHurts;
}

bool may_choose_nothing() {
  return !the_policy().rules.can_require();
}

bool permits_kernel_option(Wish wish) {
  if (wish == Wish::kStream) return false;
  if (wish == Wish::kNone && is_policy_active() && the_policy().rules.can_require()) return false;
  is_kernel_asked.store(true, std::memory_order_relaxed);
  return true;
}

bool has_kernel_option(int fd) {
  const base::KeepErrno keep;
  const auto is_set = [fd](int level, int option, int unset) {
    int value = unset;
    socklen_t length = sizeof value;
    return base::kernel_call(SYS_getsockopt, fd, level, option, &value, &length) == 0 &&
           value != unset;
  };
  // Asked without room for it, the kernel tells how long the filter is; one of eBPF it never shows.
  socklen_t filter = 0;
  const bool is_told =
      base::kernel_call(SYS_getsockopt, fd, SOL_SOCKET, SO_GET_FILTER, nullptr, &filter) == 0;
  if (is_told ? filter != 0 : errno == EACCES) return true;
  for (const int option : {SO_TIMESTAMP_OLD, SO_TIMESTAMPNS_OLD, SO_TIMESTAMPING_OLD,
                           SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_NEW, SO_ZEROCOPY})
    if (is_set(SOL_SOCKET, option, 0)) return true;
  return is_set(SOL_SOCKET, SO_PEEK_OFF, -1) || is_set(IPPROTO_TCP, TCP_REPAIR, 0);
}

Verdict before_connect(int fd, const sockaddr* to, socklen_t length, Wish wish) {
  const auto server = read_address(to, length);
  if (!server) return plain(kNotIp);
  const Decision d = decide(Role::kClient, *server, wish);
  const bool is_off = d.action == Action::kOff;
  if (!is_off && is_filtered()) return plain_although(d, kFiltered);
  const bool is_by_ring = !is_off && is_by_rings(wish);
  if (is_off || is_by_ring || has_kernel_option_here(fd)) {
    forget_client(fd);
    return is_by_ring ? plain_although(d, kRings) : plain(is_off ? kOff : kKernelOption);
  }
  Inquiry inquiry = begin_inquiry(fd);
  const Listening listening = find_listening(fd, *server, inquiry);
  return d.action == Action::kRequire ? require(fd, inquiry, *server, listening, d.wants_crc)
                                      : prefer(fd, inquiry, *server, listening, d.wants_crc);
}

void give_up_connecting(int fd) {
  forget_client(fd);
}

Verdict after_connect(int fd, const Verdict& before) {
  const bool is_required = before.reason == kProvedAndRequired;
  if (before.mode != Mode::kProved ||
      confirm_client(fd, before.inquiry, is_required) == Confirmation::kConfirmed)
    return before;
  if (is_required) return {Mode::kRequired, before.wants_crc, kRequiredUnproved};
  return plain(kNotHere);
}

const char* why_not_to_listen(int fd, Wish wish) {
  const char* const why = is_filtered() ? kFiltered : is_by_rings(wish) ? kRings : nullptr;
  if (why == nullptr) return nullptr;
  const auto bound = local_address(fd);
  return bound && decide(Role::kServer, *bound, wish).action == Action::kRequire ? why : nullptr;
}

bool register_listener(int fd, Wish wish, Opened opened) {
  const auto bound = local_address(fd);
  if (!bound || bound->port == 0) return false;
  if (is_filtered() || is_by_rings(wish)) return true;
  const bool is_off = wish == Wish::kNone
                          ? !the_policy().is_active || the_policy().rules.is_off_for_some(*bound)
                          : wish == Wish::kOff;
  if (is_off) return true;
  // Also by whoever has handed it on.
  if (wish == Wish::kNone && !the_policy().rules.can_require() && has_kernel_option(fd)) {
    is_kernel_asked.store(true, std::memory_order_relaxed);
    return true;
  }
  const bool wants_crc = decide(Role::kServer, *bound, wish).wants_crc;
  if (opened == Opened::kElsewhere)
    adopt_listener(fd, wants_crc);
  else
    publish_listener(fd, wants_crc, Traffic::kStream);
  return true;
}

void note_listening(int fd) {
  note_listened(fd);
}

bool is_listener_registered(int fd) {
  return is_listener_published(fd);
}

void note_inherited_listener(int fd) {
  keep_registry_of(fd);
}

bool note_escaped_listener(int fd, Escape how) {
  return count_escaped(fd, how, 1);
}

void note_returned_listener(int fd, Escape how) {
  count_escaped(fd, how, -1);
}

bool note_handed_out(int fd) {
  return count_escaped_listeners_of(fd, 1);
}

void note_not_handed_out(int fd) {
  count_escaped_listeners_of(fd, -1);
}

void ask_with_nothing_kept() {
  forbid_diag_socket();
}

void forget_listener(int fd) {
  withdraw_listener(fd, Traffic::kStream);
}

Verdict after_accept(int listener, int fd, Wish wish, uint64_t netns) {
  Inquiry inquiry;
  inquiry.key.netns = netns;
  inquiry.ends = ends_of(fd);
  const auto local = inquiry.ends ? address_of(inquiry.ends->local) : local_address(fd);
  if (!local) return plain(kNotIp);
  const Decision d = decide(Role::kServer, *local, wish);
  const bool is_off = d.action == Action::kOff;
  if (is_filtered()) return plain_although(d, kFiltered);
  const char* why_plain = is_off                       ? kOff
                          : is_by_rings(wish)          ? kRings
                          : has_kernel_option_here(fd) ? kKernelOption
                                                       : nullptr;
  // Clients were told of a published listener that it is in DDPMODE, whatever is wished now.
  if (why_plain != nullptr && !is_listener_published(listener)) return plain(why_plain);
  const Client client = find_client(fd, inquiry);
  const bool is_required = d.action == Action::kRequire;
  if (client == Client::kPublished)
    return {Mode::kProved, d.wants_crc, kProvedClient, is_required, inquiry};
  if (client == Client::kAwaiting)
    return {Mode::kRequired, d.wants_crc, kAwaitingClient, is_required, inquiry};
  if (why_plain != nullptr) return plain(why_plain);
  Verdict unproved = judge_unproved(listener, client, d);
  unproved.inquiry = inquiry;
  return unproved;
}

}  // namespace ddpsock::shim
