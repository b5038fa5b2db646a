#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two ends that wait by poll or select for streams in shared memory make no system call, as long as they never have to wait; where
each also waits for a pipe, only the kernel's poll. TCP takes six a round.

poll_calls_test.py PROGRAM -- COMMAND...   COMMAND stands before the program, to load the library
"""

import shutil
import sys

from system_calls_test import SKIPPED, cost_of_rounds

ROUNDS = 100
CASES = [[call, streams] for call in ("poll", "ppoll", "select", "pselect") for streams in ("1", "8")]
MOST, MOST_BESIDE_A_PIPE = 1.0, 3.5  # of both ends, and where a millisecond passes a few more; 8 and 9 before


def main():
    program, separator, *loading = sys.argv[1:]
    assert separator == "--"
    if not shutil.which("strace"):
        print("strace is not installed")
        return SKIPPED
    is_good = True
    for case in CASES:
        for pipe, most in (([], MOST), (["pipe"], MOST_BESIDE_A_PIPE)):
            calls = cost_of_rounds(loading, program, *case, "8", "alone", *pipe)
            cost = sum(calls.values()) / ROUNDS
            is_good &= cost <= most
            print(f"{cost:6.2f} at most {most}: {' '.join([*case, *pipe])}: {calls}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
