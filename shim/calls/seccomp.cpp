// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program that takes system calls away from itself does not know which ones its library makes for
// it. Before a filter that would end it for one of those, its connections return to plain TCP: read
// and write are then its own. Connections that begin later are plain, or fail where a rule requires
// another thing.
#include "shim/calls/seccomp.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "base/keep_errno.h"
#include "engine/observer.h"
#include "shim/calls.h"
#include "shim/calls/leaving.h"
#include "shim/fd_table.h"
#include "shim/policy/our_calls.h"
#include "shim/policy/policy.h"
#include "shim/program_memory.h"
#include "shim/real.h"
#include "stream/stream.h"

namespace ddpsock::shim {
namespace {

constexpr int kSetSeccomp = 22;  // PR_SET_SECCOMP; <sys/prctl.h> declares prctl its own way

// Classic BPF over one seccomp_data, as the kernel runs it. What the kernel would not accept kills.
class Filter {
 public:
  explicit Filter(const sock_fprog& program) : program_(program) {}

  uint32_t run(const seccomp_data& data) const {
    State s{};
    for (size_t at = 0; at < program_.len; ++at) {
      const sock_filter& i = program_.filter[at];
      switch (BPF_CLASS(i.code)) {
        case BPF_RET:
          return BPF_RVAL(i.code) == BPF_A ? s.a : i.k;
        case BPF_JMP:
          at += jump(i, s);
          break;
        case BPF_ALU:
          if (!calculate(i, s)) return SECCOMP_RET_KILL_PROCESS;
          break;
        default:
          if (!move(i, s, data)) return SECCOMP_RET_KILL_PROCESS;
      }
    }
    return SECCOMP_RET_KILL_PROCESS;
  }

 private:
  struct State {
    uint32_t a = 0, x = 0;
    std::array<uint32_t, BPF_MEMWORDS> memory{};
  };

  static size_t jump(const sock_filter& i, const State& s) {
    const uint32_t other = BPF_SRC(i.code) == BPF_X ? s.x : i.k;
    switch (BPF_OP(i.code)) {
      case BPF_JEQ:
        return s.a == other ? i.jt : i.jf;
      case BPF_JGT:
        return s.a > other ? i.jt : i.jf;
      case BPF_JGE:
        return s.a >= other ? i.jt : i.jf;
      case BPF_JSET:
        return (s.a & other) != 0 ? i.jt : i.jf;
      default:  // BPF_JA
        return i.k;
    }
  }

  static bool calculate(const sock_filter& i, State& s) {
    const uint32_t other = BPF_SRC(i.code) == BPF_X ? s.x : i.k;
    switch (BPF_OP(i.code)) {
      case BPF_ADD:
        s.a += other;
        return true;
      case BPF_SUB:
        s.a -= other;
        return true;
      case BPF_MUL:
        s.a *= other;
        return true;
      case BPF_DIV:
        if (other == 0) return false;
        s.a /= other;
        return true;
      case BPF_OR:
        s.a |= other;
        return true;
      case BPF_AND:
        s.a &= other;
        return true;
      case BPF_XOR:
        s.a ^= other;
        return true;
      case BPF_LSH:
        s.a = other < 32 ? s.a << other : 0;
        return true;
      case BPF_RSH:
        s.a = other < 32 ? s.a >> other : 0;
        return true;
      case BPF_NEG:
        s.a = 0 - s.a;
        return true;
      default:
        return false;
    }
  }

  static bool move(const sock_filter& i, State& s, const seccomp_data& data) {
    const bool is_to_x = BPF_CLASS(i.code) == BPF_LDX || BPF_CLASS(i.code) == BPF_STX;
    uint32_t& place = is_to_x ? s.x : s.a;
    switch (BPF_CLASS(i.code)) {
      case BPF_ST:
      case BPF_STX:
        if (i.k >= BPF_MEMWORDS) return false;
        s.memory[i.k] = place;
        return true;
      case BPF_MISC:
        BPF_MISCOP(i.code) == BPF_TAX ? s.x = s.a : s.a = s.x;
        return true;
      default:
        break;
    }
    switch (BPF_MODE(i.code)) {
      case BPF_IMM:
        place = i.k;
        return true;
      case BPF_LEN:
        place = sizeof(seccomp_data);
        return true;
      case BPF_MEM:
        if (i.k >= BPF_MEMWORDS) return false;
        place = s.memory[i.k];
        return true;
      case BPF_ABS:
        if (i.k > sizeof(data) - sizeof(place)) return false;
        memcpy(&place, reinterpret_cast<const char*>(&data) + i.k, sizeof(place));
        return true;
      default:
        return false;
    }
  }

