#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A server that waits as PostgreSQL's backends do is not asked each time whether its socket waits (fcntl), nor the kernel what else
is ready where there is no room to tell (poll). Its client, which blocks, asks once a round where both are on one CPU.

backend_calls_test.py PROGRAM -- COMMAND...   COMMAND stands before the program, to load the library
"""

import shutil
import sys

from system_calls_test import SKIPPED, cost_of_rounds

ROUNDS = 100
MOST = 2.0  # 3.3 and 4.2 before they were left out, on two CPUs and on one


def main():
    program, separator, *loading = sys.argv[1:]
    assert separator == "--"
    if not shutil.which("strace"):
        print("strace is not installed")
        return SKIPPED
    cost = {name: count / ROUNDS for name, count in cost_of_rounds(loading, program).items()}
    for name, count in sorted(cost.items(), key=lambda item: -item[1]):
        print(f"{count:6.2f} {name}")
    asked = cost.get("fcntl", 0) + cost.get("poll", 0)
    print(f"{asked:.2f} fcntl and poll a round, at most {MOST}")
    return 0 if asked <= MOST and cost.get("epoll_wait", 0) > 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
