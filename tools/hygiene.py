#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks what every file of the checkout must keep: format, licence line, no path of one machine.

Prints one line per finding, `path: what`, and exits 1 if there is any.
"""

import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENCE = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
LICENCE_LINES = 3  # a #! line may come first
FORMATTED = {".h", ".hpp", ".c", ".cpp"}
# A home, a work area or a checkout of one machine. System paths such as those of proc and dev are fine.
MACHINE_PATH = re.compile(rb"(?<![\w.\-/])/(?:work|root|home|Users)/\w")


def tracked_files():
    """Every file git knows or would add; in an unpacked archive without git, every file outside build folders."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True)
    if listing.returncode == 0:
        names = {n for n in listing.stdout.decode().split("\0") if n}
        return sorted(ROOT / n for n in names if (ROOT / n).is_file())
    return sorted(p for p in ROOT.rglob("*")
                  if p.is_file() and not p.relative_to(ROOT).parts[0].startswith(("build", ".git")))


def licence_patterns():
    with open(ROOT / "REUSE.toml", "rb") as f:
        return [p for a in tomllib.load(f)["annotations"] for p in a["path"]]


def is_annotated(name, patterns):
    # REUSE lets `**/` stand for no folder at all.
    return any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(name, p.removeprefix("**/")) for p in patterns)


def check_licence(path, name, data, patterns):
    if is_annotated(name, patterns):
        return
    head = data.split(b"\n", LICENCE_LINES)[:LICENCE_LINES]
    if not any(LICENCE.encode() in line for line in head):
        yield f"{name}: none of its first {LICENCE_LINES} lines is '{LICENCE}'"


def check_paths(path, name, data):
    if b"\0" in data:
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if MACHINE_PATH.search(line):
            yield f"{name}:{number}: names a path of one machine"


def is_formatted(*paths):
    return subprocess.run(["clang-format-19", "--dry-run", "--Werror", *map(str, paths)], capture_output=True).returncode == 0


def check_format(paths):
    # To start it for each file takes ten times as long as all of them take.
    if not paths or is_formatted(*paths):
        return []
    return [f"{path.relative_to(ROOT)}: not formatted; run ./dev fmt" for path in paths if not is_formatted(path)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix-format", action="store_true", help="format the sources in place instead of checking")
    args = parser.parse_args()

    files = tracked_files()
    sources = [p for p in files if p.suffix in FORMATTED]
    if args.fix_format:
        return subprocess.run(["clang-format-19", "-i", *map(str, sources)]).returncode if sources else 0

    patterns = licence_patterns()
    findings = check_format(sources)
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        data = path.read_bytes()
        findings += check_licence(path, name, data, patterns)
        findings += check_paths(path, name, data)
    print("\n".join(findings) if findings else f"{len(files)} files are in order")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
