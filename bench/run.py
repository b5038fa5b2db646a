#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs benchmarks and writes build/bench/results.json; see README.md for what each one asks."""

import argparse
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tools"))

import machine
import passthrough
import results
import stream

BENCHES = {"passthrough": passthrough.measure, "stream": stream.measure}


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which ones (all: {' '.join(BENCHES)})")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, at least 5 for results.json")
    parser.add_argument("--seconds", type=float, default=0.25, help="length of one timed sample")
    parser.add_argument("--no-pin", action="store_true", help="leave the placement of the two processes to the kernel")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the stream cases whose name contains TEXT")
    args = parser.parse_args()
    unknown = [n for n in args.name if n not in BENCHES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are: {' '.join(BENCHES)}")
    if args.rounds < results.MIN_ROUNDS:
        parser.error(f"fewer than {results.MIN_ROUNDS} rounds say nothing")

    facts = machine.facts(is_pinned=not args.no_pin)
    print(json.dumps(facts, indent=1))
    for name in args.name or BENCHES:
        print(f"\n{name}", flush=True)
        found, samples = BENCHES[name](args)
        results.store(name, found, samples, facts, is_partial=bool(args.only))
        print(results.render(found))
    print(f"\n{machine.relative(results.RESULTS)}: medians; the samples are beside it.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
