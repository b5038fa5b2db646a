#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a short connection costs both ends in system calls, which must not grow unnoticed.

connection_calls_test.py PROGRAM MOST -- COMMAND...   COMMAND stands before the program, to load the library
"""

import shutil
import sys

from system_calls_test import SKIPPED, cost_of_rounds

CONNECTIONS = 100
PLAIN = 10  # socket, connect, send, recv, close; accept, recv, send, recv, close


def main():
    program, most, separator, *loading = sys.argv[1:]
    assert separator == "--"
    if not shutil.which("strace"):
        print("strace is not installed")
        return SKIPPED
    costs = {way: cost_of_rounds(before, program) for way, before in {"plain": [], "loaded": loading}.items()}
    calls = {way: sum(cost.values()) / CONNECTIONS for way, cost in costs.items()}
    print(f"{calls['plain']:.1f} calls a connection without the library, {calls['loaded']:.1f} with it, at most {most}")
    for name, count in sorted(costs["loaded"].items(), key=lambda item: -item[1]):
        print(f"{count / CONNECTIONS:6.2f} {name}")
    return 0 if abs(calls["plain"] - PLAIN) < 1 and calls["loaded"] <= float(most) else 1


if __name__ == "__main__":
    sys.exit(main())
