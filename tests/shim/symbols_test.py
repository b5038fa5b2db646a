#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The library exports the calls it declares, the public ddp_ functions, and nothing else.

symbols_test.py LIBRARY CALLS_TXT PUBLIC_HEADER_DIRECTORY
"""

import pathlib
import re
import subprocess
import sys


def exported(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listing.splitlines()]
    # Version nodes are listed as absolute symbols.
    return {row[2].split("@")[0] for row in rows if row[1] != "A"}


def public_functions(directory):
    names = set()
    for header in pathlib.Path(directory).rglob("*.h"):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL)
        names |= set(re.findall(r"\b(ddp_\w+)\s*\([^;{]*\)\s*;", text))
    return names


def main():
    library, calls, headers = sys.argv[1:]
    declared = set(pathlib.Path(calls).read_text().split())
    asked_for = {"__asan_default_options"}  # by AddressSanitizer (shim/runtime.cpp)
    found, public = exported(library), public_functions(headers)
    if not declared:
        sys.exit("no call is declared")
    problems = [f"{name}: exported, but neither declared nor public" for name in sorted(found - declared - public - asked_for)]
    problems += [f"{name}: declared, but not exported" for name in sorted((declared | public) - found)]
    print("\n".join(problems) or f"{len(found)} symbols, as declared")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
