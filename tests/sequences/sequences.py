#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs random sequences of calls in every column, compares what was seen with plain TCP's, and shrinks what differs.

A difference counts if it is there again when the sequence is run by itself, with time for everything to arrive between
calls, and plain TCP is not seen to answer so too. Exits 1 if there is one that known.txt does not name.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

from known import first_difference, read_known

# column -> options of ddprun (none: without it), options of the program
COLUMNS = {
    "native": (None, []),
    "off": (["--off"], []),
    "user": (["--require", "--engine", "user"], []),
    "shm": (["--require", "--engine", "shm"], []),
    "prefer": (["--prefer"], []),
    "prefer_user": (["--prefer", "--engine", "user"], []),
    "plain_client": (["--prefer", "--engine", "user"], ["--plain", "clients"]),
    "plain_server": (["--prefer", "--engine", "user"], ["--plain", "servers"]),
}
AT_ONCE = 1024  # sequences of a look
AHEAD = 3  # looks under way: one runs again what differed while the next are at work
PIECE = 64  # sequences that a program runs
PATIENT_PIECE = 4
PATIENCE = 3  # ms between calls when a sequence is run again


NO_LOG = ["(no log)"]


class Gate:
    """Many may be inside, or one alone."""

    def __init__(self):
        self.changed = threading.Condition()
        self.inside, self.is_closed = 0, False

    def __enter__(self):
        with self.changed:
            self.changed.wait_for(lambda: not self.is_closed)
            self.inside += 1

    def __exit__(self, *_):
        with self.changed:
            self.inside -= 1
            self.changed.notify_all()

    @contextlib.contextmanager
    def alone(self):
        with self.changed:
            self.is_closed = True
            self.changed.wait_for(lambda: self.inside == 0)
        try:
            yield
        finally:
            with self.changed:
                self.is_closed = False
                self.changed.notify_all()


class Runner:
    def __init__(self, program, ddprun, registry, jobs, gate=contextlib.nullcontext()):
        self.program, self.ddprun, self.gate = program, ddprun, gate
        # The ring of a sequence polls; sockets are not read through it.
        self.environment = dict(os.environ, DDPSOCK_REGISTRY_DIR=registry, DDPSOCK_IO_URING="files")
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)

    def stop(self):
        self.pool.shutdown(cancel_futures=True)

    def run_piece(self, column, seeds, options):
        before, behind = COLUMNS[column]
        command = [] if before is None else [self.ddprun, *before, "--"]
        command += [self.program, "--seeds", ",".join(map(str, seeds)), *behind, *options]
        with self.gate:
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


class Suspect:
    """A sequence that a column answered otherwise, and what it and plain TCP have answered."""

    def __init__(self, column, seed):
        self.column, self.seed = column, seed
        self.forget()
        self.first = None  # the lines that differed

    def forget(self):
        self.native, self.others = [], []

    def calls(self):
        lines = self.native[0] + self.others[0]
        return list(range(1 + max((int(line.split()[0]) for line in lines if line[:1].isdigit()), default=0)))

    def is_native(self):
        return any(other in self.native for other in self.others)

    def ran_out_of_time(self):
        """A busy machine: that plain TCP ran out of time by itself says nothing of the library."""
        return any("the process died" in line for log in self.native for line in log)


