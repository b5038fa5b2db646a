#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A system call fails: each that one end of an exchange makes, one at a time, in a program under ddprun. The exchange ends with
the right bytes; or the program is told an errno that the same call, failing so, gives it natively too. Never a hang, a signal
or a wrong byte.

faults_test.py DDPRUN ENGINE EXCHANGE [--all | --one-of N] [--side S] [--policy P] [--call NAME[:ERROR[:NUMBER]]]

strace makes the calls fail. Without --all, one of every N pairs of a call and an error, another one each day of the year.
"""

import argparse
import collections
import concurrent.futures
import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import exchange

SKIPPED = 77  # meson's exit status for a skipped test

# What may come of each call that is not the caller's mistake.
ERRORS = {
    "mmap": ["ENOMEM"], "munmap": ["ENOMEM"], "mprotect": ["ENOMEM"], "mremap": ["ENOMEM"], "madvise": ["ENOMEM", "EAGAIN"],
    "brk": ["ENOMEM"], "memfd_create": ["EMFILE", "ENFILE", "ENOMEM", "ENOSYS"], "socket": ["EMFILE", "ENFILE", "ENOBUFS", "EAFNOSUPPORT"],
    "socketpair": ["EMFILE", "ENFILE", "ENOMEM"], "openat": ["EMFILE", "ENFILE", "ENOMEM", "EACCES", "ENOENT", "EINTR"],
    "fstat": ["ENOMEM"], "newfstatat": ["ENOMEM", "ENOENT"], "statx": ["ENOMEM", "ENOSYS"], "getsockopt": ["ENOMEM", "ENOPROTOOPT"],
    "setsockopt": ["ENOMEM", "ENOPROTOOPT"], "epoll_create1": ["EMFILE", "ENFILE", "ENOMEM"], "epoll_ctl": ["ENOMEM", "ENOSPC"],
    "epoll_wait": ["EINTR"], "pidfd_open": ["EMFILE", "ENFILE", "ENOMEM", "ENOSYS"], "ftruncate": ["ENOMEM", "EINTR", "EFBIG"],
    "fallocate": ["ENOSPC", "ENOMEM", "EINTR", "EOPNOTSUPP"], "fcntl": ["EMFILE", "ENOMEM", "ENOLCK", "EINVAL"], "fchmod": ["EPERM", "EIO"],
    "dup": ["EMFILE"], "dup2": ["EBUSY", "EINTR"], "dup3": ["EMFILE", "EBUSY"], "ioctl": ["ENOMEM"], "flock": ["ENOLCK", "EINTR"],
    "sendto": ["ENOMEM", "ENOBUFS", "EINTR", "EAGAIN"], "recvfrom": ["ENOMEM", "EINTR"],
    "sendmsg": ["ENOMEM", "ENOBUFS", "EINTR", "EAGAIN"], "recvmsg": ["ENOMEM", "EINTR"],
    "write": ["ENOMEM", "EINTR", "ENOSPC"], "read": ["ENOMEM", "EINTR"], "writev": ["ENOMEM", "EINTR"], "readv": ["ENOMEM", "EINTR"],
    "getdents64": ["ENOMEM", "EINTR"], "pread64": ["ENOMEM", "EINTR"], "lseek": ["EINVAL"], "poll": ["ENOMEM", "EINTR"], "ppoll": ["ENOMEM", "EINTR"],
    "pselect6": ["ENOMEM", "EINTR"], "select": ["ENOMEM", "EINTR"], "futex": ["EINTR", "EAGAIN"], "clone3": ["EAGAIN", "ENOMEM", "ENOSYS"],
    "clone": ["EAGAIN", "ENOMEM"], "shmget": ["ENOSPC", "ENOMEM", "ENOSYS"], "shmat": ["ENOMEM", "EACCES"], "shmctl": ["EPERM"],
    "shmdt": ["ENOMEM"], "getsockname": ["ENOBUFS"], "getpeername": ["ENOBUFS"], "shutdown": ["ENOTCONN"], "close": ["EINTR", "EIO"],
    "readlink": ["ENOMEM", "ENOENT"], "prlimit64": ["EPERM"], "kill": ["EPERM"], "getrandom": ["EINTR", "EAGAIN", "ENOSYS"],
    "bind": ["EADDRINUSE"], "listen": ["EADDRINUSE"], "accept4": ["EMFILE", "ENFILE", "ENOBUFS", "EINTR"], "accept": ["EMFILE", "EINTR"],
    "connect": ["EADDRNOTAVAIL"], "timerfd_create": ["EMFILE", "ENOMEM"], "eventfd2": ["EMFILE", "ENOMEM"],
    "process_vm_readv": ["EPERM", "ENOSYS"], "mkdir": ["ENOSPC"], "unlink": ["EIO"], "rename": ["ENOSPC"], "rt_sigaction": ["EINVAL"],
    "rt_sigprocmask": ["EINVAL"], "sched_getaffinity": ["EPERM"], "clock_nanosleep": ["EINTR"], "io_uring_setup": ["ENOMEM", "ENOSYS"],
    "mlock": ["ENOMEM"], "munlock": ["ENOMEM"], "sigaltstack": ["ENOMEM"], "set_robust_list": ["ENOSYS"], "rseq": ["ENOSYS"], "sched_yield": ["ENOSYS"],
}
# The end of the program itself, and what gives no error.
NEVER = {"getresuid", "getresgid", "pwritev2", "exit_group", "exit", "getppid", "execve", "getpid", "gettid", "geteuid", "getuid", "getgid", "getegid", "rt_sigreturn",
         "restart_syscall", "clock_gettime", "getcpu", "tgkill", "set_tid_address", "arch_prctl", "wait4"}
START = "mark@begin"  # the program calls getppid() there


class Bench:
    def __init__(self, ddprun, engine, program, policy):
        self.engine, self.program, self.policy = engine, program, policy
        self.registry = tempfile.mkdtemp(prefix="ddpsock-test-")
        os.chmod(self.registry, 0o1777)
        env = exchange.clean_environment(DDPSOCK_REGISTRY_DIR=self.registry)
        shown = subprocess.run([ddprun, "--" + policy, "--engine", engine, "--", "env"], env=env, capture_output=True, text=True,
                               check=True).stdout
        # For the program only, not for strace.
        self.loading = [word for name in ("LD_PRELOAD", "DDPSOCK_RULES", "DDPSOCK_ENGINE")
                        for word in ("-E", re.search(f"^{name}=.*", shown, re.M)[0])]
        self.env = env
        self.loaded_env = {**env, **dict(word.split("=", 1) for word in self.loading[1::2])}

    def end(self):
        shutil.rmtree(self.registry)

    def usual(self, is_loaded):
        return lambda arguments: exchange.End([self.program, *arguments], env=self.loaded_env if is_loaded else self.env)

    def traced(self, is_loaded, *options):
        command = ["strace", "-f", "-qq", *options, *(self.loading if is_loaded else [])]
        return lambda arguments: exchange.End([*command, self.program, *arguments, START], env=self.env)

    def play(self, side, is_loaded, *options):
        """The outcomes of the end that is traced, and of the other."""
        traced, usual = self.traced(is_loaded, *options), self.usual(is_loaded)
        outcomes = exchange.exchange(*((traced, usual) if side == "server" else (usual, traced)))
        return outcomes if side == "server" else outcomes[::-1]

    def play_fault(self, fault):
        """The outcomes, and the call that failed as strace saw it."""
        with tempfile.NamedTemporaryFile("r", errors="replace") as trace:
            outcomes = self.play(fault.side, True, *fault.options(trace.name))
            return outcomes, next((line.strip() for line in trace if "(INJECTED)" in line), "")

    def count_calls(self, side, is_loaded):
        """Of the first thread: {call: (how many before the start of the program's own work, how many in all)}."""
        with tempfile.NamedTemporaryFile("r") as table:
            outcomes = self.play(side, is_loaded, "-o", table.name)
            if not all(outcome and outcome.is_ok for outcome in outcomes):
                sys.exit(f"nothing fails, and yet: {outcomes}")
            first, before, now = None, None, collections.Counter()
            for line in table:
                found = re.match(r"(\d+) +(\w+)\(", line)
                if not found or (first := first or found[1]) != found[1]:
                    continue
                now[found[2]] += 1
                if found[2] == "getppid":
                    before = now.copy()
            return {call: (before[call], number) for call, number in now.items() if number > before[call]}


class Fault:
    def __init__(self, side, call, error, number):
        self.side, self.call, self.error, self.number = side, call, error, number

    def __str__(self):
        return f"{self.side}: {self.call} number {self.number} fails with {self.error}"

    def options(self, trace):
        return ("-o", trace, "-e", f"trace={self.call}", "-e", f"inject={self.call}:error={self.error}:when={self.number}")


def may_not_come(line):
    """A call that does not wait and finds bytes there is neither interrupted nor short of memory; and what a socket is and is
    called is no question that a kernel which knows it refuses."""
    return ("recv" in line and "MSG_DONTWAIT" in line) or "SO_COOKIE" in line or "getsockname(" in line or "getpeername(" in line


def judge(fault, outcomes, native_calls, policy):
    """None if it is right, else what is wrong."""
    hurt, other = outcomes
    if hurt is None:
        return None if other.failure else "the other end did not start"
    is_accept = hurt.failure in (("accept", errno.ECONNABORTED), ("accept", errno.ENFILE))
    if is_accept and other is not None and other.status is not None:
        return None  # who accepts had told the client of memory that it has not; the next is another matter
    # A server whose client has given up waits for the next.
    is_left = fault.side == "client" and hurt.failure is not None
    if hurt.status is None or (other is not None and other.status is None and not is_left):
        return "hangs"
    if hurt.is_ok and other is not None and other.is_ok:
        return None
    for outcome in outcomes:
        is_cut = outcome is None or outcome.said in ("wrong early end", "wrong end")
        if not is_cut and outcome.status not in (0, 1, None):
            return "ended"
    code = getattr(errno, fault.error)
    if hurt.failure is None:
        return "other than natively"
    is_programs_own = fault.call in native_calls and hurt.failure[1] == code
    is_refused = policy == "require" and hurt.failure[1] in (
        code, errno.EPROTO, errno.ENOBUFS, errno.ECONNRESET, errno.ECONNABORTED)
    return None if is_programs_own or is_refused else "a failure that is not the call's own"


def list_faults(calls, side, options):
    wanted = (options.call or "").split(":")
    faults = []
    for call, (before, number) in sorted(calls.items()):
        if call in NEVER or (wanted[0] and call != wanted[0]):
            continue
        if call not in ERRORS:
            sys.exit(f"{call}: which errors may it give?")
        for error in wanted[1:2] or ERRORS[call]:
            numbers = wanted[2:3] or range(before + 1, number + 1)
            faults += [Fault(side, call, error, int(n)) for n in numbers]
    return faults


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("ddprun", type=os.path.abspath)
    parser.add_argument("engine")
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--one-of", type=int, default=40)
    parser.add_argument("--side", choices=["server", "client"])
    parser.add_argument("--policy", choices=["prefer", "require"])
    parser.add_argument("--call")
    return parser.parse_args()


def run(bench, side, options):
    native = bench.count_calls(side, False)
    calls = bench.count_calls(side, True)
    faults = list_faults(calls, side, options)
    if not options.all and not options.call:
        faults = faults[time.localtime().tm_yday % options.one_of::options.one_of]
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for fault, outcomes, line in pool.map(lambda fault: (fault, *bench.play_fault(fault)), faults):
            verdict = judge(fault, outcomes, native, bench.policy)
            if verdict is not None and not may_not_come(line):
                wrong += 1
                print(f"{bench.engine}, {bench.policy}, {fault}: {verdict}: {outcomes}\n  {line}", flush=True)
    return len(faults), wrong


def main():
    options = parse()
    if not exchange.find("strace"):
        print("strace is not installed")
        return SKIPPED
    total, wrong = 0, 0
    for policy in [options.policy] if options.policy else ["prefer", "require"]:
        bench = Bench(options.ddprun, options.engine, options.program, policy)
        try:
            for side in [options.side] if options.side else ["server", "client"]:
                done = run(bench, side, options)
                total, wrong = total + done[0], wrong + done[1]
        finally:
            bench.end()
    print(f"{total} faults, {wrong} with another outcome than they may have")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
