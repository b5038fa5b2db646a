#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs benchmarks, writes build/bench/results.json and draws report.html; README.md says what each one asks."""

import argparse
import json
import pathlib
import signal
import sys
import time

import machine
import needs
import recorder
import report
import results
import ways
from benches import BENCHES

QUICK_ROUNDS, QUICK_SECONDS = 2, 0.12


def read_arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which ones (all: {' '.join(BENCHES)})")
    parser.add_argument("--quick", action="store_true",
                        help="few cases, rounds and seconds, into build/bench/quick: shows that all runs, measures nothing")
    parser.add_argument("--rounds", type=int, help=f"interleaved rounds, at least {results.MIN_ROUNDS} (the default)")
    parser.add_argument("--seconds", type=float, help="length of one timed sample (0.25)")
    parser.add_argument("--no-pin", action="store_true", help="leave the placement of the two processes to the kernel")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose name contains TEXT")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="where results.json and report.html go")
    parser.add_argument("--needs", choices=["targets", "packages", "lab"], help="only say what that takes (needs.py), for ./dev")
    args = parser.parse_args()
    unknown = [n for n in args.name if n not in BENCHES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are: {' '.join(BENCHES)}")
    if not args.quick and args.rounds is not None and args.rounds < results.MIN_ROUNDS:
        parser.error(f"fewer than {results.MIN_ROUNDS} rounds say nothing")
    args.rounds = args.rounds or (QUICK_ROUNDS if args.quick else results.MIN_ROUNDS)
    args.seconds = args.seconds or (QUICK_SECONDS if args.quick else 0.25)
    args.out = args.out or machine.BUILD / "bench" / ("quick" if args.quick else "")
    return args


def measure(name, args, facts):
    """Returns what failed."""
    print(f"\n{name}", flush=True)
    notes = recorder.Recorder(args)
    start = time.monotonic()
    try:
        BENCHES[name].measure(notes)
    except recorder.Failed as failed:
        notes.problem(f"{name} ended early: {failed}")
    minutes = (time.monotonic() - start) / 60
    cases = [vars(case) for case in notes.cases]
    found = [result for case in notes.cases for result in results.of_case(name, case)]
    details = {"machine": facts, "rounds": args.rounds, "seconds": args.seconds, "is_quick": args.quick,
               "minutes": round(minutes, 2), "problems": notes.problems, "cases": cases}
    results.store(args.out, name, found, details, is_partial=bool(args.only))
    print(f"{name}: {minutes:.1f} minutes")
    return notes.problems


def end_on_signal(number, _frame):
    """As an exception, so that everything that was started is ended."""
    sys.exit(128 + number)


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, end_on_signal)
    args = read_arguments()
    if args.needs:
        print(needs.told(args.needs, args.name or BENCHES))
        return 0
    facts = machine.facts(is_pinned=not args.no_pin)
    print(json.dumps(facts, indent=1))
    print("engines: " + (", ".join(w.name for w in ways.engines()) or "none is built, so plain TCP only"))
    problems = [p for name in args.name or BENCHES for p in measure(name, args, facts)]
    page = report.write(args.out)
    print(f"\n{machine.relative(args.out / 'results.json')}: medians; the samples are beside it. {machine.relative(page)}: figures.")
    for problem in problems:
        print(f"FAILED {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
