#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs each libFuzzer target of a build folder for an equal share of the given seconds.

usage: fuzz.py BUILD SECONDS

A target X_fuzz starts from tests/fuzz/corpus/X (or X_fuzz); what it finds new is kept in BUILD/corpus/X_fuzz for the next run, and
an input that breaks it in BUILD/crashes/X_fuzz-*. Exits 1 if any target failed, or if there is none.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INPUT_SECONDS = 10
RSS_LIMIT_MB = 2048
START_AND_STOP_SECONDS = 60


def find_targets(build):
    return sorted(p for p in build.rglob("*_fuzz") if p.is_file() and os.access(p, os.X_OK))


def seed_corpora(name):
    corpus = ROOT / "tests" / "fuzz" / "corpus"
    return [str(p) for p in (corpus / name, corpus / name.removesuffix("_fuzz")) if p.is_dir()]


def run_target(target, build, seconds):
    found = build / "corpus" / target.name
    crashes = build / "crashes"
    found.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    before = set(crashes.iterdir())
    seeds = seed_corpora(target.name)
    command = [str(target), f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={RSS_LIMIT_MB}",
               f"-artifact_prefix={crashes}/{target.name}-", "-print_final_stats=1", str(found), *seeds]
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace", timeout=seconds + START_AND_STOP_SECONDS)
        status, output = run.returncode, run.stdout
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
        status, output = -1, output.decode(errors="replace") if isinstance(output, bytes) else output
    new = sorted(set(crashes.iterdir()) - before)
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    print(f"{target.name}: {runs.group(1) if runs else 0} runs in {seconds} s from {len(seeds)} seed folder(s), "
          f"{'ok' if status == 0 else f'FAILED with status {status}'}", flush=True)
    if status != 0:
        print("\n".join(output.splitlines()[-60:]))
    for crash in new:
        print(f"  broken by {crash}")
    return status == 0


def main():
    build, seconds = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
    targets = find_targets(build)
    if not targets:
        print(f"no *_fuzz target in {build}")
        return 1
    share = max(1, seconds // len(targets))
    results = [run_target(t, build, share) for t in targets]
    print(f"{sum(results)} of {len(results)} targets ran clean")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
