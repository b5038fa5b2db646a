#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A server that waits as PostgreSQL's backends do makes no more system calls in shared memory than on TCP, its client's included.

backend_calls_test.py PROGRAM -- COMMAND...   COMMAND stands before the program, to load the library
"""

import shutil
import sys

from system_calls_test import SKIPPED, cost_of_rounds

ROUNDS = 100
PLAIN = 7  # clock_nanosleep, send, recv; epoll_wait, recv, send, recv in vain


def main():
    program, separator, *loading = sys.argv[1:]
    assert separator == "--"
    if not shutil.which("strace"):
        print("strace is not installed")
        return SKIPPED
    plain, loaded = (sum(cost_of_rounds(before, program).values()) / ROUNDS for before in ([], loading))
    print(f"{plain:.2f} calls a round without the library, {loaded:.2f} with it")
    if abs(plain - PLAIN) >= 0.5:
        print("the server was not asleep when it was asked: this machine is too busy to tell")
        return SKIPPED
    return 0 if loaded < plain + 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