class Look:
    """A run of some sequences in all columns, and what of it differs still when it is run again and is not known."""

    def __init__(self, judge, columns, seeds):
        self.judge, self.runner, self.columns, self.seeds = judge, judge.runner, columns, seeds
        self.late, self.named = [], {}
        self.suspects = []
        self.parts = {}  # seed -> what a column's difference was shrunk to

    def run(self):
        wanted = [(column, seed) for column in ["native", *self.columns] for seed in self.seeds]
        logs = dict(zip(wanted, self.runner.run(wanted)))
        for column, seed in wanted[len(self.seeds):]:
            suspect = Suspect(column, seed)
            suspect.native, suspect.others = [logs["native", seed]], [logs[column, seed]]
            if suspect.is_native():
                continue
            suspect.first = first_difference(logs["native", seed], logs[column, seed])
            if self.is_open(suspect):
                self.suspects.append(suspect)
        self.again(1)
        for suspect in self.suspects:
            suspect.forget()
        self.again(3, "--patience", str(PATIENCE), piece=PATIENT_PIECE)
        if self.judge.may_shrink:
            with concurrent.futures.ThreadPoolExecutor() as pool:
                are_known = list(pool.map(self.is_known_in_small, self.suspects))
            self.suspects = [suspect for suspect, is_known in zip(self.suspects, are_known) if not is_known]
        return self

    def again(self, times, *options, piece=PIECE):
        """Runs the suspects again, and keeps those that differ still."""
        wanted = [("native", seed) for seed in sorted({suspect.seed for suspect in self.suspects})]
        wanted += [(suspect.column, suspect.seed) for suspect in self.suspects]
        logs = {}
        for pair, log in zip(wanted * times, self.runner.run(wanted * times, *options, piece=piece)):
            logs.setdefault(pair, []).append(log)
        for suspect in self.suspects:
            suspect.native += logs["native", suspect.seed]
            suspect.others += logs[suspect.column, suspect.seed]
        self.suspects = [suspect for suspect in self.suspects if self.is_open(suspect)]

    def is_open(self, suspect):
        if suspect.is_native() or suspect.ran_out_of_time():
            self.late.append((suspect.column, suspect.seed, *suspect.first))
            return False
        return not any(self.is_known(suspect.column, suspect.seed, suspect.native[0], other)
                       for other in suspect.others)

    def is_known(self, column, seed, native, other):
        for entry in self.judge.known:
            if entry.fits(column, native, other):
                self.named.setdefault(entry.why, []).append((column, seed, *first_difference(native, other)))
                return True
        return False

    def is_known_in_small(self, suspect):
        """Beside other sequences: nothing else is decided so."""
        column, seed = suspect.column, suspect.seed
        smallest = self.judge.shrink(column, seed, suspect.calls(), self.parts.get(seed))
        if smallest is None:
            return False
        self.parts[seed], logs = smallest
        return self.is_known(column, seed, *logs)


