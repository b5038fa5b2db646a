# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs programs of an installed LTP, each by its name in LTP's own list of system calls. Every result that a program tells
of is a test: its number in the order in which it is told is its name, for its words have addresses and times in them."""

import fnmatch
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import events

SECONDS = 100  # LTP ends its programs after 30, twice that here, or what they ask for
RESULT = re.compile(r"^(?:\S+\.[ch]:\d+: |\S+ +\d+ +)(TPASS|TFAIL|TBROK|TWARN|TCONF)(?: +)?:\s+(.*)$", re.MULTILINE)
VERDICTS = {"TPASS": events.PASS, "TFAIL": events.FAIL, "TBROK": events.FAIL, "TWARN": events.FAIL, "TCONF": events.SKIP}
SKIPPED = 32  # TCONF, as a status
TOO_LONG = "Test timeouted"  # what LTP says of a program that it ends


def commands(root, patterns):
    """name -> command, in the order of the list."""
    found = {}
    for line in (root / "runtest" / "syscalls").read_text().splitlines():
        name, _, command = line.partition(" ")
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            found[name] = shlex.split(command)
    return found


def run(command, folder):
    """The verdict on the program, what is said of it, and its results."""
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", start_new_session=True)
    try:
        said = process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return events.HANG, process.communicate()[0], []
    results = RESULT.findall(said)
    if process.returncode < 0:
        return events.CRASH, f"signal {-process.returncode}: {said}", results
    if TOO_LONG in said:
        return events.HANG, said, results
    verdict = {0: events.PASS, SKIPPED: events.SKIP}.get(process.returncode, events.FAIL)
    # A program of which nothing was heard has tested nothing.
    return verdict if results else events.FAIL, said, results


def main():
    listed, piece = events.Events(os.environ["BOARD_EVENTS"]), os.environ["BOARD_PIECE"]
    options, left_out = json.loads(os.environ["BOARD_OPTIONS"]), json.loads(os.environ["BOARD_LEAVE_OUT"])
    root, folder = pathlib.Path(os.environ["BOARD_SOURCES"]), pathlib.Path(os.environ["BOARD_FOLDER"])
    os.environ |= {"LTPROOT": str(root), "TMPDIR": str(folder), "LTP_COLORIZE_OUTPUT": "0", "LTP_TIMEOUT_MUL": "2",
                   "KCONFIG_SKIP_CHECK": "1",  # the kernel's configuration is not everywhere to be read
                   "PATH": f"{root / 'testcases' / 'bin'}:{os.environ['PATH']}"}
    # accept02 joins a group, and there is no other device than the loopback.
    subprocess.run(["ip", "route", "add", "224.0.0.0/4", "dev", "lo"], stderr=subprocess.DEVNULL)
    for name, command in commands(root, options[piece]).items():
        if name in listed.begun or any(fnmatch.fnmatch(name, pattern) for pattern in left_out):
            continue
        listed.start(name)
        verdict, said, results = run(command, folder)
        for number, (word, detail) in enumerate(results, 1):
            listed.end(f"{name} {number}", VERDICTS[word], f"{word}: {detail}")
        listed.end(name, verdict, "" if verdict == events.PASS else said)
        if verdict not in (events.PASS, events.SKIP):
            print(f"--- {name}: {verdict}\n{said[-3000:]}", flush=True)


if __name__ == "__main__":
    main()
