# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes a number that changes with every header that says how the arena is laid out.

usage: layout_number.py ROOT OUTPUT DEPFILE HEADER...     (headers by their names in #include)
"""
import hashlib
import pathlib
import re
import sys


def with_included(root, names):
    seen = []
    while names:
        name = names.pop()
        if name in seen or not (root / name).is_file():
            continue
        seen.append(name)
        names += re.findall(r'^#include "([^"]+)"', (root / name).read_text(), re.MULTILINE)
    return sorted(seen)


def main():
    root, output, depfile, *names = sys.argv[1:]
    headers = with_included(pathlib.Path(root), names)
    text = "".join(f"{name}\n{(pathlib.Path(root) / name).read_text()}" for name in headers)
    number = hashlib.sha256(text.encode()).hexdigest()[:16]
    pathlib.Path(output).write_text(f"#define DDPSOCK_ARENA_LAYOUT 0x{number}\n")
    pathlib.Path(depfile).write_text(f"{output}: {' '.join(str(pathlib.Path(root) / name) for name in headers)}\n")


main()