class Judge:
    """Runs a suspect with time between calls, and finds the smallest part of it that differs still."""

    def __init__(self, runner, known, may_shrink):
        self.runner, self.known, self.may_shrink = runner, known, may_shrink

    def judge(self, look, suspect):
        """Gives the part and its two logs, if it is a difference; notes at the look why it is none."""
        column, seed, logs = suspect.column, suspect.seed, (suspect.native[0], suspect.others[0])
        part = suspect.calls()
        if self.may_shrink:
            shrunk = self.shrink(column, seed, part, look.parts.get(seed))
            # By itself it answers as plain TCP does: a busy machine.
            if shrunk is None:
                look.late.append((column, seed, *first_difference(*logs)))
                return None
            part, logs = shrunk
        # Where plain TCP answers so at times, too, it is nobody's fault.
        if logs[1] in self.runner.run([("native", seed)] * 6, *options_of(part), piece=1):
            look.late.append((column, seed, *first_difference(*logs)))
            return None
        return None if look.is_known(column, seed, *logs) else (part, logs)

    def shrink(self, column, seed, part, guess=None):
        """A guess, of another run or column, is as small as need be if it differs."""
        best = self.differing(column, seed, guess) if guess else None
        if best is not None:
            return guess, best
        best = self.differing(column, seed, part)
        if best is None:
            return None
        size = max(1, len(part) // 2)
        while True:
            at, smaller = len(part), False
            while at > 0:
                without = part[:max(0, at - size)] + part[at:]
                found = self.differing(column, seed, without) if without else None
                if found is not None:
                    part, best, smaller = without, found, True
                at -= size
            if size > 1:
                size //= 2
            elif not smaller:
                return part, best

    def differing(self, column, seed, part):
        """A log of plain TCP's and one of the column's, if the column gave none that plain TCP gave."""
        logs = self.runner.run([("native", seed)] * 2 + [(column, seed)] * 2, *options_of(part), piece=1)
        native, others = logs[:2], logs[2:]
        return None if any(other in native for other in others) else (native[0], others[0])


def options_of(part):
    return "--patience", str(PATIENCE), "--only", ",".join(map(str, part))


def report(column, seed, part, logs):
    native, other = logs
    print(f"\n{column} differs from plain TCP: --seed {seed} --only {','.join(map(str, part))}")
    for i in range(max(len(native), len(other))):
        a, b = (log[i] if i < len(log) else "(nothing)" for log in (native, other))
        print(f"    {a}" if a == b else f"  < {a}\n  > {b}")
    sys.stdout.flush()


class Log:
    """One line for what was run without a gap at one revision. A run with the same log goes on behind it."""

    HEAD = "# revision | columns beside native | first seed | last | differ | fit known.txt | differed once only"

    def __init__(self, path, revision, columns):
        self.path, self.key = path, [revision, ",".join(columns)]
        self.lines = path.read_text(encoding="ascii").splitlines() if path.exists() else [self.HEAD]

    def rows(self):
        return [line.split(" | ") for line in self.lines if not line.startswith("#")]

    def next_seed(self):
        return max((int(row[3]) + 1 for row in self.rows()), default=None)

    def add(self, seeds, *counts):
        row = [*self.key, seeds[0], seeds[-1], *counts]
        last = self.rows()[-1:]
        if last and last[0][:2] == self.key and int(last[0][3]) + 1 == seeds[0]:
            self.lines.pop()
            row = [*self.key, last[0][2], seeds[-1], *(int(a) + b for a, b in zip(last[0][4:], counts))]
        self.lines.append(" | ".join(map(str, row)))
        self.path.write_text("\n".join(self.lines) + "\n", encoding="ascii")


def revision_of_sources():
    done = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def looks(judge, columns, first, count):
    """Runs them, some ahead, and gives them in the order of their seeds."""
    starts = iter(range(first, first + count, AT_ONCE))
    under_way = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(AHEAD) as pool:
        try:
            while True:
                for start in itertools.islice(starts, AHEAD - len(under_way)):
                    seeds = range(start, min(start + AT_ONCE, first + count))
                    under_way.append(pool.submit(Look(judge, columns, seeds).run))
                if not under_way:
                    return
                yield under_way.popleft().result()
        finally:
            judge.runner.stop()


class Comparison:
    def __init__(self, args, columns, log):
        self.args, self.columns, self.log = args, columns, log
        self.ran, self.differ, self.late, self.named = 0, 0, [], {}

    def run(self, seed, beside, alone):
        """The judges: who decides while other sequences run, and who decides then."""
        start = time.monotonic()
        for look in looks(beside, self.columns, seed, self.args.count):
            found = self.judge(look, beside.runner.gate, alone)
            self.ran += len(look.seeds)
            self.differ += found
            self.late += look.late
            for why, those in look.named.items():
                self.named.setdefault(why, []).extend(those)
            if self.log:
                self.log.add(look.seeds, found, sum(map(len, look.named.values())), len(look.late))
            rate = self.ran / (time.monotonic() - start)
            late = len(self.late)
            print(f"{self.ran} of {self.args.count}, {self.differ} differ, {late} once only, {rate:.0f} a second", flush=True)
            if self.differ >= self.args.most:
                break

    @staticmethod
    def judge(look, gate, judge):
        found = 0
        with gate.alone() if look.suspects else contextlib.nullcontext():
            for suspect in look.suspects:
                difference = judge.judge(look, suspect)
                if difference is not None:
                    report(suspect.column, suspect.seed, *difference)
                    found += 1
        return found

    def print(self, seed):
        if self.args.all:
            for late in self.late:
                print("once:", *late, sep=" | ")
            for why, those in sorted(self.named.items()):
                for one in those:
                    print("known:", *one, why, sep=" | ")
        for why, those in sorted(self.named.items()):
            print(f"known, {len(those)} times: {why}")
        late = collections.Counter(column for column, *_ in self.late)
        print(f"ran {self.ran} sequences in {1 + len(self.columns)} columns from seed {seed}: "
              f"{self.differ} differ, differed once only: {dict(late)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("ddprun")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, help="of the first sequence; default: random")
    parser.add_argument("--log", type=pathlib.Path, help="note what was run; without --seed: go on behind what is noted")
    parser.add_argument("--revision", help="that the log names; default: that of these sources")
    parser.add_argument("--column", action="append", choices=[c for c in COLUMNS if c != "native"] + ["native"])
    parser.add_argument("--only", help="with --count 1: these calls of the sequence, and print what was seen")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--most", type=int, default=20, help="differences after which to stop")
    parser.add_argument("--jobs", type=int, default=4 * (os.cpu_count() or 1), help="programs at the same time")
    parser.add_argument("--all", action="store_true", help="print what differed only once and what is known, too")
    args = parser.parse_args()
    columns = args.column or [c for c in COLUMNS if c != "native"]
    log = Log(args.log, args.revision or revision_of_sources(), columns) if args.log else None
    seed = args.seed if args.seed is not None else log and log.next_seed() or random.randrange(1, 1 << 40)
    print(f"{args.count} sequences from seed {seed}: {', '.join(columns)}", flush=True)
    with tempfile.TemporaryDirectory() as registry:
        os.chmod(registry, 0o1777)
        alone = Runner(args.program, args.ddprun, registry, args.jobs)
        if args.only:
            part = args.only.split(",")
            for column in columns:
                report(column, seed, part, alone.run([("native", seed), (column, seed)], *options_of(part)))
            return 0
        comparison = Comparison(args, columns, log)
        many = Runner(args.program, args.ddprun, registry, args.jobs, Gate())
        judges = [Judge(runner, read_known(), not args.no_shrink) for runner in (many, alone)]
        comparison.run(seed, *judges)
    comparison.print(seed)
    return 1 if comparison.differ else 0


if __name__ == "__main__":
    sys.exit(main())
