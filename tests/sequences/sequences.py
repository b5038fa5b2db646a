#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs random sequences of calls in every column, compares what was seen with plain TCP's, and shrinks what differs.

A difference counts if it is there again when the sequence is run by itself, with time for everything to arrive between
calls, and plain TCP is not seen to answer so too. Exits 1 if there is one that known.txt does not name.
"""

import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

# column -> options of ddprun (none: without it), options of the program
COLUMNS = {
    "native": (None, []),
    "off": (["--off"], []),
    "user": (["--require", "--engine", "user"], []),
    "shm": (["--require", "--engine", "shm"], []),
    "plain_client": (["--prefer", "--engine", "user"], ["--plain", "clients"]),
    "plain_server": (["--prefer", "--engine", "user"], ["--plain", "servers"]),
}
AT_ONCE = 512  # sequences between two looks
PATIENCE = 3  # ms between calls when a sequence is run again
KNOWN = pathlib.Path(__file__).parent / "known.txt"


class Known:
    """One line of known.txt: columns | a call before it | plain TCP's line | the column's line | why."""

    def __init__(self, line):
        columns, before, native, other, self.why = (part.strip() for part in line.split(" | "))
        self.columns = set(columns.split(","))
        self.before, self.native, self.other = (re.compile(text) for text in (before, native, other))

    def fits(self, column, native, other):
        if column not in self.columns:
            return False
        a, b = first_difference(native, other)
        return self.native.search(a) and self.other.search(b) and any(self.before.search(line) for line in other)


def read_known():
    lines = KNOWN.read_text().splitlines()
    return [Known(line) for line in lines if line and not line.startswith("#")]


def first_difference(one, other):
    for a, b in zip(one, other):
        if a != b:
            return a, b
    longer = one if len(one) > len(other) else other
    extra = longer[min(len(one), len(other))] if len(one) != len(other) else ""
    return (extra, "(nothing)") if longer is one else ("(nothing)", extra)


class Runner:
    def __init__(self, program, ddprun, registry):
        self.program, self.ddprun = program, ddprun
        self.environment = dict(os.environ, DDPSOCK_REGISTRY_DIR=registry)

    def start(self, column, first, count, *options):
        before, behind = COLUMNS[column]
        command = [] if before is None else [self.ddprun, *before, "--"]
        command += [self.program, "--first", str(first), "--count", str(count), *behind, *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=self.environment, stdin=subprocess.DEVNULL)

    @staticmethod
    def read(process):
        """seed -> lines."""
        text = process.stdout.read().decode(errors="replace")
        process.stdout.close()
        process.wait()
        logs = {}
        for part in text.split("== ")[1:]:
            seed, *lines = part.splitlines()
            logs[int(seed)] = lines
        return logs

    def run_one(self, column, seed, *options):
        return self.read(self.start(column, seed, 1, *options)).get(seed, ["(no log)"])

    def differing(self, column, seed, times, *options):
        """A log of plain TCP's and one of the column's, if the column gave none that plain TCP gave."""
        native = [self.start("native", seed, 1, *options) for _ in range(times)]
        native = [self.read(process).get(seed, ["(no log)"]) for process in native]
        others = [self.start(column, seed, 1, *options) for _ in range(times)]
        others = [self.read(process).get(seed, ["(no log)"]) for process in others]
        return None if any(other in native for other in others) else (native[0], others[0])

    def shrink(self, column, seed, length):
        """The smallest part of the sequence that differs still, and its two logs."""
        def logs_of(part):
            return self.differing(column, seed, 2, "--patience", str(PATIENCE), "--only", ",".join(map(str, part)))

        part = list(range(length))
        best = logs_of(part)
        if best is None:
            return None
        size = max(1, len(part) // 2)
        while True:
            at, smaller = len(part), False
            while at > 0:
                without = part[:max(0, at - size)] + part[at:]
                found = logs_of(without) if without else None
                if found is not None:
                    part, best, smaller = without, found, True
                at -= size
            if size > 1:
                size //= 2
            elif not smaller:
                return part, best


class Comparison:
    def __init__(self, runner, columns, may_shrink, known):
        self.runner, self.columns, self.may_shrink, self.known = runner, columns, may_shrink, known
        self.ran, self.differences, self.late, self.named = 0, [], [], {}

    def compare(self, first, count):
        processes = {c: self.runner.start(c, first, count) for c in ["native", *self.columns]}
        logs = {}
        # All columns run at the same time; each log is small enough to wait in memory.
        import concurrent.futures
        with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
            logs = dict(zip(processes, pool.map(Runner.read, processes.values())))
        for seed in range(first, first + count):
            native = logs["native"].get(seed, ["(no log)"])
            for column in self.columns:
                other = logs[column].get(seed, ["(no log)"])
                if other != native:
                    self.judge(column, seed, native, other)
        self.ran += count

    def judge(self, column, seed, native, other):
        if self.is_known(column, native, other):
            return
        # A busy machine: what ran out of time by itself says nothing of the library.
        if any("the process died" in line for line in native):
            self.late.append((column, seed, *first_difference(native, other)))
            return
        again = self.runner.differing(column, seed, 3, "--patience", str(PATIENCE))
        if again is None:
            self.late.append((column, seed, *first_difference(native, other)))
            return
        if self.is_known(column, *again) or any("the process died" in line for line in again[0]):
            return
        length = 1 + max((int(line.split()[0]) for line in again[0] + again[1] if line[:1].isdigit()), default=0)
        shrunk = self.runner.shrink(column, seed, length) if self.may_shrink else None
        part, logs = shrunk or (list(range(length)), again)
        # Where plain TCP answers so at times, too, it is nobody's fault.
        options = ("--patience", str(PATIENCE), "--only", ",".join(map(str, part)))
        if any(self.runner.run_one("native", seed, *options) == logs[1] for _ in range(6)):
            self.late.append((column, seed, *first_difference(*logs)))
            return
        if self.is_known(column, *logs):
            return
        self.differences.append((column, seed))
        self.report(column, seed, part, logs)

    def is_known(self, column, native, other):
        for entry in self.known:
            if entry.fits(column, native, other):
                self.named[entry.why] = self.named.get(entry.why, 0) + 1
                return True
        return False

    @staticmethod
    def report(column, seed, part, logs):
        native, other = logs
        print(f"\n{column} differs from plain TCP: --seed {seed} --only {','.join(map(str, part))}")
        for i in range(max(len(native), len(other))):
            a, b = (log[i] if i < len(log) else "(nothing)" for log in (native, other))
            print(f"    {a}" if a == b else f"  < {a}\n  > {b}")
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("ddprun")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, help="of the first sequence; default: random")
    parser.add_argument("--column", action="append", choices=[c for c in COLUMNS if c != "native"] + ["native"])
    parser.add_argument("--only", help="with --count 1: these calls of the sequence, and print what was seen")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--most", type=int, default=20, help="differences after which to stop")
    parser.add_argument("--late", action="store_true", help="print what differed only once, too")
    args = parser.parse_args()
    columns = args.column or [c for c in COLUMNS if c != "native"]
    seed = args.seed if args.seed is not None else random.randrange(1, 1 << 40)
    print(f"{args.count} sequences from seed {seed}: {', '.join(columns)}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as registry:
        os.chmod(registry, 0o1777)
        runner = Runner(args.program, args.ddprun, registry)
        if args.only:
            options = ("--patience", str(PATIENCE), "--only", args.only)
            for column in columns:
                Comparison.report(column, seed, args.only.split(","),
                                  (runner.run_one("native", seed, *options), runner.run_one(column, seed, *options)))
            return 0
        comparison = Comparison(runner, columns, not args.no_shrink, read_known())
        while comparison.ran < args.count and len(comparison.differences) < args.most:
            comparison.compare(seed + comparison.ran, min(AT_ONCE, args.count - comparison.ran))
            rate = comparison.ran / (time.monotonic() - start)
            print(f"{comparison.ran} of {args.count}, {len(comparison.differences)} differ, "
                  f"{len(comparison.late)} once only, {rate:.0f} a second", flush=True)
    if args.late:
        for late in comparison.late:
            print("once:", *late)
    for why, count in sorted(comparison.named.items()):
        print(f"known, {count} times: {why}")
    print(f"ran {comparison.ran} sequences in {1 + len(columns)} columns from seed {seed}: "
          f"{len(comparison.differences)} differ, {len(comparison.late)} differed once only")
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main())
