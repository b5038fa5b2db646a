# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs the ways of one question in interleaved rounds and keeps what came out, case by case."""

import dataclasses
import os
import statistics
import time

import machine
import results


class Failed(Exception):
    """A run did not finish; the message has what it printed."""


@dataclasses.dataclass
class Case:
    """One point of one figure: what each way gave in each round."""
    figure: str
    name: str
    x: float | str  # its place in the figure
    unit: str
    better: str  # lower or higher
    samples: dict  # way -> one value a round
    cpu_us: dict = dataclasses.field(default_factory=dict)  # way -> of both sides an operation, one value a round
    calls: dict = dataclasses.field(default_factory=dict)  # way -> system calls of both sides an operation
    per: str = "message"  # what an operation is
    line_ns: list = dataclasses.field(default_factory=list)  # before each round: a cache line's way to the other CPU and back
    when: str = dataclasses.field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M"))
    load: float = dataclasses.field(default_factory=lambda: round(os.getloadavg()[0], 2))


class Recorder:
    """What the command line asked for, and what has been found so far."""

    def __init__(self, args):
        self.rounds, self.seconds = args.rounds, args.seconds
        self.is_quick, self.is_pinned, self.only = args.quick, not args.no_pin, args.only
        self.cases, self.problems = [], []
        self.line_ns = []  # of the rounds of the last interleave()

    def wants(self, name):
        return self.only in name

    def thin(self, values, keep=3):
        """All of them, or `keep` spread over them in a quick run."""
        values = list(values)
        if not self.is_quick or len(values) <= keep:
            return values
        return [values[round(i * (len(values) - 1) / (keep - 1))] for i in range(keep)]

    def interleave(self, what, ways, sample, rounds=None):
        """Calls sample(way) for each way in turn; another way comes first in each round, so that none is always the one
        after the slow one. A way that fails is left out from there on, and said to have failed."""
        runs = {way: [] for way in ways}
        self.line_ns = []
        for number in range(rounds or self.rounds):
            self.line_ns.append(machine.line_ns())
            left = list(runs)
            turn = number % len(left) if left else 0
            for way in left[turn:] + left[:turn]:
                try:
                    runs[way].append(sample(way))
                except Failed as failed:
                    self.problem(f"{what}: {way.name}: {failed}")
                    del runs[way]
        return runs

    def problem(self, text):
        print(f"FAILED {text}", flush=True)
        self.problems.append(text)

    def record(self, case):
        """Keeps a case, unless nothing is left of it."""
        if any(case.samples.values()):
            self.cases.append(case)
            print(describe(case), flush=True)

    def record_key(self, figure, name, x, unit, better, runs, key, per="message"):
        self.record(make_case(figure, name, x, unit, better, runs, key, per, self.line_ns))

    def compare(self, figure, name, x, unit, better, ways, sample, key, per="message"):
        """A case whose samples are dicts: `key` is its value, `cpu_us`, if there, the CPU time of an operation."""
        runs = self.interleave(name, ways, sample)
        self.record_key(figure, name, x, unit, better, runs, key, per)
        return runs


def make_case(figure, name, x, unit, better, runs, key, per="message", line_ns=()):
    return Case(figure, name, x, unit, better, {way.name: [row[key] for row in rows] for way, rows in runs.items()},
                {way.name: [row["cpu_us"] for row in rows] for way, rows in runs.items() if rows and "cpu_us" in rows[0]},
                per=per, line_ns=list(line_ns))


def describe(case):
    parts = [f"{way} {statistics.median(values):.4g} ({results.spread(values)})" for way, values in case.samples.items()]
    return f"{case.name}, {case.unit}: " + "; ".join(parts)