  const sock_fprog& program_;
};

}  // namespace

bool would_hurt(const sock_fprog& program) {
  if (program.len == 0 || program.filter == nullptr) return false;  // no filter: it is refused
  const Filter filter(program);
  // What differs from time to time may also be what such filters allow: one number will not do.
  constexpr long kExamples[] = {0, 1021};
  const auto is_any_action = [&](const OurCall& call, auto matches) {
    bool is_any = false;
    each_form(call, [&](const OurArguments& form) {
      for (const long example : kExamples) {
        seccomp_data data{
            .nr = call.number, .arch = AUDIT_ARCH_X86_64, .instruction_pointer = 0, .args = {}};
        std::ranges::transform(form.values, data.args, [=](long value) {
          return static_cast<uint64_t>(value == kAny ? example : value);
        });
        is_any = is_any || matches(filter.run(data) & SECCOMP_RET_ACTION_FULL, form.may_fail);
      }
    });
    return is_any;
  };
  const auto is_refused = [](uint32_t action, bool may_fail) {
    return action != SECCOMP_RET_ALLOW && action != SECCOMP_RET_LOG &&
           !(may_fail && action == SECCOMP_RET_ERRNO);
  };
  const auto is_end = [=](uint32_t action, bool) { return is_refused(action, true); };
  const auto refuses = [&](const OurCall& call) { return is_any_action(call, is_refused); };
  const auto ends = [&](const OurCall& call) { return is_any_action(call, is_end); };
  return std::ranges::any_of(kNeededCalls, refuses) ||
         std::ranges::any_of(kDispensableCalls, ends) || ends(kSuperusersCall);
}

// What is accepted from now on is plain; clients are told so while that can be done.
static void give_up_listeners() {
  for (int fd = 0; fd < fds_end(); ++fd) {
    if (!is_ours(fd)) continue;
    const SocketUse use(fd);
    if (!use || use.phase() != Phase::kListening) continue;
    forget_listener(fd);
    forget_stale_fd(fd);
  }
}

// What the kernel cannot read it refuses.
static bool is_whole(const sock_fprog* program) {
  return is_readable(program, sizeof(*program)) && program->len > 0 &&
         program->len <= BPF_MAXINSNS &&
         is_readable(program->filter, program->len * sizeof(sock_filter));
}

// Null: strict mode.
static void leave_for_filter(const sock_fprog* filter) {
  ask_with_nothing_kept();
  if (!is_any_ours() && !is_policy_active()) return;
  if (filter != nullptr && !would_hurt(*filter)) return;
  const bool is_left =
      leave_ddp_mode_everywhere("a seccomp filter forbids system calls of DDPMODE");
  give_way_to_filter();
  const base::KeepErrno keep;
  give_up_listeners();
  if (is_left) engine::user_stream_engine().fall_silent();
}

void before_seccomp(unsigned long mode, const void* program) {
  const auto* const filter = static_cast<const sock_fprog*>(program);
  const bool is_filter = mode == SECCOMP_MODE_FILTER && is_whole(filter);
  if (mode != SECCOMP_MODE_STRICT && !is_filter) return;
  leave_for_filter(is_filter ? filter : nullptr);
  if (engine::is_observed.load())
    engine::observer->stop_recording("the program has a seccomp filter from here on");
}

int own_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
  if (option == kSetSeccomp) before_seccomp(a, reinterpret_cast<const void*>(b));
  return real.prctl(option, a, b, c, d);
}

}  // namespace ddpsock::shim
