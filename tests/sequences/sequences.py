#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs random sequences of calls in every column, compares what was seen with plain TCP's, and shrinks what differs.

A difference counts if it is there again when the sequence is run by itself, with time for everything to arrive between
calls, and plain TCP is not seen to answer so too. Exits 1 if there is one that known.txt does not name.
"""

import argparse
import collections
import concurrent.futures
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
AT_ONCE = 2048  # sequences between two looks
PIECE = 64  # sequences that a program runs
PATIENT_PIECE = 4
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


NO_LOG = ["(no log)"]


class Runner:
    def __init__(self, program, ddprun, registry, jobs):
        self.program, self.ddprun = program, ddprun
        # The ring of a sequence polls; sockets are not read through it.
        self.environment = dict(os.environ, DDPSOCK_REGISTRY_DIR=registry, DDPSOCK_IO_URING="files")
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)

    def run_piece(self, column, seeds, options):
        before, behind = COLUMNS[column]
        command = [] if before is None else [self.ddprun, *before, "--"]
        command += [self.program, "--seeds", ",".join(map(str, seeds)), *behind, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, env=self.environment, stdin=subprocess.DEVNULL)
        logs = {}
        for part in done.stdout.decode(errors="replace").split("== ")[1:]:
            seed, *lines = part.splitlines()
            logs[int(seed)] = lines
        return [logs.get(seed, NO_LOG) for seed in seeds]

    def run(self, wanted, *options, piece=PIECE):
        """Runs pairs of a column and a seed, and gives a log for each, in the same order."""
        of_column = {}
        for at, (column, _) in enumerate(wanted):
            of_column.setdefault(column, []).append(at)
        pieces = [(column, places[i:i + piece]) for column, places in of_column.items()
                  for i in range(0, len(places), piece)]
        # One after the other of each column, so that all are at work at the same time.
        pieces.sort(key=lambda one: one[1][0] - of_column[one[0]][0])
        futures = [self.pool.submit(self.run_piece, column, [wanted[at][1] for at in places], options)
                   for column, places in pieces]
        logs = [NO_LOG] * len(wanted)
        for (_, places), future in zip(pieces, futures):
            for at, log in zip(places, future.result()):
                logs[at] = log
        return logs

    def differing(self, column, seed, times, *options):
        """A log of plain TCP's and one of the column's, if the column gave none that plain TCP gave."""
        logs = self.run([("native", seed)] * times + [(column, seed)] * times, *options, piece=1)
        native, others = logs[:times], logs[times:]
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


class Suspect:
    """A sequence that a column answered otherwise, and what it and plain TCP have answered."""

    def __init__(self, column, seed):
        self.column, self.seed = column, seed
        self.forget()
        self.first = None  # the lines that differed

    def forget(self):
        self.native, self.others = [], []

    def is_native(self):
        return any(other in self.native for other in self.others)

    def ran_out_of_time(self):
        """A busy machine: that plain TCP ran out of time by itself says nothing of the library."""
        return any("the process died" in line for log in self.native for line in log)


class Comparison:
    def __init__(self, runner, columns, may_shrink, known):
        self.runner, self.columns, self.may_shrink, self.known = runner, columns, may_shrink, known
        self.ran, self.differences, self.late, self.named = 0, [], [], {}

    def compare(self, first, count):
        seeds = range(first, first + count)
        wanted = [(column, seed) for column in ["native", *self.columns] for seed in seeds]
        logs = dict(zip(wanted, self.runner.run(wanted)))
        suspects = []
        for column, seed in wanted[count:]:
            suspect = Suspect(column, seed)
            suspect.native, suspect.others = [logs["native", seed]], [logs[column, seed]]
            if suspect.is_native():
                continue
            suspect.first = first_difference(logs["native", seed], logs[column, seed])
            if self.is_open(suspect):
                suspects.append(suspect)
        self.ran += count
        suspects = self.again(suspects, 1)
        for suspect in suspects:
            suspect.forget()
        suspects = self.again(suspects, 3, "--patience", str(PATIENCE), piece=PATIENT_PIECE)
        for suspect in suspects:
            self.judge(suspect)

    def again(self, suspects, times, *options, piece=PIECE):
        """Runs them again, and gives those that differ still."""
        wanted = [("native", seed) for seed in sorted({suspect.seed for suspect in suspects})]
        wanted += [(suspect.column, suspect.seed) for suspect in suspects]
        runs = [dict(zip(wanted, self.runner.run(wanted, *options, piece=piece))) for _ in range(times)]
        for suspect in suspects:
            suspect.native += [run["native", suspect.seed] for run in runs]
            suspect.others += [run[suspect.column, suspect.seed] for run in runs]
        return [suspect for suspect in suspects if self.is_open(suspect)]

    def is_open(self, suspect):
        if suspect.is_native() or suspect.ran_out_of_time():
            self.late.append((suspect.column, suspect.seed, *suspect.first))
            return False
        return not any(self.is_known(suspect.column, suspect.seed, suspect.native[0], other)
                       for other in suspect.others)

    def judge(self, suspect):
        column, seed, again = suspect.column, suspect.seed, (suspect.native[0], suspect.others[0])
        length = 1 + max((int(line.split()[0]) for line in again[0] + again[1] if line[:1].isdigit()), default=0)
        part, logs = list(range(length)), again
        if self.may_shrink:
            shrunk = self.runner.shrink(column, seed, length)
            # By itself it answers as plain TCP does: a busy machine.
            if shrunk is None:
                self.late.append((column, seed, *first_difference(*again)))
                return
            part, logs = shrunk
        # Where plain TCP answers so at times, too, it is nobody's fault.
        options = ("--patience", str(PATIENCE), "--only", ",".join(map(str, part)))
        if logs[1] in self.runner.run([("native", seed)] * 6, *options, piece=1):
            self.late.append((column, seed, *first_difference(*logs)))
            return
        if self.is_known(column, seed, *logs):
            return
        self.differences.append((column, seed))
        self.report(column, seed, part, logs)

    def is_known(self, column, seed, native, other):
        for entry in self.known:
            if entry.fits(column, native, other):
                self.named.setdefault(entry.why, []).append((column, seed, *first_difference(native, other)))
                return True
        return False

    def known_count(self):
        return sum(map(len, self.named.values()))

    @staticmethod
    def report(column, seed, part, logs):
        native, other = logs
        print(f"\n{column} differs from plain TCP: --seed {seed} --only {','.join(map(str, part))}")
        for i in range(max(len(native), len(other))):
            a, b = (log[i] if i < len(log) else "(nothing)" for log in (native, other))
            print(f"    {a}" if a == b else f"  < {a}\n  > {b}")
        sys.stdout.flush()


class Log:
    """One line a look: seed of the first | sequences | differ | fit known.txt. A run with the same one goes on behind it."""

    def __init__(self, path):
        self.path = path

    def next_seed(self):
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        ends = [int(first) + int(count) for first, count, *_ in (line.split(" | ") for line in lines)]
        return max(ends, default=None)

    def add(self, *numbers):
        with self.path.open("a", encoding="ascii") as file:
            print(*numbers, sep=" | ", file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("ddprun")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, help="of the first sequence; default: random")
    parser.add_argument("--log", type=pathlib.Path, help="note what was run; without --seed: go on behind what is noted")
    parser.add_argument("--column", action="append", choices=[c for c in COLUMNS if c != "native"] + ["native"])
    parser.add_argument("--only", help="with --count 1: these calls of the sequence, and print what was seen")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--most", type=int, default=20, help="differences after which to stop")
    parser.add_argument("--jobs", type=int, default=4 * (os.cpu_count() or 1), help="programs at the same time")
    parser.add_argument("--all", action="store_true", help="print what differed only once and what is known, too")
    args = parser.parse_args()
    columns = args.column or [c for c in COLUMNS if c != "native"]
    log = Log(args.log) if args.log else None
    seed = args.seed if args.seed is not None else log and log.next_seed() or random.randrange(1, 1 << 40)
    print(f"{args.count} sequences from seed {seed}: {', '.join(columns)}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as registry:
        os.chmod(registry, 0o1777)
        runner = Runner(args.program, args.ddprun, registry, args.jobs)
        if args.only:
            options = ("--patience", str(PATIENCE), "--only", args.only)
            for column in columns:
                Comparison.report(column, seed, args.only.split(","),
                                  runner.run([("native", seed), (column, seed)], *options))
            return 0
        comparison = Comparison(runner, columns, not args.no_shrink, read_known())
        while comparison.ran < args.count and len(comparison.differences) < args.most:
            before = (comparison.ran, len(comparison.differences), comparison.known_count())
            comparison.compare(seed + comparison.ran, min(AT_ONCE, args.count - comparison.ran))
            if log:
                behind = (comparison.ran, len(comparison.differences), comparison.known_count())
                log.add(seed + before[0], *(b - a for a, b in zip(before, behind)))
            rate = comparison.ran / (time.monotonic() - start)
            print(f"{comparison.ran} of {args.count}, {len(comparison.differences)} differ, "
                  f"{len(comparison.late)} once only, {rate:.0f} a second", flush=True)
    if args.all:
        for late in comparison.late:
            print("once:", *late, sep=" | ")
        for why, those in sorted(comparison.named.items()):
            for one in those:
                print("known:", *one, why, sep=" | ")
    for why, those in sorted(comparison.named.items()):
        print(f"known, {len(those)} times: {why}")
    late = collections.Counter(column for column, *_ in comparison.late)
    print(f"ran {comparison.ran} sequences in {1 + len(columns)} columns from seed {seed}: "
          f"{len(comparison.differences)} differ, differed once only: {dict(late)}")
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main())
