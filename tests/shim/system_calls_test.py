#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""With the library loaded and rules off, a program makes the same system calls as without it.

system_calls_test.py ROUNDS_PROGRAM -- COMMAND...   COMMAND stands before the program, to load the library

Counts, with strace, what a hundred rounds more cost, so that start-up does not count, and prints the
calls of start-up that the library adds.
"""

import collections
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77  # meson's exit status for a skipped test


def counts(command):
    with tempfile.NamedTemporaryFile("r") as table:
        run = subprocess.run(["strace", "-f", "-c", "-o", table.name, *command], capture_output=True, text=True, timeout=60)
        if run.returncode != 0:
            sys.exit(f"{command}: status {run.returncode}: {run.stderr}")
        calls = collections.Counter()
        for line in table:
            fields = line.split()
            if len(fields) >= 5 and fields[0].replace(".", "").isdigit() and fields[-1] != "total":
                calls[fields[-1]] += int(fields[3])
        return calls


def cost_of_rounds(before, program, *arguments):
    cost = counts([*before, program, "101", *arguments])
    cost.subtract(counts([*before, program, "1", *arguments]))
    return {name: count for name, count in cost.items() if count}


def main():
    program, separator, *loading = sys.argv[1:]
    assert separator == "--"
    if not shutil.which("strace"):
        print("strace is not installed")
        return SKIPPED
    plain, loaded = cost_of_rounds([], program), cost_of_rounds(loading, program)
    if sum(plain.values()) < 100 * 100:
        sys.exit(f"strace counted too little: {plain}")
    for name in sorted(plain.keys() | loaded.keys()):
        if plain.get(name, 0) != loaded.get(name, 0):
            print(f"{name}: {plain.get(name, 0)} calls without the library, {loaded.get(name, 0)} with it")
    print(f"{sum(plain.values())} calls in 100 rounds without the library, {sum(loaded.values())} with it")
    return 0 if plain == loaded else 1


if __name__ == "__main__":
    sys.exit(main())
